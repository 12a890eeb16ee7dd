"""Judging a model on data that it was not fitted to, against the one that is active."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from drivers.files.recordings.recording import read_recording
from drivers.files.robots.file import load_robot
from service.io.state_file import save_state
from service.jobs.budget import recordings_of, to_delete
from service.operations.errors import OperationError
from service.operations.inputs import WINDOW_OWNER, window_state
from tests.lab.command_line import simulate, thetad
from tests.lab.jobs.job_run import run_here, small_arm


@pytest.fixture(scope="module")
def candidate(arm2: Path, arm2_recording: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fitted to the first half."""
    out = tmp_path_factory.mktemp("candidate") / "model.yaml"
    thetad("identify", arm2_recording, "--robot", arm2, "--span", "0:0.5", "-o", out, "--json").ok()
    return out


@pytest.fixture(scope="module")
def worse(arm2: Path, folder: Path) -> Path:
    """A model of the arm when it rubbed less."""
    model = load_robot(arm2).model
    dynamics = replace(model.dynamics, coulomb=0.8 * np.asarray(model.dynamics.coulomb))
    recording = simulate(folder / "rec.mcap", replace(model, dynamics=dynamics), seed=7, seconds=20.0)
    thetad("identify", recording, "--robot", arm2, "-o", folder / "model.yaml", "--json").ok()
    return folder / "model.yaml"


@pytest.fixture(scope="module")
def unseen(arm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulate(tmp_path_factory.mktemp("unseen") / "rec.mcap", arm2, seed=9, seconds=20.0)


def parameters(arm2: Path, **more: str) -> dict[str, str]:
    return {"model": "m", "recording": "r", "robot": str(arm2), **more}


def test_a_better_model_takes_the_place_of_a_worse_one(
    tmp_path: Path, arm2: Path, candidate: Path, worse: Path, unseen: Path
) -> None:
    files = {"model": candidate, "recording": unseen}
    better = run_here("promote", parameters(arm2), tmp_path / "a", **files, present=worse)
    assert (better.verdict, better.accepted) == ("promoted", True)
    assert better.metrics["comparison"]["z"] > 2.0
    active = json.loads((tmp_path / "a" / "active.json").read_text(encoding="utf-8"))
    assert active["robot"] == load_robot(arm2).sha256
    assert active["theta"] == yaml.safe_load(candidate.read_text(encoding="utf-8"))["theta"]
    back = run_here("promote", parameters(arm2), tmp_path / "b", model=worse, recording=unseen, present=candidate)
    assert not back.accepted
    first = run_here("promote", parameters(arm2), tmp_path / "d", **files)
    assert first.accepted
    assert "no model before" in first.summary


def test_data_of_the_fit_are_refused_in_whatever_file_they_are(
    tmp_path: Path, arm2: Path, candidate: Path, arm2_recording: Path
) -> None:
    recording = read_recording(arm2_recording)
    cut = recording.t > 2.0  # the newest frames of the same time, as a window of live frames holds them
    state = window_state(
        recording.meta, recording.t_ns[cut], recording.seq[cut],
        {name: channel[cut] for name, channel in recording.channels.items() if name in ("q", "dq", "tau")},
    )  # fmt: skip
    window = tmp_path / "live.window"
    save_state(window, state, WINDOW_OWNER)
    for number, (file, span) in enumerate([(arm2_recording, "0:1"), (arm2_recording, "0.4:1"), (window, "0:1")]):
        with pytest.raises(OperationError, match="fitted to"):
            run_here("promote", parameters(arm2, span=span), tmp_path / str(number), model=candidate, recording=file)
    later = run_here("promote", parameters(arm2, span="0.6:1"), tmp_path / "later", model=candidate, recording=window)
    assert later.accepted


def test_data_of_any_recording_of_the_fit_are_refused(
    tmp_path: Path, arm2: Path, arm2_recording: Path, unseen: Path
) -> None:
    of_two = tmp_path / "model.yaml"
    assert thetad("identify", arm2_recording, unseen, "--robot", arm2, "-o", of_two, "--json").code == 0
    with pytest.raises(OperationError, match="fitted to 100 %"):
        run_here("promote", parameters(arm2), tmp_path / "run", model=of_two, recording=unseen)
    thetad("payload", of_two, unseen).refused(unseen.name, "was identified from, or one of them")


def test_a_model_of_another_robot_is_refused(tmp_path: Path, candidate: Path, unseen: Path) -> None:
    other = small_arm(tmp_path / "other.toml")
    other.write_text(other.read_text(encoding="utf-8").replace("a = 0.3", "a = 0.31"), encoding="utf-8")
    with pytest.raises(OperationError, match="description has changed"):
        run_here("promote", parameters(other), tmp_path / "run", model=candidate, recording=unseen)


def test_the_oldest_recordings_go_first_and_none_that_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, year_s = time.time(), 3.2e7
    names = [f"arm-2026010{day}T000000.mcap" for day in range(1, 6)]
    for age, name in zip((50.0, 40.0, 30.0, 20.0, 0.0), names, strict=True):
        (tmp_path / name).write_bytes(b"x" * 1_000_000)
        os.utime(tmp_path / name, (now - 86400.0 * age, now - 86400.0 * age))
    for foreign in ("arm-mine.mcap", "arm2-20260101T000000.mcap", "notes.txt"):
        (tmp_path / foreign).write_bytes(b"x")
        os.utime(tmp_path / foreign, (0.0, 0.0))
    found = recordings_of("arm", tmp_path)
    assert [one.path.name for one in found] == names

    def gone(at: float = now, **limits: float | None) -> list[str]:
        monkeypatch.setattr(time, "time_ns", lambda: round(at * 1e9))
        chosen = to_delete(found, at, limits.get("keep_days"), limits.get("max_gb"), {str(tmp_path / names[1])})
        return [one.path.name for one in chosen]

    assert gone() == []
    assert gone(keep_days=25.0) == [names[0], names[2]]
    assert gone(max_gb=0.0035) == [names[0], names[2]]
    assert gone(max_gb=1e-9) == [names[0], names[2], names[3]]  # the newest is being written
    assert gone(now + year_s, keep_days=25.0) == [
        names[0],
        names[2],
    ]  # the clock was set forward: nothing is older by that
    assert gone(now - year_s, max_gb=1e-9) == [names[0], *names[2:]]  # or back: none of the future is being written
