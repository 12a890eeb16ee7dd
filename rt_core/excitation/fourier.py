"""Finite Fourier series of the joint positions (Swevers et al. 1997), at rest at both ends of a period.

    q_i(t)   = q0_i + sum_k [ a_ik/w_k sin(w_k t) - b_ik/w_k cos(w_k t) ],    w_k = 2 pi k f0,  k = 1..H
    dq_i(t)  = sum_k [ a_ik cos(w_k t) + b_ik sin(w_k t) ]
    ddq_i(t) = sum_k w_k [ -a_ik sin(w_k t) + b_ik cos(w_k t) ]

`a` and `b` are velocities.  Velocity and acceleration vanish at `t = 0` and after every whole period exactly if

    sum_k a_ik = 0    and    sum_k k b_ik = 0    (HYP),

two linear conditions per joint, solved by `rest_basis`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np

from rt_core.excitation.errors import ExcitationError
from rt_core.types import FloatArray

#: Position, velocity and acceleration, (N, n) each.
States: TypeAlias = tuple[FloatArray, FloatArray, FloatArray]


@dataclass(frozen=True, eq=False)
class FourierSeries:
    """Periodic trajectory of `n` joints.

    Attributes
    ----------
    f0_hz : float
        Base frequency; the period is its inverse.
    q0 : (n,) float64
        Mean position [rad] or [m].
    a, b : (n, H) float64
        Coefficients as in the module docstring [rad/s] or [m/s].

    Raises
    ------
    ExcitationError
        If shapes do not match, a value is not finite, or `f0_hz` is not positive.
    """

    f0_hz: float
    q0: FloatArray
    a: FloatArray
    b: FloatArray

    def __post_init__(self) -> None:
        """Check and copy the coefficients."""
        q0, a, b = (np.array(value, dtype=np.float64) for value in (self.q0, self.a, self.b))
        if q0.ndim != 1 or a.ndim != 2 or a.shape != b.shape or a.shape[0] != q0.size or a.size == 0:
            raise ExcitationError(
                f"q0 must be (n,), a and b (n, harmonics), with n and harmonics at least 1, "
                f"not {q0.shape}, {a.shape} and {b.shape}"
            )
        if not (np.isfinite(q0).all() and np.isfinite(a).all() and np.isfinite(b).all()):
            raise ExcitationError("q0, a and b of a Fourier series must be finite")
        if not 0.0 < self.f0_hz < np.inf:
            raise ExcitationError(f"f0_hz must be finite and above 0, not {self.f0_hz}")
        for name, value in (("q0", q0), ("a", a), ("b", b)):
            object.__setattr__(self, name, value)

    @property
    def n(self) -> int:
        """Number of joints."""
        return int(self.q0.size)

    @property
    def harmonics(self) -> int:
        """Number of harmonics `H`."""
        return int(self.a.shape[1])

    @property
    def period_s(self) -> float:
        """Length of one period."""
        return 1.0 / self.f0_hz

    def sample(self, t: float | FloatArray) -> States:
        """Return position, velocity and acceleration at `t` [s]: (n,) each for a scalar, (N, n) for an array (N,)."""
        q, dq, ddq = Basis(np.atleast_1d(np.asarray(t, dtype=np.float64)), self.f0_hz, self.harmonics).states(self)
        return (q[0], dq[0], ddq[0]) if np.ndim(t) == 0 else (q, dq, ddq)

    def between(self, basis: Basis) -> tuple[float, FloatArray]:
        """Return bounds between the samples of `basis`, see `Motion.between`."""
        return basis.overshoot, np.zeros((3, self.n))

    def shrunk(self, share: float | FloatArray) -> FourierSeries:
        """Return the motion scaled about its mean, each joint by `share` (n,); rest stays rest."""
        factor = np.broadcast_to(np.asarray(share, dtype=np.float64), (self.n,))[:, None]
        return replace(self, a=self.a * factor, b=self.b * factor)

    @property
    def plain(self) -> tuple[FloatArray, FloatArray]:
        """Coefficients (n, H) of sines and cosines in `q = q0 + sum_k [ A_k sin(w_k t) + B_k cos(w_k t) ]`."""
        w = 2.0 * np.pi * self.f0_hz * np.arange(1, self.harmonics + 1)
        return self.a / w, -self.b / w

    @classmethod
    def from_plain(cls, f0_hz: float, q0: FloatArray, sine: FloatArray, cosine: FloatArray) -> FourierSeries:
        """Return the series with the coefficients of `plain` [rad] or [m]; raises as the series itself."""
        sine, cosine = (np.array(value, dtype=np.float64) for value in (sine, cosine))
        w = 2.0 * np.pi * f0_hz * np.arange(1, sine.shape[-1] + 1) if sine.ndim else np.ones(1)
        return cls(f0_hz, q0, sine * w, -(cosine * w) + 0.0)

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers for JSON; `from_dict` restores the series to the bit."""
        return {"f0_hz": self.f0_hz, "q0": self.q0.tolist(), "a": self.a.tolist(), "b": self.b.tolist()}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> FourierSeries:
        """Return the series of `as_dict`; further keys are ignored.

        Raises
        ------
        ExcitationError
            If a key is missing or its value has the wrong type.
        """
        for key in ("f0_hz", "q0", "a", "b"):
            if key not in plain:
                raise ExcitationError(f"a Fourier series needs {key}")
        try:
            return cls(float(plain["f0_hz"]), *(np.array(plain[key], dtype=np.float64) for key in ("q0", "a", "b")))
        except ExcitationError:
            raise
        except (TypeError, ValueError) as error:
            raise ExcitationError(f"the coefficients of a Fourier series are not numbers: {error}") from error


class Motion(Protocol):
    """Motion of period `1/f0_hz` whose limits can be checked.

    `harmonics` times `f0_hz` is its highest relevant frequency, which determines the sampling.
    """

    @property
    def f0_hz(self) -> float:
        """Inverse of the period."""

    @property
    def harmonics(self) -> int:
        """Number of harmonics, or an equivalent."""

    def sample(self, t: FloatArray) -> States:
        """Return position, velocity and acceleration (N, n) each, at `t` (N,) [s]."""

    def between(self, basis: Basis) -> tuple[float, FloatArray]:
        """Return bounds of the values between the samples of `basis`, a grid of the period.

        A factor on the samples (for positions, on half their range), and an addition (3, n) to position, velocity and
        acceleration.
        """


class Basis:
    """Sines and cosines at `times` (N,): the states of a series are three products of matrices."""

    def __init__(self, times: FloatArray, f0_hz: float, harmonics: int) -> None:
        self.times = times
        self.f0_hz = f0_hz
        self.harmonics = harmonics

    @cached_property
    def _parts(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(N, 2H) each, for positions, velocities and accelerations; computed on first use."""
        each = np.arange(1, self.harmonics + 1)
        w = 2.0 * np.pi * self.f0_hz * each
        # the phase within the period first, so that late times lose no digits in the sine
        phase = 2.0 * np.pi * np.remainder(self.times * self.f0_hz, 1.0)[:, None] * each
        sine, cosine = np.sin(phase), np.cos(phase)
        return np.hstack((sine / w, -cosine / w)), np.hstack((cosine, sine)), np.hstack((-sine * w, cosine * w))

    @classmethod
    def grid(cls, count: int, f0_hz: float, harmonics: int) -> Basis:
        """Return `count` equidistant times in one period, half a step from its ends.

        At the ends joints stand still, and the sign of their velocity would be that of rounding.
        """
        return cls((np.arange(count, dtype=np.float64) + 0.5) / np.float64(count * f0_hz), f0_hz, harmonics)

    def stacked(self, count: int) -> FloatArray:
        """Return (3, 1 + 2H, count): what each coefficient, mean first, adds to `q`, `dq`, `ddq`, padded."""
        found = np.empty((3, 1 + 2 * self.harmonics, count))
        size = self.times.size
        for s, part in enumerate(self._parts):
            found[s, 0] = 1.0 if s == 0 else 0.0
            found[s, 1:, :size] = part.T
            found[s, 1:, size:] = part[0][:, None]
        return found

    def states(self, series: FourierSeries) -> States:
        """Return `q, dq, ddq` (N, n) of `series`, which has this basis' frequency and harmonics."""
        return self.evaluate(series.q0, np.hstack((series.a, series.b)).T)

    def evaluate(self, q0: FloatArray, ab: FloatArray) -> States:
        """Return `q, dq, ddq` (N, n) of the mean `q0` (n,) and the coefficients `ab` (2H, n), first `a`, then `b`."""
        position, velocity, acceleration = self._parts
        return q0 + position @ ab, velocity @ ab, acceleration @ ab

    @cached_property
    def overshoot(self) -> float:
        """Largest ratio of a polynomial of these harmonics to its samples, on a grid of one whole period.

        Between `N` equidistant samples a trigonometric polynomial of degree `H < N/2` stays below `1/cos(pi H/N)` of
        its largest sample (Ehlich and Zeller 1964).
        """
        if 2 * self.harmonics >= self.times.size:
            raise ExcitationError(
                f"{self.times.size} samples a period do not resolve {self.harmonics} harmonics: "
                f"take more than {2 * self.harmonics}"
            )
        return float(1.0 / np.cos(np.pi * self.harmonics / self.times.size))


def rest_basis(weights: FloatArray) -> FloatArray:
    """Return orthonormal columns (H, H - 1) that span all `y` with `weights @ y = 0`; `weights` (H,) positive.

    They are columns 2 to H of the Householder reflection that maps `weights` onto the first axis.
    """
    v = weights / np.linalg.norm(weights)
    v[0] += 1.0
    reflection = np.eye(weights.size) - np.outer(v, v) * (2.0 / (v @ v))
    return np.ascontiguousarray(reflection[:, 1:])
