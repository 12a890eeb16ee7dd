"""Separability of rotor and link inertias of an arm with elastic joints.

Where motor and link move alike, some rotor inertias are not separable from those of their links.  If the difference of
the accelerations is encoder noise, least squares still gives values with small standard deviations, since noise
separates columns as motion does; so these parameters are withheld unless the difference is that of a spring.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import scipy
from scipy.linalg import null_space

from rt_core.elastic.arm import ArmFit
from rt_core.elastic.identify import CERTAIN_SHARE
from rt_core.identification.identify import EXPLAINED_LIMIT
from rt_core.identification.preprocess import Signals, SignalSettings
from rt_core.identification.rows import low_pass_taps
from rt_core.identification.status import parameter_status
from rt_core.model.base import BaseParameters
from rt_core.model.friction import LAW_ARMATURE
from rt_core.statistics import NORMAL_QUANTILE_95
from rt_core.types import BoolArray, FloatArray

_DEPENDS = 1e-9  # coefficients below this are rounding

Separability = Literal["told", "doubtful", "open"]


def rests_on_difference(rigid: BaseParameters, elastic: BaseParameters) -> BoolArray:
    """Return a mask (n, p) of the parameters of `elastic` that depend on the difference of each joint's two motions.

    Standard parameters in the null space of `rigid` have no torque while both sides move alike; their image in
    `elastic` depends on the difference alone.
    """
    n = elastic.layout.motor.shape[1]
    unseen = elastic.mapping @ null_space(rigid.mapping)
    left, size, _ = np.linalg.svd(unseen, full_matrices=False)
    basis = left[:, size > _DEPENDS * max(float(size.max(initial=0.0)), 1.0)]
    rotors = np.flatnonzero(elastic.layout.law == LAW_ARMATURE)
    out = np.zeros((n, len(elastic)), dtype=np.bool_)
    if basis.shape[1] and rotors.size:
        depends = np.abs(basis @ np.linalg.pinv(basis[rotors], rcond=_DEPENDS)) > _DEPENDS
        out[elastic.layout.source[rotors]] = depends.T
    return out


def difference_noise(
    sides: tuple[Signals, Signals], disturbed: tuple[Signals, Signals], settings: SignalSettings
) -> FloatArray:
    """Return the mean square (n,) of the encoders' noise in the difference of both accelerations, filtered as rows.

    `sides` are the signals of links and motors, `disturbed` the same with as much noise again on either encoder.
    """
    total, count = np.zeros(sides[0].pieces[0].ddq.shape[1]), 0
    taps = low_pass_taps(settings, sides[0].rate_hz)[:, None]
    for links, motors, noisy_links, noisy_motors in zip(*(s.pieces for s in (*sides, *disturbed)), strict=True):
        noise = (noisy_motors.ddq - motors.ddq) - (noisy_links.ddq - links.ddq)
        if noise.shape[0] >= taps.size:
            filtered = scipy.signal.fftconvolve(noise, taps, mode="valid", axes=0)
            total += (filtered**2).sum(axis=0)
            count += filtered.shape[0]
    return total / max(count, 1)


def difference_share(fit: ArmFit, noise: FloatArray) -> FloatArray:
    """Return the share (n,) of motion, not encoder noise, in the part of each rotor's column outside the others.

    In mean square; the inverse of that part is the variance of the inertia.  From 0 to 1; 1 for joints without a rotor
    inertia in the model.  `fit` has motions "both"; `noise` (n,) is from `difference_noise`.
    """
    Y, sigma, layout = fit.rows.Y, fit.solution.sigma, fit.base.layout
    power = np.zeros(len(fit.base))
    for j in range(noise.size):
        power += (Y[j] ** 2).sum(axis=1) / sigma[j] ** 2
    scale = np.where(power > 0.0, np.sqrt(power), 1.0)
    gram = np.zeros((power.size, power.size))
    for j in range(noise.size):
        unit = Y[j] / (sigma[j] * scale[:, None])
        gram += unit @ unit.T
    values, vectors = np.linalg.eigh(gram)
    floor = np.finfo(np.float64).eps * values.size * values[-1]
    left = 1.0 / (vectors**2 / np.maximum(values, floor)).sum(axis=1)
    share = np.ones(noise.size)
    for k in np.flatnonzero(layout.law == LAW_ARMATURE):
        j = int(layout.source[k])
        own = left[k] * (scale[k] * sigma[j]) ** 2 / max(int(fit.rows.use[:, j].sum()), 1)
        share[j] = max(0.0, 1.0 - noise[j] / own) if own > 0.0 else 0.0
    return share


def attenuated(fit: ArmFit, share: FloatArray) -> FloatArray:
    """Return by how much (p,) encoder noise in the rotors' columns widens the standard deviations of `fit`.

    Noise in its column makes an inertia too small, by `share` (n,) of `difference_share`, and biases correlated
    parameters.  The wider interval reaches the value without this bias.  `fit` has motions "both".
    """
    layout, covariance = fit.base.layout, fit.uncertainty.covariance
    moved = np.zeros(len(fit.base))
    for k in np.flatnonzero(layout.law == LAW_ARMATURE):
        s = max(float(share[int(layout.source[k])]), EXPLAINED_LIMIT)
        if covariance[k, k] > 0.0:
            own = (1.0 / s - 1.0) * float(fit.solution.theta[k])
            moved += np.abs(own * covariance[:, k] / covariance[k, k])
    return moved / NORMAL_QUANTILE_95


def widened(fit: ArmFit, share: FloatArray) -> ArmFit:
    """Return the fit with standard deviations widened by `attenuated`, and the statuses that follow.

    Standard deviations are added, not their squares, since the bias has one sign.  It is a share of the inertia, so
    the far end of its interval counts.  `fit` has motions "both"; `share` (n,) is from `difference_share`.
    """
    theta = fit.solution.theta
    end = theta + np.copysign(NORMAL_QUANTILE_95 * fit.uncertainty.std, theta)
    std = fit.std + attenuated(replace(fit, solution=replace(fit.solution, theta=end)), share)
    return replace(fit, std=std, status=parameter_status(fit.rows, fit.solution, std))


def separabilities(share: FloatArray, spring: Sequence[bool]) -> tuple[Separability, ...]:
    """Return whether rotor and link of each joint are separable.

    `share` (n,) is from `difference_share`; `spring` tells whether the joint's deflection follows its torque.
    """
    return tuple(
        "open" if not (seen and s >= EXPLAINED_LIMIT) else "told" if s >= CERTAIN_SHARE else "doubtful"
        for s, seen in zip(share, spring, strict=True)
    )


def withhold(fit: ArmFit, rests: BoolArray, apart: Sequence[Separability]) -> ArmFit:
    """Return the fit without the parameters that depend on inseparable differences.

    `fit` has motions "both"; `rests` (n, p) is from `rests_on_difference`, `apart` from `separabilities`.
    """
    unknown, doubtful = (np.asarray(rests[[a == which for a in apart]].any(axis=0)) for which in ("open", "doubtful"))
    status = tuple(
        "undetermined" if unknown[k] else "doubtful" if doubtful[k] and s == "determined" else s
        for k, s in enumerate(fit.status)
    )
    return replace(fit, std=np.where(unknown, np.inf, fit.std), status=status)
