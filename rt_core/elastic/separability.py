"""What of an arm with elastic joints only the difference of both encoders tells.

Where motor and link move alike, some rotor inertias cannot be told from their links (those of the first joints, as a
rule): the rigid model has them in one parameter.  Apart they rest on the difference of the two accelerations.  If that
is noise of the encoders, least squares still gives numbers, with small standard deviations, for noise tells columns
apart as well as motion does; so these parameters are withheld unless the difference is that of a spring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from scipy.linalg import null_space
from scipy.signal import fftconvolve

from rt_core.elastic.arm import ArmFit
from rt_core.elastic.identify import CERTAIN_SHARE
from rt_core.identification.identify import EXPLAINED_LIMIT
from rt_core.identification.preprocess import Signals, SignalSettings
from rt_core.identification.rows import low_pass_taps
from rt_core.identification.status import parameter_status
from rt_core.model.base import BaseParameters
from rt_core.model.friction import LAW_ARMATURE
from rt_core.types import BoolArray, FloatArray

_QUANTILE_95 = 1.959964
_DEPENDS = 1e-9  # coefficients below this are rounding

Apart = Literal["told", "doubtful", "open"]


def rests_on_difference(rigid: BaseParameters, elastic: BaseParameters) -> BoolArray:
    """Which parameters of `elastic` only the difference of a joint's two motions tells.

    Standard parameters that `rigid` maps to nothing have no torque while both sides move alike; what they are in
    `elastic` is what the difference alone tells.

    Returns
    -------
    (n, p) bool
        By joint and parameter.
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
    """Mean square (n,) of the encoders' noise in the difference of both accelerations, filtered as rows are.

    Parameters
    ----------
    sides : tuple of Signals
        Of links and motors.
    disturbed : tuple of Signals
        The same with as much noise again on either encoder.
    settings : SignalSettings
    """
    total, count = np.zeros(sides[0].pieces[0].ddq.shape[1]), 0
    taps = low_pass_taps(settings, sides[0].rate_hz)[:, None]
    for links, motors, noisy_links, noisy_motors in zip(*(s.pieces for s in (*sides, *disturbed)), strict=True):
        noise = (noisy_motors.ddq - motors.ddq) - (noisy_links.ddq - links.ddq)
        if noise.shape[0] >= taps.size:
            filtered = fftconvolve(noise, taps, mode="valid", axes=0)
            total += (filtered**2).sum(axis=0)
            count += filtered.shape[0]
    return total / max(count, 1)


def difference_share(fit: ArmFit, noise: FloatArray) -> FloatArray:
    """Share of what tells each rotor from all other parameters that is motion, not noise of the encoders.

    That is what the other columns leave of the rotor's, in mean square, whose inverse is the variance of its inertia.

    Parameters
    ----------
    fit : ArmFit
        With motions "both".
    noise : (n,) float64
        As `difference_noise` gives it.

    Returns
    -------
    (n,) float64
        From 0 to 1; 1 for joints without a rotor inertia in the model.
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
    """How much wider (p,) the standard deviations of `fit` are for the encoders' noise in what tells rotors apart.

    Noise in its column makes an inertia too small, by `share`, and moves what goes with it.  An interval that is so
    much wider reaches as far as the value without that.

    Parameters
    ----------
    fit : ArmFit
        With motions "both".
    share : (n,) float64
        As `difference_share` gives it.
    """
    layout, covariance = fit.base.layout, fit.uncertainty.covariance
    moved = np.zeros(len(fit.base))
    for k in np.flatnonzero(layout.law == LAW_ARMATURE):
        s = max(float(share[int(layout.source[k])]), EXPLAINED_LIMIT)
        if covariance[k, k] > 0.0:
            own = (1.0 / s - 1.0) * float(fit.solution.theta[k])
            moved += np.abs(own * covariance[:, k] / covariance[k, k])
    return moved / _QUANTILE_95


def widened(fit: ArmFit, share: FloatArray) -> ArmFit:
    """Return the fit with standard deviations as wide as `attenuated` wants them, and statuses that follow from those.

    They add up, and not their squares: an error to one side is no further noise.  It is a share of the inertia, and so
    that of the far end of its interval counts.

    Parameters
    ----------
    fit : ArmFit
        With motions "both".
    share : (n,) float64
        As `difference_share` gives it.
    """
    theta = fit.solution.theta
    end = theta + np.copysign(_QUANTILE_95 * fit.uncertainty.std, theta)
    std = fit.std + attenuated(replace(fit, solution=replace(fit.solution, theta=end)), share)
    return replace(fit, std=std, status=parameter_status(fit.rows, fit.solution, std))


def told_apart(share: FloatArray, spring: Sequence[bool]) -> tuple[Apart, ...]:
    """Whether rotor and link of each joint can be told apart.

    Parameters
    ----------
    share : (n,) float64
        As `difference_share` gives it.
    spring : sequence of bool
        Whether the joint's deflection follows its torque.
    """
    return tuple(
        "open" if not (seen and s >= EXPLAINED_LIMIT) else "told" if s >= CERTAIN_SHARE else "doubtful"
        for s, seen in zip(share, spring, strict=True)
    )


def withhold(fit: ArmFit, rests: BoolArray, apart: Sequence[Apart]) -> ArmFit:
    """Return the fit without the parameters that rest on differences that tell nothing.

    Parameters
    ----------
    fit : ArmFit
        With motions "both".
    rests : (n, p) bool
        As `rests_on_difference` gives it.
    apart : sequence of {"told", "doubtful", "open"}
        As `told_apart` gives it.
    """
    unknown, doubtful = (np.asarray(rests[[a == which for a in apart]].any(axis=0)) for which in ("open", "doubtful"))
    status = tuple(
        "undetermined" if unknown[k] else "doubtful" if doubtful[k] and s == "determined" else s
        for k, s in enumerate(fit.status)
    )
    return replace(fit, std=np.where(unknown, np.inf, fit.std), status=status)
