"""Physical plausibility of a fit, and the delay of the torque against the motion.

A fit with a small residual can still be wrong: an inverted torque channel gives negative friction and a mass matrix
that is not positive definite, and a late torque gives wrong inertias.  Both show without any knowledge of the robot
beyond its kinematics.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import signal

from rt_core.identification.preprocess import Signals, SignalSettings
from rt_core.identification.rows import Rows, row_filter, standing_velocity
from rt_core.linear_algebra import lstsq
from rt_core.model.base import BaseParameters
from rt_core.model.friction import LAW_ARMATURE, LAW_COULOMB, LAW_LINK, LAW_VISCOUS
from rt_core.model.regressor import regressor
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray

#: A quantity that must be positive counts as negative below minus this many standard deviations.
SIGNIFICANT = 5.0
#: Trial shifts of the torque against the motion [s].
SHIFTS_S = (-0.1, -0.05, -0.02, -0.01, -0.005, -0.002, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
#: A shift counts only if its weighted residual is below this share of the unshifted one.
BELIEVABLE = 0.93
_UNKNOWN = 1e12  # variance of an undetermined parameter, as a multiple of the largest known variance
_POSTURES = 40  # postures of the recording at which the mass matrix is evaluated


@dataclass(frozen=True)
class Plausibility:
    """Result of the checks; empty tuples and zero where nothing is wrong.

    Attributes
    ----------
    negative_coulomb, negative_viscous : tuple of int
        Joints whose friction is significantly negative.
    mass_z : float
        Smallest eigenvalue of the scaled mass matrix over its standard deviation, at the worst posture.
    delay_s : float
        Apparent delay of the torque [s]; 0 if no shift fits clearly better.
    delay_ratio : float
        Weighted residual with that shift over the one without.
    """

    negative_coulomb: tuple[int, ...]
    negative_viscous: tuple[int, ...]
    mass_z: float
    delay_s: float
    delay_ratio: float


def check_plausibility(
    model: RobotModel,
    base: BaseParameters,
    rows: Rows,
    signals: Signals,
    settings: SignalSettings,
    theta: FloatArray,
    covariance: FloatArray,
    sigma: FloatArray,
) -> Plausibility:
    """Check a fit `theta` (p,) with `covariance` (p, p) on its rows; `sigma` (n,) weights the joints."""
    layout = base.layout
    covariance = _bounded(covariance)
    std = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(std > 0.0, theta / std, 0.0)

    def negative(law: int) -> tuple[int, ...]:
        return tuple(int(layout.source[c]) for c in np.flatnonzero((layout.law == law) & (z < -SIGNIFICANT)))

    delay, ratio = _delay(model, rows, signals, settings, sigma)
    return Plausibility(
        negative(LAW_COULOMB),
        negative(LAW_VISCOUS),
        _mass_matrix_z(model, base, rows, theta, covariance),
        delay,
        ratio,
    )


def _bounded(covariance: FloatArray) -> FloatArray:
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


def _delay(
    model: RobotModel, rows: Rows, signals: Signals, settings: SignalSettings, sigma: FloatArray
) -> tuple[float, float]:
    """Find the shift of the torque [s] that fits clearly better than none, and the ratio of the residuals."""
    rate = signals.rate_hz
    factor = max(1, round(rate / rows.rate_hz))
    taps = row_filter(settings, rate, factor)
    half = taps.size // 2
    n = rows.tau.shape[1]
    standing = standing_velocity(model, settings)
    shifts = [0, *sorted({round(s * rate) for s in SHIFTS_S} - {0})]
    reach = max(abs(s) for s in shifts)
    shifted = np.zeros((len(shifts), *rows.tau.shape))
    usable = rows.use.copy()
    for number, piece in enumerate(signals.pieces):
        inside = np.flatnonzero(rows.piece == number)
        centres = np.rint((rows.t[inside] - piece.t[0]) * rate).astype(np.int64)
        fits = (centres - half - reach >= 0) & (centres + half + reach < piece.t.size)
        usable[inside[~fits]] = False
        moving = np.abs(piece.row_velocity) >= standing
        for k, shift in enumerate(shifts):
            late = np.roll(piece.tau, -shift, axis=0)  # samples that roll over the ends are not in use
            filtered = signal.oaconvolve(moving * late, taps[:, None], mode="same", axes=0)
            shifted[k, inside[fits]] = filtered[centres[fits]]
    A = np.concatenate([rows.Y[j][:, usable[:, j]].T / sigma[j] for j in range(n)])
    B = np.concatenate([shifted[:, usable[:, j], j].T / sigma[j] for j in range(n)])
    if A.shape[0] <= A.shape[1]:
        return 0.0, 1.0
    scale = np.linalg.norm(A, axis=0)
    solution = lstsq(A / np.where(scale > 0.0, scale, 1.0), B, rcond=1e-10)
    left = np.linalg.norm(B - (A / np.where(scale > 0.0, scale, 1.0)) @ solution, axis=0)
    left = left / np.maximum(np.linalg.norm(B, axis=0), 1e-300)
    k = int(np.argmin(left))
    ratio = float(left[k] / left[0]) if left[0] > 0.0 else 1.0
    return (shifts[k] / rate, ratio) if ratio < BELIEVABLE else (0.0, 1.0)
