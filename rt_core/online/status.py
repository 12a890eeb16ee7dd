"""Which parameters the data support at present, and why the others are not to be believed."""

from __future__ import annotations

import numpy as np

from rt_core.identification.status import RELATIVE_STD_LIMIT, TORQUE_EFFECT_LIMIT
from rt_core.model.base import BaseParameters
from rt_core.model.friction import LAW_OFFSET, LAW_VISCOUS, Friction
from rt_core.online import _state as m
from rt_core.online._state import Memory
from rt_core.online.monitors.temperatures import JointTemperatures
from rt_core.online.report import EstimateStatus
from rt_core.types import BoolArray, FloatArray, IntArray

STATUS: tuple[EstimateStatus, ...] = ("estimated", "stale", "frozen", "unestimated", "invalid")
BELIEVED = 3  # the first three of them

#: What the last few seconds alone would determine moves the torque by at most this many times the noise if it is wrong
#: by its standard deviation.
EXCITED_LIMIT = 2.0
#: Frozen: no joint has moved for this long [s].
FROZEN_S = 2.0
#: A joint whose mean squared innovation exceeds this share of its torque's is not explained by the model.
_UNEXPLAINED = 0.5


def supported(theta: FloatArray, std: FloatArray, effect: FloatArray) -> BoolArray:
    """(p,) which values the data support, as in the batch verdicts.

    The standard deviation is a small share of the value, or its `effect` on the torque is below the noise.
    """
    return np.asarray((std <= RELATIVE_STD_LIMIT * np.abs(theta)) | (effect <= TORQUE_EFFECT_LIMIT))


def judge(
    memory: Memory,
    base: BaseParameters,
    friction: Friction,
    warmth: JointTemperatures,
    known: BoolArray,
    *,
    stale: BoolArray,
    frozen: bool,
) -> IntArray:
    """(p,) places in `STATUS` of parameters of which those `known` are supported and those `stale` long unseen."""
    layout = base.layout
    with np.errstate(invalid="ignore", divide="ignore"):
        unexplained = memory["innovation2"] > _UNEXPLAINED * memory["torque2"]
    unexplained &= memory["moved"] >= memory["scalars"][m.SETTLE_ROWS]
    status = np.full(known.size, STATUS.index("frozen")) if frozen else stale.astype(np.int64)
    status[~known | _lacks_constants(base, friction) | warmth.unseen(layout)] = STATUS.index("unestimated")
    touches = memory["touches"] > 0.0
    status[(touches & unexplained).any(axis=1) | ~np.isfinite(memory["theta"])] = STATUS.index("invalid")
    if layout.has_temperature:
        status[_of_friction(base) & warmth.lacking[layout.joint]] = STATUS.index("invalid")
    return status


def _lacks_constants(base: BaseParameters, friction: Friction) -> BoolArray:
    """(p,) which columns are friction of a joint with an unknown velocity constant.

    Without its shaped terms the others take up what those would explain: a torque that predicts, but values that
    are not those of the names.
    """
    layout = base.layout
    unknown = np.isin(layout.law, friction.shaped) & (layout.shape[:, 0] == 0.0)
    return np.asarray(_of_friction(base) & np.isin(layout.source, layout.source[unknown]))


def _of_friction(base: BaseParameters) -> BoolArray:
    """(p,) columns of friction."""
    law = base.layout.law
    return np.asarray((law >= LAW_VISCOUS) & (law != LAW_OFFSET))
