"""Choosing an arm's robot and driver by what the configuration says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from drivers.ads.config import AdsConfig
from drivers.driver import Driver, DriverConfigError, DriverInfo
from drivers.ethercat.config import EthercatConfig
from drivers.robot_file import RobotFile, load_robot
from rt_core.model.robot import RobotModel
from service.config import ArmConfig, BusConfig, ReplayConfig, check_settings

if TYPE_CHECKING:
    from rt_core.online import OnlineSettings


def load_arm_robot(arm: ArmConfig, base: Path) -> RobotFile:
    """Load the robot of `arm`; raises `RobotError`."""
    return load_robot(arm.robot, base)


def online_settings(arm: ArmConfig, robot: RobotFile, where: str) -> OnlineSettings:
    """Return the settings of the estimator: `[arm.estimator]`, over the band and slowest velocities of the robot file.

    Raises
    ------
    ConfigError
        A key is unknown or out of range; `where` is the place of the table.
    """
    from rt_core.online import OnlineSettings  # here, because only the estimator needs the filter design it brings

    given = robot.identification
    table: dict[str, Any] = {}
    if given.cutoff_hz is not None:
        table["cutoff_hz"] = given.cutoff_hz
    if given.min_velocity is not None:
        table["min_velocity"] = given.min_velocity
    return check_settings(OnlineSettings, table | arm.estimator, where)


def make_driver(arm: ArmConfig, model: RobotModel) -> Driver:
    """Make the driver that the configuration names, not yet open.

    Raises
    ------
    DriverConfigError, SpanError, ...
        The configuration does not suit the driver.
    """
    if isinstance(arm.driver, ReplayConfig):
        from drivers.replay import ReplayDriver
        from drivers.span import Span

        span = None if arm.driver.span is None else Span.parse(arm.driver.span)
        return ReplayDriver(arm.driver.recording, speed=arm.driver.speed, span=span, loop=arm.driver.loop)
    if isinstance(arm.driver, EthercatConfig):
        from drivers.ethercat.driver import EthercatDriver

        return EthercatDriver(arm.driver)
    if isinstance(arm.driver, AdsConfig):
        from drivers.ads.driver import AdsDriver

        return AdsDriver(arm.driver)
    from sim_backend.driver import SimDriver

    return SimDriver(model, arm.driver.settings, arm.driver.motion, pace=arm.driver.pace)


def check_source(arm: ArmConfig, model: RobotModel, info: DriverInfo) -> None:
    """Check that an open driver delivers what `model` needs; raises `DriverConfigError`."""
    if info.n != model.n:
        raise DriverConfigError(
            f"arm {arm.name}: the source has {info.n} joints ({', '.join(info.joint_names)}) and "
            f"robot {model.name!r} has {model.n}; choose the robot that was recorded"
        )
    names = tuple(joint.name for joint in model.joints)
    if isinstance(arm.driver, BusConfig) and info.joint_names != names:
        raise DriverConfigError(
            f"arm {arm.name}: the drives are those of joints {', '.join(info.joint_names)}, and robot {model.name!r} "
            f"has {', '.join(names)}; list one drive or axis a joint, in the robot's order"
        )
    positions = {"q"} if model.transmission is None else {"q", "q_motor"}
    torques = {"tau"} if model.transmission is None else {"tau", "current"}
    for wanted, what in ((positions, "position"), (torques, "torque")):
        if not wanted & set(info.channels):
            raise DriverConfigError(
                f"arm {arm.name}: the source has no {what} ({' or '.join(sorted(wanted))}); "
                f"it has {', '.join(info.channels) or 'no channels'}"
            )
