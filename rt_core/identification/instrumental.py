"""Instrumental variables: torque parameters without bias from noise in the measured states.

Noise in position enters the regressor through velocity and acceleration, and pulls least squares towards zero; in
closed loop it also reaches the torque.  Instruments `Z` are regressors of the same motion with noise independent of
that of `Y` and `tau`: from a simulation of the fitted model (IDIM-IV, Janot, Vandanjon and Gautier 2014), from the
set-points of the drive, or from narrowly low-passed states.  With per-joint weights `s_j`,

    theta = (sum_j Z_j' Y_j / s_j^2)^-1 sum_j Z_j' tau_j / s_j^2.

Weights are constant per joint, so `[Z_j Y_j tau_j]` is compressed once to one triangle a joint; the triangle of all
joints holds `Q_z' [Y tau]`, from which the solution follows without squaring a condition number.
"""

from dataclasses import dataclass, replace

import numpy as np

from rt_core.identification.least_squares import (
    RANK_TOLERANCE,
    Solution,
    Stack,
    check_row_count,
    check_torque,
    compress,
)
from rt_core.identification.preprocess import Signals, SignalSettings, central_difference, zero_phase
from rt_core.linear_algebra import singular_values, svd
from rt_core.types import BoolArray, FloatArray

#: First-stage F statistic of a direction of the regressor below which the instruments are too weak for it (Staiger and
#: Stock 1997).
MIN_F = 10.0
#: A parameter with more than this share, columns scaled to unit length, in free directions is undetermined.
FREE_SHARE = 0.1
_TOLERANCE = 1e-6
_LIMIT = 5


@dataclass(frozen=True)
class InstrumentalSolution:
    """Instrumental-variable estimate.

    Attributes
    ----------
    solution : Solution
        `supported` is also False where the instruments are too weak; `inverse_root` is of the projected regressor.
    projection : (p, p) float64
        `Z_j` projected is `projection.T @ Z_j`: the part of the regressor that the instruments explain.
    correlation : (r,) float64
        Canonical correlations of regressor and instruments, largest first; 1 for instruments as good as the regressor.
    """

    solution: Solution
    projection: FloatArray
    correlation: FloatArray

    def design(self, Z: FloatArray) -> FloatArray:
        """Project the instruments `Z` (n, p, K), for `estimate_covariance(rows, solution, design=...)`."""
        return np.asarray(np.einsum("qp,nqk->npk", self.projection, Z))


def smoothed(signals: Signals, cutoff_hz: float, settings: SignalSettings) -> Signals:
    """Return signals with states low-passed at `cutoff_hz`, for instruments when nothing better exists.

    The noise they share with the regressor falls with the fifth power of the cut-off in acceleration.  Choose it above
    the frequencies of the motion. Raises `ValueError` if `cutoff_hz` is not below the cut-off of `settings`.
    """
    if not 0.0 < cutoff_hz < settings.cutoff_hz:
        raise ValueError(
            f"instruments at {cutoff_hz:g} Hz from signals at {settings.cutoff_hz:g} Hz: choose a lower cut-off"
        )
    pieces = []
    for piece in signals.pieces:
        q = zero_phase(piece.q, cutoff_hz, signals.rate_hz, settings.filter_order)
        dq = central_difference(q, 1.0 / signals.rate_hz)
        ddq = central_difference(dq, 1.0 / signals.rate_hz)
        pieces.append(replace(piece, q=q, dq=dq, ddq=ddq))
    return replace(signals, pieces=tuple(pieces))


def solve_instrumental(Y: FloatArray, tau: FloatArray, use: BoolArray, Z: FloatArray) -> InstrumentalSolution:
    """Estimate the base parameters by instrumental variables; zero in directions without data or instruments.

    Parameters
    ----------
    Y, Z : (n, p, K) float64
        Regressor and instruments, filtered alike.
    tau : (K, n) float64
        Torque; `use` (K, n) the rows in use, of both.

    Raises
    ------
    ValueError
        If shapes disagree, there are fewer rows than parameters, a row in use is not finite, a joint's torque is
        constant, or the instruments do not correlate with the regressor.
    """
    if Z.shape != Y.shape:
        raise ValueError(f"instruments of shape {Z.shape} for a regressor of shape {Y.shape}")
    n, p, _ = Y.shape
    check_torque(tau, use)
    triangles = compress(np.concatenate((Z, Y), axis=1), tau, use)
    check_row_count(triangles, p)
    stack = Stack(triangles, 2 * p)
    sigma = np.ones(n)
    found = _solve(stack, sigma, 1)
    for iteration in range(2, _LIMIT + 1):
        previous = found.solution
        found = _solve(stack, previous.sigma, iteration)
        moved = np.abs(found.solution.theta - previous.theta).max()
        if moved <= _TOLERANCE * np.abs(found.solution.theta).max():
            break
    return found


def _solve(stack: Stack, sigma: FloatArray, iteration: int) -> InstrumentalSolution:
    p = stack.p // 2
    triangle = stack.reduced(sigma)
    Rz, cross, z = triangle[:p, :p], triangle[:p, p : 2 * p], triangle[:p, 2 * p]
    # An orthonormal basis of the span of Z: columns without data or that depend on others are no instruments.
    scale = np.linalg.norm(Rz, axis=0)
    U, values, Vt = svd(Rz / np.where(scale > 0.0, scale, 1.0))
    spanned = values > RANK_TOLERANCE * max(values[0], np.finfo(np.float64).tiny)
    U = U[:, spanned]
    weighted = np.vstack((cross, triangle[p : 2 * p, p : 2 * p]))
    length = np.linalg.norm(weighted, axis=0)
    safe = np.where(length > 0.0, length, 1.0)
    _, size, axes = svd(weighted / safe)
    kept = size > RANK_TOLERANCE * max(size[0], np.finfo(np.float64).tiny)
    basis = (axes[kept].T / size[kept]) / safe[:, None]  # the regressor times this is orthonormal
    left, correlation, right = svd(U.T @ cross @ basis)
    rows = int(stack.count.sum())
    squared = np.minimum(correlation**2, 1.0 - 1e-15)
    strong = rows * squared / (1.0 - squared) >= MIN_F * int(spanned.sum())
    if not strong.any():
        raise ValueError("the instruments do not correlate with the regressor: check that both belong to one motion")
    inverse_root = basis @ right[strong].T / correlation[strong]
    theta = inverse_root @ (left[:, strong].T @ (U.T @ z))
    # Free directions: those without data, and those without strong instruments.
    known = basis @ right[strong].T @ right[strong] @ (size[kept, None] * axes[kept] * safe)
    free = safe[:, None] * (np.eye(p) - known) / safe
    supported = (np.linalg.norm(free, axis=1) < FREE_SHARE) & (length > 0.0)
    inverse = (Vt[spanned].T / values[spanned]) @ U.T / np.where(scale > 0.0, scale, 1.0)[:, None]
    shares = stack.rows[: stack.used, p : 2 * p] @ inverse_root
    leverage = stack.per_joint(np.einsum("ij,ij->i", shares, shares)) / sigma**2
    leverage *= strong.sum() / max(float(leverage.sum()), 1.0)
    spread = stack.spread(np.concatenate((np.zeros(p), theta)), leverage)
    raw = singular_values(weighted)
    condition, scaled = (float(x[0] / x[-1]) if x[-1] > 0.0 else float("inf") for x in (raw, size))
    solution = Solution(
        theta, spread, sigma, inverse_root, np.asarray(supported), int(strong.sum()), condition, scaled, leverage,
        iteration,
    )  # fmt: skip
    return InstrumentalSolution(solution, inverse @ cross, correlation)
