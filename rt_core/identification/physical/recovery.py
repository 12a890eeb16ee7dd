"""Complete base parameters to a full set of consistent standard parameters.

Torque determines base parameters only; many sets of links give the same ones.  The result is the set nearest to the
prior in the log-det divergence among those that have them exactly.  Where no real bodies have them (noise can make an
estimate impossible), the result has the least deviation in the metric of the estimate's covariance, with a small weight
on the distance to the prior, since the best bodies may be infinitely large.
"""

from dataclasses import dataclass

import numpy as np

from rt_core.identification.physical.coordinates import Point, Reference
from rt_core.identification.physical.fit import EFFECT_SHARE, whitening
from rt_core.identification.physical.newton import minimise
from rt_core.identification.physical.prior import DENSITY, ConsistencyError, blocks, physical_prior
from rt_core.linear_algebra import lstsq
from rt_core.model.base import BaseParameters
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray

#: Where no exact solution exists, the distance to the prior keeps this weight, so that bodies stay finite.
MIN_WEIGHT = 1e-3
_WEIGHTS = np.geomspace(1.0, 1e-9, 19)
_FALLING = 0.7  # with an exact solution the deviation falls like the weight, threefold a step; without, it stays
_NEAR = 1e-2  # deviation, in standard deviations, below which an exact solution is tried
_EXACT = 1e-12
_LIMIT = 60


@dataclass(frozen=True)
class Completion:
    """Consistent standard parameters with given base parameters."""

    phi: FloatArray  # (P,) standard parameters
    exact: bool  # whether they have the given base parameters.  If not, no real bodies do, or only extreme ones
    deviation: float  # root mean square distance of the base parameters from the given ones, in standard deviations


def complete_parameters(
    base: BaseParameters, model: RobotModel, theta: FloatArray, covariance: FloatArray | None = None,
    prior: RobotModel | None = None,
) -> Completion:  # fmt: skip
    """Find the consistent standard parameters nearest to the prior that have the base parameters `theta`.

    Parameters
    ----------
    theta : (p,) array
        Base parameters of `base`.
    covariance : (p, p) array, optional
        Of `theta`, positive semidefinite; a direction without variance counts as undetermined.
        By default each base parameter counts relative to its size in the prior.
    prior : RobotModel, optional
        Source of the prior, in the same frames; `model` by default.

    Raises
    ------
    ConsistencyError
        If shapes disagree or something is not finite.
    """
    p = len(base)
    if theta.shape != (p,) or not np.isfinite(theta).all():
        raise ConsistencyError(f"theta must hold {p} finite base parameters")
    columns = blocks(base.standard)
    belief = physical_prior(model if prior is None else prior, base.standard, DENSITY)
    known = belief.effects[columns.positive]
    scale = np.where(known > 0.0, known, _sizes(base, theta)[columns.positive])
    width = np.maximum(np.abs(base.phi(theta)[columns.free]), 1.0)
    reference = Reference.build(columns, belief.links, scale, belief.effects[columns.free], width)
    point = Point.at_prior(reference)
    if covariance is None:
        size = np.linalg.norm(base.mapping @ point.directions(reference), axis=1)
        whitener = np.diag(1.0 / np.where(size > 0.0, size, 1.0))
    else:
        whitener = whitening(covariance, p)
    A, z = whitener @ base.mapping, whitener @ theta
    exact: Point | None = None
    before = np.inf
    for weight in _WEIGHTS:
        minimum = minimise(A, z, reference, np.full(reference.size, weight), point)
        point = minimum.point
        now = _deviation(A, z, reference, point)
        last = not minimum.converged or (weight < 1.01 * MIN_WEIGHT and now > _FALLING * before)
        if now < _NEAR or last:
            exact = _nearest_exact(A, z, reference, point)
        if exact is not None or last:
            break
        before = now
    chosen = point if exact is None else exact
    return Completion(chosen.phi(reference), exact is not None, _deviation(A, z, reference, chosen))


def _sizes(base: BaseParameters, theta: FloatArray) -> FloatArray:
    """Return the natural size (P,) of each standard parameter: of the base parameter that it contributes most to."""
    main = np.abs(base.mapping).argmax(axis=0)
    part = np.abs(base.mapping[main, np.arange(len(base.standard))])
    share = np.full(len(base.standard), EFFECT_SHARE)
    share[base.independent] = 1.0
    size = share * np.abs(theta[main]) / np.where(part > 0.0, part, 1.0)
    return np.where(size > 0.0, size, 1.0)


def _deviation(A: FloatArray, z: FloatArray, reference: Reference, point: Point) -> float:
    return float(np.linalg.norm(z - A @ point.phi(reference))) / float(np.sqrt(z.size))


def _nearest_exact(A: FloatArray, z: FloatArray, reference: Reference, point: Point) -> Point | None:
    """Find the nearest point with `A phi = z` by Newton's method from one close by; None if there is none."""
    size = np.linalg.norm(A, axis=1)
    A, z = A / size[:, None], z / size
    tolerance = _EXACT * max(float(np.abs(z).max()), 1e-300)
    for _ in range(_LIMIT):
        local = A @ point.directions(reference)
        pull = point.gradient(reference)
        left = z - A @ point.phi(reference)
        step = lstsq(local, left + local @ pull, rcond=1e-14) - pull
        if np.abs(left).max() <= tolerance and float(step @ step) < 1e-16 * reference.size:
            return point
        point = point.moved(min(1.0, 0.95 * point.room(step)) * step, reference)
    return point if np.abs(z - A @ point.phi(reference)).max() <= 10.0 * tolerance else None
