"""Smooth motion along a path and back, averaged place by place, with its velocity and acceleration."""

from dataclasses import dataclass, fields

import numpy as np

from rt_core.commissioning._hysteresis import passes, turning_time
from rt_core.commissioning.findings import CommissioningError
from rt_core.types import FloatArray

#: Part of the path in use, and share from which its far end is reached.
_FIRST, _LAST, _FAR = 0.02, 0.98, 0.98


@dataclass(frozen=True)
class Return:
    """A motion out and back in bins of its path."""

    place: FloatArray  # (B,) share of the path; places that were not passed both ways are missing
    q: FloatArray  # (B, n) measured position
    dq: FloatArray  # (B, n) velocity of the command on the way out; opposite on the way back
    ddq: FloatArray  # (B, n) acceleration of the command, the same both ways
    level: FloatArray  # (B, n) half sum of the signal over both ways: the part that does not change with the direction


_FIELDS = tuple(field.name for field in fields(Return))


def same_places(a: Return, b: Return) -> tuple[Return, Return]:
    """Keep the common places of two motions along one path."""
    _, first, second = np.intersect1d(a.place, b.place, return_indices=True)
    return (
        Return(*(getattr(a, name)[first] for name in _FIELDS)),
        Return(*(getattr(b, name)[second] for name in _FIELDS)),
    )


def both_ways(
    t: FloatArray, q: FloatArray, signal: FloatArray, start: FloatArray, way: FloatArray, leg_s: float, dwell_s: float,
    bins: int = 20,
) -> Return:  # fmt: skip
    """Find a motion of `profiles.there_and_back` in a recording, and average it place by place.

    Parameters
    ----------
    t : (N,) float64
        Times [s]; nothing after the motion reaches its far end.
    q, signal : (N, n) float64
        Measured positions, and torque or current.
    start, way, leg_s, dwell_s
        As in `there_and_back`.

    Raises
    ------
    CommissioningError
        If the recording does not hold the motion.
    """
    moved = np.abs(way) > 0.0
    if not moved.any():
        raise CommissioningError("no joint moves along the path")
    complete = np.isfinite(q).all(axis=1)
    t, q, signal = t[complete], q[complete], signal[complete]
    if t.size == 0:
        raise CommissioningError("no frame holds a position of all joints")
    share = ((q[:, moved] - start[moved]) / way[moved]).mean(axis=1)
    turn_s = turning_time(t, share, _FAR)
    out_s, back_s = turn_s - 0.5 * dwell_s - leg_s, turn_s + 0.5 * dwell_s
    if out_s < t[0] or back_s + leg_s > t[-1]:
        raise CommissioningError("the recording does not hold the whole way there and back")
    out, back = (t >= out_s) & (t <= out_s + leg_s), (t >= back_s) & (t <= back_s + leg_s)
    x = np.clip(np.where(out, t - out_s, t - back_s) / leg_s, 0.0, 1.0)
    side = np.where(out, 1.0, -1.0)
    speed = side * 30.0 * x**2 * (1.0 - x) ** 2 / leg_s  # derivatives of `profiles.ease`
    acceleration = side * 60.0 * x * (1.0 - x) * (1.0 - 2.0 * x) / leg_s**2
    n = q.shape[1]
    columns = np.hstack((q, signal, speed[:, None], acceleration[:, None]))
    found = passes(share, columns, out, back, _FIRST, _LAST, bins)
    level = found.half_sum
    return Return(
        found.place, level[:, :n], found.half_difference[:, 2 * n : 2 * n + 1] * way, level[:, 2 * n + 1 :] * way,
        level[:, n : 2 * n],
    )  # fmt: skip
