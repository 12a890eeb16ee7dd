"""Robust least squares by iterative reweighting of outlying rows (M-estimation).

Standardised residuals give weights, the weights a new solution, until the parameters converge (Zhang et al. 2025; their
weight function is not printed, Huber's and Tukey's bisquare are our reading).  The scale of each joint is 1.4826 times
the median absolute residual, which outliers hardly affect.

Weights of single rows do not commute with a QR factorisation, but old weights suffice in it: each step is
`theta += A^-1 sum_j Y_j' psi(r_j / s_j) / s_j` with `A = sum_j Y_j' W_j Y_j / s_j^2` (Huber 1981, section 7.8).  With
present weights `W` this is plain reweighting, so the data are factored anew only when the steps stop shrinking fast,
and both end at the same point.  A step costs two passes over the rows, and memory for a few numbers a row.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rt_core.identification.least_squares import Solution, Stack, check_row_count, check_torque, compress
from rt_core.identification.rows import Rows
from rt_core.identification.uncertainty import Uncertainty, estimate_covariance
from rt_core.jit import kernel
from rt_core.robust_loss import OUTLYING_WEIGHT, loss_slopes, loss_weights
from rt_core.statistics import NORMAL_MAD
from rt_core.types import BoolArray, FloatArray, IntArray

Loss = Literal["bisquare", "huber"]
#: Residual, in standard deviations, from which rows lose weight: 95 % efficiency without outliers.
TUNING: dict[Loss, float] = {"bisquare": 4.685, "huber": 1.345}
_TOLERANCE = 1e-5
_LIMIT = 200
_ROUGH = 0.1  # the convex loss only has to reach the right basin ...
_ROUGH_LIMIT = 20  # ... and its scales, which follow the residuals, may oscillate
_REFACTOR_SCALE = 0.1  # a new factorisation pays when a scale has changed by this share ...
_REFACTOR_STEP = 0.3  # ... or a step is still this share of the last one
_MIN_SLOPE = 0.3


@dataclass(frozen=True)
class RobustSolution:
    """M-estimate and its final weights."""

    # `sigma` and `weighted_with` are the robust scales; `inverse_root` belongs to `sum_j m_j Y_j' Y_j / s_j^2` with
    # `m_j` the mean of psi's derivative; the covariance is `estimate_covariance(rows, solution, weights=weights)`
    solution: Solution
    weights: FloatArray  # (K, n) between 0 and 1; zero for rows not in use
    outlying: FloatArray  # (n,) share of each joint's rows that count as outliers
    converged: bool


@kernel
def _residual(Y: FloatArray, tau: FloatArray, columns: IntArray, theta: FloatArray, out: FloatArray) -> None:
    """Compute `out` (K,) = `tau` (K,) - `Y` (p, K)' `theta` over the columns that touch the joint."""
    out[:] = tau
    for c in range(columns.size):
        source = Y[columns[c]]
        x = theta[columns[c]]
        for k in range(out.size):
            out[k] -= x * source[k]


@kernel
def _gradient(Y: FloatArray, psi: FloatArray, columns: IntArray, factor: float, out: FloatArray) -> None:
    """Add `factor` * `Y` (p, K) `psi` (K,) to `out` (p,)."""
    for c in range(columns.size):
        source = Y[columns[c]]
        total = 0.0
        for k in range(psi.size):
            total += source[k] * psi[k]
        out[columns[c]] += factor * total


def solve_robust(Y: FloatArray, tau: FloatArray, use: BoolArray, loss: Loss = "bisquare") -> RobustSolution:
    """M-estimate of the base parameters from `Y` (n, p, K), `tau` (K, n) and the rows in use (K, n).

    Starts from OLS, continues with Huber's convex loss and scales that follow the residuals, and ends with `loss` and
    fixed scales, when no combination of parameters moves by more than 1e-5 of its standard deviation.

    Raises
    ------
    ValueError
        If there are fewer rows than parameters, a row in use is not finite, a joint's torque is constant, or the loss
        is unknown.
    """
    if loss not in TUNING:
        raise ValueError(f"unknown loss {loss!r}; known: {', '.join(TUNING)}")
    n, p, _ = Y.shape
    triangles = compress(Y, tau, use)
    check_row_count(triangles, p)
    check_torque(tau, use)
    stack = Stack(triangles, p)
    columns = [t.columns for t in triangles]
    Y = np.ascontiguousarray(Y)
    target = np.ascontiguousarray(np.where(use, tau, 0.0).T)
    used = np.ascontiguousarray(use.T)
    residual = np.zeros((n, tau.shape[0]))

    def update_residual() -> None:
        for j in range(n):
            _residual(Y[j], target[j], columns[j], theta, residual[j])

    factor = stack.decomposed(np.ones(n), 1)
    theta, root = factor.theta, factor.inverse_root
    update_residual()
    if not np.isfinite(residual).all():  # rows not in use may hold anything
        Y = np.where(used[:, None, :], Y, 0.0)
        update_residual()
    scale = robust_scale(residual, used, factor.leverage)
    factored_with, last = np.zeros(n), np.inf
    stage: Loss | None = None  # None: Huber's loss, and scales that follow the residuals
    converged = False
    iteration = 1
    for iteration in range(2, _LIMIT + 2):
        u = residual / scale[:, None]
        now: Loss = stage or "huber"
        weights = np.where(used, loss_weights(np.abs(u), now, TUNING[now]), 0.0)
        gradient = np.zeros(p)
        for j in range(n):
            _gradient(Y[j], weights[j] * u[j], columns[j], 1.0 / scale[j], gradient)
        moved = float(np.abs(root.T @ gradient).max())
        if (np.abs(scale - factored_with) > _REFACTOR_SCALE * scale).any() or moved > _REFACTOR_STEP * last:
            weighted = Stack(compress(Y, tau, use, weights.T), p)
            factor, factored_with = weighted.decomposed(scale, iteration), scale
            root = factor.inverse_root
            moved = float(np.abs(root.T @ gradient).max())
        last = moved
        theta = theta + root @ (root.T @ gradient)
        update_residual()
        if stage is None:
            scale = robust_scale(residual, used, factor.leverage)
            if moved <= _ROUGH or iteration > _ROUGH_LIMIT:
                stage, last = loss, np.inf
        elif moved <= _TOLERANCE:
            converged = True
            break
    u = residual / scale[:, None]
    weights = np.where(used, loss_weights(np.abs(u), loss, TUNING[loss]), 0.0)
    final = stack.decomposed(scale / np.sqrt(_mean_slope(u, used, loss)), iteration)
    outlying = ((weights < OUTLYING_WEIGHT) & used).sum(axis=1) / np.maximum(used.sum(axis=1), 1)
    solution = replace(final, theta=theta, sigma=scale, weighted_with=scale)
    return RobustSolution(solution, np.ascontiguousarray(weights.T), outlying, converged)


def fit_rows(rows: Rows, loss: Loss) -> tuple[Solution, Uncertainty, FloatArray | None, bool]:
    """Return M-estimate, its covariance, weights of the rows (K, n), and whether it converged; see `solve_robust`."""
    found = solve_robust(rows.Y, rows.tau, rows.use, loss)
    uncertainty = estimate_covariance(rows, found.solution, weights=found.weights)
    return found.solution, uncertainty, found.weights, found.converged


def robust_scale(residual: FloatArray, use: BoolArray, leverage: FloatArray) -> FloatArray:
    """Return the scales (n,) of residuals (n, K) in use (n, K), as standard deviations of a normal distribution."""
    out = np.zeros(residual.shape[0])
    for j in range(out.size):
        used = np.abs(residual[j, use[j]])
        if used.size:
            out[j] = np.median(used) / NORMAL_MAD / np.sqrt(max(1.0 - leverage[j] / used.size, 0.1))
    return np.maximum(out, 1e-9 * max(float(out.max(initial=0.0)), 1e-12))


def _mean_slope(u: FloatArray, use: BoolArray, loss: Loss) -> FloatArray:
    mean = np.where(use, loss_slopes(np.abs(u), loss, TUNING[loss]), 0.0).sum(axis=1) / np.maximum(use.sum(axis=1), 1)
    return np.asarray(np.maximum(mean, _MIN_SLOPE))
