"""Covariance of a least-squares estimate with residuals that are correlated in time.

Filtered signals and model errors leave residuals that are far from white: the textbook covariance `(W'W)^-1` is then
too small, often by an order of magnitude.  Each joint's residual is described by an autoregressive model (Yule-Walker,
order by Akaike's criterion); its autocovariance `Gamma_j` enters

    Cov = A^-1 [ sum_j Y_j' Gamma_j Y_j / s_j^4 ] A^-1,     A = sum_j Y_j' Y_j / s_j^2,

with the weights `s_j`: the exact covariance of the weighted estimate under that noise (White 1980; Newey and West 1987,
here with a parametric autocovariance).

The rows of the two sides of an elastic joint share the errors of the deflection.  For them the cross-covariance of the
residuals, from the same models of their sum and difference, adds the terms `Y_i' Gamma_ij Y_j / (s_i s_j)^2`, as far as
they make the covariance larger.
"""

from dataclasses import dataclass

import numpy as np
import scipy
import scipy.linalg as la

from rt_core.identification.least_squares import Solution
from rt_core.identification.rows import Rows
from rt_core.types import BoolArray, FloatArray, IntArray

_MAX_ORDER = 30
_ROUNDING = 1e-10
_NEGLIGIBLE = 1e-3  # the tail of an autocovariance is cut below this share of its start


@dataclass(frozen=True)
class Uncertainty:
    """Covariance (p, p) of the base parameters and, per joint, the factor by which correlation widened it.

    `inflation` (n,) is the ratio of the residual's long-run variance to its variance.
    """

    covariance: FloatArray
    inflation: FloatArray

    @property
    def std(self) -> FloatArray:
        """(p,) standard deviations."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))


def autocovariance(residual: FloatArray, use: BoolArray, piece: IntArray, lags: int) -> FloatArray:
    """Return the autocovariance (lags + 1,) of a residual with gaps, within pieces only."""
    out = np.zeros(lags + 1)
    x = np.where(use, residual, 0.0)
    for lag in range(lags + 1):
        pair = use[lag:] & use[: use.size - lag] & (piece[lag:] == piece[: use.size - lag])
        count = int(pair.sum())
        if count:
            # the biased form keeps the sequence positive definite
            out[lag] = float((x[lag:] * x[: x.size - lag])[pair].sum()) / int(use.sum())
    return out


def autoregressive_covariance(gamma: FloatArray, count: int, longest: int) -> FloatArray:
    """Return the autocovariance of the autoregressive model chosen by Akaike's criterion, until it has decayed.

    `gamma` holds the sample autocovariance, `count` the number of samples, `longest` the last lag.
    """
    if gamma[0] <= 0.0:
        return np.zeros(1)
    best, chosen = np.inf, np.zeros(0)
    for order in range(min(gamma.size - 1, _MAX_ORDER, count // 10) + 1):
        weights = la.solve_toeplitz(gamma[:order], gamma[1 : order + 1]) if order else np.zeros(0)
        innovation = gamma[0] - float(weights @ gamma[1 : order + 1])
        if innovation <= 1e-12 * gamma[0]:
            break
        score = count * np.log(innovation) + 2.0 * (order + 1)
        if score < best:
            best, chosen = score, weights
    order = chosen.size
    out = np.zeros(longest + 1)
    head = min(order, longest) + 1
    out[:head] = gamma[:head]
    for lag in range(head, longest + 1):
        out[lag] = float(chosen @ out[lag - order : lag][::-1]) if order else 0.0
    alive = np.flatnonzero(np.abs(out) > _NEGLIGIBLE * out[0])
    return out[: int(alive[-1]) + 1]


def estimate_covariance(
    rows: Rows, solution: Solution, *, weights: FloatArray | None = None, design: FloatArray | None = None,
    cross: bool = False,
) -> Uncertainty:  # fmt: skip
    """Return the covariance of `solution` on the rows it was fitted to.

    Parameters
    ----------
    weights : (K, n) float64 or None
        Final weights of an M-estimate, whose covariance follows from the autocovariance of the weighted residual
        (Huber 1981, section 7.6).
    design : (n, p, K) float64 or None
        Projected instruments of an instrumental-variable estimate, in place of the regressor.
    cross : bool
        Residuals of different joints (here: sides of one) may be correlated.
    """
    n, p, count = rows.Y.shape
    bread = solution.inverse_root @ solution.inverse_root.T
    residual = rows.tau - rows.predict(solution.theta)
    if weights is not None:
        residual = residual * weights
    projected = rows.Y if design is None else design
    middle = np.zeros((p, p))
    inflation = np.ones(n)
    for j in range(n):
        use = rows.use[:, j]
        total = int(use.sum())
        if total < 2:
            continue
        gamma = autocovariance(residual[:, j], use, rows.piece, min(_MAX_ORDER, total - 1))
        gamma = autoregressive_covariance(gamma, total, count // 2)
        if gamma[0] <= 0.0:
            continue
        inflation[j] = max((gamma[0] + 2.0 * gamma[1:].sum()) / gamma[0], 1.0)
        # The fit absorbs its share of the noise: correct by the effective, not the nominal, sample size.
        effective = total / inflation[j]
        gamma = gamma / max(1.0 - solution.leverage[j] / effective, 0.1)
        columns = np.flatnonzero(projected[j].any(axis=1))
        block = projected[j][columns] * use
        for number in np.unique(rows.piece):
            inside = rows.piece == number
            x = block[:, inside]
            kernel = np.concatenate((gamma[:0:-1], gamma))[None, :]
            smooth = scipy.signal.oaconvolve(x, kernel, mode="full", axes=1)[
                :, gamma.size - 1 : gamma.size - 1 + x.shape[1]
            ]
            middle[np.ix_(columns, columns)] += x @ smooth.T / solution.weighted_with[j] ** 4
    covariance = bread @ _definite(middle) @ bread
    if cross:
        own = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        covariance += _widening(bread @ _cross_terms(rows, solution, residual, projected) @ bread, own)
    return Uncertainty(0.5 * (covariance + covariance.T), inflation)


def _definite(middle: FloatArray) -> FloatArray:
    """Return a symmetric matrix without negative eigenvalues, which a truncated autocovariance of few rows leaves."""
    scale = np.sqrt(np.maximum(np.diag(middle), 0.0))
    safe = np.where(scale > 0.0, scale, 1.0)
    values, vectors = np.linalg.eigh(middle / np.outer(safe, safe))
    if values[0] >= -_ROUNDING:
        return middle
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T * np.outer(safe, safe))


def _cross_terms(rows: Rows, solution: Solution, residual: FloatArray, projected: FloatArray) -> FloatArray:
    """Return the weighted sum (p, p) of `Y_i' Gamma_ij Y_j` over pairs of joints."""
    n, p, _ = rows.Y.shape
    out = np.zeros((p, p))
    for i in range(n):
        for j in range(i):
            both = rows.use[:, i] & rows.use[:, j]
            if int(both.sum()) < 2:
                continue
            gamma = _cross_covariance(residual[:, i], residual[:, j], both, rows.piece)
            kernel, reach = np.concatenate((gamma[:0:-1], gamma))[None, :], gamma.size - 1
            for number in np.unique(rows.piece):
                inside = rows.piece == number
                a, b = (projected[k][:, inside] * rows.use[inside, k] for k in (i, j))
                smooth = scipy.signal.oaconvolve(b, kernel, mode="full", axes=1)[:, reach : reach + b.shape[1]]
                term = a @ smooth.T / (solution.weighted_with[i] * solution.weighted_with[j]) ** 2
                out += term + term.T
    return out


def _cross_covariance(x: FloatArray, y: FloatArray, use: BoolArray, piece: IntArray) -> FloatArray:
    """Return the cross-covariance of two residuals, even in the lag, until it has decayed.

    A quarter of the difference of the autocovariances of their sum and difference (polarisation).  The models of these
    reach long lags, where sample values are noise, and so include slow common errors.
    """
    size = [float(np.sqrt(np.mean(r[use] ** 2))) for r in (x, y)]
    if min(size) <= 0.0:
        return np.zeros(1)
    total = int(use.sum())
    u, v = x / size[0], y / size[1]
    parts = [
        autoregressive_covariance(
            autocovariance(r, use, piece, min(_MAX_ORDER, total - 1)), total, max(piece.size // 2, 1)
        )
        for r in (u + v, u - v)
    ]
    out = np.zeros(max(part.size for part in parts))
    for sign, part in zip((1.0, -1.0), parts, strict=True):
        out[: part.size] += sign * part
    return 0.25 * size[0] * size[1] * out


def _widening(change: FloatArray, std: FloatArray) -> FloatArray:
    """Return the positive part of `change` (p, p): its positive eigenvalues, in units of `std` (p,)."""
    scale = np.where(std > 0.0, std, 1.0)
    values, vectors = np.linalg.eigh(change / np.outer(scale, scale))
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T * np.outer(scale, scale))
