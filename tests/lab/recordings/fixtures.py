"""Recordings of simulated arms and models identified from them, made once for all tests of the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.command_line import simulate, thetad


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


@pytest.fixture(scope="session")
def space6_model(work: Path, space6_recording: Path) -> Path:
    """Model file of the first 60 % of the recording."""
    out = work / "space6.yaml"
    done = thetad("identify", space6_recording, "--robot", "space6", "--span", "0:0.6", "-o", out, "--json")
    assert done.code == 0, done
    return out


@pytest.fixture(scope="session")
def arm7_model(work: Path, arm7_recording: Path) -> Path:
    """Model file of the first 60 % of the recording."""
    out = work / "arm7.yaml"
    done = thetad("identify", arm7_recording, "--robot", "arm7", "--span", "0:0.6", "-o", out, "--json")
    assert done.code == 0, done
    return out
