"""Settings of a calibration, and its error class; without the numerics, so that requests can contain them."""

import math
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar, Literal

from rt_core.settings import AtLeastOne, Bounded, Count, Magnitude, Share

Method = Literal["lm", "pso", "pso_lm"]
#: Largest valid joint position or measurement [rad or m].
MAX = 1e6
#: Largest compliance of a joint [rad/(N*m)] or [m/N]: a hundred times that of an industrial one.
MAX_COMPLIANCE = 1e-3


class CalibrationError(ValueError):
    """Data or settings do not allow a calibration; the message says what to change."""


@dataclass(frozen=True, kw_only=True)
class FitSettings(Bounded):
    """Settings that requests contain, too."""

    refusal: ClassVar[type[ValueError]] = CalibrationError
    method: Method = "lm"
    base: bool = True  # estimate the base in the measuring frame
    tool: bool = True  # estimate the measured point (or frame) on the last link
    # reduce the weight of poses that do not fit (Huber to find the scale, then Tukey's bisquare); else least squares
    robust: bool = False
    excluded: tuple[str, ...] = ()  # parameters of the arm to hold at their nominal values
    range_length: Share = 0.05  # largest error of a parameter [m]; these ranges are also the box searched by swarms
    range_angle: Share = 0.1  # likewise [rad]
    range_compliance: Share = MAX_COMPLIANCE  # largest compliance of a joint [rad/(N*m)] or [m/N]
    # prior standard deviation [m] of all errors of the arm without one in `priors`.  A parameter with a prior is never
    # held as dependent or imprecise
    prior_length: Magnitude | None = None
    prior_angle: Magnitude | None = None  # likewise [rad]
    compliance: bool = False  # estimate the compliance of the joints; their load must be given
    # root-mean-square error [m] at which swarms end (KIN: 0.5 mm); None: at the minimum, as "lm" always does
    tolerance: Magnitude | None = None
    seed: Count = 0  # of the swarms
    # expected standard deviation of a coordinate [m]; a result with more than 3 times as much is not explained.  If
    # None, one with more than 0.5 % of the distance from the base
    expected_noise: Magnitude | None = None
    # standard deviation [m] of the errors of arms as built.  Parameters held as imprecise are uncertain by as much,
    # which the standard deviations of the others include
    build_length: Magnitude = 1e-3
    build_angle: Magnitude = 1e-3  # likewise [rad]


@dataclass(frozen=True, kw_only=True)
class CalibrationSettings(FitSettings):
    """Settings of a calibration."""

    swarm_iterations: AtLeastOne = 50
    lm_iterations: AtLeastOne = 100
    particles: AtLeastOne | None = None  # 2.5 per parameter if None (KIN)
    priors: tuple[tuple[str, float], ...] = ()  # prior standard deviations of single errors of the arm

    def __post_init__(self) -> None:
        """Check the ranges; raise `CalibrationError`."""
        super().__post_init__()
        for name, std in self.priors:
            if not isinstance(std, Real) or not 0.0 < std < math.inf:
                raise CalibrationError(f"priors: {name}: a standard deviation must be above 0 and finite, not {std}")
