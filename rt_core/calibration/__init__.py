"""Kinematic calibration: geometric errors of an arm from measured positions or poses of its tool.

Start with `calibrate`: it fits an `error_model` of a nominal `geometry` to a `sample` of postures and measurements, by
`settings`, and returns a `result`.  On the way `input_checks` check the data, `frames` finds base and tool, `fit`
minimises, `identifiability` decides which parameters the poses determine, and `uncertainty` gives their covariance.

- `planning` proposes poses to measure, `selection` the most informative of many.
- `compensation` finds joint commands for the calibrated arm, `prediction` the uncertainty of its tool, `checking` its
  errors on another table; `repeats` tells distinct postures, `doubts` what does not belong to the arm.
- `elements` builds the chain of an error model; `cell` combines several arms measured by one instrument.
"""

__all__ = [
    "calibrate", "cell", "checking", "compensation", "doubts", "elements", "error_model", "fit", "frames", "geometry",
    "identifiability", "input_checks", "planning", "prediction", "repeats", "result", "sample", "selection", "settings",
    "uncertainty",
]  # fmt: skip
