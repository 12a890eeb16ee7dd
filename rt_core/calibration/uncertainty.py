"""Uncertainty of a calibration: covariance, also for correlated errors of successive poses.

The plain covariance assumes independent errors.  Errors that are not geometric, such as sag, gears and warming, are
similar at successive poses, and it is then too small.  The poses, in the order given, are therefore cut into `BLOCKS`
blocks.  Their scores `g_b = J_b'W r_b`, in coordinates where `J'J = I`, show how much the blocks disagree.  If an F
test at 1 % is significant, the middle of the sandwich is the jackknife over blocks, `sum_b h_b h_b'` with `h_b = (I -
J_b'J_b)^-1 g_b` (CR3 of Bell and McCaffrey 2002), and in no direction less than the plain one.

A parameter held at its nominal value has the error of an arm as built; `with_held` propagates it to the others.
"""

from dataclasses import dataclass

import numpy as np
import scipy
import scipy.linalg as la

from rt_core.calibration import _robust as robust
from rt_core.calibration.fit import Objective, gauss_newton_step
from rt_core.calibration.identifiability import triangle
from rt_core.robust_loss import loss_weights
from rt_core.types import FloatArray, IntArray

#: Few, because errors may be correlated over much of a recording, but enough to show their spread.
BLOCKS = 10
#: Significance level of a disagreement of blocks.
SIGNIFICANCE = 0.01
#: Probability of stated intervals.
CONFIDENCE = 0.95
_MIN_LEFT = 0.1  # smallest share of a direction's information without a block that is used
_TINY = 1e-15


@dataclass(frozen=True)
class Dependence:
    """Test of errors of successive poses for correlation."""

    blocks: int  # of successive poses
    ratio: float  # variance of the blocks over that of independent errors
    limit: float  # of `ratio`, at 1 %

    @property
    def found(self) -> bool:
        """Whether errors are correlated, so that the covariance is that of blocks."""
        return self.ratio > self.limit


@dataclass(frozen=True, eq=False)
class Statistics:
    """Statistics of a fit: triangle (P, P) of the standardised Jacobian, covariance (p, p), noise, remaining step (p,).

    `noise` is in scales, `freedom` the degrees of freedom of the covariance.
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
    """Return the statistics of the fit in `objective`."""
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
    weighted = loss_weights(u, objective.loss, objective.limit)[:, None] * residual
    scores, shares = _of_blocks(J[:, :, free], weighted, whitening)
    dependence = _dependence(scores, shares, factor * slope**2, left)
    covariance = factor * whitening @ whitening.T
    if len(known):  # residuals scale the measurements, not spacings and priors
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
    """Return half of a 95 % interval in standard deviations with these degrees of freedom (Student)."""
    return float(scipy.stats.t.isf(0.5 * (1.0 - CONFIDENCE), freedom))


def noise_std(found: Statistics, objective: Objective) -> FloatArray:
    """Return plain standard deviations (p,) of the free parameters by noise alone; zero for those with a prior.

    Parameters with a prior count as known: an uncertainty due to priors, as of joint 1's zero in the base, is not one
    of the measurement.
    """
    free = objective.free
    open_ = np.ones(free.size, dtype=np.bool_) if objective.prior is None else ~np.isfinite(objective.prior[free])
    std = np.zeros(free.size)
    if open_.any():
        std[open_] = found.noise * np.linalg.norm(_whitening(found.R[:, free[open_]]), axis=1)
    return std


def prior_share(found: Statistics, objective: Objective) -> FloatArray:
    """Return the share (p,) of each free parameter's variance that is due to priors, its own and those of others.

    With the information `J'J` of the poses, `K` of the priors and `M = (J'J + K)^-1`, the variance of a parameter is
    `M_ii = (M J'J M)_ii + (M K M)_ii`; the share is that of the second term.
    """
    free = objective.free
    if objective.prior is None:
        return np.zeros(free.size)
    whitening = _whitening(found.R[:, free])
    M = whitening @ whitening.T
    return np.asarray(np.sum((M / objective.prior[free]) ** 2, axis=1) / np.diag(M))


def with_held(covariance: FloatArray, R: FloatArray, free: IntArray, held: IntArray, std: FloatArray) -> FloatArray:
    """Return the joint covariance (p + h, p + h) of the parameters `free` and of those `held` at nominal.

    `covariance` (p, p) is that for exact held parameters, `R` (m, P) the standardised Jacobian, `std` (h,) the standard
    deviations of the held errors.  Held errors `e` change an estimate by `(R_f'R_f)^-1 R_f'R_h e`, and are themselves
    wrong by `-e`.
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
    """Return `W` (p, p) with `W W' = (R'R)^-1` of `columns` R (P, p); directions without effect are left out."""
    lengths = np.linalg.norm(columns, axis=0)
    _, s, Vt = la.svd(columns / lengths, full_matrices=False, check_finite=False)
    inverse = np.where(s > _TINY * s[0], 1.0 / np.maximum(s, _TINY * s[0]), 0.0)
    return np.asarray(Vt.T * inverse / lengths[:, None])


def _of_blocks(J: FloatArray, weighted: FloatArray, whitening: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return scores (B, p) and shares of the information (B, p, p) of the blocks, from `J` (N, k, p), `W r` (N, k)."""
    p = J.shape[2]
    scores, shares = [], []
    for rows in np.array_split(np.arange(J.shape[0]), min(BLOCKS, J.shape[0])):
        A = J[rows].reshape(-1, p) @ whitening
        scores.append(A.T @ weighted[rows].ravel())
        shares.append(A.T @ A)
    return np.array(scores), np.array(shares)


def _dependence(scores: FloatArray, shares: FloatArray, variance: float, freedom: float) -> Dependence:
    """Compare the blocks' sum of squares with its mean for independent residuals of variance `variance`.

    Then `cov(g_b, g_c) = variance (delta_bc G_b - G_b G_c)` with shares `G`, which gives mean and variance of the sum,
    and the degrees of freedom of the equivalent chi-squared variable (Satterthwaite).
    """
    squares = shares @ shares
    mean = float(np.einsum("bii->", shares - squares))
    pairs = np.einsum("bij,cij->", squares, squares)
    spread = float(np.sum(shares * shares) - 2.0 * np.sum(squares * shares) + pairs)
    if mean <= 0.0 or spread <= 0.0 or variance <= 0.0:
        return Dependence(len(scores), 1.0, float("inf"))
    ratio = float(np.sum(scores**2)) / mean / variance
    return Dependence(len(scores), ratio, float(scipy.stats.f.isf(SIGNIFICANCE, mean**2 / spread, freedom)))


def _middle(scores: FloatArray, shares: FloatArray, variance: float, known: FloatArray) -> FloatArray:
    """Return the middle of the sandwich (p, p): the jackknife over blocks, nowhere below `variance`.

    Spacings and priors, the rows `known` (M, p), do not improve with the measurements.
    """
    total = np.zeros(shares.shape[1:])
    for score, share in zip(scores, shares, strict=True):
        left, V = la.eigh(np.eye(score.size) - share)
        h = V @ ((V.T @ score) / np.maximum(left, _MIN_LEFT))
        total += np.outer(h, h)
    values, V = la.eigh(total)
    return np.asarray(V * np.maximum(values, variance) @ V.T + max(1.0 - variance, 0.0) * known.T @ known)
