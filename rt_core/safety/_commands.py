"""Checks of set positions, ahead of a motion and in each cycle, the approach to a trajectory, and the stop.

Positions are commands, one a cycle of `period_s`.  Their velocity and acceleration are first and second differences of
the commands, because that is the motion that drives follow.
"""

import numpy as np

from rt_core.safety._limits import Quantity, SafetyLimits, Violation
from rt_core.types import FloatArray

#: Rounding in a comparison with a limit, as a share of it.
_ROUNDING = 1e-6
#: Acceleration, as a multiple of the limit, that is reported as a jump of the position.
_JUMP = 20.0
#: Step of a table, as a multiple of the distance at the velocity limit, that is reported as a jump.
_LEAP = 2.0
#: Largest speed and acceleration of `10 x^3 - 15 x^4 + 6 x^5` over the unit interval.
_PEAK_SPEED = 1.875
_PEAK_ACCELERATION = 10.0 / np.sqrt(3.0)


def brake(limits: SafetyLimits, period_s: float, q: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the next command and its velocity, (n,) each, of a stop from the command `q` with the velocity `v`.

    Each joint's speed decreases by its acceleration limit times the cycle until it is zero.
    """
    slower = np.sign(v) * np.maximum(np.abs(v) - limits.acceleration * period_s, 0.0)
    return q + slower * period_s, slower


def stopping_distance(limits: SafetyLimits, period_s: float, v: FloatArray) -> FloatArray:
    """Return the signed distance (..., n) of `brake` from velocities `v` (..., n) to rest, exact in whole cycles."""
    step = limits.acceleration * period_s
    speed = np.abs(v)
    cycles = np.floor(speed / step)
    return np.asarray(np.sign(v) * period_s * cycles * (speed - 0.5 * step * (cycles + 1.0)))


def check_commands(
    limits: SafetyLimits, period_s: float, path: FloatArray, at_s: float | None = None
) -> Violation | None:
    """Check commands: finite, within position, velocity and acceleration limits, with room to stop.

    `path` (N + 2, n) holds the two commands before the N that are checked.  `at_s` is the time of the first of these,
    for the message.  Returns the first violation in time, or None.
    """
    step = limits.velocity * period_s
    dq = np.diff(path, axis=0)  # (N + 1, n)
    v, a = dq[1:] / period_s, np.diff(dq, axis=0) / period_s**2
    q = path[2:]
    rest = q + limits.blind_s * v + stopping_distance(limits, period_s, v)
    reach = _ROUNDING * (limits.upper - limits.lower)
    low, high = limits.lower - reach, limits.upper + reach
    # Second differences amplify the rounding of the positions, which matters if cycles are very short.
    most = (1.0 + _ROUNDING) * limits.acceleration + 16.0 * np.finfo(np.float64).eps * (1.0 + np.abs(q)) / period_s**2
    good = (q >= low) & (q <= high) & (rest >= low) & (rest <= high)
    good &= (np.abs(v) <= (1.0 + _ROUNDING) * limits.velocity) & (np.abs(a) <= most)
    if good.all():
        return None
    row, joint = (int(k) for k in np.argwhere(~good)[0])
    when = None if at_s is None else at_s + row * period_s
    here, way, end = float(q[row, joint]), abs(float(dq[row + 1, joint])), float(rest[row, joint])

    def found(what: Quantity, reached: float, allowed: float) -> Violation:
        return limits.violation(what, joint, reached, allowed, when)

    if not np.isfinite(path[row : row + 3, joint]).all():
        return found("value", here, np.nan)
    if way > step[joint] and abs(a[row, joint]) > _JUMP * limits.acceleration[joint]:
        return found("jump", way, step[joint])
    if not low[joint] <= here <= high[joint]:
        return check_positions(limits, period_s, q[row : row + 1], when)
    if way > (1.0 + _ROUNDING) * step[joint]:
        return found("velocity", way / period_s, limits.velocity[joint])
    if abs(a[row, joint]) > most[row, joint]:
        return found("acceleration", abs(a[row, joint]), limits.acceleration[joint])
    return found("room to stop", end, (limits.lower if end < low[joint] else limits.upper)[joint])


def check_positions(
    limits: SafetyLimits, period_s: float, q: FloatArray, at_s: float | None = None
) -> Violation | None:
    """Check positions `q` (N, n) alone: finite and within limits; `at_s` is the time of the first.

    For a whole trajectory this gives a clearer message than the lack of room to stop before it.
    """
    reach = _ROUNDING * (limits.upper - limits.lower)
    low, high = limits.lower - reach, limits.upper + reach
    good = (q >= low) & (q <= high)
    if good.all():
        return None
    row, joint = (int(k) for k in np.argwhere(~good)[0])
    here = float(q[row, joint])
    when = None if at_s is None else at_s + row * period_s
    if not np.isfinite(here):
        return limits.violation("value", joint, here, np.nan, when)
    return limits.violation("position", joint, here, (limits.lower if here < low[joint] else limits.upper)[joint], when)


def check_steps(limits: SafetyLimits, step_s: float, q: FloatArray) -> Violation | None:
    """Check the rows `q` (N, n) of a table, `step_s` apart: no step is larger than `_LEAP` allows.

    A smooth path between rows so far apart would not be the intended one; `check_path` finds smaller excess.
    """
    way, most = np.abs(np.diff(q, axis=0)), limits.velocity * step_s
    good = way <= _LEAP * most
    if good.all():
        return None
    row, joint = (int(k) for k in np.argwhere(~good)[0])
    return limits.violation("jump", joint, way[row, joint], most[joint], (row + 1) * step_s)


def check_path(
    limits: SafetyLimits, period_s: float, q: FloatArray, first: int = 0, last: int | None = None, from_s: float = 0.0
) -> Violation | None:
    """Check the rows `first` to `last` of a path `q` (N, n) that comes from rest and ends at rest.

    One row a cycle; the first is the present position, and the arm stays at the last.  A long path may be checked slice
    by slice; `last` is exclusive, None is the end.  `from_s` is the time of the first row, for the message.
    """
    count = len(q)
    last = count if last is None else min(last, count)
    rows = np.clip(np.arange(first - 2, last + (last == count)), 0, count - 1)
    found = check_commands(limits, period_s, q[rows], first * period_s)
    if found is None or found.at_s is None:
        return None
    row, joint = round(found.at_s / period_s), limits.joints.index(found.joint)
    if found.what in ("velocity", "acceleration") and row in (1, count):  # not at rest there
        v = (q[1] - q[0] if row == 1 else q[-1] - q[-2])[joint] / period_s
        return limits.violation("start" if row == 1 else "end", joint, abs(v), limits.acceleration[joint] * period_s)
    return limits.violation(found.what, joint, found.reached, found.allowed, from_s + min(row, count - 1) * period_s)


def check_closed(limits: SafetyLimits, period_s: float, q: FloatArray) -> Violation | None:
    """Check that the period `q` (N, n) can repeat, with its last row equal to its first."""
    gap, most = np.abs(q[-1] - q[0]), limits.velocity * period_s
    if not (gap <= most).all():
        joint = int(np.argmax(~(gap <= most)))
        return limits.violation("closing", joint, gap[joint], most[joint])
    return check_commands(limits, period_s, q[np.array([-2, -1, 1, 2])], len(q) * period_s)


def check_torque(limits: SafetyLimits, period_s: float, tau: FloatArray, at_s: float = 0.0) -> Violation | None:
    """Check the predicted torques `tau` (N, n) of a trajectory from `at_s` on."""
    good = np.abs(tau) <= limits.effort
    if good.all():
        return None
    row, joint = (int(k) for k in np.argwhere(~good)[0])
    reached = abs(float(tau[row, joint]))
    what: Quantity = "torque" if np.isfinite(reached) else "value"
    return limits.violation(what, joint, reached, limits.effort[joint], at_s + row * period_s)


class Approach:
    """Motion from rest at `start` (n,) to rest at `goal` (n,), all joints along `10 x^3 - 15 x^4 + 6 x^5`.

    It takes `duration_s`, the same time for all: at least `least_s`, and so long that `share` of the velocity and
    acceleration limits is not exceeded.
    """

    def __init__(self, limits: SafetyLimits, start: FloatArray, goal: FloatArray, share: float, least_s: float) -> None:
        self._start, self._goal = start.copy(), goal.copy()
        way = np.abs(goal - start)
        speed = _PEAK_SPEED * way / (share * limits.velocity)
        acceleration = np.sqrt(_PEAK_ACCELERATION * way / (share * limits.acceleration))
        self.duration_s = max(least_s, float(speed.max()), float(acceleration.max()))

    def at(self, t: float | FloatArray) -> FloatArray:
        """Return the position at `t` [s]: (n,) for a scalar, (N, n) for an array (N,)."""
        x = np.clip(np.asarray(t, dtype=np.float64)[..., None] / self.duration_s, 0.0, 1.0)
        share = x**3 * (10.0 + x * (6.0 * x - 15.0))
        return np.where(x < 1.0, self._start + (self._goal - self._start) * share, self._goal)
