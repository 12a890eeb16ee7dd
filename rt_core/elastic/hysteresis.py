"""Hysteresis of an elastic joint: what the fitted spring and friction leave, told apart by the way the spring goes.

A gear that gives way loses some of what it takes up: the torque lies higher while the deflection grows than while it
falls.  No term of the model is that, but some may go with it: where the load swings about hanging, the deflection grows
just while the joint goes one way, and Coulomb friction takes up the whole loop.  So half the width of the loop is what
the residual has of the part of that sign that the model's own columns do not explain; where hardly any is left the data
do not tell loop from friction.  Friction of the speed that the model lacks can look alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rt_core.elastic.fit import SpringFit
from rt_core.linear_algebra import lstsq
from rt_core.types import FloatArray

#: Rows whose deflection changes more slowly than this share of the rms rate say nothing of the way it goes.
_CLEAR = 0.1
#: Of the mean square of the way's sign at least so much must be its own, beside the model's columns.
_OWN = 0.1
_MIN = 20


@dataclass(frozen=True)
class Hysteresis:
    """Half the width of the loop [N*m], joint side, and its standard deviation; negative if it goes round backwards."""

    half_width: float
    std: float


def hysteresis(fit: SpringFit) -> tuple[Hysteresis | None, ...]:
    """Tell the loop of each row of a fit (`terms.sides`).

    None where the data do not tell it: the deflection goes one way only, or hardly, or goes as the fit's columns do.
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
    """Loop in a `residual` (K,) whose fit had `columns` (p, K), by the sign `way` (K,) of the deflection's rate."""
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
