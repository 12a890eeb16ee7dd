"""Commands that make, check and compare models.

Where to start: `identify` fits a model to recordings, with rigid joints or elastic ones; `_identify_elastic` is of one
or several elastic joints alone. `validate` predicts a recording's torque, `payload` finds a payload, `compare` runs all
estimators on simulated truth.

`models` finds, shows, exports and promotes models, with `_model_text` to print them; `robots` lists, checks and shows
robot files.
"""

__all__ = ["compare", "identify", "models", "payload", "robots", "validate"]
