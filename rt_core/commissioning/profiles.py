"""Motions of commissioning: along a path and back, from rest to rest, as tables of positions."""

from __future__ import annotations

import numpy as np

from rt_core.commissioning.errors import CommissioningError
from rt_core.types import FloatArray

#: Largest speed of `ease` over the unit interval.
EASE_PEAK = 1.875
#: Largest acceleration of a ramp of `Sweep`, over its speed and its length.
RAMP_PEAK = 1.5


def ease(x: FloatArray) -> FloatArray:
    """`10 x^3 - 15 x^4 + 6 x^5` within the unit interval: from 0 to 1, speed and acceleration zero at both ends."""
    x = np.clip(x, 0.0, 1.0)
    return np.asarray(x**3 * (10.0 - 15.0 * x + 6.0 * x**2))


def there_and_back(start: FloatArray, way: FloatArray, leg_s: float, dwell_s: float, rate_hz: float) -> FloatArray:
    """Rows (N, n), `rate_hz` of them a second: from `start` (n,) by `way` (n,) and back, with a rest at the far end.

    The acceleration is the same at the same place both ways, so its torque is too.
    """
    t = _times(2.0 * leg_s + dwell_s, rate_hz)
    share = ease(t / leg_s) - ease((t - leg_s - dwell_s) / leg_s)
    return np.asarray(start + share[:, None] * way)


class Sweep:
    """Timing of a path that is passed at constant speed and, after a rest, back at the same speed.

    Parameters
    ----------
    constant_s, ramp_s, dwell_s : float
        Time at constant speed each way, of each ramp from and to rest, and of the rest at the far end.

    Raises
    ------
    CommissioningError
        A time that is not above 0.
    """

    def __init__(self, constant_s: float, ramp_s: float, dwell_s: float) -> None:
        if not (constant_s > 0.0 and ramp_s > 0.0 and dwell_s > 0.0):
            raise CommissioningError(f"times of a sweep must be above 0, not {constant_s}, {ramp_s} and {dwell_s} s")
        self.constant_s, self.ramp_s, self.dwell_s = constant_s, ramp_s, dwell_s

    @property
    def leg_s(self) -> float:
        """Time of one way."""
        return self.constant_s + 2.0 * self.ramp_s

    @property
    def duration_s(self) -> float:
        """Time there and back."""
        return 2.0 * self.leg_s + self.dwell_s

    @property
    def reach_s(self) -> float:
        """Length of the path over its speed."""
        return self.constant_s + self.ramp_s

    def share(self, t: FloatArray) -> FloatArray:
        """Share of the path that is behind at `t` (N,) [s]: 0 at both ends of the motion, 1 at the far end."""
        return np.asarray(self._leg(t) - self._leg(t - self.leg_s - self.dwell_s))

    def rows(self, start: FloatArray, end: FloatArray, rate_hz: float) -> FloatArray:
        """Positions (N, n) from `start` (n,) to `end` (n,) and back, `rate_hz` of them a second."""
        return np.asarray(start + self.share(_times(self.duration_s, rate_hz))[:, None] * (end - start))

    def windows(self, turn_s: float, margin_s: float) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the times of constant speed there and back, less a margin, of a turn whose rest is about `turn_s`.

        Raises
        ------
        CommissioningError
            The margins leave nothing.
        """
        if 2.0 * margin_s >= self.constant_s:
            raise CommissioningError(f"margins of {margin_s:g} s leave nothing of {self.constant_s:g} s")
        first = 0.5 * self.dwell_s + self.ramp_s + margin_s
        last = 0.5 * self.dwell_s + self.ramp_s + self.constant_s - margin_s
        return (turn_s - last, turn_s - first), (turn_s + first, turn_s + last)

    def _leg(self, t: FloatArray) -> FloatArray:
        """Share of the path on the way there: the speed rises as `3 x^2 - 2 x^3`, stays, and falls alike."""
        first = np.clip(t / self.ramp_s, 0.0, 1.0)
        last = np.clip((t - self.ramp_s - self.constant_s) / self.ramp_s, 0.0, 1.0)
        middle = np.clip(t - self.ramp_s, 0.0, self.constant_s)
        ramps = first**3 - 0.5 * first**4 + last - last**3 + 0.5 * last**4
        return np.asarray((self.ramp_s * ramps + middle) / self.reach_s)


def _times(duration_s: float, rate_hz: float) -> FloatArray:
    """Equidistant times that hold `duration_s`."""
    return np.arange(int(np.ceil(duration_s * rate_hz - 1e-6)) + 1) / rate_hz


def aligned(t: FloatArray, q: FloatArray, way: float, leg_s: float, dwell_s: float) -> FloatArray:
    """Command (N,) of a `there_and_back` less its start, laid over a recording `t` (N,), `q` (N, n) that ends with it.

    For sources that do not tell their set positions: the rest at the far end is that of the joint that moves most.
    """
    moved = np.abs(q - np.nanmedian(q[-_AT_END:], axis=0))
    most = moved[:, int(np.argmax(np.nan_to_num(np.nanmax(moved, axis=0))))]
    peak = float(np.nanmax(most))
    there = t[most >= _NEARLY * peak] if peak > 0.0 else t[-1:]
    begin_s = float(0.5 * (there[0] + there[-1])) - leg_s - 0.5 * dwell_s
    since = t - begin_s
    return np.asarray(way * (ease(since / leg_s) - ease((since - leg_s - dwell_s) / leg_s)))


_NEARLY, _AT_END = 0.98, 20
