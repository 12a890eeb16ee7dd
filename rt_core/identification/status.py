"""How well data determine a parameter, in a word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from rt_core.identification.least_squares import Solution
from rt_core.types import FloatArray

if TYPE_CHECKING:  # the online estimator takes only the limits from here
    from rt_core.identification.rows import Rows

ParameterStatus = Literal["determined", "weak", "undetermined", "doubtful", "dropped", "prior"]

#: A value is called determined when its standard deviation is at most this share of it.
RELATIVE_STD_LIMIT = 0.3
#: One standard deviation may move the torque by this much of the residual noise, else "undetermined".
TORQUE_EFFECT_LIMIT = 1.0


def parameter_status(rows: Rows, solution: Solution, std: FloatArray) -> tuple[ParameterStatus, ...]:
    """How well the data determine each parameter.

    "determined": the standard deviation is at most 30 % of the value.  "undetermined": it is more,
    and one standard deviation would change the torque by more than the residual noise, so that the
    number says nothing.  "weak": in between; the parameter is small and known to be small.
    """
    p = std.size
    power = np.zeros(p)
    total = 0
    for j in range(rows.Y.shape[0]):
        used = rows.Y[j][:, rows.use[:, j]]
        power += (used**2).sum(axis=1) / solution.sigma[j] ** 2
        total += used.shape[1]
    known = np.isfinite(std)
    effect = np.where(known, np.where(known, std, 0.0) * np.sqrt(power / max(total, 1) * rows.Y.shape[0]), np.inf)
    out: list[ParameterStatus] = []
    for k in range(p):
        if 0.0 < std[k] <= RELATIVE_STD_LIMIT * abs(solution.theta[k]):
            out.append("determined")
        else:
            out.append("undetermined" if not effect[k] <= TORQUE_EFFECT_LIMIT else "weak")
    return tuple(out)
