"""Standard deviations that disjoint blocks of the recording support.

The stated covariance describes the residual as stationary noise.  A model error follows the motion instead: it is not
stationary, and it biases the parameters differently in each part of the recording.  The delete-one-block jackknife
(Kuensch 1989) sees what differs between blocks; where it gives more than the stated deviation, it replaces it.  Between
halves and quarters of recordings of real arms the stated deviations are 1.4 to 1.7 times too small, with it they are
right; a block sandwich estimate is not enough.  An error that is the same in every block stays unseen.
"""

from itertools import pairwise

import numpy as np

from rt_core.identification.diagnostics.alternatives import solve_scaled
from rt_core.identification.least_squares import Solution
from rt_core.identification.rows import Rows
from rt_core.types import FloatArray

#: Blocks of time; with 60 they are too short for errors that follow the motion, with 10 the deviation itself is rough.
BLOCKS = 15


def jackknife_changes(
    rows: Rows, solution: Solution, weights: FloatArray | None = None, *, blocks: int = BLOCKS
) -> FloatArray:
    """Return changes (B, p) of the parameters whose sum of squares is their variance, by leaving out blocks of time.

    `weights` (K, n) are the final weights of the rows, if they have any; joints are weighted as in `solution`.  The
    deviation of any linear combination follows from the same changes, with `B - 1` degrees of freedom.
    """
    n, _, count = rows.Y.shape
    basis = solution.inverse_root
    r = basis.shape[1]
    residual = rows.tau - rows.predict(solution.theta)
    edges = np.linspace(0, count, min(blocks, count) + 1).astype(np.int64)
    grams = np.zeros((edges.size - 1, r + 1, r + 1))
    for b, (first, last) in enumerate(pairwise(edges)):
        for j in range(n):
            inside = rows.use[first:last, j]
            if not inside.any() or not solution.weighted_with[j] > 0.0:
                continue
            X = np.column_stack((rows.Y[j][:, first:last][:, inside].T @ basis, residual[first:last, j][inside]))
            if weights is not None:
                X *= np.sqrt(weights[first:last, j][inside])[:, None]
            grams[b] += X.T @ X / solution.weighted_with[j] ** 2
    total = grams.sum(axis=0)
    each = np.array([solve_scaled((total - g)[:r, :r], (total - g)[:r, r]) for g in grams])
    B = grams.shape[0]
    return np.asarray(np.sqrt((B - 1.0) / B) * (each - each.mean(axis=0)) @ basis.T)


def consistent_shifts(rows: Rows, sigma: FloatArray, covariance: FloatArray, shifts: FloatArray) -> FloatArray:
    """Return what `shifts` (k, p) of the free parameters are in a fit with a prior, whose `covariance` is (p, p).

    An error of the torque changes the right side of the normal equations by the data's information times the free
    shift, and the fit with a prior by its own covariance times that: less, as the prior holds what data hardly tell.
    `sigma` (n,) are the deviations that the fit with a prior weights joints by.  The information has a factor less, by
    which correlated residuals widen the covariance: the largest that makes no shift grow is at least that.
    """
    information = np.zeros_like(covariance)
    for j, s in enumerate(sigma):
        Y = np.where(rows.use[:, j], rows.Y[j], 0.0)
        information += Y @ Y.T / s**2 if s > 0.0 else 0.0
    taken = covariance @ information
    return np.asarray(shifts @ taken.T / max(float(np.abs(np.linalg.eigvals(taken)).max()), 1e-300))


def widened(covariance: FloatArray, deviation: FloatArray, shifts: FloatArray) -> FloatArray:
    """Return `covariance` (p, p) with standard deviations of at least `deviation` (p,), and `shifts` (k, p) added.

    Correlations stay.  A shift is the change of the parameters by an error that is there but not corrected: as a
    systematic error of that size it adds its outer product.  Infinite variances stay infinite.
    """
    stated = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    known = np.isfinite(stated) & (stated > 0.0) & np.isfinite(deviation)
    grown = np.ones(stated.size)
    grown[known] = np.maximum(deviation[known] / stated[known], 1.0)
    added = shifts.T @ shifts if shifts.size else 0.0
    out = np.where(np.isfinite(covariance), covariance * np.outer(grown, grown), covariance)
    both = np.outer(known, known)
    return np.asarray(np.where(both, out + added, out))
