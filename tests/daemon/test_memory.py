"""Memory that clients or time could make grow: endless messages are cut off, long recordings go on in a new file."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from drivers.files.recordings.recording import read_recording
from service.client import Control, Subscriber
from service.supervisor.launch import DaemonProcess
from tests.daemon.test_hostile import shake_hands
from tests.lab.daemon.daemons import await_message, await_status, config, log_lines, make_recording, replayed, start

LIMIT_MB = 120.0


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DaemonProcess, Path]]:
    path = tmp_path_factory.mktemp("memory")
    arm = replayed(make_recording(path / "rec.mcap"), loop=True)
    daemon = start(config(path, arm, memory_mb=LIMIT_MB), path)
    yield daemon, path
    daemon.stop()


def send_without_end(endpoint: str, kind: str, part: bytes) -> int:
    """Send one message of ever more parts until the other side hangs up; returns the bytes sent."""
    host, _, port = endpoint.removeprefix("tcp://").partition(":")
    block = part * (1 + 500_000 // len(part))
    sent = 0
    deadline = time.monotonic() + 60.0
    with socket.create_connection((host, int(port)), 30.0) as raw:
        shake_hands(raw, kind)
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < deadline:
                raw.sendall(block)
                sent += len(block)
    assert time.monotonic() < deadline, f"{sent} bytes were taken"
    return sent


def test_a_long_recording_goes_on_in_a_new_file_and_lacks_no_frame(tmp_path: Path) -> None:
    source = make_recording(tmp_path / "rec.mcap", seconds=5.0)
    arm = replayed(source, speed="max", recorder={"directory": "recordings", "max_minutes": 1.25 / 60.0})
    daemon = start(config(tmp_path, arm, exit_at_end=True), tmp_path)
    try:
        assert daemon.wait(120.0) == 0
    finally:
        daemon.stop()
    parts = [read_recording(path) for path in (tmp_path / "recordings").glob("*.mcap")]
    parts.sort(key=lambda part: int(part.seq[0]))
    original = read_recording(source)
    assert [part.samples for part in parts] == [1250] * 4
    assert [part.metadata["part"] for part in parts] == ["0", "1", "2", "3"]
    for name in ("t_ns", "seq"):
        np.testing.assert_array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(original, name))
    np.testing.assert_array_equal(np.concatenate([part.channels["q"] for part in parts]), original.channels["q"])
    closed = re.findall(r'"frames": (\d+), "lost": (\d+), "event": "recording_closed"', log_lines(tmp_path))
    assert closed == [("1250", "0")] * 4


def test_an_endless_subscription_ends_with_the_gateway(running: tuple[DaemonProcess, Path]) -> None:
    """The gateway is started again within its limit, subscribers come back, and nobody else notices."""
    endpoints = running[0].endpoints
    with (
        Subscriber(endpoints["frames"], ["axis/frame"]) as frames,
        Control(endpoints["control"]) as control,
    ):
        await_message(frames)
        assert send_without_end(endpoints["frames"], "SUB", b"\x01\xff" + bytes(255)) > 10_000_000
        found = await_status(control, lambda p: p["gateway"]["restarts"] == 1 and p["gateway"]["state"] == "ready")
        assert "larger than 120 MB" in found["gateway"]["last_error"]
        assert psutil.Process(found["gateway"]["pid"]).memory_info().rss < LIMIT_MB * 1e6
        last = frames.counts["axis/frame", "acquisition"].expected
        await_message(frames, lambda message: message.envelope.seq > last)
        assert found["axis/estimator"]["info"]["lost"] == 0
        assert found["axis/estimator"]["restarts"] == found["axis/acquisition"]["restarts"] == 0


def test_an_endless_request_is_hung_up_on(running: tuple[DaemonProcess, Path]) -> None:
    """The control socket is opened anew, gives its memory back, and clients that were there go on."""
    endpoint = running[0].endpoints["control"]
    with Control(endpoint) as control:
        before = control.request("status")["control"]["reopened"]
        part = b"\x03" + struct.pack(">Q", 200_000) + bytes(200_000)
        assert send_without_end(endpoint, "DEALER", part) > 10_000_000
        with Control(endpoint) as other:
            assert other.request("status", timeout_s=30.0)["control"]["reopened"] == before + 1
        assert control.request("ping", timeout_s=30.0)["pong"] is True
    assert psutil.Process(running[0].pid).memory_info().rss < LIMIT_MB * 1e6
    assert "control_reopened" in log_lines(running[1])
