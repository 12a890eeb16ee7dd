"""Online estimation of an elastic joint: spring and friction from frames, with a forgetting factor that varies."""

from rt_core.online.elastic._errors import DeflectionErrors
from rt_core.online.elastic._report import ElasticEstimate
from rt_core.online.elastic._settings import ElasticOnlineSettings
from rt_core.online.elastic.estimator import ElasticJointEstimator
from rt_core.online.elastic.history import ElasticHistory, follow

__all__ = [
    "DeflectionErrors",
    "ElasticEstimate",
    "ElasticHistory",
    "ElasticJointEstimator",
    "ElasticOnlineSettings",
    "follow",
]
