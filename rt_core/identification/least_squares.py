"""Least squares with per-joint weights: OLS, WLS and IWLS from data compressed once.

Weights that are constant per joint commute with a QR factorisation.  So each joint's rows `[Y_j tau_j]`, without the
columns that are zero for that joint, are compressed to one small triangle in a single pass over memory; every solve,
residual norm and covariance after that uses the triangles alone.  The rows may come in chunks, with constant memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.linalg as la
from scipy.linalg import lapack

from rt_core.jit import jit
from rt_core.linear_algebra import singular_values, svd
from rt_core.types import BoolArray, FloatArray, IntArray

Method = Literal["ols", "wls", "iwls"]
METHODS: tuple[Method, ...] = ("ols", "wls", "iwls")

#: Scaled singular values below this share of the largest belong to directions without data.
RANK_TOLERANCE = 1e-9
_SAFE_CONDITION = 1e-6  # above this reciprocal condition number a triangle is solved without a rank decision
_IWLS_TOLERANCE = 1e-8
_IWLS_LIMIT = 100
_CHUNK = 1024  # rows reduced at once: a block stays in the second-level cache
_PANEL = 16


@dataclass(frozen=True)
class JointTriangle:
    """One joint's rows `[Y tau]` reduced to a triangle with the same normal equations.

    `columns` (c,) are the base parameters that touch this joint, `R` (c, c), `z` (c,); `rest` is the squared norm of
    the torque outside the span of the columns, `count` the number of rows.
    """

    columns: IntArray
    R: FloatArray
    z: FloatArray
    rest: float
    count: int

    def residual_sum(self, theta: FloatArray) -> float:
        """Return the sum of squared residuals of base parameters `theta` (p,)."""
        e = self.z - self.R @ theta[self.columns]
        return float(e @ e) + self.rest


@jit
def _mark_touched(Y: FloatArray, rows: IntArray, touched: BoolArray) -> None:
    """Mark the columns (p,) of `Y` (p, K) that are not zero in all of `rows`; NaN counts as not zero."""
    for c in range(touched.size):
        if not touched[c]:
            column = Y[c]
            for k in range(rows.size):
                if column[rows[k]] != 0.0:
                    touched[c] = True
                    break


@jit
def _gather(
    Y: FloatArray, tau: FloatArray, root: FloatArray, rows: IntArray, columns: IntArray, block: FloatArray
) -> None:
    """Copy the `rows` (k,) of `[Y tau]`, times `root`, to `block` (c + 1, k)."""
    for c in range(columns.size):
        source = Y[columns[c]]
        target = block[c]
        for k in range(rows.size):
            target[k] = source[rows[k]] * root[rows[k]]
    target = block[columns.size]
    for k in range(rows.size):
        target[k] = tau[rows[k]] * root[rows[k]]


class _JointAccumulator:
    """The triangle of one joint, and the rows not yet reduced into it."""

    def __init__(self, p: int) -> None:
        self.touched = np.zeros(p, dtype=bool)
        self.columns = np.zeros(0, dtype=np.int64)
        self.R = np.zeros((1, 1), order="F")
        self.block = np.zeros((1, _CHUNK))
        self.waiting = 0
        self.count = 0

    def add(self, Y: FloatArray, tau: FloatArray, use: BoolArray, root: FloatArray) -> None:
        Y, tau = np.ascontiguousarray(Y), np.ascontiguousarray(tau)
        rows = np.flatnonzero(use)
        known = self.columns.size
        _mark_touched(Y, rows, self.touched)
        if int(self.touched.sum()) > known:
            self._widen()
        self.count += rows.size
        start = 0
        while start < rows.size:
            size = min(_CHUNK - self.waiting, rows.size - start)
            target = self.block[:, self.waiting : self.waiting + size]
            _gather(Y, tau, root, rows[start : start + size], self.columns, target)
            start += size
            self.waiting += size
            if self.waiting == _CHUNK:
                self._reduce()

    def _widen(self) -> None:
        """Add columns that were zero until now."""
        columns = np.flatnonzero(self.touched)
        place = np.append(np.searchsorted(columns, self.columns), columns.size)
        R = np.zeros((columns.size + 1, columns.size + 1), order="F")
        R[np.ix_(place, place)] = self.R
        block = np.zeros((columns.size + 1, _CHUNK))
        block[place] = self.block
        self.columns, self.R, self.block = columns, R, block

    def _reduce(self) -> None:
        self.block[:, self.waiting :] = 0.0
        # LAPACK's QR of a triangle above a full block, which may be overwritten
        self.R, _, _, _ = lapack.dtpqrt(
            0, min(_PANEL, self.R.shape[0]), self.R, self.block.T, overwrite_a=1, overwrite_b=1
        )
        self.waiting = 0

    def triangle(self) -> JointTriangle:
        if self.waiting:
            self._reduce()
        width = self.columns.size
        R = np.triu(self.R)
        return JointTriangle(
            self.columns, R[:width, :width].copy(), R[:width, width].copy(), float(R[width, width] ** 2), self.count
        )


class Compressor:
    """Triangles of `n` joints and `p` parameters from rows that come in chunks of any size.

    Memory is `n` triangles and one block of rows a joint, however many rows are added.
    """

    def __init__(self, n: int, p: int) -> None:
        self.p = p
        self._joints = [_JointAccumulator(p) for _ in range(n)]

    def add(self, Y: FloatArray, tau: FloatArray, use: BoolArray, weights: FloatArray | None = None) -> None:
        """Add the rows in use (K, n) of `Y` (n, p, K) and `tau` (K, n), squares weighted with `weights` (K, n) or 1.

        Raises `ValueError` if the shapes do not fit.
        """
        n, p, count = len(self._joints), self.p, tau.shape[0]
        if Y.shape != (n, p, count) or tau.shape != (count, n) or use.shape != (count, n):
            raise ValueError(
                f"shapes disagree: Y {Y.shape}, tau {tau.shape}, use {use.shape} for {n} joints and {p} parameters"
            )
        root = np.ones((n, count)) if weights is None else np.ascontiguousarray(np.sqrt(weights).T)
        for j, joint in enumerate(self._joints):
            joint.add(Y[j], tau[:, j], use[:, j], root[j])

    def triangles(self) -> tuple[JointTriangle, ...]:
        """Return the triangles of all rows so far; more may be added afterwards.

        Raises `ValueError` if a row was not finite.
        """
        out = tuple(joint.triangle() for joint in self._joints)
        for j, t in enumerate(out):
            if not (np.isfinite(t.R).all() and np.isfinite(t.z).all() and np.isfinite(t.rest)):
                raise ValueError(
                    f"joint {j + 1}: a row in use holds NaN or infinity: clear its use flag or repair the data"
                )
        return out


def compress_joint(Y: FloatArray, tau: FloatArray) -> JointTriangle:
    """Compress one joint's rows: `Y` (p, K) by columns, `tau` (K,)."""
    compressor = Compressor(1, Y.shape[0])
    compressor.add(Y[None], tau[:, None], np.ones((tau.size, 1), dtype=bool))
    return compressor.triangles()[0]


def compress(
    Y: FloatArray, tau: FloatArray, use: BoolArray, weights: FloatArray | None = None
) -> tuple[JointTriangle, ...]:
    """Compress `Y` (n, p, K), `tau` (K, n) and the rows in use (K, n), weighted or not, to one triangle a joint.

    Raises `ValueError` if the shapes do not fit, or a row in use is not finite.
    """
    compressor = Compressor(Y.shape[0], Y.shape[1])
    compressor.add(Y, tau, use, weights)
    return compressor.triangles()


@dataclass(frozen=True)
class Solution:
    """Least-squares estimate."""

    theta: FloatArray  # (p,) base parameters; directions without data stay at zero
    sigma: FloatArray  # (n,) residual standard deviation per joint [N*m], corrected for the parameters fitted
    # (n,) the standard deviations that the rows were divided by in this solve; ones for `ols`
    weighted_with: FloatArray
    inverse_root: FloatArray  # (p, r) `F` with `F @ F.T` the pseudo-inverse of the weighted normal matrix
    supported: BoolArray  # (p,); False for undetermined parameters
    rank: int
    condition_number: float  # of the weighted stacked regressor, as it is
    scaled_condition_number: float  # with columns of unit length
    leverage: FloatArray  # (n,) degrees of freedom of the fit in each joint's rows; they sum to the rank
    iterations: int


class Stack:
    """The stacked triangles of all joints, to be weighted and solved repeatedly.

    `rows` (m, p + 1) holds `[R_j z_j]`, `joint` (m,) the joint of each row.
    """

    def __init__(self, triangles: Sequence[JointTriangle], p: int) -> None:
        self.p = p
        sizes = np.array([t.R.shape[0] for t in triangles])
        self.joint = np.repeat(np.arange(len(triangles)), sizes)
        self.count = np.array([t.count for t in triangles], dtype=np.float64)
        self.rest = np.array([t.rest for t in triangles])
        self.rows = np.zeros((max(int(sizes.sum()), p + 1), p + 1), order="F")
        self.used = int(sizes.sum())
        at = 0
        for t in triangles:
            self.rows[at : at + t.R.shape[0], t.columns] = t.R
            self.rows[at : at + t.R.shape[0], p] = t.z
            at += t.R.shape[0]

    def reduced(self, sigma: FloatArray) -> FloatArray:
        """Return the triangle (p + 1, p + 1) of all rows, each joint's divided by its `sigma` (n,)."""
        weighted = np.array(self.rows, order="F")
        weighted[: self.used] /= sigma[self.joint, None]
        qr, _, _, _ = lapack.dgeqrf(weighted, lwork=64 * (self.p + 1), overwrite_a=1)
        return np.asarray(np.triu(qr[: self.p + 1]))

    def per_joint(self, x: FloatArray) -> FloatArray:
        """Return the sums (n,) of `x` (m,) over each joint's rows."""
        return np.asarray(np.bincount(self.joint, weights=x, minlength=self.count.size), dtype=np.float64)

    def spread(self, theta: FloatArray, leverage: FloatArray) -> FloatArray:
        """Return the residual standard deviations (n,) at `theta` (p,)."""
        e = self.rows[: self.used, self.p] - self.rows[: self.used, : self.p] @ theta
        out = np.sqrt((self.per_joint(e * e) + self.rest) / np.maximum(self.count - leverage, 1.0))
        # A joint without any residual would get infinite weight.
        return np.asarray(np.maximum(out, 1e-9 * max(float(out.max()), 1e-12)))

    def quick(self, sigma: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        """Return parameters and residual spread by one triangular solve; None if the rank may be deficient."""
        triangle = self.reduced(sigma)
        R = triangle[: self.p, : self.p]
        scale = np.sqrt(np.einsum("ij,ij->j", R, R))
        if not scale.min() > 0.0:
            return None
        reciprocal, _ = lapack.dtrcon(np.asfortranarray(R / scale))
        if not reciprocal > _SAFE_CONDITION:
            return None
        theta = np.asarray(la.solve_triangular(R, triangle[: self.p, self.p], check_finite=False))
        shares = la.solve_triangular(R, self.rows[: self.used, : self.p].T, trans="T", check_finite=False)
        leverage = self.per_joint(np.einsum("ij,ij->j", shares, shares)) / sigma**2
        return theta, self.spread(theta, leverage)

    def decomposed(self, sigma: FloatArray, iterations: int) -> Solution:
        """Solve by singular values, with rank, support, condition numbers and leverage."""
        p = self.p
        triangle = self.reduced(sigma)
        R, z = triangle[:p, :p], triangle[:p, p]
        scale = np.linalg.norm(R, axis=0)
        safe = np.where(scale > 0.0, scale, 1.0)
        U, values, Vt = svd(R / safe)
        kept = values > RANK_TOLERANCE * values[0]
        rank = int(kept.sum())
        supported = (Vt[~kept] ** 2).sum(axis=0) < 1e-8 if rank < p else np.ones(p, dtype=bool)
        inverse_root = (Vt[kept].T / values[kept]) / safe[:, None]
        theta = inverse_root @ (U[:, kept].T @ z)
        raw = singular_values(R)
        shares = self.rows[: self.used, :p] @ inverse_root
        leverage = self.per_joint(np.einsum("ij,ij->i", shares, shares)) / sigma**2
        conditions = _condition_numbers(raw, values, int((scale > 0.0).sum()))
        return Solution(
            theta, self.spread(theta, leverage), sigma, inverse_root, np.asarray(supported), rank, *conditions,
            leverage, iterations,
        )  # fmt: skip


_ROUNDING = 1e-14  # a singular value below this share of the largest is zero


def _condition_numbers(raw: FloatArray, scaled: FloatArray, alive: int) -> tuple[float, float]:
    """Return both condition numbers from singular values, over the `alive` nonzero columns."""

    def ratio(values: FloatArray, rounding: float) -> float:
        least = float(values[alive - 1]) if alive else 0.0
        return float(values[0]) / least if least > rounding * float(values[0]) else float("inf")

    return ratio(raw, _ROUNDING), ratio(scaled, RANK_TOLERANCE)


def solve(
    triangles: Sequence[JointTriangle], p: int, method: Method = "wls", *, tolerance: float = _IWLS_TOLERANCE,
    limit: int = _IWLS_LIMIT,
) -> Solution:  # fmt: skip
    """Estimate `p` base parameters.

    `ols` gives every joint the same weight.  `wls` divides each joint's rows by its residual standard deviation under
    OLS (Zhang et al. 2025).  `iwls` repeats that until no parameter changes by more than `tolerance` times the largest
    one, at most `limit` times.  Directions without excitation stay at zero.

    Raises
    ------
    ValueError
        If there are fewer rows than parameters, or an unknown method.
    """
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; known: {', '.join(METHODS)}")
    check_row_count(triangles, p)
    stack = Stack(triangles, p)
    sigma = np.ones(len(triangles))
    if method == "ols":
        return stack.decomposed(sigma, 1)
    previous: FloatArray | None = None
    iteration = 1
    for iteration in range(1, (1 if method == "wls" else limit) + 1):
        found = stack.quick(sigma)
        if found is None:
            full = stack.decomposed(sigma, iteration)
            found = full.theta, full.sigma
        theta, spread = found
        if previous is not None:
            moved = np.abs(theta - previous).max()
            if moved <= tolerance * np.abs(theta).max():
                return stack.decomposed(sigma, iteration)
        previous, sigma = theta, spread
    return stack.decomposed(sigma, iteration + 1)


def check_row_count(triangles: Sequence[JointTriangle], p: int) -> None:
    """Raise ValueError unless there are more rows than the `p` parameters."""
    rows = sum(t.count for t in triangles)
    if rows <= p:
        raise ValueError(f"{rows} rows for {p} parameters: record longer, or raise the rate of the rows")


def check_torque(tau: FloatArray, use: BoolArray) -> None:
    """Raise ValueError if a joint's torque (K, n) in use is constant."""
    for j in range(tau.shape[1]):
        used = tau[use[:, j], j]
        if used.size > 1 and np.isfinite(used).all() and np.ptp(used) <= 1e-12 * np.abs(used).max():
            raise ValueError(f"joint {j + 1}: the torque stays at {used[0]:.4g} in all rows: the channel is dead")
