"""How far estimates may be off: covariance, also where errors of successive poses are alike.

The plain covariance takes errors as independent from pose to pose.  Errors that are not geometric, such as sag, gears
and warming, are alike at poses that were measured one after the other, and then it is too small.  So the poses, in the
order given, are cut into `BLOCKS` blocks of successive ones.  Their scores `g_b = J_b'W r_b`, in coordinates where
`J'J = I`, tell how much the blocks disagree.  If that is more than an F test at 1 % leaves to chance, the middle of the
sandwich is the jackknife over blocks, `sum_b h_b h_b'` with `h_b = (I - J_b'J_b)^-1 g_b` (CR3 of Bell and McCaffrey
2002), and in no direction less than the plain one.

What is held at its nominal value although the data could nearly tell it is wrong by what arms are built with;
`with_held` says how much of that is in the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg as la
from scipy import stats

from rt_core.calibration import _robust as robust
from rt_core.calibration.fit import Objective, gauss_newton_step
from rt_core.calibration.identifiability import triangle
from rt_core.types import FloatArray, IntArray

#: Few, for errors may be alike over much of a recording; enough to see how they spread.
BLOCKS = 10
#: Level at which blocks disagree by more than chance.
SIGNIFICANCE = 0.01
#: Of stated intervals.
CONFIDENCE = 0.95
_MIN_LEFT = 0.1  # of a direction's information, without a block: a block that holds more of it is not weighted up more
_TINY = 1e-15


@dataclass(frozen=True)
class Dependence:
    """Whether errors of successive poses are alike.

    Attributes
    ----------
    blocks : int
        Of successive poses.
    ratio, limit : float
        Variance of the blocks over that expected of independent errors, and what chance leaves at 1 %.
    """

    blocks: int
    ratio: float
    limit: float

    @property
    def found(self) -> bool:
        """Whether the covariance is the one of blocks."""
        return self.ratio > self.limit


@dataclass(frozen=True, eq=False)
class Statistics:
    """Of the fit: triangle (P, P) of the standardised Jacobian, covariance (p, p), noise in scales, step left (p,).

    `freedom` is how many degrees of freedom the covariance was found with.
    """

    R: FloatArray
    covariance: FloatArray
    dependence: Dependence
    noise: float
    step: FloatArray
    effect_of_step: float  # [m]
    freedom: float

    @property
    def std(self) -> FloatArray:
        """(p,)."""
        std: FloatArray = np.sqrt(np.diag(self.covariance))
        return std


def statistics(objective: Objective) -> Statistics:
    """Statistics of the fit that `objective` holds."""
    sample, free, model = objective.sample, objective.free, objective.model
    J = model.jacobian(sample, objective.x) / objective.per_row[:, None]
    known = objective.knowledge(objective.x)[1]
    R = triangle(J, known)
    residual = model.residual(sample, objective.x) / objective.per_row
    u = np.linalg.norm(residual, axis=1)
    measure = (objective.loss, objective.limit, sample.width)
    slope = robust.mean_slope(u, *measure)
    factor = robust.variance_factor(u, *measure, objective.spent())
    columns = R[:, free]
    whitening = _whitening(columns)
    left = max(residual.size - objective.spent(), 1.0)
    weighted = robust.weights(u, objective.loss, objective.limit)[:, None] * residual
    scores, shares = _of_blocks(J[:, :, free], weighted, whitening)
    dependence = _dependence(scores, shares, factor * slope**2, left)
    covariance = factor * whitening @ whitening.T
    if len(known):  # residuals tell how good the measurements are, not what else is known
        plain = _whitening(triangle(J / np.sqrt(max(factor, _TINY)), known)[:, free])
        covariance = plain @ plain.T
    if dependence.found:
        covariance = (
            whitening @ _middle(scores, shares, factor * slope**2, known[:, free] @ whitening) @ whitening.T / slope**2
        )
    gradient, normal, _ = objective.normal(objective.x[free])
    step = gauss_newton_step(gradient, normal)
    effect = float(np.linalg.norm(columns @ step)) / np.sqrt(len(sample)) * float(objective.scale[0])
    freedom = dependence.blocks - 1.0 if dependence.found else float(left)
    return Statistics(R, covariance, dependence, float(np.sqrt(factor)), step, effect, freedom)


def half_interval(freedom: float) -> float:
    """Half of a 95 % interval in standard deviations that were found with so many degrees of freedom (Student)."""
    return float(stats.t.isf(0.5 * (1.0 - CONFIDENCE), freedom))


def noise_std(found: Statistics, objective: Objective) -> FloatArray:
    """Plain standard deviations (p,) by noise alone: of the free parameters, with those that have a prior as known.

    Those are 0.  What a prior leaves open in others, as joint 1's zero in the base, is no fault of the measurement.
    """
    free = objective.free
    open_ = np.ones(free.size, dtype=np.bool_) if objective.prior is None else ~np.isfinite(objective.prior[free])
    std = np.zeros(free.size)
    if open_.any():
        std[open_] = found.noise * np.linalg.norm(_whitening(found.R[:, free[open_]]), axis=1)
    return std


def prior_share(found: Statistics, objective: Objective) -> FloatArray:
    """Share (p,) of what is known of each free parameter that comes from priors, its own and those of others.

    With the information `J'J` of the poses, `K` of the priors and `M = (J'J + K)^-1`, the variance of a parameter is
    `M_ii = (M J'J M)_ii + (M K M)_ii`; the share is that of the second part.
    """
    free = objective.free
    if objective.prior is None:
        return np.zeros(free.size)
    whitening = _whitening(found.R[:, free])
    M = whitening @ whitening.T
    return np.asarray(np.sum((M / objective.prior[free]) ** 2, axis=1) / np.diag(M))


def with_held(covariance: FloatArray, R: FloatArray, free: IntArray, held: IntArray, std: FloatArray) -> FloatArray:
    """Joint covariance (p + h, p + h) of the parameters `free` and of those `held` at nominal.

    `covariance` (p, p) is that given that these are nominal, `R` (m, P) the standardised Jacobian, `std` (h,) the
    standard deviations of the held errors.  An estimate is off by `(R_f'R_f)^-1 R_f'R_h e` for held errors `e`, and
    these by `-e`, for they count as none.
    """
    if not held.size:
        return covariance
    lengths = np.linalg.norm(R[:, free], axis=0)
    moved = la.lstsq(R[:, free] / lengths, R[:, held] * std, check_finite=False)[0] / lengths[:, None]
    off = np.vstack((moved, -np.diag(std)))
    joint = off @ off.T
    joint[: free.size, : free.size] += covariance
    return np.asarray(joint)


def _whitening(columns: FloatArray) -> FloatArray:
    """Matrix `W` (p, p) with `W W' = (R'R)^-1` of `columns` R (P, p); directions without effect are left out."""
    lengths = np.linalg.norm(columns, axis=0)
    _, s, Vt = la.svd(columns / lengths, full_matrices=False, check_finite=False)
    inverse = np.where(s > _TINY * s[0], 1.0 / np.maximum(s, _TINY * s[0]), 0.0)
    return np.asarray(Vt.T * inverse / lengths[:, None])


def _of_blocks(J: FloatArray, weighted: FloatArray, whitening: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Scores (B, p) and shares of the information (B, p, p) of the blocks, from `J` (N, k, p) and `W r` (N, k)."""
    p = J.shape[2]
    scores, shares = [], []
    for rows in np.array_split(np.arange(J.shape[0]), min(BLOCKS, J.shape[0])):
        A = J[rows].reshape(-1, p) @ whitening
        scores.append(A.T @ weighted[rows].ravel())
        shares.append(A.T @ A)
    return np.array(scores), np.array(shares)


def _dependence(scores: FloatArray, shares: FloatArray, variance: float, freedom: float) -> Dependence:
    """Compare the blocks' sum of squares with its mean where residuals are independent of variance `variance`.

    There `cov(g_b, g_c) = variance (delta_bc G_b - G_b G_c)` with shares `G`; that gives mean and variance of the sum,
    and so the degrees of freedom of the chi-squared variable like it (Satterthwaite).
    """
    squares = shares @ shares
    mean = float(np.einsum("bii->", shares - squares))
    pairs = np.einsum("bij,cij->", squares, squares)
    spread = float(np.sum(shares * shares) - 2.0 * np.sum(squares * shares) + pairs)
    if mean <= 0.0 or spread <= 0.0 or variance <= 0.0:
        return Dependence(len(scores), 1.0, float("inf"))
    ratio = float(np.sum(scores**2)) / mean / variance
    return Dependence(len(scores), ratio, float(stats.f.isf(SIGNIFICANCE, mean**2 / spread, freedom)))


def _middle(scores: FloatArray, shares: FloatArray, variance: float, known: FloatArray) -> FloatArray:
    """Middle of the sandwich (p, p): the jackknife over blocks, nowhere below `variance`.

    What is known besides, the rows `known` (M, p), does not get better with the measurements.
    """
    total = np.zeros(shares.shape[1:])
    for score, share in zip(scores, shares, strict=True):
        left, V = la.eigh(np.eye(score.size) - share)
        h = V @ ((V.T @ score) / np.maximum(left, _MIN_LEFT))
        total += np.outer(h, h)
    values, V = la.eigh(total)
    return np.asarray(V * np.maximum(values, variance) @ V.T + max(1.0 - variance, 0.0) * known.T @ known)
