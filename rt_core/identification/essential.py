"""Essential parameters: drop parameters that the data do not support (Khalil and Dombre 2002, section 12.5).

Backward elimination.  Khalil and Gautier drop the parameter with the largest relative standard deviation, one at a
time, and stop by a bound on the growth of the error.  Here both steps are statistical tests.  They use the covariance
`Cov` of the full fit (`rt_core.identification.uncertainty`), which includes the residuals' correlation in time:

- a parameter may be dropped only while its interval, in the full and in the reduced model, holds zero;
- all dropped parameters together must pass a Wald test in the full model: `d' Cov_dd^-1 d / k` is F-distributed with k
  and the effective number of residuals' degrees of freedom.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg as la
from scipy import special

from rt_core.identification.least_squares import JointTriangle, Solution, Stack
from rt_core.identification.uncertainty import Uncertainty
from rt_core.linear_algebra import lstsq
from rt_core.types import BoolArray, FloatArray, IntArray

LEVEL = 0.05  # of the tests
_INDEPENDENT = 1e-6
_NO_RESIDUAL = 1e-9  # as a share of the torque


@dataclass(frozen=True)
class EssentialFit:
    """A fit reduced to the parameters that the data support."""

    kept: BoolArray  # (p,)
    dropped: IntArray  # (d,) the others in the order of their elimination; first those without data
    solution: Solution  # fit of the parameters kept, the others zero, in the base parameters of the full model
    covariance: FloatArray  # (p, p), of the reduced fit, given the choice of parameters; zero for dropped ones
    p_value: float  # of the joint test that all dropped parameters are zero; 1 if none was tested


def essential_parameters(
    triangles: Sequence[JointTriangle], solution: Solution, uncertainty: Uncertainty, *, keep: BoolArray | None = None
) -> EssentialFit:
    """Reduce a weighted fit of all base parameters to the essential ones.

    Parameters
    ----------
    triangles : sequence of JointTriangle
        The data of the fit.
    solution, uncertainty : Solution, Uncertainty
        The full fit (OLS, WLS or IWLS), and its covariance.
    keep : (p,) bool, optional
        Parameters that must not be dropped, such as undetermined ones, which may be large.

    Raises
    ------
    ValueError
        If the covariance is not finite, none of the parameters has data, or a joint is fitted without any residual.
    """
    full = uncertainty.covariance
    if not (np.isfinite(full).all() and np.isfinite(solution.theta).all()):
        raise ValueError("the fit or its covariance is not finite: nothing can be tested")
    for j, t in enumerate(triangles):
        torque = float(t.z @ t.z) + t.rest
        if t.count and t.count * solution.sigma[j] ** 2 <= _NO_RESIDUAL**2 * torque:
            raise ValueError(
                f"joint {j + 1}: the fit leaves no residual to judge parameters by: the torque channel is dead, or the "
                "data hold no noise"
            )
    p = solution.theta.size
    stack = Stack(triangles, p)
    triangle = stack.reduced(solution.weighted_with)
    R, z = triangle[:p, :p], triangle[:p, p]
    noise = R @ full @ R.T  # covariance of the torque noise as the parameters see it
    kept, no_data = _independent(R)
    if not kept.any():
        raise ValueError("no parameter has data: the regressor is zero")
    samples = float((stack.count / uncertainty.inflation).sum())
    freedom = max(samples - float(solution.rank), 1.0)
    limit = float(special.stdtrit(freedom, 1.0 - 0.5 * LEVEL))
    whole, whole_covariance = _restricted(R, z, noise, kept)
    candidate = (
        kept & (np.ones(p, dtype=bool) if keep is None else ~keep) & (np.abs(whole) <= limit * _std(whole_covariance))
    )
    offset, covariance = whole, whole_covariance
    tested: list[int] = []
    p_value = 1.0
    while kept.sum() > 1:
        ratio = np.full(p, np.inf)
        left = np.flatnonzero(kept & candidate)
        ratio[left] = np.abs(offset[left]) / np.maximum(_std(covariance)[left], np.finfo(np.float64).tiny)
        worst = int(np.argmin(ratio))
        if not ratio[worst] <= limit:
            break
        value = _wald_p_value(whole, whole_covariance, [*tested, worst], freedom)
        if value < LEVEL:
            break
        tested.append(worst)
        p_value = value
        kept[worst] = False
        offset, covariance = _restricted(R, z, noise, kept)
    reduced = _solution(triangles, solution, kept)
    return EssentialFit(kept, np.array([*no_data, *tested], dtype=np.int64), reduced, covariance, p_value)


def _std(covariance: FloatArray) -> FloatArray:
    return np.asarray(np.sqrt(np.maximum(np.diag(covariance), 0.0)))


def _independent(R: FloatArray) -> tuple[BoolArray, list[int]]:
    """Return a mask of independent columns of `R` (p, p), and the indices of the rest."""
    scale = np.linalg.norm(R, axis=0)
    triangle, order = la.qr(R / np.where(scale > 0.0, scale, 1.0), mode="r", pivoting=True, check_finite=False)
    diagonal = np.abs(np.diag(triangle))
    kept = np.zeros(scale.size, dtype=bool)
    kept[order[diagonal > _INDEPENDENT]] = True
    return kept, [int(c) for c in np.flatnonzero(~kept)]


def _restricted(R: FloatArray, z: FloatArray, noise: FloatArray, kept: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Fit the columns `kept` alone; return the parameters and their covariance, zero elsewhere."""
    Q, S = la.qr(R[:, kept], mode="economic", check_finite=False)
    inverse = la.solve_triangular(S, Q.T, check_finite=False)
    offset, covariance = np.zeros(kept.size), np.zeros((kept.size, kept.size))
    offset[kept] = inverse @ z
    covariance[np.ix_(kept, kept)] = inverse @ noise @ inverse.T
    return offset, covariance


def _wald_p_value(offset: FloatArray, covariance: FloatArray, members: list[int], freedom: float) -> float:
    """Return the p-value of the hypothesis that all `members` of `offset` are zero."""
    d = offset[members]
    block = covariance[np.ix_(members, members)]
    scale = np.sqrt(np.maximum(np.diag(block), np.finfo(np.float64).tiny))
    statistic = float(d / scale @ lstsq(block / np.outer(scale, scale), d / scale))
    # Rounding can leave a covariance that is not quite definite: F has no value below zero.
    return float(special.fdtrc(len(members), freedom, max(statistic, 0.0) / len(members)))


def _solution(triangles: Sequence[JointTriangle], full: Solution, kept: BoolArray) -> Solution:
    """Solve for the columns `kept`; return the solution in the base parameters of the full model."""
    number = np.cumsum(kept) - 1
    parts = [replace(t, columns=number[t.columns[kept[t.columns]]], R=t.R[:, kept[t.columns]]) for t in triangles]
    size = int(kept.sum())
    found = Stack(parts, size).decomposed(full.weighted_with, full.iterations)
    theta = np.zeros(kept.size)
    theta[kept] = found.theta
    root = np.zeros((kept.size, found.inverse_root.shape[1]))
    root[kept] = found.inverse_root
    return replace(found, theta=theta, inverse_root=root, supported=kept.copy())
