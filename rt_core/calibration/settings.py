"""Settings of a calibration, and its error class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rt_core.calibration.elements import FRAME
from rt_core.calibration.error_model import ErrorModel
from rt_core.calibration.fit import Method
from rt_core.types import FloatArray

#: Largest valid joint position or measurement [rad or m].
MAX = 1e6
#: Largest compliance of a joint [rad/(N*m)] or [m/N]: a hundred times that of an industrial one.
MAX_COMPLIANCE = 1e-3
#: Standard deviation of a compliance that is held nominal as imprecise.
BUILD_COMPLIANCE = 1e-5
#: Range of base, tool, fixed points and sensor: they may be anywhere.
WIDE = {"m": 100.0, "rad": 3.0 * np.pi}


class CalibrationError(ValueError):
    """Data or settings do not allow a calibration; the message says what to change."""


@dataclass(frozen=True)
class CalibrationSettings:
    """Settings of a calibration."""

    method: Method = "lm"
    base: bool = True  # estimate the base in the measuring frame
    tool: bool = True  # estimate the measured point (or frame) on the last link
    # reduce the weight of poses that do not fit (Huber to find the scale, then Tukey's bisquare); else least squares
    robust: bool = False
    excluded: tuple[str, ...] = ()  # parameters of the arm to hold at their nominal values
    range_length: float = 0.05  # largest error of a parameter [m]; these ranges are also the box searched by swarms
    range_angle: float = 0.1  # likewise [rad]
    swarm_iterations: int = 50
    lm_iterations: int = 100
    particles: int | None = None  # 2.5 per parameter if None (KIN)
    # prior standard deviation [m] of all errors of the arm without one in `priors`.  A parameter with a prior is never
    # held as dependent or imprecise
    prior_length: float | None = None
    prior_angle: float | None = None  # likewise [rad]
    priors: tuple[tuple[str, float], ...] = ()  # prior standard deviations of single errors of the arm
    compliance: bool = False  # estimate the compliance of the joints; their load must be given
    # root-mean-square error [m] at which swarms end (KIN: 0.5 mm); None: at the minimum, as "lm" always does
    tolerance: float | None = None
    seed: int = 0  # of the swarms
    # expected standard deviation of a coordinate [m]; a result with more than 3 times as much is not explained.  If
    # None, one with more than 0.5 % of the distance from the base
    expected_noise: float | None = None
    # standard deviation [m] of the errors of arms as built.  Parameters held as imprecise are uncertain by as much,
    # which the standard deviations of the others include
    build_length: float = 1e-3
    build_angle: float = 1e-3  # likewise [rad]
    range_compliance: float = MAX_COMPLIANCE  # largest compliance of a joint [rad/(N*m)] or [m/N]

    def __post_init__(self) -> None:
        """Check the ranges; raise `CalibrationError`."""
        if self.method not in ("lm", "pso", "pso_lm"):
            raise CalibrationError(f"unknown method {self.method!r}; known: lm, pso, pso_lm")
        for name in ("range_length", "range_angle"):
            if not 0.0 < getattr(self, name) < np.pi:
                raise CalibrationError(f"{name} must be above 0 and below pi, not {getattr(self, name)}")
        if not 0.0 < self.range_compliance < np.inf:
            raise CalibrationError(f"range_compliance must be above 0 and finite, not {self.range_compliance}")
        if self.expected_noise is not None and not 0.0 < self.expected_noise < np.inf:
            raise CalibrationError(f"expected_noise must be above 0 and finite, not {self.expected_noise}")
        for name in ("build_length", "build_angle"):
            if not 0.0 <= getattr(self, name) < np.inf:
                raise CalibrationError(f"{name} must be at least 0 and finite, not {getattr(self, name)}")
        given = [("prior_length", self.prior_length), ("prior_angle", self.prior_angle), *self.priors]
        for name, std in given:
            if std is not None and not 0.0 < std < np.inf:
                raise CalibrationError(f"{name}: a standard deviation must be above 0 and finite, not {std}")


def check_excluded(model: ErrorModel, settings: CalibrationSettings) -> None:
    """Check that excluded parameters are of the arm.

    An estimated frame or point has no nominal value: it would be held where the nominal arm fits best, as if exact.
    Raises `CalibrationError` if a name is unknown, or of a frame or point.
    """
    for name in settings.excluded:
        if name in model.replaced:
            continue
        try:
            k = model.index(name)
        except ValueError as error:
            raise CalibrationError(f"excluded: {error}") from None
        if model.priority[k] == FRAME:
            raise CalibrationError(
                f"excluded: {name} is not of the arm but of a frame or point, which has no nominal value to be held "
                "at: leave it out, or take base or tool as known instead"
            )


def largest_errors(model: ErrorModel, settings: CalibrationSettings) -> FloatArray:
    """Return the largest errors (P,), in the parameters' units; those of frames bound the box of swarms only."""
    by_unit = {"m": settings.range_length, "rad": settings.range_angle}
    arm = np.array([by_unit.get(unit, settings.range_compliance) for unit in model.units])
    if settings.method != "lm":
        return arm
    return np.where(model.of_arm, arm, [WIDE.get(unit, 1.0) for unit in model.units])


def build_deviations(model: ErrorModel, settings: CalibrationSettings) -> FloatArray:
    """Return the standard deviations (P,) of the errors of an arm as built, in the parameters' units."""
    by_unit = {"m": settings.build_length, "rad": settings.build_angle}
    return np.array([by_unit.get(unit, BUILD_COMPLIANCE) for unit in model.units])


def prior_deviations(model: ErrorModel, settings: CalibrationSettings) -> FloatArray | None:
    """Return the prior standard deviations (P,) of a model's errors, infinite without a prior; None without any.

    Raises `CalibrationError` if `priors` names a parameter that the arm does not have.
    """
    by_unit = {"m": settings.prior_length, "rad": settings.prior_angle}
    found = np.array([by_unit.get(unit) or np.inf for unit in model.units])
    found[~model.of_arm] = np.inf
    for name, std in settings.priors:
        try:
            k = model.index(name)
        except ValueError as error:
            raise CalibrationError(f"priors: {error}") from None
        if model.priority[k] == FRAME:
            raise CalibrationError(
                f"priors: {name} is not of the arm but of a frame or point, which only the measurements show: leave it "
                "out, or take base or tool as known"
            )
        found[k] = std
    return found if np.isfinite(found).any() else None
