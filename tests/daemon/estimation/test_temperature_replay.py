"""A recording over temperature through a daemon: temperature slopes of the online model, and its range."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivers.files.robots.file import load_robot
from service.models.document import load_model
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import AmbientSettings, MotionSettings, SimSettings
from tests.lab.command_line import thetad, write_recording

ROBOT = "space6_temperature"
RATE_HZ = 250.0
SECONDS = 40.0


def record(path: Path, *channels: str) -> Path:
    model = load_robot(ROBOT).model
    settings = SimSettings(
        rate_hz=RATE_HZ, ambient_c=-20.0, ambient=(AmbientSettings(time_s=SECONDS, ambient_c=60.0),), thermal_time_s=2.0
    )
    data = SimulatedArm(model, settings, MotionSettings(seed=2, candidates=2)).simulate(SECONDS)
    return write_recording(path, model, data.t, {name: data.channels[name] for name in channels}, RATE_HZ)


def test_slopes_are_learned_from_frames_with_temperatures(tmp_path: Path) -> None:
    path, out = record(tmp_path / "warm.mcap", "q", "dq", "tau", "temperature"), tmp_path / "online.yaml"
    done = thetad("replay", path, "--robot", ROBOT, "--speed", "max", "-o", out, "--json")
    assert done.code == 0, done
    found = done.json
    assert found["temperature"]["state"] == "ok"
    values = {row["name"]: row for row in found["parameters"]}
    truth = load_robot(ROBOT).model.dynamics
    assert truth is not None
    for i in range(6):
        row = values[f"alpha{i + 1}"]
        assert row["status"] == "estimated"
        assert row["value"] == pytest.approx(truth.coulomb_temperature[i], rel=0.1)
    seen = load_model(out).temperatures
    assert seen is not None
    assert (seen.lower < -10.0).all()
    assert (seen.upper > 50.0).all()
