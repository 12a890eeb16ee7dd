"""Weight of the prior by the evidence of the data (type-II maximum likelihood).

With weight `g` the distance to the prior is minus the logarithm of a proper density: per link a Wishart density in the
pseudo-inertia, per non-negative effect a Gamma density, both with their mode at the prior and relative spread
`1/sqrt(g)`.  Their normalisers are known; the integral over the parameters is taken by Laplace's method (MacKay 1992,
"Bayesian interpolation").  Of the many weights that explain the data about equally well, the smallest without strong
evidence against it is taken, so that the data count wherever they determine something.

Only directions that the data determine affect the weight, by their distance from the prior: a good prior gets a large
weight, a placeholder nearly none.  Cross-validation cannot replace this: directions that the motion does not excite
are excited in none of its blocks.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import gammaln, multigammaln

from rt_core.identification.physical.coordinates import Point, Reference
from rt_core.identification.physical.newton import Minimum, minimise
from rt_core.identification.physical.prior import ConsistencyError
from rt_core.types import BoolArray, FloatArray

#: Weights tried, from the largest down: relative spreads of the prior from 1 % to a factor of 30.
MAX, MIN = 1e4, 1e-3
#: Weight of an effect without a prior: its size is uncertain by a factor of twenty.
UNKNOWN_EFFECT = 0.1
#: Smaller weights are not tried once the log evidence is this far below the best.
HOPELESS = 15.0
#: A log evidence this far below the best counts as strong evidence against a weight (Kass and Raftery 1995).
STRONG = 3.0
_PER_DECADE = 4


def log_normaliser(links: int, weight: float) -> float:
    """Return the log of the integral of `exp(-weight * D)` over all bodies of `links` links, in prior coordinates."""
    a = weight + 2.5
    return links * float(multigammaln(a, 4) - 4.0 * a * np.log(weight) + 4.0 * weight)


def log_normaliser_effects(weight: FloatArray) -> float:
    """Return the log of the integral of `exp(-weight * D)` over the non-negative effects, weights (m,)."""
    return float((gammaln(weight + 1.0) - (weight + 1.0) * np.log(weight) + weight).sum())


def log_evidence(minimum: Minimum, reference: Reference, links: float, effects: FloatArray) -> float:
    """Return the log probability of the data, up to a constant, with weights `links` and `effects` (m,)."""
    log_det = 2.0 * float(np.log(np.abs(np.diag(minimum.root))).sum())
    volume = minimum.point.log_volume(reference)
    prior = log_normaliser(reference.factor.shape[0], links) + log_normaliser_effects(effects)
    return -minimum.value - 0.5 * log_det + volume - prior


def choose_weights(A: FloatArray, z: FloatArray, reference: Reference, known: BoolArray) -> tuple[float, float]:
    """Return the smallest weights that the evidence allows: of the links' prior, and of the `known` effects' (m,).

    `A` (r, P), `z` (r,) are whitened rows.  Unknown effects keep `UNKNOWN_EFFECT`.  Links and effects have separate
    weights because a URDF may have good links and placeholders for friction, or the reverse.
    """

    def scan(weights: Callable[[float], tuple[float, FloatArray]]) -> float:
        grid = np.geomspace(MAX, MIN, round(_PER_DECADE * np.log10(MAX / MIN)) + 1)
        scores = np.full(grid.size, -np.inf)
        point = Point.at_prior(reference)
        for k, weight in enumerate(grid):
            links, effects = weights(weight)
            minimum = minimise(A, z, reference, reference.spread(links, effects), point)
            if not minimum.converged:
                break
            point = minimum.point
            scores[k] = log_evidence(minimum, reference, links, effects)
            if scores[k] < scores.max() - HOPELESS:
                break
        if not np.isfinite(scores).any():
            raise ConsistencyError(
                "no weight of the prior gives a fit: the rows contradict every possible arm: check the signs, units "
                "and joint order of the torque channels, or fit free parameters (wls), which shows the joint"
            )
        least = int(np.flatnonzero(scores >= scores.max() - STRONG)[-1])
        if least + 1 == grid.size or not np.isfinite(scores[least + 1]):
            return float(grid[least])
        share = (scores[least] - scores.max() + STRONG) / (scores[least] - scores[least + 1])
        return float(grid[least] * (grid[least + 1] / grid[least]) ** share)

    def of_effects(weight: float) -> FloatArray:
        return np.where(known, weight, UNKNOWN_EFFECT)

    links = scan(lambda weight: (weight, of_effects(weight)))
    if not known.any():
        return links, UNKNOWN_EFFECT
    effects = scan(lambda weight: (links, of_effects(weight)))
    return scan(lambda weight: (weight, of_effects(effects))), effects
