"""Hand guiding: zero-force control of an arm in torque mode from an identified model.

`ZeroForceController` returns the torque for each sample; start reading there (`_zero_force`, the states of a session).
One cycle is the kernel `_cycle`, with `_checks` for samples and findings; `_limits` derives limits and gains from
`ZeroForceSettings`.  `model` turns an identified model into the arrays of `GuidingModel`, and `rows` names the rows and
columns of all arrays.
"""

from rt_core.hand_guiding._zero_force import GuidingState, Sample, ZeroForceController, ZeroForceStatus
from rt_core.hand_guiding.model import GuidingModel
from rt_core.settings import ZeroForceSettings

__all__ = [
    "GuidingModel", "GuidingState", "Sample", "ZeroForceController", "ZeroForceSettings", "ZeroForceStatus", "model",
    "rows",
]  # fmt: skip
