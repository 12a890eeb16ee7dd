"""Torque and current of an arm, whichever its source delivers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from drivers.files.robots.file import RobotFile
from rt_core.types import FloatArray
from service.commission.errors import StepFailedError
from service.commission.settings import Payload


@dataclass(frozen=True)
class TorqueSource:
    """Where torque comes from.

    Attributes
    ----------
    channel : str
        "tau", or "current" where no torque is delivered.
    scaled : bool
        It is a torque; otherwise current at the motors' gears, whose torque constants are not known.
    units : tuple of str
        Of what `torque` gives, joint by joint.
    """

    channel: str
    scaled: bool
    units: tuple[str, ...]


def states_constants(robot: RobotFile) -> bool:
    """Tell whether the description states the motors' torque constants."""
    return bool((robot.source.get("transmission") or {}).get("torque_constant"))


def torque_source(robot: RobotFile, channels: Collection[str]) -> TorqueSource | None:
    """Choose; None if there is neither torque nor a current that the description could turn into one."""
    units = tuple("N*m" if joint.kind == "revolute" else "N" for joint in robot.model.joints)
    if "tau" in channels:
        return TorqueSource("tau", True, units)
    if "current" in channels and robot.model.transmission is not None:
        known = states_constants(robot)
        return TorqueSource("current", known, units if known else ("A times gear ratio",) * robot.model.n)
    return None


def check_source(robot: RobotFile, channels: Collection[str], payload: Payload | None) -> TorqueSource:
    """Return where torque comes from.

    Raises
    ------
    StepFailedError
        There is none, or the torque constants are neither stated nor to be found by `payload`.
    """
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
    """Torque (N, n) at the joints, or current times gear ratio where the torque constants are not known."""
    if source.channel == "tau":
        return channels["tau"]
    transmission = robot.model.transmission
    assert transmission is not None
    return transmission.joint_torque(transmission.torque_constant * channels["current"])
