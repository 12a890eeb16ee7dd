"""A source that does not deliver what the robot needs is refused when it has been opened."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from drivers.driver import DriverConfigError, DriverInfo
from drivers.files.recordings.format import RecordingError, RecordingNotFoundError
from drivers.files.robots.file import load_robot
from service.acquisition.sources import check_source
from service.config.load import ArmConfig
from service.protocol.transient_errors import is_transient
from tests.lab.daemon.ethercat_rig import device

TX40 = load_robot("staubli_tx40").model  # its fifth motor turns its last joint too
NAMES = tuple(joint.name for joint in TX40.joints)


def info(names: tuple[str, ...] = NAMES) -> DriverInfo:
    return DriverInfo("a bus", names, ("q", "tau"), 1000.0, "dc", lossless=False)


def ads(**changes: Any) -> ArmConfig:
    axes = [{"joint": name} for name in NAMES]
    driver = {"kind": "ads", "net_id": "1.2.3.4.1.1", "axis": axes} | changes
    return ArmConfig.model_validate({"name": "wrist", "robot": "staubli_tx40", "driver": driver})


def test_a_motor_that_turns_two_joints_needs_a_controller_that_decouples() -> None:
    with pytest.raises(DriverConfigError, match=r"more than one joint \(joint_6\).*decoupled = true") as error:
        check_source(ads(), TX40, info())
    assert "arm wrist" in str(error.value)
    check_source(ads(decoupled=True), TX40, info())


@pytest.mark.parametrize("mode", ["csp", "none"])
def test_drives_on_ethercat_cannot_be_those_of_coupled_joints(mode: str) -> None:
    drives = [{"joint": name, "device": "servo"} for name in NAMES]
    driver = {"kind": "ethercat", "interface": "eth9", "mode": mode, "drive": drives, "device": {"servo": device()}}
    arm = ArmConfig.model_validate({"name": "wrist", "robot": "staubli_tx40", "driver": driver})
    with pytest.raises(DriverConfigError, match="each drive is taken for one joint"):
        check_source(arm, TX40, info())
    arm7 = load_robot("arm7").model
    check_source(arm, arm7, info(tuple(joint.name for joint in arm7.joints)))


@pytest.mark.parametrize(
    ("cause", "passing"),
    [
        (OSError(errno.EIO, "Input/output error"), True),
        (PermissionError(errno.EACCES, "Permission denied"), False),
        (RecordingNotFoundError("rec.mcap: no such file"), False),
        (None, False),
    ],
)
def test_what_a_later_start_may_find_in_order(cause: OSError | None, passing: bool) -> None:
    """A disk that could not be read is tried again, a file that is not there or no recording is not."""
    recording, replay = RecordingError("rec.mcap: cannot be read"), DriverConfigError("replay")
    recording.__cause__, replay.__cause__ = cause, recording
    assert is_transient(replay) is passing
