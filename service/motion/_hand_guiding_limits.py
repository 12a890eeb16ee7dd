"""Speed and torque limits of a hand guiding session: the lowest of its settings, the robot's and the arm's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rt_core.hand_guiding import ZeroForceSettings
from rt_core.model.robot import RobotModel
from rt_core.safety import SafetyLimits


def check_limits(robot: RobotModel, settings: ZeroForceSettings) -> None:
    """Raise `ValueError`, which names joint and limit, if a configured value is larger than the robot's limit."""
    for name, given, stated in (
        ("speed_limit", settings.speed_limit, "velocity"),
        ("torque_limit", settings.torque_limit, "effort"),
    ):
        for joint, value in zip(robot.joints, given or (), strict=False):
            if value > getattr(joint, stated):
                raise ValueError(
                    f"{name} of {joint.name} is {value:g}: at most {getattr(joint, stated):g}, the {stated} limit of "
                    "the robot file"
                )


def effective(settings: ZeroForceSettings, robot: RobotModel, limits: SafetyLimits) -> ZeroForceSettings:
    """Return `settings` with the limits of each joint, including those of runs of this arm.

    A list that is missing or has the wrong length stays, for the controller to refuse.
    """
    velocity = np.array([joint.velocity for joint in robot.joints])
    effort = np.array([joint.effort for joint in robot.joints])
    lists = (settings.speed_limit, settings.torque_limit)
    if any(given is not None and len(given) != robot.n for given in lists):
        return settings
    speed = np.minimum(settings.speed_share * velocity, limits.velocity)
    if settings.speed_limit is not None:
        speed = np.minimum(speed, settings.speed_limit)
    torque = settings.torque_share * effort if settings.torque_limit is None else np.array(settings.torque_limit)
    torque = np.minimum(torque, limits.effort)
    if np.isfinite(speed).all():
        settings = replace(settings, speed_limit=tuple(speed.tolist()))
    return replace(settings, torque_limit=tuple(torque.tolist())) if np.isfinite(torque).all() else settings
