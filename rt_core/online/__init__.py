"""Estimation while the robot moves: filters, forgetting least squares, excitation gate."""

from rt_core.online._settings import OnlineSettings
from rt_core.online.estimator import OnlineEstimator
from rt_core.online.report import EstimateReport

__all__ = ["EstimateReport", "OnlineEstimator", "OnlineSettings"]
