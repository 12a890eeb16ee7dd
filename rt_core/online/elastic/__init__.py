"""Online estimation of an elastic joint: spring and friction from frames of both encoders and torques.

Start with `estimator`: `ElasticJointEstimator` takes frames and reports an `ElasticEstimate`.  Frames pass `_stream`
(filters, rows) and `update` (variable forgetting, square-root update, noise) on arrays laid out in `_layout`;
`_evidence` separates the information of the rows from that of the initial values.
`history` samples the estimate over a recording.
"""

from rt_core.online.elastic._interface import Deflection, DeflectionErrors, ElasticEstimate, ElasticOnlineSettings
from rt_core.online.elastic.estimator import ElasticJointEstimator
from rt_core.online.elastic.history import ElasticHistory, follow

__all__ = [
    "Deflection", "DeflectionErrors", "ElasticEstimate", "ElasticHistory", "ElasticJointEstimator",
    "ElasticOnlineSettings", "estimator", "follow", "history", "update",
]  # fmt: skip
