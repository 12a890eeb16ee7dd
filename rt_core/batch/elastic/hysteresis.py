"""Hysteresis of an elastic joint: what the fitted spring and friction leave, told apart by the way the spring goes.

A gear that gives way loses some of what it takes up: the torque lies higher while the deflection grows than while it
falls.  No term of the model is that, so it is in the residual; half the width of the loop is the residual's part that
goes with the sign of the deflection's rate.  Friction of the speed that the model lacks can look alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rt_core.batch.elastic.fit import SpringFit
from rt_core.types import FloatArray

#: Rows whose deflection changes more slowly than this share of the rms rate say nothing of the way it goes.
_CLEAR = 0.1
_FEWEST = 20


@dataclass(frozen=True)
class Hysteresis:
    """Half the width of the loop [N*m], joint side, and its standard deviation; negative if it goes round backwards."""

    half_width: float
    std: float


def hysteresis(fit: SpringFit) -> tuple[Hysteresis | None, ...]:
    """Tell the loop of each row of a fit (`terms.sides`); None where the deflection goes one way only, or hardly."""
    rate = np.full(fit.deflection.size, np.nan)
    for number in np.unique(fit.rows.piece):
        inside = np.flatnonzero(fit.rows.piece == number)
        if inside.size > 1:
            rate[inside] = np.gradient(fit.deflection[inside], fit.rows.t[inside])
    size = np.sqrt(np.nanmean(rate**2)) if np.isfinite(rate).any() else 0.0
    use = np.abs(rate) > _CLEAR * size
    way = np.sign(rate[use])
    spread = float(np.var(way)) if way.size else 0.0
    if way.size < _FEWEST or spread < _CLEAR:
        return (None,) * len(fit.terms.sides)
    residual = (fit.measured - fit.predicted)[use]
    return tuple(
        _loop(residual[:, i], way, spread, float(fit.uncertainty.inflation[i])) for i in range(residual.shape[1])
    )


def _loop(residual: FloatArray, way: FloatArray, spread: float, inflation: float) -> Hysteresis:
    half = float(np.mean((way - way.mean()) * residual)) / spread
    left = residual - residual.mean() - half * (way - way.mean())
    return Hysteresis(half, float(np.sqrt(np.var(left) * inflation / (way.size * spread))))
