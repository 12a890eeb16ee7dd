"""Two small arms and recordings of them, made once for all tests of jobs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from tests.lab.command_line import simulate, thetad
from tests.lab.jobs.job_run import small_arm
from tests.lab.recordings.fixtures import once, shared


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the files below."""
    return shared(tmp_path_factory, "jobs")


@pytest.fixture(scope="session")
def arm2(made: Path) -> Path:
    return once(made / "arm2.toml", small_arm)


@pytest.fixture(scope="session")
def stribeck2(made: Path) -> Path:
    return once(made / "stribeck2.toml", lambda path: small_arm(path, "stribeck"))


@pytest.fixture(scope="session")
def arm2_recording(made: Path, arm2: Path) -> Path:
    return once(made / "arm2.mcap", lambda path: simulate(path, arm2, seed=1, seconds=10.0))


@pytest.fixture(scope="session")
def stribeck2_recording(made: Path, stribeck2: Path) -> Path:
    return once(made / "stribeck2.mcap", lambda path: simulate(path, stribeck2, seed=2, seconds=10.0))


@pytest.fixture(scope="session")
def loaded2_recording(made: Path, arm2: Path) -> Path:
    """The arm with a heavier last link."""
    model = load_robot(arm2).model
    heavier = replace(model, inertial=model.inertial * np.array([[1.0], [1.6]]))
    return once(made / "loaded2.mcap", lambda path: simulate(path, heavier, seed=3, seconds=10.0))


@pytest.fixture(scope="session")
def arm2_model(made: Path, arm2: Path, arm2_recording: Path) -> Path:
    """Model file of the recording."""
    command = ("identify", arm2_recording, "--robot", arm2, "--method", "physical", "--json")
    return once(made / "arm2.yaml", lambda path: thetad(*command, "-o", path).ok())
