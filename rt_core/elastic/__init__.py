"""Identification of elastic (harmonic-drive) joints from motor and link encoders.

One joint: `rows` filters and aligns its channels, `problem` states its rows as functions of the parameters, `fit` fits
them, `constants` searches the velocity constants of friction, and `identify` judges the result; start there.
`hysteresis` measures the loop that the fit leaves.

A whole arm: `arm` fits rotors to the motion of the motors and links to that of the links, `separability` finds which of
these parameters the data tell apart, and `common_lag` pools the encoder lags of several joints.
"""

__all__ = ["arm", "common_lag", "constants", "fit", "hysteresis", "identify", "problem", "rows", "separability"]
