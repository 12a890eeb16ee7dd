"""Estimate a payload from the normal equations of its ten parameters at the flange.

A weak prior bounds the size of a payload: first moments and inertia about the flange have the standard deviations of a
body of its mass half a metre away.  Where the motion hardly shows them, this keeps them from absorbing the mass.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from rt_core.online.monitors.change_hypotheses import solve
from rt_core.statistics import NORMAL_QUANTILE_95
from rt_core.types import FloatArray

FigureStatus = Literal["determined", "weak", "undetermined"]

#: Standard deviations of the mass from zero for a payload to be present.
PRESENT = 3.0
_REACH = 0.5  # [m]
_RELATIVE_STD = 0.3  # as for payloads in `rt_core.identification.payload`
_NATURAL_LENGTH = 0.1  # [m]


@dataclass(frozen=True)
class Figure:
    """Value with its 95 % interval; None where the motion does not determine it."""

    status: FigureStatus
    value: float | None
    std: float | None
    lower: float | None
    upper: float | None


@dataclass(frozen=True, eq=False)
class PayloadEstimate:
    """Estimated payload."""

    phi: FloatArray  # (10,) its parameters about the flange frame, in Pinocchio's order
    mass: Figure  # [kg]
    centre: tuple[Figure, Figure, Figure]  # centre of mass in the flange frame [m]
    mass_std: float  # [kg]

    @property
    def present(self) -> bool:
        """Whether the mass differs significantly from zero."""
        return bool(abs(self.phi[0]) > PRESENT * self.mass_std)


def estimate_payload(G: FloatArray, b: FloatArray, model_information: FloatArray) -> PayloadEstimate:
    """Estimate a payload.

    Parameters
    ----------
    G, b : (10, 10), (10,) float64
        Normal equations of the residual of the arm without payload.
    model_information : (10, 10) float64
        Information of that arm's model about payload-like parameters, `B' C^-1 B`, with its covariance `C` and the
        columns `B` of a payload; the error of the model adds to that of the rows.  Zero if unknown; then it is ignored.
    """
    point = solve(G[:4, :4], b[:4])[0]
    size = max(abs(float(point[0])), float(np.abs(point[1:4]).max()) / _REACH, 1e-9)  # [kg]
    prior = np.diag(1.0 / np.concatenate(([10.0 * size], np.full(3, _REACH * size), np.full(6, _REACH**2 * size))) ** 2)
    covariance = _inverse(G + prior)
    phi = covariance @ b
    if model_information.any():
        covariance = covariance + _inverse(model_information + prior)
    mass, std = float(phi[0]), float(np.sqrt(covariance[0, 0]))
    natural = abs(mass)
    centre = phi[1:4] / mass if mass != 0.0 else np.zeros(3)
    slopes = np.column_stack((-centre, np.eye(3))) / (mass if mass != 0.0 else 1.0)
    spread = np.sqrt(np.diag(slopes @ covariance[:4, :4] @ slopes.T))
    known = _figure(mass, std, natural)
    x, y, z = (
        _figure(float(c), float(s) if known.value is not None else np.inf, _NATURAL_LENGTH)
        for c, s in zip(centre, spread, strict=True)
    )
    return PayloadEstimate(phi, known, (x, y, z), std)


def payload_information(columns: FloatArray, covariance: FloatArray | None) -> FloatArray:
    """Return `model_information` of `estimate_payload` for a model with `covariance` (p, p); zero if not finite.

    `columns` (p, 10) are those of `payload_columns`.  Parameters whose variance is zero or not finite are unknown.
    """
    if covariance is None:
        return np.zeros((columns.shape[1],) * 2)
    variance = np.diag(covariance)
    known = np.isfinite(variance) & (variance > 0.0)
    scaled = columns[known] / np.sqrt(variance[known])[:, None]
    correlation = covariance[np.ix_(known, known)] / np.sqrt(np.outer(variance[known], variance[known]))
    if not np.isfinite(correlation).all():
        return np.zeros((columns.shape[1],) * 2)
    return np.asarray(scaled.T @ np.linalg.pinv(correlation, hermitian=True) @ scaled)


def _inverse(A: FloatArray) -> FloatArray:
    """Return the inverse of a positive definite matrix with rows of any scale."""
    scale = 1.0 / np.sqrt(np.diag(A))
    return np.asarray(np.linalg.inv(A * np.outer(scale, scale)) * np.outer(scale, scale))


def _figure(value: float, std: float, natural: float) -> Figure:
    if std <= _RELATIVE_STD * abs(value):
        status: FigureStatus = "determined"
    elif std <= _RELATIVE_STD * natural:
        status = "weak"
    else:
        return Figure("undetermined", None, None, None, None)
    return Figure(status, value, std, value - NORMAL_QUANTILE_95 * std, value + NORMAL_QUANTILE_95 * std)
