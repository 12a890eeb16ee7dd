"""`kill -9` of each process while everything runs: it comes back, and what was lost is counted."""

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
from service.client import Control, EstimateMessage, FrameMessage, Subscriber, TorqueMessage
from service.supervisor.launch import DaemonProcess
from service.worker.worker import WHERE
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


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DaemonProcess, Path]]:
    """A daemon that replays a recording of ten minutes and records it; the clock was an hour ahead before."""
    path = tmp_path_factory.mktemp("restart")
    (path / "state").mkdir()
    (path / "state" / "epoch").write_text(f"{time.time_ns() // 1000 + HOUR_US}\n")
    recording = make_recording(path / "rec.mcap", rate_hz=500.0, seconds=600.0)
    arm = replayed(recording, recorder={"directory": "recordings", "chunk_bytes": 4096}, state={"every_s": 0.2})
    daemon = start(config(path, arm), path)
    yield daemon, path
    daemon.stop()


@pytest.fixture
def control(running: tuple[DaemonProcess, Path]) -> Iterator[Control]:
    with Control(running[0].endpoints["control"]) as control:
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


def test_a_process_that_hangs_is_killed_and_restarted(tmp_path: Path) -> None:
    arm = replayed(make_recording(tmp_path / "rec.mcap"), loop=True)
    daemon = start(config(tmp_path, arm, hang_s=1.0), tmp_path)
    try:
        with Control(daemon.endpoints["control"]) as control:
            pid = processes(control)["axis/estimator"]["pid"]
            os.kill(pid, WHERE)  # as it is asked first; here it can answer, and goes on
            deadline = time.monotonic() + DEADLINE_S
            while "service/estimator/process.py" not in log_lines(tmp_path):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert processes(control)["axis/estimator"]["pid"] == pid
            os.kill(pid, signal.SIGSTOP)
            found = await_status(
                control,
                lambda found: found["axis/estimator"]["restarts"] == 1 and found["axis/estimator"]["state"] == "ready",
            )
            assert found["axis/estimator"]["last_error"] == "silent for more than 1 s (stopped)"
    finally:
        daemon.stop()


def test_what_was_requested_holds_after_a_restart(tmp_path: Path) -> None:
    arm = replayed(make_recording(tmp_path / "rec.mcap"), loop=True, hold=True, recorder={"enabled": False})
    daemon = start(config(tmp_path, arm), tmp_path)
    try:
        with (
            Control(daemon.endpoints["control"]) as control,
            Subscriber(daemon.endpoints["estimates"], ["axis/torque"]) as torques,
        ):
            control.request("start")
            control.request("record", action="start")
            control.request("activate", theta=[0.0] * len(control.request("snapshot")["theta"]))
            for role in ("acquisition", "recorder", "estimator"):
                kill(control, f"axis/{role}")
            await_status(control, lambda found: found["axis/recorder"]["info"].get("written", 0) > 100)
            epoch = processes(control)["axis/estimator"]["info"]["epoch"]
            await_message(
                torques,
                lambda m: isinstance(m, TorqueMessage) and m.envelope.epoch == epoch and not m.predicted.any(),
            )
    finally:
        daemon.stop()


def test_nothing_outlives_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    """Its processes end in order, and the next daemon starts at once with what they saved."""
    arm = replayed(make_recording(tmp_path / "rec.mcap"), loop=True, recorder={"directory": "recordings"})
    settings = config(tmp_path, arm)
    daemon = start(settings, tmp_path)
    with Control(daemon.endpoints["control"]) as control:
        await_status(control, lambda found: found["axis/recorder"]["info"].get("written", 0) > 200)
        children = [psutil.Process(process["pid"]) for process in processes(control).values()]
    os.kill(daemon.pid, signal.SIGKILL)
    gone, alive = psutil.wait_procs(children, timeout=5.0)
    assert not alive
    assert len(gone) == 5
    daemon.stop()
    (path,) = (tmp_path / "recordings").glob("*.mcap")
    assert read_recording(path).samples > 200
    began = time.monotonic()
    with start(settings, tmp_path) as again, Control(again.endpoints["control"]) as control:
        assert time.monotonic() - began < 60.0
        assert processes(control)["axis/estimator"]["info"]["resumed"] is True


def test_gateway(running: tuple[DaemonProcess, Path], control: Control) -> None:
    """The ports stay the same, subscribers come back by themselves, and count what they missed."""
    endpoints = running[0].endpoints
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


def test_acquisition(running: tuple[DaemonProcess, Path], control: Control) -> None:
    """Frames come again under a new epoch; the estimator goes on with what it knows."""
    with Subscriber(running[0].endpoints["frames"], ["axis/frame"]) as frames:
        first = await_message(frames)
        used = control.request("snapshot")["frames"]
        kill(control, "axis/acquisition")
        again = await_message(frames, lambda message: message.envelope.epoch != first.envelope.epoch)
        assert again.envelope.epoch > first.envelope.epoch > time.time_ns() // 1000
        assert isinstance(again, FrameMessage)
        assert frames.counts["axis/frame", "acquisition"].epochs == 2
    await_status(control, lambda found: found["axis/estimator"]["info"].get("epochs") == 2)
    assert control.request("snapshot")["frames"] >= used
    assert "source_restarted" in log_lines(running[1])


def test_estimator(running: tuple[DaemonProcess, Path], control: Control) -> None:
    """It resumes from the saved state, and what came meanwhile counts as lost."""
    with Subscriber(running[0].endpoints["estimates"], ["axis/estimate"]) as stream:
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
    assert isinstance(resumed, EstimateMessage)
    assert resumed.frames >= saved["frames"]
    assert resumed.used >= saved["used"]
    assert resumed.lost > saved["lost"]
    # What was known before is still known: within a few standard deviations of a moving estimate.
    for value, old, std in zip(resumed.theta, saved["theta"], saved["std"], strict=True):
        assert abs(value - old) < 20.0 * std + 1e-6


def test_an_unusable_state_is_set_aside(running: tuple[DaemonProcess, Path], control: Control) -> None:
    state = running[1] / "state" / "axis" / "estimator.state"
    pid = processes(control)["axis/estimator"]["pid"]
    os.kill(pid, signal.SIGSTOP)  # so that it cannot save again before it is killed
    state.write_bytes(state.read_bytes()[:-7])
    kill(control, "axis/estimator")
    assert processes(control)["axis/estimator"]["info"]["resumed"] is False
    assert state.with_name("estimator.state.bad").is_file()
    assert "torn or damaged" in log_lines(running[1])


def test_recorder(running: tuple[DaemonProcess, Path], control: Control) -> None:
    """The file that was being written is recovered up to its last chunk, and the successor writes another."""
    before = await_status(control, lambda found: found["axis/recorder"]["info"].get("written", 0) > 200)
    before = kill(control, "axis/recorder")
    torn = Path(before["info"]["path"])
    await_status(control, lambda found: found["axis/recorder"]["info"].get("written", 0) > 100)
    new = processes(control)["axis/recorder"]["info"]["path"]
    assert new != str(torn)
    whole = running[1] / "recovered.mcap"
    recover(torn, whole)
    rescued = read_recording(whole)
    assert rescued.samples > 100
    assert (rescued.seq[1:] - rescued.seq[:-1] == 1).all()
    original = read_recording(running[1] / "rec.mcap")
    assert (rescued.channels["q"] == original.channels["q"][rescued.seq]).all()
