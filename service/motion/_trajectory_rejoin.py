"""Return to a trajectory after drives have extrapolated over lost frames."""

from __future__ import annotations

import numpy as np

from rt_core.types import FloatArray

#: Time constant of the return [s], which is that of a critically damped spring. It adds to the acceleration at most
#: 2/TIME_S times the missed change of velocity.
TIME_S = 0.1
#: The return ends within this distance [rad or m], which over a cycle squared is a negligible acceleration.
_THERE = 1e-9


class TrajectoryRejoin:
    """Offset (n,) of set positions from the trajectory, cycle by cycle; zero unless drives have left it."""

    def __init__(self, n: int, period_s: float) -> None:
        self._period_s = period_s
        self._off, self._rate = np.zeros(n), np.zeros(n)

    def __bool__(self) -> bool:
        """Return whether set positions are off the trajectory."""
        return bool(self._off.any() or self._rate.any())

    def begin(self, off: FloatArray, rate: FloatArray) -> None:
        """Begin at the offset `off` (n,), with the relative velocity `rate` (n,)."""
        self._off, self._rate = off.copy(), rate.copy()

    def end(self) -> None:
        """End: set positions are on the trajectory."""
        self._off[:] = self._rate[:] = 0.0

    def next(self) -> FloatArray:
        """Return the offset (n,) of the next set position."""
        if self:
            self._rate -= self._period_s * (2.0 * self._rate / TIME_S + self._off / TIME_S**2)
            self._off += self._period_s * self._rate
            if max(np.abs(self._off).max(), self._period_s * np.abs(self._rate).max()) < _THERE:
                self.end()
        return self._off.copy()
