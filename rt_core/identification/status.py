"""Status of a parameter: whether the data determine it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from rt_core.identification.least_squares import Solution
from rt_core.types import FloatArray

if TYPE_CHECKING:  # the online estimator needs only the limits
    from rt_core.identification.rows import Rows

ParameterStatus = Literal["determined", "weak", "undetermined", "doubtful", "dropped", "prior"]

#: Largest standard deviation of a determined value, as a share of it.
RELATIVE_STD_LIMIT = 0.3
#: Largest effect of one standard deviation on the torque, as a share of the residual noise, unless "undetermined".
TORQUE_EFFECT_LIMIT = 1.0


@dataclass(frozen=True)
class Quantity:
    """A quantity with its 95 % interval; without a value if the data do not determine it, with the `reason`."""

    name: str
    unit: str
    value: float | None
    std: float | None
    lower: float | None
    upper: float | None
    status: ParameterStatus
    reason: str | None = None


def parameter_status(rows: Rows, solution: Solution, std: FloatArray) -> tuple[ParameterStatus, ...]:
    """Return the status of each parameter.

    "determined": the standard deviation is at most 30 % of the value.  "undetermined": it is more, and one standard
    deviation changes the torque by more than the residual noise.  "weak": in between; the parameter is known to be
    small.
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
