"""Estimation while the robot moves: filters, forgetting least squares, excitation gate."""

from rt_core.online.estimator import EstimateReport, OnlineEstimator
from rt_core.online.settings import OnlineSettings

__all__ = ["EstimateReport", "OnlineEstimator", "OnlineSettings"]
