"""The robot of an arm and the settings of its estimator, from the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from drivers.files.robots.file import RobotFile, load_robot
from service.config.load import ArmConfig, check_settings

if TYPE_CHECKING:
    from rt_core.online import OnlineSettings


def load_arm_robot(arm: ArmConfig, base: Path) -> RobotFile:
    """Load the robot of `arm`; raises `RobotError`."""
    return load_robot(arm.robot, base)


def online_settings(arm: ArmConfig, robot: RobotFile, where: str) -> OnlineSettings:
    """Return the settings of the estimator: `[arm.estimator]` over the robot file's cut-off and slowest velocities.

    Raises `ConfigError`: a key is unknown or out of range; `where` names the table.
    """
    from rt_core.online import OnlineSettings  # here, as its filter design is needed by the estimator alone

    given = {name: getattr(robot.identification, name) for name in ("cutoff_hz", "min_velocity")}
    table: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return check_settings(OnlineSettings, table | arm.estimator, where)
