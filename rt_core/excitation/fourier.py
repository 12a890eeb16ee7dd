"""Finite Fourier series of the joint positions (Swevers et al. 1997), at rest where a period begins and ends.

    q_i(t)   = q0_i + sum_k [ a_ik/w_k sin(w_k t) - b_ik/w_k cos(w_k t) ],    w_k = 2 pi k f0,  k = 1..H
    dq_i(t)  = sum_k [ a_ik cos(w_k t) + b_ik sin(w_k t) ]
    ddq_i(t) = sum_k w_k [ -a_ik sin(w_k t) + b_ik cos(w_k t) ]

`a` and `b` are velocities.  Velocity and acceleration vanish at `t = 0` and after every whole period exactly if

    sum_k a_ik = 0    and    sum_k k b_ik = 0    (HYP),

two linear conditions a joint, which `rest_basis` solves once for all.
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
    """A periodic trajectory of `n` joints.

    Attributes
    ----------
    f0_hz : float
        Base frequency; the period is its inverse.
    q0 : (n,) float64
        Mean position [rad] or [m].
    a, b : (n, H) float64
        Coefficients of the module docstring [rad/s] or [m/s].

    Raises
    ------
    ExcitationError
        If shapes disagree, a value is not finite, or `f0_hz` is not positive.
    """

    f0_hz: float
    q0: FloatArray
    a: FloatArray
    b: FloatArray

    def __post_init__(self) -> None:
        """Check the coefficients and keep copies of them."""
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
        """Position, velocity and acceleration at `t` [s]: (n,) each for a scalar, (N, n) for an array (N,)."""
        q, dq, ddq = Basis(np.atleast_1d(np.asarray(t, dtype=np.float64)), self.f0_hz, self.harmonics).states(self)
        return (q[0], dq[0], ddq[0]) if np.ndim(t) == 0 else (q, dq, ddq)

    def between(self, basis: Basis) -> tuple[float, FloatArray]:
        """How far values between the samples of `basis` may be beyond them, as `Motion` has it."""
        return basis.overshoot, np.zeros((3, self.n))

    def shrunk(self, share: float | FloatArray) -> FourierSeries:
        """Return the same motion about the same mean, each joint `share` (n,) times as large; rest stays rest."""
        factor = np.broadcast_to(np.asarray(share, dtype=np.float64), (self.n,))[:, None]
        return replace(self, a=self.a * factor, b=self.b * factor)

    @property
    def plain(self) -> tuple[FloatArray, FloatArray]:
        """Coefficients (n, H) of the sines and the cosines in `q = q0 + sum_k [ A_k sin(w_k t) + B_k cos(w_k t) ]`."""
        w = 2.0 * np.pi * self.f0_hz * np.arange(1, self.harmonics + 1)
        return self.a / w, -self.b / w

    @classmethod
    def from_plain(cls, f0_hz: float, q0: FloatArray, sine: FloatArray, cosine: FloatArray) -> FourierSeries:
        """Make a series from the coefficients that `plain` gives [rad] or [m].

        Raises
        ------
        ExcitationError
            As for the series itself.
        """
        sine, cosine = (np.array(value, dtype=np.float64) for value in (sine, cosine))
        w = 2.0 * np.pi * f0_hz * np.arange(1, sine.shape[-1] + 1) if sine.ndim else np.ones(1)
        return cls(f0_hz, q0, sine * w, -(cosine * w) + 0.0)

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON, from which `from_dict` makes the same series to the bit."""
        return {"f0_hz": self.f0_hz, "q0": self.q0.tolist(), "a": self.a.tolist(), "b": self.b.tolist()}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> FourierSeries:
        """Make a series from what `as_dict` gave; further keys are ignored.

        Raises
        ------
        ExcitationError
            If a key is missing or its value is not of the right kind.
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
    """What the limits of a motion are checked on, over its period `1/f0_hz`.

    `harmonics` times `f0_hz` is the highest frequency that matters, by which samples are laid.
    """

    @property
    def f0_hz(self) -> float:
        """Inverse of the period."""

    @property
    def harmonics(self) -> int:
        """Number of harmonics, or what stands for it."""

    def sample(self, t: FloatArray) -> States:
        """Position, velocity and acceleration (N, n) each, at `t` (N,) [s]."""

    def between(self, basis: Basis) -> tuple[float, FloatArray]:
        """How far values between the samples of `basis`, a grid of the period, may be beyond them.

        As a factor, of half the distance between the largest and the smallest for positions; and what is to be added,
        (3, n) of position, velocity and acceleration.
        """


class Basis:
    """Sines and cosines at `times` (N,), so that the states of many series cost three products of matrices."""

    def __init__(self, times: FloatArray, f0_hz: float, harmonics: int) -> None:
        self.times = times
        self.f0_hz = f0_hz
        self.harmonics = harmonics

    @cached_property
    def _parts(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(N, 2H) each, for positions, velocities and accelerations; where only the times count they are not made."""
        each = np.arange(1, self.harmonics + 1)
        w = 2.0 * np.pi * self.f0_hz * each
        # The phase within the period first: late times lose no digits in the sine.
        phase = 2.0 * np.pi * np.remainder(self.times * self.f0_hz, 1.0)[:, None] * each
        sine, cosine = np.sin(phase), np.cos(phase)
        return np.hstack((sine / w, -cosine / w)), np.hstack((cosine, sine)), np.hstack((-sine * w, cosine * w))

    @classmethod
    def grid(cls, count: int, f0_hz: float, harmonics: int) -> Basis:
        """`count` equidistant times in one period, half a step from its ends.

        There no joint stands still by construction, where the sign of its velocity would be that of rounding.
        """
        return cls((np.arange(count, dtype=np.float64) + 0.5) / np.float64(count * f0_hz), f0_hz, harmonics)

    def stacked(self, count: int) -> FloatArray:
        """(3, 1 + 2H, count) what each coefficient, mean first, adds to `q`, `dq`, `ddq`; the first time fills up."""
        found = np.empty((3, 1 + 2 * self.harmonics, count))
        size = self.times.size
        for s, part in enumerate(self._parts):
            found[s, 0] = 1.0 if s == 0 else 0.0
            found[s, 1:, :size] = part.T
            found[s, 1:, size:] = part[0][:, None]
        return found

    def states(self, series: FourierSeries) -> States:
        """`q, dq, ddq` (N, n) of `series`, which has this basis' frequency and harmonics."""
        return self.evaluate(series.q0, np.hstack((series.a, series.b)).T)

    def evaluate(self, q0: FloatArray, ab: FloatArray) -> States:
        """`q, dq, ddq` (N, n) of the mean `q0` (n,) and the coefficients `ab` (2H, n), first `a`, then `b`."""
        position, velocity, acceleration = self._parts
        return q0 + position @ ab, velocity @ ab, acceleration @ ab

    @cached_property
    def overshoot(self) -> float:
        """Most that a polynomial of these harmonics can exceed its samples by, as a factor.

        Between `N` equidistant samples of a period a trigonometric polynomial of degree `H < N/2` stays below
        `1/cos(pi H/N)` of its largest sample (Ehlich and Zeller 1964).  For grids of one whole period only.
        """
        if 2 * self.harmonics >= self.times.size:
            raise ExcitationError(
                f"{self.times.size} samples a period do not resolve {self.harmonics} harmonics: "
                f"take more than {2 * self.harmonics}"
            )
        return float(1.0 / np.cos(np.pi * self.harmonics / self.times.size))


def rest_basis(weights: FloatArray) -> FloatArray:
    """Orthonormal columns (H, H - 1) that span all `y` with `weights @ y = 0`; `weights` (H,), positive.

    Columns 2 to H of the Householder reflection that turns `weights` onto the first axis.
    """
    v = weights / np.linalg.norm(weights)
    v[0] += 1.0
    reflection = np.eye(weights.size) - np.outer(v, v) * (2.0 / (v @ v))
    return np.ascontiguousarray(reflection[:, 1:])
