"""Hysteresis of an elastic joint: the residual of spring and friction by the sign of the deflection's rate.

An elastic gear dissipates energy: the torque is higher while the deflection grows than while it falls.  No term of the
model describes this, but some may be correlated with it: where the load swings about its hanging position, the
deflection grows exactly while the joint moves one way, and Coulomb friction absorbs the whole loop.  So the half-width
of the loop is the regression of the residual on the part of that sign outside the model's columns; where hardly any
such part is left, the data do not separate the loop from friction.  Unmodelled friction of the speed can look alike.
"""

from dataclasses import dataclass

import numpy as np

from rt_core.elastic.fit import SpringFit
from rt_core.linear_algebra import lstsq
from rt_core.types import FloatArray

#: Rows with a slower deflection than this share of the rms rate are left out.
_CLEAR = 0.1
#: Least mean square of the sign outside the model's columns.
_OWN = 0.1
_MIN = 20


@dataclass(frozen=True)
class Hysteresis:
    """Half-width of the loop [N*m], joint side, and its standard deviation; negative if the loop runs backwards."""

    half_width: float
    std: float


def hysteresis(fit: SpringFit) -> tuple[Hysteresis | None, ...]:
    """Return the loop of each row of a fit (`terms.sides`).

    None where it is undetermined: the deflection hardly changes or only one way, or the sign of its rate is collinear
    with the fit's columns.
    """
    rate = np.full(fit.deflection.size, np.nan)
    for number in np.unique(fit.rows.piece):
        inside = np.flatnonzero(fit.rows.piece == number)
        if inside.size > 1:
            rate[inside] = np.gradient(fit.deflection[inside], fit.rows.t[inside])
    size = np.sqrt(np.nanmean(rate**2)) if np.isfinite(rate).any() else 0.0
    use = np.abs(rate) > _CLEAR * size
    way = np.sign(rate[use])
    if way.size < _MIN:
        return (None,) * len(fit.terms.sides)
    residual = (fit.measured - fit.predicted)[use]
    return tuple(
        _loop(residual[:, i], way, fit.rows.Y[i][:, use], float(fit.uncertainty.inflation[i]))
        for i in range(residual.shape[1])
    )


def _loop(residual: FloatArray, way: FloatArray, columns: FloatArray, inflation: float) -> Hysteresis | None:
    """Return the loop in a `residual` (K,) of a fit with `columns` (p, K); `way` (K,) is the sign of the rate."""
    others = np.vstack((np.ones(way.size), columns))
    others = (others / np.maximum(np.linalg.norm(others, axis=1), np.finfo(np.float64).tiny)[:, None]).T
    own = way - others @ lstsq(others, way, rcond=1e-9)
    spread = float(np.mean(own**2))
    if spread < _OWN:
        return None
    half = float(np.mean(own * residual)) / spread
    left = residual - half * own
    left = left - others @ lstsq(others, left, rcond=1e-9)
    return Hysteresis(half, float(np.sqrt(np.var(left) * inflation / (way.size * spread))))
