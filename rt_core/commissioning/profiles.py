"""Motions of commissioning along a path and back, from rest to rest, as tables of positions."""

import numpy as np

from rt_core.commissioning.findings import CommissioningError
from rt_core.types import FloatArray

#: Largest speed of `ease` over the unit interval.
EASE_PEAK = 1.875


def ease(x: FloatArray) -> FloatArray:
    """`10 x^3 - 15 x^4 + 6 x^5` within the unit interval: from 0 to 1, speed and acceleration zero at both ends."""
    x = np.clip(x, 0.0, 1.0)
    return np.asarray(x**3 * (10.0 - 15.0 * x + 6.0 * x**2))


def there_and_back(start: FloatArray, way: FloatArray, leg_s: float, dwell_s: float, rate_hz: float) -> FloatArray:
    """Return rows (N, n) at `rate_hz`: from `start` (n,) by `way` (n,) and back, with a rest at the far end.

    At the same place the acceleration, and so its torque, is the same both ways.
    """
    t = _times(2.0 * leg_s + dwell_s, rate_hz)
    share = ease(t / leg_s) - ease((t - leg_s - dwell_s) / leg_s)
    return np.asarray(start + share[:, None] * way)


class Sweep:
    """Timing of a path at constant speed and, after a rest, back at the same speed.

    Parameters
    ----------
    constant_s, ramp_s, dwell_s : float
        Time at constant speed each way, of each ramp from and to rest, and of the rest at the far end.

    Raises
    ------
    CommissioningError
        If a time is not above 0.
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
        """Time out and back."""
        return 2.0 * self.leg_s + self.dwell_s

    @property
    def reach_s(self) -> float:
        """Length of the path over its speed."""
        return self.constant_s + self.ramp_s

    def share(self, t: FloatArray) -> FloatArray:
        """Return the share of the path at `t` (N,) [s]: 0 at both ends of the motion, 1 at the far end."""
        return np.asarray(self._leg(t) - self._leg(t - self.leg_s - self.dwell_s))

    def rows(self, start: FloatArray, end: FloatArray, rate_hz: float) -> FloatArray:
        """Return positions (N, n) at `rate_hz` from `start` (n,) to `end` (n,) and back."""
        return np.asarray(start + self.share(_times(self.duration_s, rate_hz))[:, None] * (end - start))

    def windows(self, turn_s: float, margin_s: float) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the times of constant speed out and back, less a margin, for a rest at the far end about `turn_s`.

        Raises `CommissioningError` if the margins leave nothing.
        """
        if 2.0 * margin_s >= self.constant_s:
            raise CommissioningError(f"margins of {margin_s:g} s leave nothing of {self.constant_s:g} s")
        first = 0.5 * self.dwell_s + self.ramp_s + margin_s
        last = 0.5 * self.dwell_s + self.ramp_s + self.constant_s - margin_s
        return (turn_s - last, turn_s - first), (turn_s + first, turn_s + last)

    def _leg(self, t: FloatArray) -> FloatArray:
        """Return the share of the path on the way out: the speed rises as `3 x^2 - 2 x^3`, stays, and falls alike."""
        first = np.clip(t / self.ramp_s, 0.0, 1.0)
        last = np.clip((t - self.ramp_s - self.constant_s) / self.ramp_s, 0.0, 1.0)
        middle = np.clip(t - self.ramp_s, 0.0, self.constant_s)
        ramps = first**3 - 0.5 * first**4 + last - last**3 + 0.5 * last**4
        return np.asarray((self.ramp_s * ramps + middle) / self.reach_s)


def _times(duration_s: float, rate_hz: float) -> FloatArray:
    """Return equidistant times over `duration_s`."""
    return np.arange(int(np.ceil(duration_s * rate_hz - 1e-6)) + 1) / rate_hz


def aligned(t: FloatArray, q: FloatArray, way: float, leg_s: float, dwell_s: float) -> FloatArray:
    """Return the command (N,) of a `there_and_back`, less its start, aligned with a recording `t` (N,), `q` (N, n).

    For sources without set positions: the recording ends with the motion, and the rest at the far end is that of the
    joint that moves most.
    """
    moved = np.abs(q - np.nanmedian(q[-_AT_END:], axis=0))
    most = moved[:, int(np.argmax(np.nan_to_num(np.nanmax(moved, axis=0))))]
    peak = float(np.nanmax(most))
    there = t[most >= _NEARLY * peak] if peak > 0.0 else t[-1:]
    begin_s = float(0.5 * (there[0] + there[-1])) - leg_s - 0.5 * dwell_s
    since = t - begin_s
    return np.asarray(way * (ease(since / leg_s) - ease((since - leg_s - dwell_s) / leg_s)))


_NEARLY, _AT_END = 0.98, 20
