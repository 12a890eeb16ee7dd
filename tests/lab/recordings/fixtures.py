"""Recordings of simulated arms and models identified from them, made once for all tests of the commands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.model.inertia import inertial_vector, transform_inertial
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from tests.lab.command_line import simulate, thetad

LOAD = inertial_vector(2.5, np.array([0.01, -0.02, 0.08]), np.diag([0.02, 0.015, 0.01]))


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the files below."""
    return tmp_path_factory.mktemp("commands")


@pytest.fixture(scope="session")
def space6_recording(work: Path) -> Path:
    return simulate(work / "space6.mcap", "space6", seed=1, seconds=24.0)


@pytest.fixture(scope="session")
def arm7_recording(work: Path) -> Path:
    return simulate(work / "arm7.mcap", "arm7", seed=2, seconds=24.0)


def loaded(model: RobotModel, load: FloatArray = LOAD) -> RobotModel:
    """The arm with a payload on its flange."""
    assert model.inertial is not None
    inertial = model.inertial.copy()
    inertial[-1] += transform_inertial(load, model.tip_rotation, model.tip_translation)
    return replace(model, inertial=inertial)


@pytest.fixture(scope="session")
def arm7_loaded(work: Path) -> Path:
    return simulate(work / "arm7_loaded.mcap", loaded(load_robot("arm7").model), seed=12, seconds=16.0)


@pytest.fixture(scope="session")
def stribeck_recording(work: Path) -> Path:
    return simulate(work / "stribeck.mcap", "space6_stribeck", seed=3, seconds=24.0)


def identified(out: Path, recording: Path, robot: str, *more: object) -> Path:
    """Model file of the first 60 % of a recording."""
    done = thetad("identify", recording, "--robot", robot, "--span", "0:0.6", "-o", out, "--json", *more)
    assert done.code == 0, done
    return out


@pytest.fixture(scope="session")
def space6_model(work: Path, space6_recording: Path) -> Path:
    return identified(work / "space6.yaml", space6_recording, "space6")


@pytest.fixture(scope="session")
def arm7_model(work: Path, arm7_recording: Path) -> Path:
    return identified(work / "arm7.yaml", arm7_recording, "arm7")


@pytest.fixture(scope="session")
def arm7_physical(work: Path, arm7_recording: Path) -> Path:
    """Model file with possible links."""
    return identified(work / "arm7_physical.yaml", arm7_recording, "arm7", "--method", "physical")


@pytest.fixture(scope="session")
def stribeck_model(work: Path, stribeck_recording: Path) -> Path:
    """Model file with velocity constants, and its report "stribeck.html"."""
    report = ("--report", work / "stribeck.html")
    return identified(work / "stribeck.yaml", stribeck_recording, "space6_stribeck", *report)
