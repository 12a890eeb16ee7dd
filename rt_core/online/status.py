"""Status of each parameter: whether the data support its value, and if not, why."""

from typing import NamedTuple

import numpy as np

from rt_core.identification.status import RELATIVE_STD_LIMIT, TORQUE_EFFECT_LIMIT
from rt_core.model.base import BaseParameters
from rt_core.model.friction import LAW_OFFSET, LAW_VISCOUS, Friction
from rt_core.online import _state as m
from rt_core.online._state import EstimatorState
from rt_core.online.monitors.temperatures import JointTemperatures
from rt_core.online.report import EstimateStatus
from rt_core.types import BoolArray, FloatArray, IntArray

STATUS: tuple[EstimateStatus, ...] = ("estimated", "stale", "frozen", "unestimated", "invalid", "doubted", "starved")
STATUSES_WITH_VALUE = 3  # the first three statuses are of usable values

#: A parameter is excited if, by the last few seconds alone, one standard deviation of it moves the torque by at most
#: this many times the noise.
EXCITED_LIMIT = 2.0
#: Frozen: no joint has moved for this long [s].
FROZEN_S = 2.0
#: The model does not explain a joint whose mean squared innovation exceeds this share of its mean squared torque.
_UNEXPLAINED = 0.5


def supported(theta: FloatArray, std: FloatArray, effect: FloatArray) -> BoolArray:
    """Return (p,) whether the data support each value, as in the batch verdicts.

    Its standard deviation is a small share of the value, or its `effect` on the torque is below the noise.
    """
    return np.asarray((std <= RELATIVE_STD_LIMIT * np.abs(theta)) | (effect <= TORQUE_EFFECT_LIMIT))


class Support(NamedTuple):
    """What supports the values, beside the state."""

    known: BoolArray  # (p,) see `supported`
    stale: BoolArray  # (p,) not excited for long
    frozen: bool  # no joint has moved for long
    doubted: bool  # all values
    shaped: BoolArray  # (n,) joints that have forgotten fast, and have not been confirmed since
    starved: bool  # frames come, and none can be learned from


def judge(
    state: EstimatorState, base: BaseParameters, friction: Friction, warmth: JointTemperatures, support: Support
) -> IntArray:
    """Return indices (p,) into `STATUS`.

    Doubted are all, or those of a joint whose innovations make it forget fast, or have done so.
    """
    layout, (known, stale, frozen, doubted, shaped, starved) = base.layout, support
    with np.errstate(invalid="ignore", divide="ignore"):
        unexplained = state["innovation2"] > _UNEXPLAINED * state["torque2"]
    unexplained &= state["moved"] >= state["scalars"][m.SETTLE_ROWS]
    status = np.full(known.size, STATUS.index("frozen")) if frozen else stale.astype(np.int64)
    status[~known | _lacks_constants(base, friction) | warmth.unseen(layout)] = STATUS.index("unestimated")
    touches = state["touches"] > 0.0
    if starved:
        status[status < STATUSES_WITH_VALUE] = STATUS.index("starved")
    # an arm that stops at once shows an excess that is none of the parameters
    doubtful = doubted | (touches & (shaped | (state["excess"] > 0.0)) & (not frozen)).any(axis=1)
    status[doubtful & (status < STATUSES_WITH_VALUE)] = STATUS.index("doubted")
    status[(touches & unexplained).any(axis=1) | ~np.isfinite(state["theta"])] = STATUS.index("invalid")
    if layout.has_temperature:
        status[_of_friction(base) & warmth.lacking[layout.joint]] = STATUS.index("invalid")
    return status


def _lacks_constants(base: BaseParameters, friction: Friction) -> BoolArray:
    """Return (p,) which columns are friction of a joint with an unknown velocity constant.

    Without its shaped terms the others absorb their effect: the torque is predicted, but the values are not those of
    the named parameters.
    """
    layout = base.layout
    unknown = np.isin(layout.law, friction.shaped) & (layout.shape[:, 0] == 0.0)
    return np.asarray(_of_friction(base) & np.isin(layout.source, layout.source[unknown]))


def _of_friction(base: BaseParameters) -> BoolArray:
    """Return (p,) which columns are friction."""
    law = base.layout.law
    return np.asarray((law >= LAW_VISCOUS) & (law != LAW_OFFSET))
