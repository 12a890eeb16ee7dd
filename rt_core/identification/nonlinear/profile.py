"""Intervals of the constants from the profile of the cost.

A constant is held at values over its whole range while everything else is fitted anew.  The interval holds the values
at which the cost rises by less than `kappa` times the quantile of chi-squared with one degree of freedom; `kappa` is
the ratio of the variance under correlated residuals to that under white ones (Pace, Salvan and Sartori 2011).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import scipy

from rt_core.identification.nonlinear.compressed import CompressedTorque
from rt_core.identification.nonlinear.separable import SeparableObjective
from rt_core.statistics import CHI_SQUARED_QUANTILE_95, NORMAL_QUANTILE_95
from rt_core.types import FloatArray

ConstantStatus = Literal["determined", "weak", "undetermined", "doubtful"]

#: Decrease of the cost from which a term counts as seen: 99.99 % with two degrees of freedom, since the search over the
#: whole range of the constant finds the best of several chance fits (Davies 1987).
SEEN = 18.4
#: Largest standard deviation of the logarithm of a determined constant.
_LOG_STD_LIMIT = 0.3
_POINTS = (12, 36)  # on each side, for a joint with one and with several constants, which have narrow side minima
_PRECISION = 1e-4


@dataclass(frozen=True, eq=False)
class Profile:
    """Uncertainty of one constant.

    `lower`, `upper` are the logarithms of its 95 % interval, infinite where the cost does not rise enough within the
    range.  `inside` holds sets of constants (m,) fitted at values within the interval.  `seen` is whether the term
    lowers the cost significantly.  `better` are constants (m,) of lower cost than the start, if found.
    """

    lower: float
    upper: float
    seen: bool
    inside: tuple[FloatArray, ...]
    better: FloatArray | None

    @property
    def status(self) -> ConstantStatus:
        """Whether the data determine the constant."""
        if not self.seen or not np.isfinite([self.lower, self.upper]).all():
            return "undetermined"
        return "determined" if (self.upper - self.lower) / (2.0 * NORMAL_QUANTILE_95) <= _LOG_STD_LIMIT else "weak"


def profile(
    objective: SeparableObjective, absent: SeparableObjective, x: FloatArray, index: int, kappa: float
) -> Profile:
    """Return the profile of constant `index` about the minimum `x` (m,) of `objective`.

    `absent` is the objective with the constant's terms switched off.
    """
    data = objective.data
    siblings = [
        c for c, constant in enumerate(data.constants) if c != index and constant.joint == data.constants[index].joint
    ]
    others = np.ones(x.size, dtype=bool)
    others[index] = False
    tolerance = 1e-3 * kappa
    least = objective.evaluate(x)[0]
    limit = CHI_SQUARED_QUANTILE_95 * kappa
    found: FloatArray | None = None
    lowest = least - tolerance

    def rise(value: float, near: FloatArray) -> tuple[float, FloatArray]:
        nonlocal found, lowest
        start = near.copy()
        start[index] = value
        at, cost = objective.descend(start, others, tolerance)
        if siblings:  # constants of one joint can swap roles
            other, value = objective.scan(start, siblings)
            if value < cost + 10.0 * limit:
                other, value = objective.descend(other, others, tolerance)
                at, cost = (other, value) if value < cost else (at, cost)
        if cost < lowest:
            found, lowest = at, cost
        return cost - least, at

    sides: list[float] = []
    inside: list[FloatArray] = []
    for sign, bound in ((-1.0, float(objective.lower[index])), (1.0, float(objective.upper[index]))):
        values = np.linspace(x[index], bound, _POINTS[1 if siblings else 0] + 1)
        path = [x]
        rises = [0.0]
        for value in values[1:]:
            height, at = rise(float(value), path[-1])
            rises.append(height)
            path.append(at)
        inside += [at for height, at in zip(rises, path, strict=True) if height <= limit]
        if rises[-1] <= limit:
            sides.append(sign * np.inf)
            continue
        k = max(i for i, height in enumerate(rises) if height <= limit)
        near = path[k]
        sides.append(
            float(
                scipy.optimize.brentq(
                    lambda v, near=near: rise(v, near)[0] - limit, values[k], values[k + 1], xtol=_PRECISION
                )
            )
        )
    gain = absent.descend(x, others, tolerance)[1] - least
    return Profile(sides[0], sides[1], bool(gain > SEEN * kappa), tuple(inside), found)


def pool(data: CompressedTorque, profiles: Mapping[int, Profile]) -> dict[int, Profile]:
    """Merge the profiles of each joint's constants: an interval holds every value that any of them allows."""
    out = {}
    for c, own in profiles.items():
        joint = data.constants[c].joint
        inside = tuple(x for d, other in profiles.items() if data.constants[d].joint == joint for x in other.inside)
        values = [float(x[c]) for x in inside]
        out[c] = replace(own, lower=min([own.lower, *values]), upper=max([own.upper, *values]), inside=inside)
    return out
