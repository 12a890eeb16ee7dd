"""Linear fit at given constants, with a covariance that includes the uncertainty of the constants.

The rows are widened by the slopes of the torque along the logarithms of the constants.  For a constant whose interval
is wide or open, the change of the linear parameters along its profile is added.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from rt_core.identification.least_squares import Solution, compress
from rt_core.identification.nonlinear._constants import with_constants
from rt_core.identification.nonlinear.compressed import CompressedTorque, shaped_columns, weighted_solution
from rt_core.identification.nonlinear.profile import Profile
from rt_core.identification.rows import Rows
from rt_core.identification.uncertainty import estimate_covariance
from rt_core.model.base import BaseParameters
from rt_core.model.robot import RobotModel
from rt_core.statistics import NORMAL_QUANTILE_95
from rt_core.types import BoolArray, FloatArray

_SLOPE_STEP = 1e-4
_ROUNDING = 1e-9  # of the variance under white residuals


@dataclass(frozen=True, eq=False)
class LinearFit:
    """Linear fit at given constants, with the joint covariance (p + m, p + m) and the variances of white residuals."""

    model: RobotModel
    base: BaseParameters
    rows: Rows
    solution: Solution
    covariance: FloatArray
    naive: FloatArray  # (p + m,)
    supported: BoolArray  # (p + m,)
    inflation: FloatArray

    def kappa(self, data: CompressedTorque, c: int) -> float:
        """Return the variance of constant `c` over its variance under white residuals of the weights' size."""
        k = len(data.base) + c
        joint = data.constants[c].joint
        white = float((self.solution.sigma[joint] / self.solution.weighted_with[joint]) ** 2)
        if not self.supported[k] or self.naive[k] <= 0.0:
            return white * float(self.inflation[joint])
        return max(white, float(self.covariance[k, k] / self.naive[k]))


def linear_fit(
    data: CompressedTorque, x: FloatArray, sigma: FloatArray, phi: FloatArray | None, without: tuple[int, ...]
) -> LinearFit:
    """Solve for base parameters at constants `x`; take the covariance from rows widened by the torque's slopes."""
    p, m = len(data.base), len(data.constants)
    solution = weighted_solution(data.triangles(x, without), p, sigma)
    if phi is not None:
        theta = np.asarray(data.base.mapping @ phi)
        freedom = np.array([max(j.count - h, 1.0) for j, h in zip(data.joints, solution.leverage, strict=True)])
        solution = replace(solution, theta=theta, sigma=np.sqrt(data.residual_sums(theta, x) / freedom))
    values = {name: 0.0 if c in without else v for c, (name, v) in enumerate(data.values(x).items())}
    model, base = with_constants(data.model, data.base, values)
    wide = np.concatenate((data.rows.Y, np.zeros((data.rows.Y.shape[0], m, data.rows.t.size))), axis=1)
    amplitude = data.amplitude @ solution.theta
    for k, term in enumerate(data.terms):
        if term.constant in without:
            continue
        near = np.exp(x[term.constant] + np.array([-_SLOPE_STEP, 0.0, _SLOPE_STEP]))
        for j in np.flatnonzero(term.motor):
            low, value, high = np.where(data.rows.use[:, j], shaped_columns(data.source, term, int(j), near).T, 0.0)
            wide[j, term.plus] += value
            if term.minus >= 0:
                wide[j, term.minus] -= value
            wide[j, p + term.constant] += amplitude[k] * (high - low) / (2.0 * _SLOPE_STEP)
    rows = replace(data.rows, Y=wide[:, :p])
    widened = weighted_solution(compress(wide, rows.tau, rows.use), p + m, sigma)
    at = np.concatenate((solution.theta, np.zeros(m)))
    found = estimate_covariance(replace(rows, Y=wide), replace(widened, theta=at))
    covariance = found.covariance.copy()
    covariance[np.diag_indices(p + m)] = np.where(widened.supported, np.diag(covariance), np.inf)
    naive = (widened.inverse_root**2).sum(axis=1)
    return LinearFit(model, base, rows, solution, covariance, naive, widened.supported, found.inflation)


def standard_deviations(
    data: CompressedTorque, state: LinearFit, profiles: Mapping[int, Profile], without: tuple[int, ...],
    sigma: FloatArray,
) -> FloatArray:  # fmt: skip
    """Return the standard deviations (p,) of the base parameters, infinite for undetermined ones."""
    p = len(data.base)
    variance = np.diag(state.covariance)[:p].copy()
    for c, found in profiles.items():
        if found.status == "determined":
            continue
        if c not in without:
            reach = np.zeros(p)
            for x in found.inside:
                theta = weighted_solution(data.triangles(x, without), p, sigma).theta
                reach = np.maximum(reach, np.abs(theta - state.solution.theta))
            variance += (reach / NORMAL_QUANTILE_95) ** 2
        if found.status == "undetermined":
            variance[[term.plus for term in data.terms if term.constant == c]] = np.inf
    # A sandwich estimate can be negative: by rounding, or because it is meaningless.
    meaningless = ~(variance >= -_ROUNDING * state.naive[:p])
    return np.sqrt(np.where(meaningless, np.inf, np.maximum(variance, 0.0)))
