"""Steps and pulses added to a Fourier series (DYN's outlook), under the same checks.

A step of height `h` in `T` seconds is `h s(u)`, `u = (t - start)/T`, with

    s(u) = 35 u^4 - 84 u^5 + 70 u^6 - 20 u^7        s' = 140 u^3 (1 - u)^3        s'' = 420 u^2 (1 - u)^2 (1 - 2 u)

and 0 before, 1 after: velocity, acceleration and jerk are continuous and vanish at both ends.  A pulse is a step and,
some time later, the same step back.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rt_core.excitation.constraints import Margin
from rt_core.excitation.design import Designer
from rt_core.excitation.errors import ExcitationError
from rt_core.excitation.fourier import Basis, FourierSeries, States
from rt_core.excitation.objective import Spectrum
from rt_core.types import FloatArray

#: Largest second, third and fourth derivative of `s`.
_CURVES = (7.514, 52.5, 840.0)
#: Samples per period of the highest frequency for the measure.
_REPORTED = 100
#: Factor by which the series is scaled repeatedly to make room, and smallest share.
_SHRINK, MIN_SHARE = 0.98, 0.3


@dataclass(frozen=True)
class Step:
    """Step of one joint."""

    joint: int  # from 0
    start_s: float  # [s]
    rise_s: float  # duration [s]
    height: float  # [rad] or [m], signed


def pulse(joint: int, start_s: float, rise_s: float, hold_s: float, height: float) -> tuple[Step, Step]:
    """Return a step up and, `hold_s` after its end, the same down; see `Step`."""
    if not hold_s >= 0.0:
        raise ExcitationError(f"hold_s of a pulse must not be negative, not {hold_s}")
    return Step(joint, start_s, rise_s, height), Step(joint, start_s + rise_s + hold_s, rise_s, -height)


@dataclass(frozen=True, eq=False)
class SteppedMotion:
    """One period of `series` with `steps` added.

    Raises `ExcitationError` if the joint of a step does not exist, or it has no duration or is not within the period.
    """

    series: FourierSeries
    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        period = self.series.period_s
        for step in self.steps:
            if not 0 <= step.joint < self.series.n:
                raise ExcitationError(f"a step of joint {step.joint}: joints are 0 to {self.series.n - 1}")
            if not (step.rise_s > 0.0 and math.isfinite(step.rise_s) and math.isfinite(step.height)):
                raise ExcitationError(
                    f"a step of joint {step.joint}: rise_s {step.rise_s:g} must be finite and above 0, "
                    f"and height {step.height:g} finite"
                )
            if not (step.start_s >= 0.0 and step.start_s + step.rise_s <= period * (1.0 + 1e-12)):
                raise ExcitationError(
                    f"a step of joint {step.joint} from {step.start_s:g} to {step.start_s + step.rise_s:g} s is not "
                    f"within the period of {period:g} s"
                )

    @property
    def f0_hz(self) -> float:
        """Inverse of the period."""
        return self.series.f0_hz

    @property
    def harmonics(self) -> int:
        """Harmonics of the series, or the equivalent of the fastest step if larger."""
        fastest = min((step.rise_s for step in self.steps), default=self.series.period_s)
        return max(self.series.harmonics, math.ceil(1.0 / (fastest * self.f0_hz)))

    def sample(self, t: FloatArray) -> States:
        """Return position, velocity and acceleration (N, n) each, at `t` (N,) [s] of the period."""
        t = np.atleast_1d(np.asarray(t, dtype=np.float64))
        q, dq, ddq = (x.copy() for x in self.series.sample(t))
        for step in self.steps:
            u = np.clip((t - step.start_s) / step.rise_s, 0.0, 1.0)
            v, j, rate = u * (1.0 - u), step.joint, step.height / step.rise_s
            q[:, j] += step.height * u**4 * (35.0 - 84.0 * u + 70.0 * u**2 - 20.0 * u**3)
            dq[:, j] += rate * 140.0 * v**3
            ddq[:, j] += rate / step.rise_s * 420.0 * v**2 * (1.0 - 2.0 * u)
        return q, dq, ddq

    def between(self, basis: Basis) -> tuple[float, FloatArray]:
        """Return bounds between samples: a function leaves its chord by at most an eighth of `f'' h^2`."""
        w = 2.0 * np.pi * self.f0_hz * np.arange(1, self.series.harmonics + 1)
        size = np.hypot(self.series.a, self.series.b)
        curve = np.array([(size * w ** (k + 1)).sum(axis=1) for k in range(3)])
        for step in self.steps:
            for k in range(3):
                curve[k, step.joint] += _CURVES[k] * abs(step.height) / step.rise_s ** (k + 2)
        h = 1.0 / (basis.times.size * self.f0_hz)
        added = 0.125 * h * h * curve
        # samples begin half a step from the ends, and a motion that does not return has none beyond them
        ends = self.sample(np.array([0.0, self.series.period_s]))
        for k, (end, inner) in enumerate(zip(ends, self.sample(basis.times), strict=True)):
            added[k] += np.maximum(np.maximum(end - inner.max(axis=0), inner.min(axis=0) - end).max(axis=0), 0.0)
        return 1.0, added

    def smaller(self, share: float) -> "SteppedMotion":
        """Return the same steps on the series scaled by `share` about its mean."""
        return replace(self, series=self.series.shrunk(share))


@dataclass(frozen=True, eq=False)
class CheckedMotion:
    """Motion with steps, its measure, spectrum and margins, as in `rt_core.excitation.design.ExcitationDesign`."""

    motion: SteppedMotion
    value: float
    spectrum: Spectrum
    margins: tuple[Margin, ...]

    @property
    def accepted(self) -> bool:
        """Whether every limit is kept."""
        return all(margin.share >= 0.0 for margin in self.margins)

    @property
    def worst(self) -> Margin:
        """The smallest margin."""
        return min(self.margins, key=lambda margin: margin.share)


def check(designer: Designer, motion: SteppedMotion) -> CheckedMotion:
    """Check all limits and the measure of `motion` over its period, as `designer` does for a series."""
    if motion.series.n != designer.model.n:
        raise ExcitationError(f"the motion has {motion.series.n} joints, the robot {designer.model.n}")
    grid = Basis.grid(_REPORTED * motion.harmonics, motion.f0_hz, motion.harmonics)
    states = motion.sample(grid.times)
    excitation = designer.excitation
    return CheckedMotion(
        motion, excitation.value(states), excitation.spectrum(states), designer.constraints.margins(motion)
    )


def add_steps(designer: Designer, series: FourierSeries, steps: Sequence[Step]) -> CheckedMotion:
    """Add `steps` to `series`, which is scaled about its mean until all limits are kept.

    Raises `ExcitationError` if a step is wrong, or does not fit even with a series of `MIN_SHARE` of its size.
    """
    whole = SteppedMotion(series, tuple(steps))
    share = 1.0
    while share >= MIN_SHARE:
        found = check(designer, whole if share == 1.0 else whole.smaller(share))
        if found.accepted:
            return found
        share *= _SHRINK
    worst = found.worst
    raise ExcitationError(
        f"the steps leave no room: {worst.where} breaks its {worst.quantity} limit, reaching {worst.reached:.4g} where "
        f"{worst.allowed:.4g} is allowed, with the series at {MIN_SHARE:g} of its size: make them smaller or slower"
    )
