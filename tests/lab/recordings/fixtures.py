"""Recordings of simulated arms and models identified from them, made once for all tests of the commands."""

import fcntl
import os
from collections.abc import Callable
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


def shared(factory: pytest.TempPathFactory, name: str) -> Path:
    """Folder that all processes of a run of the tests share."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    return folder


def once(path: Path, make: Callable[[Path], object]) -> Path:
    """Return a file that the first process in need of it makes, while others wait."""
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            make(path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder that the tests of a module share."""
    return tmp_path_factory.mktemp("module")


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the files below."""
    return shared(tmp_path_factory, "commands")


@pytest.fixture(scope="session")
def space6_recording(work: Path) -> Path:
    return once(work / "space6.mcap", lambda path: simulate(path, "space6", seed=1, seconds=24.0))


@pytest.fixture(scope="session")
def arm7_recording(work: Path) -> Path:
    return once(work / "arm7.mcap", lambda path: simulate(path, "arm7", seed=2, seconds=24.0))


def loaded(model: RobotModel, load: FloatArray = LOAD) -> RobotModel:
    """The arm with a payload on its flange."""
    inertial = model.inertial.copy()
    inertial[-1] += transform_inertial(load, model.tip_rotation, model.tip_translation)
    return replace(model, inertial=inertial)


@pytest.fixture(scope="session")
def arm7_loaded(work: Path) -> Path:
    model = loaded(load_robot("arm7").model)
    return once(work / "arm7_loaded.mcap", lambda path: simulate(path, model, seed=12, seconds=16.0))


@pytest.fixture(scope="session")
def stribeck_recording(work: Path) -> Path:
    return once(work / "stribeck.mcap", lambda path: simulate(path, "space6_stribeck", seed=3, seconds=24.0))


def identified(out: Path, recording: Path, robot: str, *more: object) -> Path:
    """Model file of the first 60 % of a recording."""
    command = ("identify", recording, "--robot", robot, "--span", "0:0.6", "--json", *more)
    return once(out, lambda path: thetad(*command, "-o", path).ok())


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
