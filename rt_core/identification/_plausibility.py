"""Physical plausibility of a fit: friction and the mass matrix must be positive.

A fit with a small residual can still be wrong: an inverted torque channel gives negative friction and a mass matrix
that is not positive definite.  Both show without any knowledge of the robot beyond its kinematics.
"""

from dataclasses import dataclass

import numpy as np

from rt_core.identification.rows import Rows
from rt_core.model.base import BaseParameters
from rt_core.model.friction import LAW_ARMATURE, LAW_COULOMB, LAW_LINK, LAW_VISCOUS
from rt_core.model.regressor import regressor
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray

#: A quantity that must be positive counts as negative below minus this many standard deviations.
SIGNIFICANT = 5.0
_UNKNOWN = 1e12  # variance of an undetermined parameter, as a multiple of the largest known variance
_POSTURES = 40  # postures of the recording at which the mass matrix is evaluated


@dataclass(frozen=True)
class Plausibility:
    """Result of the checks; empty tuples and zero where nothing is wrong."""

    negative_coulomb: tuple[int, ...]  # joints whose Coulomb friction is significantly negative
    negative_viscous: tuple[int, ...]  # joints whose viscous friction is
    mass_z: float  # smallest eigenvalue of the scaled mass matrix over its standard deviation, at the worst posture


def check_plausibility(
    model: RobotModel, base: BaseParameters, rows: Rows, theta: FloatArray, covariance: FloatArray,
) -> Plausibility:  # fmt: skip
    """Check a fit `theta` (p,) with `covariance` (p, p) on its rows."""
    layout = base.layout
    covariance = bounded(covariance)
    std = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(std > 0.0, theta / std, 0.0)

    def negative(law: int) -> tuple[int, ...]:
        return tuple(int(layout.source[c]) for c in np.flatnonzero((layout.law == law) & (z < -SIGNIFICANT)))

    return Plausibility(
        negative(LAW_COULOMB), negative(LAW_VISCOUS), _mass_matrix_z(model, base, rows, theta, covariance)
    )


def bounded(covariance: FloatArray) -> FloatArray:
    """Return the covariance with a very large variance in place of an infinite one."""
    known = np.isfinite(np.diag(covariance))
    largest = float(np.diag(covariance)[known].max(initial=1.0))
    out = np.where(np.outer(known, known), covariance, 0.0)
    np.fill_diagonal(out, np.where(known, np.diag(out), _UNKNOWN * largest))
    return np.asarray(out)


def _mass_matrix_z(
    model: RobotModel, base: BaseParameters, rows: Rows, theta: FloatArray, covariance: FloatArray
) -> float:
    """Return the least eigenvalue of the mass matrix over its standard deviation, among postures of the recording."""
    inertial = np.flatnonzero(np.isin(base.layout.law, (LAW_LINK, LAW_ARMATURE)))
    layout = base.layout.take(inertial)
    theta, covariance = theta[inertial], covariance[np.ix_(inertial, inertial)]
    keep = np.unique(np.linspace(0, rows.t.size - 1, _POSTURES).astype(np.int64))
    q = rows.q[keep]
    zero = np.zeros_like(q)
    still = regressor(model, layout, q, zero, zero)
    columns = []
    for i in range(model.n):
        push = zero.copy()
        push[:, i] = 1.0
        columns.append(np.array(regressor(model, layout, q, zero, push)) - still)
    M = np.stack([c @ theta for c in columns], axis=2)  # (K, n, n)
    worst = np.inf
    for k in range(keep.size):
        scale = np.sqrt(np.maximum(np.abs(np.diag(M[k])), 1e-12 * np.abs(M[k]).max() + 1e-300))
        values, vectors = np.linalg.eigh(0.5 * (M[k] + M[k].T) / np.outer(scale, scale))
        v = vectors[:, 0] / scale
        gradient = sum(v[i] * (v @ columns[i][k]) for i in range(model.n))
        deviation = float(np.sqrt(max(gradient @ covariance @ gradient, 0.0)))
        if deviation > 0.0:
            worst = min(worst, float(values[0]) / deviation)
    return worst
