"""Latest filtered sample of an estimator, and the torque that an estimate predicts for joints at rest in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rt_core.model.base import BaseParameters, link_torque
from rt_core.model.friction import REFERENCE_TEMPERATURE
from rt_core.model.regressor import regressor
from rt_core.model.robot import RobotModel
from rt_core.online import _state as m
from rt_core.online.monitors.stuck_encoder import StationaryTorque
from rt_core.online.rls.information_matrix import triangle_inverse
from rt_core.types import BoolArray, FloatArray

#: Largest ratio of static friction to sliding friction at `_SLOW`.
_STICTION = 3.0
_SLOW = 0.1  # [rad/s or m/s]
_SURE = 4.0  # standard deviations of the estimate
_NOISE = 8.0  # standard deviations of a row
_STRUCTURE = 0.15  # share of a joint's usual torque that a model does not explain


@dataclass(frozen=True)
class LatestSample:
    """Filtered joint signals (n,) at one instant [rad or m, per s, per s^2; N*m or N].

    `load` (1, n) is that of load-dependent friction, `temperature` (1, n) [degC] None unless friction depends on it.
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
        """Return the base regressor (n, p); `dq` and `ddq` (n,) replace the measured motion."""
        moving = (self.dq if dq is None else dq)[None], (self.ddq if ddq is None else ddq)[None]
        rows = regressor(model, base.layout, self.q[None], *moving, load=self.load, temperature=self.temperature)
        return np.asarray(rows[0])


def filtered_torque(state: m.EstimatorState, n: int, smooth: FloatArray) -> FloatArray | None:
    """Return the torque (n,) [N*m or N] of the latest sample; None until the filters are full."""
    if state.ints[m.SAMPLES] == 0:
        return None
    at = int(state.ints[m.RING_AT])
    return np.asarray(state["ring"][n : 2 * n, at : at + smooth.size] @ smooth)


def latest_sample(
    state: m.EstimatorState, model: RobotModel, base: BaseParameters, smooth: FloatArray, *, warm: bool
) -> LatestSample | None:
    """Return the latest sample, with temperatures where `warm`; None until the filters are full."""
    tau = filtered_torque(state, model.n, smooth)
    if tau is None:
        return None
    lane = int(state.ints[m.LAST_LANE])
    q, dq, ddq = (state["state"][k, :, lane].copy() for k in range(3))
    moving = q[None], dq[None], ddq[None]
    load = link_torque(model, base, state["load_theta"], *moving) if base.layout.has_load else None
    temperature = state["state"][4:, :, lane] + REFERENCE_TEMPERATURE if warm else None
    return LatestSample(q, dq, ddq, tau, load, temperature)


def stationary_torque(
    model: RobotModel, base: BaseParameters, theta: FloatArray, root: FloatArray, latest: LatestSample,
    rests: BoolArray, sigma: FloatArray, usual: FloatArray, known: BoolArray,
) -> StationaryTorque:  # fmt: skip
    """Return the torque residuals of the `latest` sample with the joints `rests` (n,) taken as standing.

    `theta` (p,) is the estimate and `root` (p, p) the upper triangle `R` with `R'R` its information, `sigma` (n,) the
    noise of its rows and `usual` (n,) the root mean square of the torque.  Joints that are not `known` have an infinite
    limit.
    """
    # velocity and acceleration are set to zero: they may come from another sensor than the position
    Y = latest.rows(model, base, np.where(rests, 0.0, latest.dq), np.where(rests, 0.0, latest.ddq))
    still, slow = np.zeros(model.n), np.full(model.n, _SLOW)
    # terms in the square of the speed cancel
    forth, back = (latest.rows(model, base, v, still) @ theta for v in (slow, -slow))
    std = np.linalg.norm(Y @ triangle_inverse(root), axis=1)
    friction = 0.5 * np.abs(forth - back)
    limit = _STICTION * friction + _SURE * std + _NOISE * sigma + _STRUCTURE * usual
    return StationaryTorque(
        latest.tau - Y @ theta, np.where(known, limit, np.inf), _NOISE * sigma + 0.1 * _STRUCTURE * usual
    )
