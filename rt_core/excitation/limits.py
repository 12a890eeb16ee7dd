"""Joint limits of an excitation."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from rt_core.excitation.errors import ExcitationError
from rt_core.excitation.settings import ExcitationSettings
from rt_core.model.robot import RobotModel
from rt_core.types import BoolArray, FloatArray

Quantity = Literal["position", "velocity", "acceleration", "effort"]

#: Assumed limits where the robot description has none, by kind of joint: half a range, and a speed.
ASSUMED_REACH = {"revolute": np.pi / 2, "prismatic": 0.3}
ASSUMED_VELOCITY = {"revolute": 2.0, "prismatic": 0.5}
#: Acceleration limit over velocity limit [1/s] if none is given.
ASSUMED_ACCELERATION = 5.0


@dataclass(frozen=True, eq=False)
class Limits:
    """Limits of each joint, and the share of them that the motion may use."""

    lower: FloatArray  # (n,) usable share of the limits
    upper: FloatArray  # (n,)
    velocity: FloatArray  # (n,)
    acceleration: FloatArray  # (n,)
    effort: FloatArray  # (n,); infinite where unknown
    # (n,) each: the limits themselves, by `lower`, `upper`, `velocity`, `acceleration`, `effort`
    whole: dict[str, FloatArray]
    # (n,) each, by quantity: the limit is assumed, because the robot description has none
    assumed: dict[Quantity, BoolArray]

    @property
    def n(self) -> int:
        """Number of joints."""
        return int(self.lower.size)

    @classmethod
    def of(cls, model: RobotModel, settings: ExcitationSettings) -> "Limits":
        """Return the limits of `model` and the share of them that `settings` allow.

        Raises `ExcitationError` if a limit leaves no motion, or the number of accelerations is wrong.
        """
        n = model.n
        kinds = [joint.kind for joint in model.joints]
        reach = np.array([ASSUMED_REACH[kind] for kind in kinds])
        low, high = (np.array([getattr(joint, side) for joint in model.joints]) for side in ("lower", "upper"))
        velocity = np.array([joint.velocity for joint in model.joints])
        effort = np.array([joint.effort for joint in model.joints])
        assumed: dict[Quantity, BoolArray] = {
            "position": ~(np.isfinite(low) & np.isfinite(high)), "velocity": ~np.isfinite(velocity),
            "acceleration": np.full(n, settings.acceleration is None), "effort": np.zeros(n, dtype=bool),
        }  # fmt: skip
        lower = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high - 2.0 * reach, -reach))
        upper = np.where(np.isfinite(high), high, np.where(np.isfinite(low), low + 2.0 * reach, reach))
        velocity = np.where(assumed["velocity"], [ASSUMED_VELOCITY[kind] for kind in kinds], velocity)
        if settings.acceleration is None:
            with np.errstate(over="ignore"):  # what is infinite is refused below
                acceleration = ASSUMED_ACCELERATION * velocity
        elif len(settings.acceleration) != n:
            raise ExcitationError(
                f"acceleration has {len(settings.acceleration)} values, robot '{model.name}' has {n} joints"
            )
        else:
            acceleration = np.array(settings.acceleration, dtype=np.float64)
        for i, joint in enumerate(model.joints):
            if not lower[i] < upper[i]:
                raise ExcitationError(
                    f"joint '{joint.name}': lower limit {lower[i]:g} is not below the upper limit {upper[i]:g}"
                )
            for name, value in (("velocity", velocity), ("acceleration", acceleration), ("effort", effort)):
                if not value[i] > 0.0 or (name == "acceleration" and not np.isfinite(value[i])):
                    raise ExcitationError(f"joint '{joint.name}': {name} limit {value[i]:g} leaves no motion")
        middle, half = 0.5 * (lower + upper), 0.5 * settings.position_fraction * (upper - lower)
        return cls(
            middle - half, middle + half, settings.velocity_fraction * velocity,
            settings.acceleration_fraction * acceleration, settings.effort_fraction * effort,
            {"lower": lower, "upper": upper, "velocity": velocity, "acceleration": acceleration, "effort": effort},
            assumed,
        )  # fmt: skip
