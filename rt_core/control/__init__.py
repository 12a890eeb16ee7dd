"""Control from an identified model: an arm that can be guided by hand."""

from rt_core.control.guiding_model import GuidingModel
from rt_core.control.settings import ZeroForceSettings
from rt_core.control.zero_force import GuidingState, Sample, ZeroForceController, ZeroForceStatus

__all__ = ["GuidingModel", "GuidingState", "Sample", "ZeroForceController", "ZeroForceSettings", "ZeroForceStatus"]
