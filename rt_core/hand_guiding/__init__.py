"""Control from an identified model: an arm that can be guided by hand."""

from rt_core.hand_guiding._settings import ZeroForceSettings
from rt_core.hand_guiding._zero_force import GuidingState, Sample, ZeroForceController, ZeroForceStatus
from rt_core.hand_guiding.model import GuidingModel

__all__ = ["GuidingModel", "GuidingState", "Sample", "ZeroForceController", "ZeroForceSettings", "ZeroForceStatus"]
