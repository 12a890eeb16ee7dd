"""A daemon whose processes are killed, and one that ends when all is played: losses are counted, or there are none."""

import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from drivers.files.recordings.recording import read_recording
from service.client import Control, EstimateMessage, FrameMessage, Subscriber, TorqueMessage
from service.config.load import Config
from service.supervisor.directories import runtime_parent
from service.supervisor.launch import DaemonProcess
from service.worker.worker import STACK_DUMP_SIGNAL, Runtime
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


@dataclass
class Running:
    """A daemon that replays ten minutes and records them on request; the clock was an hour ahead before.

    What is requested (start, record, activate) is to hold over all kills.
    """

    path: Path
    settings: Config
    daemon: DaemonProcess


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Running]:
    (folder / "state").mkdir()
    (folder / "state" / "epoch").write_text(f"{time.time_ns() // 1000 + HOUR_US}\n")
    recording = make_recording(folder / "rec.mcap", rate_hz=500.0, seconds=600.0)
    recorder = {"enabled": False, "directory": "recordings", "chunk_bytes": 4096}
    arm = replayed(recording, hold=True, recorder=recorder, state={"every_s": 0.2})
    settings = config(folder, arm, hang_s=HANG_S, http=True, http_port=0)
    daemon = start(settings, folder)
    with Control(daemon.endpoints["control"]) as control:
        control.request("start")
        control.request("record", action="start")
        control.request("activate", theta=[0.0] * len(control.request("snapshot")["theta"]))
    yield Running(folder, settings, daemon)
    daemon.stop()


@pytest.fixture
def control(running: Running) -> Iterator[Control]:
    with Control(running.daemon.endpoints["control"]) as control:
        yield control


def kill(control: Control, name: str) -> dict[str, Any]:
    """Kill a process and wait until its successor is ready; returns the entry of the one that was killed."""
    before = processes(control)[name]
    os.kill(before["pid"], signal.SIGKILL)
    after = await_status(
        control, lambda found: found[name]["restarts"] == before["restarts"] + 1 and found[name]["state"] == "ready"
    )[name]
    assert after["pid"] != before["pid"]
    assert after["last_error"] == "SIGKILL"
    return before


def test_acquisition(running: Running, control: Control) -> None:
    """Frames come again under a new epoch, though the arm is held at first; the estimator goes on.

    The file with the configuration is gone by then.
    """
    Runtime(runtime_parent(running.settings) / str(running.daemon.pid)).config.unlink()
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
    state.unlink()
    state.mkdir()  # what is damaged in any other way: tests/unit/service/io/test_state_file.py
    kill(control, "axis/estimator")
    assert processes(control)["axis/estimator"]["info"]["resumed"] is False
    assert state.with_name("estimator.state.bad").is_dir()
    assert "is not a file" in log_lines(running.path)


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


@pytest.mark.smoke
def test_two_arms_played_to_the_end_lose_nothing(tmp_path: Path) -> None:
    source = make_recording(tmp_path / "rec.mcap", seconds=5.0)
    arms = [
        replayed(source, "left", speed="max", recorder={"directory": "left"}),
        replayed(source, "right", speed="max", recorder={"directory": "right", "max_minutes": 1.25 / 60.0}),
    ]
    daemon = start(config(tmp_path, *arms, exit_at_end=True), tmp_path)
    try:
        assert daemon.wait(120.0) == 0
    finally:
        daemon.stop()
    original = read_recording(source)
    for name, lengths in (("left", [5000]), ("right", [1250] * 4)):
        parts = [read_recording(path) for path in (tmp_path / name).glob("*.mcap")]
        parts.sort(key=lambda part: int(part.seq[0]))
        assert [part.samples for part in parts] == lengths
        for key in ("t_ns", "seq"):
            joined = np.concatenate([getattr(part, key) for part in parts])
            np.testing.assert_array_equal(joined, getattr(original, key))
        np.testing.assert_array_equal(np.concatenate([part.channels["q"] for part in parts]), original.channels["q"])
    assert [part.metadata["part"] for part in parts] == ["0", "1", "2", "3"]
    lines = log_lines(tmp_path)
    drained = [line for line in lines.splitlines() if '"drained"' in line]
    assert len(drained) == 2
    assert all('"received": 5000, "lost": 0' in line for line in drained)
    closed = re.findall(r'"frames": (\d+), "lost": (\d+), "event": "recording_closed"', lines)
    assert sorted(closed) == [("1250", "0")] * 4 + [("5000", "0")]
