"""Limits of an arm's motion, from its robot file and `[arm.safety]`."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from drivers.ads.config import AxisTable
from drivers.ethercat.config import DriveTable
from rt_core.model.robot import RobotModel
from rt_core.safety import SafetyError, SafetyLimits
from rt_core.types import FloatArray
from service.config.arm_tables import SafetyConfig

#: Acceleration limit over velocity limit [1/s], by default.
ASSUMED_ACCELERATION = 5.0
#: Following error [rad], and [m] of a slide, by default.
FOLLOWING_ERROR, SLIDE_FOLLOWING_ERROR = 0.2, 0.01
#: Commands may exceed a safety limit by 1e-6 of it, for rounding, but not a driver's limit.
_ROUNDING = 2e-6


class CommandBounds(NamedTuple):
    """Commands that a driver accepts, (n,) each; it extrapolates none beyond these."""

    lower: FloatArray
    upper: FloatArray
    velocity: FloatArray


def command_bounds(axes: Sequence[DriveTable | AxisTable]) -> CommandBounds:
    """Return the limits in a driver's configuration, one per joint; infinite where it has none."""

    def each(values: Iterable[float | None], default: float) -> FloatArray:
        return np.array([default if value is None else value for value in values])

    return CommandBounds(
        each((axis.position_min_rad for axis in axes), -np.inf),
        each((axis.position_max_rad for axis in axes), np.inf),
        each((axis.velocity_max_rad_s for axis in axes), np.inf),
    )


def narrowed(limits: SafetyLimits, bounds: CommandBounds) -> SafetyLimits:
    """Return `limits` narrowed by `bounds`; raises `SafetyError` if that leaves a joint no range.

    A limit that the robot file does not state stays missing: feedback would not be checked against it.
    """
    width = limits.upper - limits.lower
    spare = np.where(np.isfinite(width), _ROUNDING * width, 0.0)

    def each(own: FloatArray, narrower: FloatArray) -> FloatArray:
        return np.where(np.isfinite(own), narrower, own)

    return replace(
        limits,
        lower=each(limits.lower, np.maximum(limits.lower, bounds.lower + spare)),
        upper=each(limits.upper, np.minimum(limits.upper, bounds.upper - spare)),
        velocity=each(limits.velocity, np.minimum(limits.velocity, (1.0 - _ROUNDING) * bounds.velocity)),
    )


def safety_limits(model: RobotModel, config: SafetyConfig) -> SafetyLimits:
    """Return the limits of `model` under `config`; those that the robot file does not state are infinite.

    Raises `SafetyError` for a list that has not one value for each joint.
    """

    def each(name: str) -> FloatArray:
        value = getattr(config, name)
        if isinstance(value, tuple) and len(value) != model.n:
            raise SafetyError(
                f"safety.{name} has {len(value)} values, robot '{model.name}' has {model.n} joints: give one for each, "
                "or one number for all"
            )
        return np.broadcast_to(np.asarray(value, dtype=np.float64), model.n).copy()

    def stated(name: str) -> FloatArray:
        return np.array([getattr(joint, name) for joint in model.joints])

    turns = np.array([joint.kind == "revolute" for joint in model.joints])
    assumed = np.where(turns, FOLLOWING_ERROR, SLIDE_FOLLOWING_ERROR)
    velocity = stated("velocity")
    acceleration = ASSUMED_ACCELERATION * velocity if config.acceleration is None else each("acceleration")
    return SafetyLimits(
        joints=tuple(joint.name for joint in model.joints), units=tuple("rad" if turn else "m" for turn in turns),
        lower=stated("lower"), upper=stated("upper"), velocity=config.velocity_fraction * velocity,
        acceleration=acceleration, overspeed=config.overspeed * velocity,
        effort=config.effort_fraction * stated("effort"),
        following_error=assumed if config.following_error is None else each("following_error"),
        temperature=each("temperature_c"),
    )  # fmt: skip
