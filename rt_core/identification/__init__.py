"""Identification of a rigid arm from recordings.

Start with `identify`: prepared signals in, a model with a verdict out.  The data pass these modules in order:

- `preprocess` turns channels into uniform filtered signals (`periods` averages a repeated motion first), and `rows`
  builds the filtered rows of the regression.
- `estimate` applies one estimator of `methods`: `least_squares`, `robust`, `total_least_squares`, `instrumental`,
  `essential`, the packages `nonlinear` (velocity constants of friction) and `physical` (links that can be real bodies).
- `uncertainty` gives the covariance, `status` and `joint_verdict` state what the data determine.
- `diagnostics` tests for errors of the data and the robot file, and widens the intervals by model error.

`payload` identifies a load at the flange, `friction_curve` the friction of a joint over its velocity, `temperature` the
temperatures that a fit is based on, `model_comparison` compares two models, and `spectrum` shows the residuals.
"""

__all__ = [
    "diagnostics", "essential", "estimate", "friction_curve", "identify", "instrumental", "joint_verdict",
    "least_squares", "methods", "model_comparison", "nonlinear", "payload", "periods", "physical", "preprocess",
    "robust", "rows", "spectrum", "status", "temperature", "total_least_squares", "uncertainty",
]  # fmt: skip
