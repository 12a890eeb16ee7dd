"""A daemon that ends when all is played: nothing is lost, and a long recording continues in a new file."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from drivers.files.recordings.recording import read_recording
from service.client import BodyMessage, Control, FrameMessage, Subscriber
from tests.lab.daemon.daemons import await_message, config, log_lines, make_recording, replayed, start


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


def test_a_held_arm_waits_for_the_request(tmp_path: Path) -> None:
    arm = replayed(make_recording(tmp_path / "rec.mcap", seconds=0.5), hold=True)
    daemon = start(config(tmp_path, arm), tmp_path)
    try:
        with (
            Control(daemon.endpoints["control"]) as control,
            Subscriber(daemon.endpoints["frames"], ["axis/frame", "axis/status"]) as stream,
        ):
            status = await_message(stream)
            assert isinstance(status, BodyMessage)
            assert status.body["state"] == "held"
            control.request("start")
            frame = await_message(stream, lambda message: isinstance(message, FrameMessage))
            assert frame.envelope.seq == 0
            await_message(stream, lambda m: isinstance(m, BodyMessage) and m.body.get("state") == "ended")
            assert stream.counts["axis/frame", "acquisition"].received == 500
            assert stream.lost == 0
    finally:
        daemon.stop()
