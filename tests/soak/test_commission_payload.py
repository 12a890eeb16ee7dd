"""An arm that delivers current only, whose torque constants nobody knows: a payload finds them, and a model follows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from drivers.files.recordings.recording import read_recording
from drivers.files.robots.file import load_robot
from service.models.document import load_model
from tests.lab.command_line import thetad
from tests.lab.daemon.ethercat_rig import write_robot

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
BRIEF = (
    *("--speeds", "0.05", "0.2", "--sweep", "1.5", "--first-speed", "1", "--period", "5", "--harmonics", "3"),
    *("--periods", "2", "--validation-periods", "2", "--set", "iterations=40"),
)


@pytest.mark.soak
def test_torque_constants_and_a_model_from_current_alone(tmp_path: Path) -> None:
    robot, out = write_robot(tmp_path), tmp_path / "out"
    robot.write_text(
        robot.read_text(encoding="utf-8") + "\n[transmission]\ngear_ratio = [100.0, -120.0, 80.0]\n", encoding="utf-8"
    )
    done = thetad("commission", robot, "-o", out, "--payload", "5:0.1,0.05,0.3", *BRIEF, "--json")
    assert done.code == 0, done
    assert min(done.json["R"].values()) > 0.97
    truth = load_robot(out / "simulated.toml").model.transmission
    assert truth is not None
    found = json.loads((out / "05_payload.json").read_text(encoding="utf-8"))["motors"]
    value, std = (np.array([motor[key] for motor in found]) for key in ("torque_constant", "std"))
    assert (np.abs(value - truth.torque_constant) < 5.0 * std + 2e-3 * truth.torque_constant).all(), found
    assert (std < 0.05 * np.abs(value)).all()
    runs = json.loads((out / "07_run.json").read_text(encoding="utf-8"))
    recording = read_recording(Path(runs["validation"]["recording"]))
    assert recording.path is not None
    assert recording.path.name.endswith("-tau.mcap")
    current = recording.channels["current"]
    wanted = current * value * np.array([100.0, -120.0, 80.0])
    np.testing.assert_allclose(recording.channels["tau"], wanted, rtol=1e-9)
    constants = load_model(Path(done.json["model"])).robot.model.transmission
    assert constants is not None
    np.testing.assert_allclose(constants.torque_constant, value)
