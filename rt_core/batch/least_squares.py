"""Least squares with per-joint weights: OLS, WLS and IWLS from data compressed once.

Weights that are constant per joint commute with a QR factorisation.  So each joint's rows
`[Y_j tau_j]`, without the columns that are zero for that joint, are compressed to one small triangle
in a single pass over memory; every solve, residual norm and covariance after that works on the
triangles alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.linalg as la

from rt_core.types import BoolArray, FloatArray, IntArray

Method = Literal["ols", "wls", "iwls"]
METHODS: tuple[Method, ...] = ("ols", "wls", "iwls")

#: Scaled singular values below this share of the largest belong to directions without data.
RANK_TOLERANCE = 1e-9
_IWLS_TOLERANCE = 1e-8
_IWLS_LIMIT = 100
_CHUNK = 4096


@dataclass(frozen=True)
class JointTriangle:
    """One joint's rows `[Y tau]` reduced to a triangle: same normal equations, few rows.

    `columns` (c,) are the base parameters that touch this joint, `R` (r, c), `z` (r,); `rest` is the
    squared norm of the torque outside the span of the columns, `count` the number of rows.
    """

    columns: IntArray
    R: FloatArray
    z: FloatArray
    rest: float
    count: int

    def residual_sum(self, theta: FloatArray) -> float:
        """Sum of squared residuals of base parameters `theta` (p,)."""
        e = self.z - self.R @ theta[self.columns]
        return float(e @ e) + self.rest


def compress_joint(Y: FloatArray, tau: FloatArray) -> JointTriangle:
    """Compress one joint's rows: `Y` (p, K) by columns, `tau` (K,), in chunks that fit the cache."""
    columns = np.flatnonzero(np.abs(Y).max(axis=1, initial=0.0) > 0.0)
    width = columns.size
    triangle: FloatArray = np.zeros((0, width + 1))
    for start in range(0, tau.size, _CHUNK):
        block = np.empty((min(_CHUNK, tau.size - start), width + 1), order="F")
        block[:, :width] = Y[columns, start : start + _CHUNK].T
        block[:, width] = tau[start : start + _CHUNK]
        stacked = np.vstack((triangle, block))
        triangle = np.asarray(la.qr(stacked, mode="r", check_finite=False)[0][: width + 1], dtype=np.float64)
    rest = float(triangle[width, width] ** 2) if triangle.shape[0] > width else 0.0
    top = triangle[: min(width, triangle.shape[0])]
    return JointTriangle(columns.astype(np.int64), top[:, :width].copy(), top[:, width].copy(), rest, int(tau.size))


def compress(Y: FloatArray, tau: FloatArray, use: BoolArray) -> tuple[JointTriangle, ...]:
    """Triangles of all joints from `Y` (n, p, K), `tau` (K, n) and the rows in use (K, n)."""
    return tuple(compress_joint(Y[j][:, use[:, j]], tau[use[:, j], j]) for j in range(Y.shape[0]))


@dataclass(frozen=True)
class Solution:
    """Least-squares estimate.

    Attributes
    ----------
    theta : (p,) float64
        Base parameters; directions without data stay at the prior.
    sigma : (n,) float64
        Residual standard deviation per joint [N*m], corrected for the parameters fitted.
    weighted_with : (n,) float64
        The standard deviations that the rows were divided by in this solve; ones for `ols`.
    inverse_root : (p, r) float64
        `F` with `F @ F.T` the pseudo-inverse of the weighted normal matrix.
    supported : (p,) bool
        False where the data leave a parameter free.
    rank : int
    condition_number, scaled_condition_number : float
        Of the weighted stacked regressor, as it is and with columns of unit length.
    leverage : (n,) float64
        Number of parameters that each joint's rows pay for; they sum to the rank.
    iterations : int
    """

    theta: FloatArray
    sigma: FloatArray
    weighted_with: FloatArray
    inverse_root: FloatArray
    supported: BoolArray
    rank: int
    condition_number: float
    scaled_condition_number: float
    leverage: FloatArray
    iterations: int


def solve(
    triangles: Sequence[JointTriangle], p: int, method: Method = "wls", prior: FloatArray | None = None
) -> Solution:
    """Estimate `p` base parameters.

    `ols` gives every joint the same weight.  `wls` weighs each joint's rows by the residual standard
    deviation that OLS leaves there (Zhang et al. 2025).  `iwls` repeats that until the parameters stand still.
    Directions that the data do not excite keep the value of `prior` (p,), zero if there is none.

    Raises
    ------
    ValueError
        If there are fewer rows than parameters, or an unknown method.
    """
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; known: {', '.join(METHODS)}")
    rows = sum(t.count for t in triangles)
    if rows <= p:
        raise ValueError(f"{rows} rows for {p} parameters: record longer, or raise the rate of the rows")
    start = np.zeros(p) if prior is None else prior
    solution = _weighted(triangles, p, np.ones(len(triangles)), start, 1)
    if method == "ols":
        return solution
    limit = 1 if method == "wls" else _IWLS_LIMIT
    for iteration in range(limit):
        previous = solution
        solution = _weighted(triangles, p, previous.sigma, start, iteration + 2)
        step = np.abs(solution.theta - previous.theta).max()
        if step <= _IWLS_TOLERANCE * np.abs(solution.theta).max():
            break
    return solution


def _weighted(
    triangles: Sequence[JointTriangle], p: int, sigma: FloatArray, prior: FloatArray, iteration: int
) -> Solution:
    stacked = np.zeros((sum(t.R.shape[0] for t in triangles), p + 1))
    at = 0
    for t, s in zip(triangles, sigma, strict=True):
        stacked[at : at + t.R.shape[0], t.columns] = t.R / s
        stacked[at : at + t.R.shape[0], p] = (t.z - t.R @ prior[t.columns]) / s
        at += t.R.shape[0]
    R = la.qr(stacked, mode="r", check_finite=False)[0][: p + 1]
    if R.shape[0] < p:  # fewer compressed rows than parameters: the null space must show in the decomposition
        R = np.vstack((R, np.zeros((p - R.shape[0], p + 1))))
    R, z = R[:p, :p], R[:p, p]
    scale = np.linalg.norm(R, axis=0)
    safe = np.where(scale > 0.0, scale, 1.0)
    U, values, Vt = la.svd(R / safe, full_matrices=False, check_finite=False)
    kept = values > RANK_TOLERANCE * values[0]
    rank = int(kept.sum())
    supported = (Vt[~kept] ** 2).sum(axis=0) < 1e-8 if rank < p else np.ones(p, dtype=bool)
    inverse_root = (Vt[kept].T / values[kept]) / safe[:, None]
    theta = prior + inverse_root @ (U[:, kept].T @ z)
    raw = la.svdvals(R, check_finite=False)
    leverage = np.array(
        [
            float(np.linalg.norm(t.R @ inverse_root[t.columns]) ** 2) / s**2
            for t, s in zip(triangles, sigma, strict=True)
        ]
    )
    spread = np.array(
        [np.sqrt(t.residual_sum(theta) / max(t.count - h, 1.0)) for t, h in zip(triangles, leverage, strict=True)]
    )
    # A joint that is fitted without any error would get infinite weight.
    floor = 1e-9 * max(float(spread.max()), 1e-12)
    return Solution(
        theta,
        np.maximum(spread, floor),
        sigma,
        inverse_root,
        np.asarray(supported),
        rank,
        float(raw[0] / raw[-1]) if raw[-1] > 0.0 else float("inf"),
        float(values[0] / values[-1]) if values[-1] > 0.0 else float("inf"),
        leverage,
        iteration,
    )
