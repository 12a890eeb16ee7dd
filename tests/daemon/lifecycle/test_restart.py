"""`kill -9` of each process of a running daemon: it is restarted, and losses are counted."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from drivers.files.recordings.recording import read_recording, recover
from service.client import Control, EstimateMessage, FrameMessage, Jobs, Subscriber, TorqueMessage
from service.jobs.queue.store import FILE_NAME as QUEUE
from service.worker.worker import STACK_DUMP_SIGNAL
from tests.lab.daemon.daemons import (
    DEADLINE_S,
    await_message,
    await_status,
    config,
    log_lines,
    make_recording,
    processes,
    replayed,
    start,
)

HOUR_US = 3_600_000_000
HANG_S = 4.0


class Running:
    """A daemon that replays ten minutes and records them on request; the clock was an hour ahead before.

    What is requested (start, record, activate) is to hold over all kills.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "state" / "jobs").mkdir(parents=True)
        (path / "state" / "epoch").write_text(f"{time.time_ns() // 1000 + HOUR_US}\n")
        (path / "state" / "jobs" / QUEUE).write_text("this is no database\n" * 100)
        recording = make_recording(path / "rec.mcap", rate_hz=500.0, seconds=600.0)
        recorder = {"enabled": False, "directory": "recordings", "chunk_bytes": 4096}
        arm = replayed(recording, hold=True, recorder=recorder, state={"every_s": 0.2})
        self.settings = config(path, arm, hang_s=HANG_S, http=True, http_port=0)
        self.daemon = start(self.settings, path)
        with Control(self.daemon.endpoints["control"]) as control:
            control.request("start")
            control.request("record", action="start")
            control.request("activate", theta=[0.0] * len(control.request("snapshot")["theta"]))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("restart"))
    yield running
    running.daemon.stop()


@pytest.fixture
def control(running: Running) -> Iterator[Control]:
    with Control(running.daemon.endpoints["control"]) as control:
        yield control


def kill(control: Control, name: str) -> dict[str, Any]:
    """Kill a process and wait until its successor is ready; returns the entry of the one that was killed."""
    before = processes(control)[name]
    os.kill(before["pid"], signal.SIGKILL)
    after = await_status(
        control,
        lambda found: found[name]["restarts"] == before["restarts"] + 1 and found[name]["state"] == "ready",
    )[name]
    assert after["pid"] != before["pid"]
    assert after["last_error"] == "SIGKILL"
    return before


def test_gateway(running: Running, control: Control) -> None:
    """The ports stay the same, subscribers come back by themselves, and count what they missed."""
    endpoints = running.daemon.endpoints
    with (
        Subscriber(endpoints["frames"], ["axis/frame"]) as frames,
        Subscriber(endpoints["estimates"], ["axis/estimate"]) as estimates,
    ):
        await_message(frames)
        await_message(estimates)
        kill(control, "gateway")
        counts = frames.counts["axis/frame", "acquisition"]
        await_message(frames, lambda message: counts.lost > 0)
        last = estimates.counts["axis/estimate", "estimator"].expected
        await_message(estimates, lambda message: message.envelope.seq > last + 10)
        assert counts.epochs == 1
    assert processes(control)["axis/estimator"]["info"]["lost"] == 0


def test_acquisition(running: Running, control: Control) -> None:
    """Frames come again under a new epoch, though the arm is held at first; the estimator goes on."""
    with Subscriber(running.daemon.endpoints["frames"], ["axis/frame"]) as frames:
        first = await_message(frames)
        used = control.request("snapshot")["frames"]
        kill(control, "axis/acquisition")
        again = await_message(frames, lambda message: message.envelope.epoch != first.envelope.epoch)
        assert again.envelope.epoch > first.envelope.epoch > time.time_ns() // 1000
        assert isinstance(again, FrameMessage)
        assert frames.counts["axis/frame", "acquisition"].epochs == 2
    await_status(control, lambda found: found["axis/estimator"]["info"].get("epochs") == 2)
    assert control.request("snapshot")["frames"] >= used
    assert "source_restarted" in log_lines(running.path)


def test_a_process_that_hangs_is_killed_and_restarted(running: Running, control: Control) -> None:
    before = processes(control)["axis/estimator"]
    os.kill(before["pid"], STACK_DUMP_SIGNAL)  # as it is asked first; here it can answer, and goes on
    deadline = time.monotonic() + DEADLINE_S
    while "service/estimator/process.py" not in log_lines(running.path):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert processes(control)["axis/estimator"]["pid"] == before["pid"]
    os.kill(before["pid"], signal.SIGSTOP)
    found = await_status(
        control,
        lambda found: (
            found["axis/estimator"]["restarts"] == before["restarts"] + 1
            and found["axis/estimator"]["state"] == "ready"
        ),
    )
    assert found["axis/estimator"]["last_error"] == f"silent for more than {HANG_S:g} s (stopped)"


def test_estimator(running: Running, control: Control) -> None:
    """It resumes from the saved state and with the active model, and what came meanwhile counts as lost."""
    estimates = running.daemon.endpoints["estimates"]
    with Subscriber(estimates, ["axis/estimate"]) as stream, Subscriber(estimates, ["axis/torque"]) as torques:
        await_message(stream, lambda m: isinstance(m, EstimateMessage) and m.used > 50)
        saved = control.request("snapshot")
        kill(control, "axis/estimator")
        info = await_status(control, lambda found: found["axis/estimator"]["info"].get("received", 0) > 10)[
            "axis/estimator"
        ]["info"]
        assert info["resumed"] is True
        assert info["lost"] > 0
        resumed = await_message(
            stream, lambda m: m.envelope.epoch != 0 and stream.counts["axis/estimate", "estimator"].epochs == 2
        )
        await_message(
            torques,
            lambda m: isinstance(m, TorqueMessage) and m.envelope.epoch == info["epoch"] and not m.predicted.any(),
        )
    assert isinstance(resumed, EstimateMessage)
    assert resumed.frames >= saved["frames"]
    assert resumed.used >= saved["used"]
    assert resumed.lost > saved["lost"]
    # What was known before is still known: within a few standard deviations of a moving estimate.
    for value, old, std in zip(resumed.theta, saved["theta"], saved["std"], strict=True):
        assert abs(value - old) < 20.0 * std + 1e-6


def test_an_unusable_state_is_set_aside(running: Running, control: Control) -> None:
    state = running.path / "state" / "axis" / "estimator.state"
    pid = processes(control)["axis/estimator"]["pid"]
    os.kill(pid, signal.SIGSTOP)  # so that it cannot save again before it is killed
    state.write_bytes(state.read_bytes()[:-7])
    kill(control, "axis/estimator")
    assert processes(control)["axis/estimator"]["info"]["resumed"] is False
    assert state.with_name("estimator.state.bad").is_file()
    assert "torn or damaged" in log_lines(running.path)


def test_recorder(running: Running, control: Control) -> None:
    """The file that was being written is recovered up to its last chunk; its successor writes another, as requested."""
    before = await_status(control, lambda found: found["axis/recorder"]["info"].get("written", 0) > 200)
    before = kill(control, "axis/recorder")
    torn = Path(before["info"]["path"])
    await_status(control, lambda found: found["axis/recorder"]["info"].get("written", 0) > 100)
    new = processes(control)["axis/recorder"]["info"]["path"]
    assert new != str(torn)
    whole = running.path / "recovered.mcap"
    recover(torn, whole)
    rescued = read_recording(whole)
    assert rescued.samples > 100
    assert (rescued.seq[1:] - rescued.seq[:-1] == 1).all()
    original = read_recording(running.path / "rec.mcap")
    assert (rescued.channels["q"] == original.channels["q"][rescued.seq]).all()


def test_a_damaged_queue_did_not_keep_the_daemon_from_starting(running: Running, control: Control) -> None:
    jobs = Jobs(control)
    jobs.cancel(jobs.submit("excite", {}, due_s=1e6)["id"])
    assert any(event["kind"] == "queue_salvaged" for event in jobs.events())
    damaged = running.path / "state" / "jobs" / f"{QUEUE}.bad1"
    assert damaged.read_text().startswith("this is no database")


def test_nothing_outlives_a_supervisor_that_is_killed(running: Running, control: Control) -> None:
    """Its processes end in order, and the next daemon starts at once with what they saved."""
    before = await_status(control, lambda found: found["axis/recorder"]["info"].get("written", 0) > 200)
    children = [psutil.Process(process["pid"]) for process in before.values()]
    os.kill(running.daemon.pid, signal.SIGKILL)
    gone, alive = psutil.wait_procs(children, timeout=5.0)
    assert not alive
    assert len(gone) == 6
    running.daemon.stop()
    assert read_recording(before["axis/recorder"]["info"]["path"]).samples > 200
    began = time.monotonic()
    with start(running.settings, running.path) as again, Control(again.endpoints["control"]) as control:
        assert time.monotonic() - began < 60.0
        assert processes(control)["axis/estimator"]["info"]["resumed"] is True
