"""Torque and current of an arm, depending on the channels of its source."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from drivers.files.robots.file import RobotFile
from rt_core.types import FloatArray
from service.commission.errors import StepFailedError
from service.commission.settings import Payload


@dataclass(frozen=True)
class TorqueSource:
    """Source of an arm's torque: `channel` "tau", or "current", not `scaled` if the torque constants are unknown."""

    channel: str
    scaled: bool
    units: tuple[str, ...]


def states_constants(robot: RobotFile) -> bool:
    """Return whether the description states the motors' torque constants."""
    return bool((robot.source.get("transmission") or {}).get("torque_constant"))


def torque_source(robot: RobotFile, channels: Collection[str]) -> TorqueSource | None:
    """Return the torque source; None without torque or a current convertible to torque."""
    units = tuple("N*m" if joint.kind == "revolute" else "N" for joint in robot.model.joints)
    if "tau" in channels:
        return TorqueSource("tau", True, units)
    if "current" in channels and robot.model.transmission is not None:
        known = states_constants(robot)
        return TorqueSource("current", known, units if known else ("A times gear ratio",) * robot.model.n)
    return None


def check_source(robot: RobotFile, channels: Collection[str], payload: Payload | None) -> TorqueSource:
    """Return the torque source; `StepFailedError` if there is none, or one whose constants are unknown."""
    source = torque_source(robot, channels)
    if source is None:
        raise StepFailedError(
            f"the source delivers {', '.join(channels)}: nothing can be identified without torque, or current and a "
            "[transmission] in the robot file"
        )
    if payload is None and not source.scaled:
        raise StepFailedError(
            "only current is measured and the description states no torque_constant: give a known payload by "
            "--payload MASS, or the constants in [transmission] of the robot file"
        )
    if payload is not None and ("current" not in channels or robot.model.transmission is None):
        raise StepFailedError(
            "--payload: torque constants need a current and a [transmission] in the robot file; the source delivers "
            f"{', '.join(channels)}"
        )
    return source


def torque(robot: RobotFile, source: TorqueSource, channels: Mapping[str, FloatArray]) -> FloatArray:
    """Return the torque (N, n) at the joints, or current times gear ratio if the torque constants are unknown."""
    if source.channel == "tau":
        return channels["tau"]
    transmission = robot.model.transmission
    assert transmission is not None
    return transmission.joint_torque(transmission.torque_constant * channels["current"])
