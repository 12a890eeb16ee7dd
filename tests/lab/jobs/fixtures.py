"""Two small arms and recordings of them, made once for all tests of jobs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from drivers.files.robots.file import load_robot
from tests.lab.command_line import simulate, thetad
from tests.lab.jobs.job_run import small_arm


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the files below."""
    return tmp_path_factory.mktemp("jobs")


@pytest.fixture(scope="session")
def arm2(made: Path) -> Path:
    return small_arm(made / "arm2.toml")


@pytest.fixture(scope="session")
def stribeck2(made: Path) -> Path:
    return small_arm(made / "stribeck2.toml", "stribeck")


@pytest.fixture(scope="session")
def arm2_recording(made: Path, arm2: Path) -> Path:
    return simulate(made / "arm2.mcap", arm2, seed=1, seconds=10.0)


@pytest.fixture(scope="session")
def stribeck2_recording(made: Path, stribeck2: Path) -> Path:
    return simulate(made / "stribeck2.mcap", stribeck2, seed=2, seconds=10.0)


@pytest.fixture(scope="session")
def loaded2_recording(made: Path, arm2: Path) -> Path:
    """The arm with a heavier last link."""
    model = load_robot(arm2).model
    assert model.inertial is not None
    inertial = model.inertial.copy()
    inertial[-1] *= 1.6
    return simulate(made / "loaded2.mcap", replace(model, inertial=inertial), seed=3, seconds=10.0)


@pytest.fixture(scope="session")
def arm2_model(made: Path, arm2: Path, arm2_recording: Path) -> Path:
    """Model file of the recording."""
    out = made / "arm2.yaml"
    done = thetad("identify", arm2_recording, "--robot", arm2, "--method", "physical", "-o", out, "--json")
    assert done.code == 0, done
    return out
