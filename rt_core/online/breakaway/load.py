"""Holding torque of an arm at rest, and least Coulomb friction of its joints, from an estimate."""

import numpy as np

from rt_core.model.base import BaseParameters
from rt_core.model.friction import LAW_COULOMB, LAW_COULOMB_TEMPERATURE, REFERENCE_TEMPERATURE
from rt_core.model.regressor import regressor
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray

_SURE = 3.0  # standard deviations


def rest_torque(
    model: RobotModel, base: BaseParameters, theta: FloatArray, covariance: FloatArray, q: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the torques (n,) of gravity, offsets and cyclic friction at `q` (n,), and their standard deviations (n,).

    `theta` (p,) and `covariance` (p, p) are those of the base parameters.  At zero speed the columns of all other
    friction are zero.
    """
    still = np.zeros((1, model.n))
    warm = still if base.layout.has_temperature else None
    Y = regressor(model, base.layout, q[None], still, still, load=still, temperature=warm)[0]
    variance = np.einsum("jp,pq,jq->j", Y, covariance, Y)
    return np.asarray(Y @ theta), np.sqrt(np.maximum(variance, 0.0))


def sliding_friction(
    base: BaseParameters, theta: FloatArray, covariance: FloatArray, n: int, temperature: FloatArray | None
) -> FloatArray:
    """Return the least Coulomb friction (n,), three standard deviations below the estimate; zero if unknown.

    `temperature` (n,) [degC] of the joints, NaN where unknown; None if friction does not depend on it.
    """
    least = np.zeros(n)
    law = base.layout.law
    for j in range(n):
        row = ((law == LAW_COULOMB) & (base.layout.joint == j)).astype(np.float64)
        if temperature is not None:
            follows = (law == LAW_COULOMB_TEMPERATURE) & (base.layout.joint == j)
            row[follows] = temperature[j] - REFERENCE_TEMPERATURE
        found = float(row @ theta - _SURE * np.sqrt(max(row @ covariance @ row, 0.0)))
        least[j] = found if found > 0.0 else 0.0  # NaN is not known
    return least
