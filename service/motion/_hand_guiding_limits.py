"""Speed and torque limits of a session of guiding: the lowest of what its settings, the robot and the arm allow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rt_core.hand_guiding import ZeroForceSettings
from rt_core.model.robot import RobotModel
from rt_core.safety import SafetyLimits


def check_limits(robot: RobotModel, settings: ZeroForceSettings) -> None:
    """Refuse lists of a configuration that are above the limits of the robot.

    Raises
    ------
    ValueError
        Which, of which joint, and what the robot file allows.
    """
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
    """Return `settings` with the limits that hold for each joint: also those that runs of this arm keep.

    What is missing, or has not one value for each joint, is left as it is, for the controller to refuse.
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
