"""Estimation while the robot moves: recursive least squares on a stream of frames, and monitors of the arm.

The estimator of a rigid arm is `OnlineEstimator`; start reading in `estimator`.  A frame passes `_pipeline` (uniform
grid, `filters`, rows of the regression) and `rls` (forgetting, square-root update, information floor, noise levels),
which work on the two arrays of `_state`.  `report` and `status` describe the result.

- `monitors` compare the estimate and the residual with a model: drift, sudden changes, stuck encoders, temperatures.
- `breakaway` tracks the breakaway friction of each joint by its starts from rest.
- `elastic` is the estimator of a single elastic joint.
"""

from rt_core.online._settings import OnlineSettings
from rt_core.online.estimator import OnlineEstimator
from rt_core.online.report import EstimateReport

__all__ = [
    "EstimateReport", "OnlineEstimator", "OnlineSettings", "breakaway", "elastic", "estimator", "filters",
    "monitors", "report", "rls", "status",
]  # fmt: skip
