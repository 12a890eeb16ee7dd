"""The way back to a trajectory that drives have left, because they went on by themselves while frames were lost."""

from __future__ import annotations

import numpy as np

from rt_core.types import FloatArray

#: Time constant of the way back [s]: set positions come to it as a critically damped spring does.  What it adds to
#: the acceleration is at most 2/TIME_S times the change of velocity that was missed.
TIME_S = 0.1
#: Nearer than this, and they are there [rad or m]; over a cycle squared it is no acceleration that counts.
_THERE = 1e-9


class Detour:
    """How far set positions are off the trajectory, cycle by cycle; nothing unless drives have left it.

    Parameters
    ----------
    n : int
        Number of joints.
    period_s : float
        Of the cycle.
    """

    def __init__(self, n: int, period_s: float) -> None:
        self._period_s = period_s
        self._off, self._rate = np.zeros(n), np.zeros(n)

    def __bool__(self) -> bool:
        """Whether set positions are off the trajectory."""
        return bool(self._off.any() or self._rate.any())

    def begin(self, off: FloatArray, rate: FloatArray) -> None:
        """Be `off` (n,) the trajectory, at a velocity of `rate` (n,) relative to it."""
        self._off, self._rate = off.copy(), rate.copy()

    def end(self) -> None:
        """Be on the trajectory."""
        self._off[:] = self._rate[:] = 0.0

    def next(self) -> FloatArray:
        """Return how far off the next set position is (n,)."""
        if self:
            self._rate -= self._period_s * (2.0 * self._rate / TIME_S + self._off / TIME_S**2)
            self._off += self._period_s * self._rate
            if max(np.abs(self._off).max(), self._period_s * np.abs(self._rate).max()) < _THERE:
                self.end()
        return self._off.copy()
