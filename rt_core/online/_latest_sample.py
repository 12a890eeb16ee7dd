"""The newest filtered sample of an estimator: state of the joints, torque, and what a regressor needs beside them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rt_core.model.base import BaseParameters, link_torque
from rt_core.model.friction import REFERENCE_TEMPERATURE
from rt_core.model.regressor import regressor
from rt_core.model.robot import RobotModel
from rt_core.online import _state as m
from rt_core.types import FloatArray


@dataclass(frozen=True)
class NewestSample:
    """Joints at one moment, filtered.

    Attributes
    ----------
    q, dq, ddq : (n,) float64
        Position, velocity and acceleration [rad or m, per s, per s^2].
    tau : (n,) float64
        Torque [N*m or N].
    load : (1, n) float64 or None
        Load of load-dependent friction.
    temperature : (1, n) float64 or None
        [degC], where friction follows it.
    """

    q: FloatArray
    dq: FloatArray
    ddq: FloatArray
    tau: FloatArray
    load: FloatArray | None
    temperature: FloatArray | None

    def rows(
        self, model: RobotModel, base: BaseParameters, dq: FloatArray | None = None, ddq: FloatArray | None = None
    ) -> FloatArray:
        """Return the base regressor (n, p); with `dq` and `ddq` (n,) as if the joints moved so."""
        moving = (self.dq if dq is None else dq)[None], (self.ddq if ddq is None else ddq)[None]
        rows = regressor(model, base.layout, self.q[None], *moving, load=self.load, temperature=self.temperature)
        return np.asarray(rows[0])


def filtered_torque(memory: m.Memory, n: int, smooth: FloatArray) -> FloatArray | None:
    """Torque (n,) [N*m or N] of the newest sample by the filter `smooth`; None until the filters are full."""
    if memory.ints[m.SAMPLES] == 0:
        return None
    at = int(memory.ints[m.RING_AT])
    return np.asarray(memory["ring"][n : 2 * n, at : at + smooth.size] @ smooth)


def newest_sample(
    memory: m.Memory, model: RobotModel, base: BaseParameters, smooth: FloatArray, *, warm: bool
) -> NewestSample | None:
    """Return the newest sample, with temperatures where `warm`; None until the filters are full."""
    tau = filtered_torque(memory, model.n, smooth)
    if tau is None:
        return None
    lane = int(memory.ints[m.LAST_LANE])
    q, dq, ddq = (memory["state"][k, :, lane].copy() for k in range(3))
    moving = q[None], dq[None], ddq[None]
    load = link_torque(model, base, memory["load_theta"], *moving) if base.layout.has_load else None
    temperature = memory["state"][4:, :, lane] + REFERENCE_TEMPERATURE if warm else None
    return NewestSample(q, dq, ddq, tau, load, temperature)
