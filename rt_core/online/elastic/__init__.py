"""Online estimation of an elastic joint: spring and friction from frames, with a forgetting factor that varies."""

from rt_core.online.elastic.errors import DeflectionErrors
from rt_core.online.elastic.estimator import ElasticJointEstimator
from rt_core.online.elastic.history import ElasticHistory, follow
from rt_core.online.elastic.report import ElasticEstimate
from rt_core.online.elastic.settings import ElasticOnlineSettings

__all__ = [
    "DeflectionErrors",
    "ElasticEstimate",
    "ElasticHistory",
    "ElasticJointEstimator",
    "ElasticOnlineSettings",
    "follow",
]
