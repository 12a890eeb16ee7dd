"""Search space: free coordinates of a Fourier series that starts and ends at rest, within a box.

A joint has `2 H - 1` coordinates: the mean position, and `H - 1` each for the coefficients `a` and `b` with the two
conditions of rest.  With the largest sensible amplitude `A_k` of harmonic `k`,

    a_k = A_k y_k,  y = N u,  sum_k A_k y_k = 0        b_k = A_k y_k,  y = N' u',  sum_k k A_k y_k = 0

so that every point of the box is a motion from rest to rest.  Without rest, all `2 H + 1` coefficients are free.
Harmonics share a joint's limits: coordinates of `u` and `u'` range up to `sqrt(2/(H - 1))`, at most 1.
"""

import numpy as np

from rt_core.excitation.errors import ExcitationError
from rt_core.excitation.fourier import FourierSeries, rest_basis
from rt_core.excitation.limits import Limits
from rt_core.types import FloatArray

#: Largest distance of the mean from the middle, as a share of half the allowed range.
MEAN_SPREAD = 0.8


class SearchSpace:
    """Box `lower`, `upper` (d,) of coordinates, d = n (2H - 1), and the series at its points.

    Raises `ExcitationError` if there are fewer than two harmonics: a single one cannot start and end at rest.
    """

    def __init__(self, limits: Limits, f0_hz: float, harmonics: int, rest: bool = True) -> None:
        if rest and harmonics < 2:
            raise ExcitationError(f"harmonics must be at least 2 for a motion from rest to rest, not {harmonics}")
        n, free = limits.n, harmonics - 1 if rest else harmonics
        order = np.arange(1.0, harmonics + 1.0)
        w = 2.0 * np.pi * f0_hz * order
        self.f0_hz = f0_hz
        self.middle = 0.5 * (limits.lower + limits.upper)
        half = 0.5 * (limits.upper - limits.lower)
        amplitude = np.minimum(limits.velocity[:, None], half[:, None] * w)
        amplitude = np.minimum(amplitude, limits.acceleration[:, None] / w)  # (n, H)
        if rest:
            self._a = np.array([A[:, None] * rest_basis(A) for A in amplitude])  # (n, H, H - 1)
            self._b = np.array([A[:, None] * rest_basis(order * A) for A in amplitude])
        else:
            self._a = self._b = np.array([np.diag(A) for A in amplitude])  # (n, H, H)
        reach = np.hstack((MEAN_SPREAD * half[:, None], np.full((n, 2 * free), min(1.0, np.sqrt(2.0 / free)))))
        self._shape = reach.shape
        self.upper = reach.ravel()
        self.lower = -self.upper

    def coefficients(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return mean (n,) and coefficients (2H, n), first `a`, then `b`, at the point `x` (d,)."""
        rows = x.reshape(self._shape)
        free = self._a.shape[2]
        a = np.einsum("ihf,if->hi", self._a, rows[:, 1 : 1 + free])
        b = np.einsum("ihf,if->hi", self._b, rows[:, 1 + free :])
        return self.middle + rows[:, 0], np.vstack((a, b))

    def stacked(self, x: FloatArray) -> FloatArray:
        """Return mean and coefficients (n, 1 + 2H) at the point `x` (d,), for `rt_core.excitation.fused`."""
        q0, ab = self.coefficients(x)
        return np.ascontiguousarray(np.vstack((q0, ab)).T)

    def adjoint(self, C_bar: FloatArray) -> FloatArray:
        """Return the derivative (d,) by the point, given that by `stacked` (n, 1 + 2H)."""
        harmonics = self._a.shape[1]
        rows = np.empty(self._shape)
        rows[:, 0] = C_bar[:, 0]
        free = self._a.shape[2]
        rows[:, 1 : 1 + free] = np.einsum("ihf,ih->if", self._a, C_bar[:, 1 : 1 + harmonics])
        rows[:, 1 + free :] = np.einsum("ihf,ih->if", self._b, C_bar[:, 1 + harmonics :])
        return rows.ravel()

    def series(self, x: FloatArray) -> FourierSeries:
        """Return the series at the point `x` (d,)."""
        q0, ab = self.coefficients(x)
        h = ab.shape[0] // 2
        return FourierSeries(self.f0_hz, q0, ab[:h].T, ab[h:].T)

    def shrunk(self, x: FloatArray, share: FloatArray) -> FloatArray:
        """Return the point `x` (d,) with the motion of each joint scaled by `share` (n,)."""
        rows = x.reshape(self._shape).copy()
        rows[:, 1:] *= share[:, None]
        return rows.ravel()
