"""Streams, requests and start-up errors of a daemon."""

import re
import struct
import time
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import msgpack
import numpy as np
import pytest
import zmq

import thetad
from drivers.files.recordings.recording import read_recording
from service.client import Control, FrameMessage
from service.supervisor.launch import LaunchError
from tests.lab.daemon.daemons import DEADLINE_S, config, replayed, start
from tests.lab.daemon.shared import Site
from tests.lab.daemon.sockets import PAUSE

ROOT = Path(__file__).parents[3]


def test_frames_reach_a_subscriber_in_order_and_whole(running: Site) -> None:
    recording = read_recording(running.path / "rec.mcap")
    messages: list[FrameMessage] = []
    with thetad.connect(["axis/frame"], running.endpoints["frames"], timeout_s=DEADLINE_S) as stream:
        stream.each(lambda message: messages.append(message) or len(messages) < 1000)
        assert stream.invalid == 0
        counts = stream.counts["axis/frame", "acquisition"]
        assert (counts.received, counts.epochs, counts.repeated) == (1000, 1, 0)
    lap = recording.samples + PAUSE
    for message in messages:
        index = message.frame.seq % lap
        np.testing.assert_array_equal(message.frame.q, recording.channels["q"][index])
        np.testing.assert_array_equal(message.frame.tau, recording.channels["tau"][index])
        assert message.frame.dq is None
    seqs = [message.envelope.seq for message in messages]
    assert counts.lost == seqs[-1] - seqs[0] - 999  # of the thousand; only the pause of the loop


def leaves(value: object) -> Iterator[object]:
    """Yield the values of nested lists and maps; keys must be strings."""
    if isinstance(value, dict):
        assert all(type(key) is str for key in value)
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def _within(found: object, key: str) -> object:
    return found.get(key) if isinstance(found, dict) else None


def test_plotters_read_the_bytes_as_they_are(running: Site) -> None:
    """PlotJuggler's ZeroMQ subscriber, with MessagePack as the protocol and `t` as the time, can decode messages.

    It takes each part as a message of its own if it is an older one: a topic must then be no MessagePack document.
    A map's numbers and booleans become curves, texts and nil do not; anything else would end in an error there.  All
    curves of the layout in deploy/ are among them, but for channels that this source does not have.
    """
    seen: dict[tuple[str, str], float] = {}
    layout = (ROOT / "deploy" / "plotjuggler-layout.xml").read_text(encoding="utf-8")
    curves = {tuple(name.split("/")) for name in re.findall(r'curve name="\w+/([\w/]+)', layout)} - {("frame", "dq")}
    deadline = time.monotonic() + DEADLINE_S
    with zmq.Context() as context, context.socket(zmq.SUB) as subscriber:
        subscriber.rcvtimeo = 20_000
        subscriber.subscribe(b"")
        subscriber.connect(running.endpoints["mirror"])  # with the messages of both other ports
        while curves or not {"frame", "estimate", "torque", "meta", "status", "stats"} <= {kind for kind, _ in seen}:
            assert time.monotonic() < deadline, curves
            parts = subscriber.recv_multipart()
            assert len(parts) == 2
            arm, kind = parts[0].decode("ascii").split("/")
            assert arm == "axis"
            with pytest.raises(msgpack.ExtraData):
                msgpack.unpackb(parts[0])
            body = msgpack.unpackb(parts[1], strict_map_key=True, max_ext_len=0, max_bin_len=0)
            assert {type(leaf) for leaf in leaves(body)} <= {float, int, bool, str, type(None)}
            assert body["kind"] == kind
            curves = {path for path in curves if path[0] != kind or reduce(_within, path[1:], body) is None}
            at = parts[1].index(b"\xa1t") + 2  # the key "t", a text of one byte
            assert parts[1][at] == 0xCB  # a double, whole seconds too
            assert struct.unpack_from(">d", parts[1], at + 1) == (body["t"],)
            assert body["t"] == body["t_ns"] * 1e-9
            if body["src"] != "recorder":  # its clock is that of the host
                assert body["t"] >= seen.get((kind, body["src"]), 0.0)
                seen[kind, body["src"]] = body["t"]


@pytest.mark.parametrize("name", ["mirror", "control", "http"])
def test_a_taken_port_is_refused(running: Site, tmp_path: Path, name: str) -> None:
    port = int(running.endpoints[name].rpartition(":")[2])
    taken = config(tmp_path, replayed(running.path / "rec.mcap"), **{f"{name}_port": port, "http": name == "http"})
    with pytest.raises(LaunchError, match=rf"daemon\.{name}_port.*{port}"):
        start(taken, tmp_path)


def test_a_second_instance_is_refused(running: Site, tmp_path: Path, control: Control) -> None:
    with pytest.raises(LaunchError, match=rf"process {running.daemon.pid}\) is already running"):
        start(config(running.path, replayed(running.path / "rec.mcap")), tmp_path)
    assert control.request("ping")["pong"] is True
