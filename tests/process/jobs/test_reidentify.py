"""Drift is reported: the arm is identified again from its last frames, and a better model becomes the active one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from drivers.files.recordings.recording import read_recording
from drivers.files.robots.file import load_robot
from service.io.state_file import save_state
from service.operations.inputs import WINDOW_OWNER, window_state
from service.protocol.control import ControlError
from tests.lab.command_line import simulate
from tests.lab.jobs.jobs_process import JobsProcess, configuration

WINDOW_S = 20.0


@pytest.fixture(scope="module")
def motion(arm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulate(tmp_path_factory.mktemp("motion") / "rec.mcap", arm2, seed=5, seconds=WINDOW_S)


class Estimator:
    """Answers as the arm's estimator does: writes the frames of a recording, and takes models."""

    def __init__(self, recording: Path) -> None:
        self.recording = read_recording(recording)
        self.activated: list[Mapping[str, Any]] = []
        self.few = False

    def save_window(self, _verb: str, args: Mapping[str, Any]) -> Mapping[str, Any]:
        assert args["seconds"] == WINDOW_S
        if self.few:
            raise ControlError("failed", "the last 3.0 s of frames are there")
        channels = {name: self.recording.channels[name] for name in ("q", "dq", "tau")}
        state = window_state(self.recording.meta, self.recording.t_ns, self.recording.seq, channels)
        save_state(Path(args["path"]), state, WINDOW_OWNER)
        return {"path": args["path"]}

    def activate(self, _verb: str, args: Mapping[str, Any]) -> Mapping[str, Any]:
        self.activated.append(args)
        return {}


def jobs(process: JobsProcess) -> list[dict[str, Any]]:
    return sorted(process.request("jobs")["jobs"], key=lambda job: job["id"])


def await_jobs(process: JobsProcess, count: int) -> list[dict[str, Any]]:
    """Wait until there are so many jobs, and all have ended."""
    while len(found := jobs(process)) < count:
        process.pause(0.1)
    process.wait(*(job["id"] for job in found))
    return jobs(process)


@pytest.mark.slow
def test_from_drift_to_the_next_model_and_back(tmp_path: Path, arm2: Path, motion: Path) -> None:
    estimator = Estimator(motion)
    own = {"reidentify": {"window_s": WINDOW_S, "min_interval_s": 1.0}}
    with JobsProcess(configuration(tmp_path / "state", str(arm2), own), tmp_path / "log") as process:
        process.answers = {"set_aside": estimator.save_window, "activate": estimator.activate}
        process.event("drift", "fc1 20 % up")
        found = await_jobs(process, 3)
        assert [(job["kind"], job["state"], job["origin"]) for job in found] == [
            (kind, "succeeded", "drift") for kind in ("identify", "validate", "promote")
        ]
        while not estimator.activated:
            process.pause(0.1)
        given = estimator.activated[-1]
        active = process.request("models")["arms"]["arm"]["active"]
        assert (given["model"], given["adopt"], given["robot"]) == (active, True, load_robot(arm2).sha256)
        assert len(given["theta"]) == len(given["covariance"])
        process.pause(1.5)
        assert len(jobs(process)) == 3  # the report was about the model before

        process.event("drift", "again")  # the same motion gives the same model, which is no better
        while len(jobs(process)) < 6:
            process.pause(0.1)
        process.event("drift_cleared")  # or it would be tried for ever
        found = await_jobs(process, 6)
        assert found[5]["state"] == "failed"
        assert "not_better" in found[5]["reason"]
        back = process.request("rollback", reason="it shook")
        assert (back["active"], back["previous"]) == (None, active)
        while estimator.activated[-1]["theta"] is not None:
            process.pause(0.1)
        process.event("drift", "once more")
        while len(found := jobs(process)) < 8:
            process.pause(0.1)
        process.event("drift_cleared")
        assert [job["kind"] for job in found[6:8]] == ["identify", "validate"]  # not against who rolled back

        estimator.activated.clear()
        process.kill()
        process.start()
        while not estimator.activated:  # the estimator is told what holds
            process.pause(0.1)
        assert estimator.activated[0]["theta"] is None
        told = [event["kind"] for event in process.request("events")["events"]]
        assert told.index("drift") < told.index("job_submitted") < told.index("model_promoted")
        assert told.index("model_promoted") < told.index("model_rolled_back")
