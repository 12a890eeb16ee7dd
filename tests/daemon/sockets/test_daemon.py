"""Streams, requests and start-up errors of a daemon."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import msgpack
import numpy as np
import pytest
import zmq

from drivers.files.recordings.recording import read_recording
from service.client import (
    BodyMessage,
    ClientTimeoutError,
    Control,
    ControlError,
    EstimateMessage,
    FrameMessage,
    Subscriber,
    TorqueMessage,
    UnreachableError,
)
from service.estimator._frame_buffer import FOLDER
from service.operations.inputs import open_recording
from service.supervisor.launch import LaunchError
from tests.lab.daemon.daemons import DEADLINE_S, await_message, config, processes, replayed, start
from tests.lab.daemon.shared import Site
from tests.lab.daemon.sockets import PAUSE


@pytest.fixture
def estimates(running: Site) -> str:
    return running.endpoints["estimates"]


def test_frames_reach_a_subscriber_in_order_and_whole(running: Site) -> None:
    recording = read_recording(running.path / "rec.mcap")
    with Subscriber(running.endpoints["frames"], ["axis/frame"]) as stream:
        messages = [await_message(stream) for _ in range(1000)]
        assert stream.invalid == 0
        counts = stream.counts["axis/frame", "acquisition"]
        assert (counts.received, counts.epochs, counts.repeated) == (1000, 1, 0)
    lap = recording.samples + PAUSE
    for message in messages:
        assert isinstance(message, FrameMessage)
        index = message.frame.seq % lap
        np.testing.assert_array_equal(message.frame.q, recording.channels["q"][index])
        np.testing.assert_array_equal(message.frame.tau, recording.channels["tau"][index])
        assert message.frame.dq is None
    seqs = [message.envelope.seq for message in messages]
    assert counts.lost == seqs[-1] - seqs[0] - 999  # of the thousand; only the pause of the loop


def test_estimates_torques_and_their_names_are_published(estimates: str) -> None:
    with Subscriber(estimates, ["axis/estimate", "axis/torque", "axis/meta"]) as stream:
        estimate = await_message(stream, lambda message: isinstance(message, EstimateMessage))
        torque = await_message(stream, lambda message: isinstance(message, TorqueMessage))
        meta = await_message(stream, lambda message: isinstance(message, BodyMessage))
    assert isinstance(estimate, EstimateMessage)
    assert isinstance(torque, TorqueMessage)
    assert isinstance(meta, BodyMessage)
    assert len(estimate.theta) == len(estimate.std) == len(estimate.status) == len(meta.body["parameters"]) > 0
    assert estimate.hash == meta.body["hash"]
    assert meta.body["joints"] == ["carriage"]
    assert 0.0 <= stream.age_s(estimate) < 60.0
    np.testing.assert_allclose(torque.residual, torque.measured - torque.predicted, atol=1e-9)


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


def test_plotters_read_the_bytes_as_they_are(running: Site) -> None:
    """PlotJuggler's ZeroMQ subscriber, with MessagePack as the protocol and `t` as the time, can decode messages.

    It takes each part as a message of its own if it is an older one: a topic must then be no MessagePack document.
    A map's numbers and booleans become curves, texts and nil do not; anything else would end in an error there.
    """
    seen: dict[tuple[str, str], float] = {}
    with zmq.Context() as context, context.socket(zmq.SUB) as subscriber:
        subscriber.rcvtimeo = 20_000
        subscriber.subscribe(b"")
        subscriber.connect(running.endpoints["mirror"])  # with the messages of both other ports
        while not {"frame", "estimate", "torque", "meta", "status", "stats"} <= {kind for kind, _ in seen}:
            parts = subscriber.recv_multipart()
            assert len(parts) == 2
            arm, kind = parts[0].decode("ascii").split("/")
            assert arm == "axis"
            with pytest.raises(msgpack.ExtraData):
                msgpack.unpackb(parts[0])
            body = msgpack.unpackb(parts[1], strict_map_key=True, max_ext_len=0, max_bin_len=0)
            assert {type(leaf) for leaf in leaves(body)} <= {float, int, bool, str, type(None)}
            assert body["kind"] == kind
            at = parts[1].index(b"\xa1t") + 2  # the key "t", a text of one byte
            assert parts[1][at] == 0xCB  # a double, whole seconds too
            assert struct.unpack_from(">d", parts[1], at + 1) == (body["t"],)
            assert body["t"] == body["t_ns"] * 1e-9
            if body["src"] != "recorder":  # its clock is that of the host
                assert body["t"] >= seen.get((kind, body["src"]), 0.0)
                seen[kind, body["src"]] = body["t"]


def test_nobody_there(estimates: str) -> None:
    with Subscriber(estimates, ["nobody/estimate"]) as stream, pytest.raises(ClientTimeoutError, match="no message"):
        stream.receive(0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with Control(endpoint) as control, pytest.raises(UnreachableError, match="no answer"):
            control.request("ping", timeout_s=0.2)


def test_an_active_model_predicts_and_a_reset_forgets(control: Control, estimates: str) -> None:
    snapshot = control.request("snapshot")
    p = len(snapshot["theta"])
    assert np.shape(snapshot["covariance"]) == (p, p)
    assert len(snapshot["meta"]["parameters"]) == p
    assert Path(snapshot["path"]).is_file()
    with Subscriber(estimates, ["axis/torque"]) as stream:
        control.request("activate", theta=[0.0] * p)
        await_message(stream, lambda message: isinstance(message, TorqueMessage) and not np.any(message.predicted))
        control.request("activate", theta=None)
    before = control.request("snapshot")["resets"]
    control.request("reset_estimator")
    assert control.request("snapshot")["resets"] == before + 1


def test_what_only_a_process_can_notice_stops_the_start(running: Site, tmp_path: Path) -> None:
    arm = replayed(running.path / "rec.mcap", robot="arm7")
    with pytest.raises(LaunchError, match="7"):
        start(config(tmp_path, arm, runtime_dir=str(tmp_path / "r")), tmp_path)
    assert list((tmp_path / "r").iterdir()) == []


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


def test_a_window_of_live_frames_is_what_was_recorded(running: Site, control: Control) -> None:
    """Frame by frame; the daemon goes on."""
    folder = running.path / "state" / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    target, original = folder / "one.window", read_recording(running.path / "rec.mcap")
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            answer = control.request("set_aside", seconds=1.0, path=str(target))
            break
        except ControlError as error:  # in the pause between two laps
            if "of frames are there" not in error.message or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
    found = open_recording(target)
    assert found.samples == answer["frames"] == 1000
    assert np.all(np.diff(found.seq) == 1)
    index = found.seq % (original.samples + PAUSE)
    for name in ("q", "tau"):
        np.testing.assert_array_equal(found.channels[name], original.channels[name][index])
    np.testing.assert_array_equal(found.t_ns, original.t_ns[index] + (found.seq - index) * 1_000_000)
    assert found.meta.joint_names == ("carriage",)
    for path, word in ((target, "there already"), (running.path / "outside", "state directory")):
        with pytest.raises(ControlError, match=word):
            control.request("set_aside", seconds=1.0, path=str(path))
    with pytest.raises(ControlError, match="of frames are there"):
        control.request("set_aside", seconds=1000.0, path=str(folder / "long.window"))
    target.unlink()
    assert list(folder.iterdir()) == []
    assert processes(control)["axis/estimator"]["info"]["lost"] % PAUSE == 0
