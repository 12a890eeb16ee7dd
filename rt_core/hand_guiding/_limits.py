"""Limits and gains of zero-force control, from its settings and the arm."""

import numpy as np

from rt_core.hand_guiding import rows as c
from rt_core.hand_guiding._checks import COMPARED_S
from rt_core.hand_guiding.model import GuidingModel
from rt_core.settings import ZeroForceSettings
from rt_core.types import FloatArray

_JUMP = 3.0  # largest plausible velocity, in velocity limits
_WALL_TORQUE = 0.5  # of the torque limit, by the wall's spring at the position limit
_WALL_HZ = 8.0  # largest natural frequency of the smallest inertia on that spring
_DISAGREEMENT = 3.0  # largest difference of measured velocity and position, in standstill velocities
_HOLD_TORQUE = 0.5  # of the torque limit, by the spring of the hold
_DELAYED_DAMPING = 0.8  # damping times delay over inertia; it oscillates from 1.0 without, 1.4 with a delay
_OBSERVER_LAG = 0.18  # delay that the velocity observer adds to a damper, over the inverse of its bandwidth


def limits_of(model: GuidingModel, s: ZeroForceSettings, period_s: float) -> FloatArray:
    """Return limits and gains (LIMIT_ROWS, n); raise `ValueError` if one is missing or damping has too much delay."""
    joints, n = model.model.joints, model.n
    rows = np.zeros((c.LIMIT_ROWS, n))
    rows[c.LOWER], rows[c.UPPER] = [j.lower for j in joints], [j.upper for j in joints]
    velocity = np.array([j.velocity for j in joints])
    share = s.speed_share * velocity
    rows[c.SPEED] = np.minimum(_per_joint("speed_limit", s.speed_limit, share, model), share)
    rows[c.TORQUE] = _per_joint(
        "torque_limit", s.torque_limit, s.torque_share * np.array([j.effort for j in joints]), model
    )
    for name, row in (
        ("position limits", c.LOWER),
        ("position limits", c.UPPER),
        ("torque_limit", c.TORQUE),
        ("speed_limit", c.SPEED),
    ):
        missing = [j.name for j, value in zip(joints, rows[row], strict=True) if not np.isfinite(value)]
        if missing:
            raise ValueError(f"zero-force control of {model.model.name} needs {name}, missing for {', '.join(missing)}")
    inertia, pi2 = model.inertia, 2.0 * np.pi
    late = (s.delay_cycles + 0.5) * period_s
    rows[c.MAX_DAMPING] = _DELAYED_DAMPING * inertia / late
    rows[c.MAX_DAMPING + 1] = _DELAYED_DAMPING * inertia / (late + _OBSERVER_LAG / s.observer_hz)
    rows[c.DAMPER], rows[c.BRAKE] = inertia / s.damping_time_s, inertia / s.braking_time_s
    rows[c.HOLD_SPRING] = inertia * (pi2 * s.hold_hz) ** 2
    rows[c.HOLD_DAMPER] = 2.0 * inertia * pi2 * s.hold_hz
    left = rows[c.MAX_DAMPING + 1] - np.maximum(rows[c.DAMPER], rows[c.HOLD_DAMPER])
    if np.any(left <= 0.0):
        time = float((inertia / rows[c.MAX_DAMPING + 1]).max())
        raise ValueError(
            f"a delay of {s.delay_cycles} cycles of {1e3 * period_s:g} ms and a velocity observer of "
            f"{s.observer_hz:g} Hz bound damping: damping_time_s must be above {time:.2g} s and "
            f"hold_hz below {0.5 / (pi2 * time):.2g}"
        )
    rows[c.WALL_WIDTH] = s.wall_share * (rows[c.UPPER] - rows[c.LOWER])
    rows[c.WALL_DAMPER] = np.minimum(left, 2.0 * inertia * pi2 * _WALL_HZ)
    rows[c.WALL_SPRING] = np.minimum(
        _WALL_TORQUE * rows[c.TORQUE] / rows[c.WALL_WIDTH], rows[c.WALL_DAMPER] ** 2 / (4.0 * inertia)
    )
    rows[c.WALL_DAMPER] = 2.0 * np.sqrt(rows[c.WALL_SPRING] * inertia)
    rows[c.TORQUE_RATE] = rows[c.TORQUE] / s.torque_rise_s
    rows[c.HOLD_REACH] = _HOLD_TORQUE * rows[c.TORQUE] / rows[c.HOLD_SPRING]
    kept = 1.0 - s.compensated_share
    margin = kept * model.coordinates[:, c.C_DRY] @ np.abs(model.coordinates[:, c.COORDINATE_WIDTH :])
    rows[c.MARGIN] = np.maximum(margin, s.residual_floor * rows[c.TORQUE])
    rows[c.JUMP] = _JUMP * np.where(np.isfinite(velocity), velocity, rows[c.SPEED] / s.speed_share)
    rows[c.DISAGREEMENT] = _DISAGREEMENT * model.model.standstill_velocity * COMPARED_S
    return rows


def _per_joint(name: str, value: tuple[float, ...] | None, default: FloatArray, model: GuidingModel) -> FloatArray:
    if value is None:
        return default
    if len(value) != model.n:
        raise ValueError(f"{name} has {len(value)} values, {model.model.name} has {model.n} joints")
    return np.array(value)
