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
from tests.lab.daemon.daemons import (
    DEADLINE_S,
    await_message,
    await_status,
    config,
    make_recording,
    processes,
    replayed,
    start,
)
from tests.lab.daemon.shared import Keeper, Site
from tests.lab.daemon.sockets import PAUSE, plain

EVERY_SECOND = ("meta", "status", "stats")


@pytest.fixture(scope="module")
def running(keeper: Keeper) -> Site:
    return keeper.get(plain)


@pytest.fixture
def control(running: Site) -> Iterator[Control]:
    with running.control() as control:
        yield control


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


def test_estimates_and_torques_are_published(estimates: str) -> None:
    with Subscriber(estimates, ["axis/estimate", "axis/torque"]) as stream:
        estimate = await_message(stream, lambda message: isinstance(message, EstimateMessage))
        torque = await_message(stream, lambda message: isinstance(message, TorqueMessage))
    assert isinstance(estimate, EstimateMessage)
    assert isinstance(torque, TorqueMessage)
    assert len(estimate.theta) == len(estimate.std) == len(estimate.status) == len(estimate.excited) > 0
    assert estimate.envelope.src == "estimator"
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


@pytest.mark.parametrize(
    ("stream", "kinds"),
    [
        ("frames", {"frame", "meta", "status", "stats"}),
        ("estimates", {"estimate", "torque", "meta", "status", "stats"}),
        ("mirror", {"frame", "estimate", "torque", "meta", "status", "stats"}),
    ],
)
def test_plotters_read_the_bytes_as_they_are(running: Site, stream: str, kinds: set[str]) -> None:
    """PlotJuggler's ZeroMQ subscriber, with MessagePack as the protocol and `t` as the time, can decode messages.

    It takes each part as a message of its own if it is an older one: a topic must then be no MessagePack document.
    A map's numbers and booleans become curves, texts and nil do not; anything else would end in an error there.
    """
    seen: dict[tuple[str, str], float] = {}
    with zmq.Context() as context, context.socket(zmq.SUB) as subscriber:
        subscriber.rcvtimeo = 20_000
        subscriber.subscribe(b"")
        subscriber.connect(running.endpoints[stream])
        while not kinds <= {kind for kind, _ in seen}:
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


def test_the_mirror_passes_on_some_of_the_same_bytes(running: Site) -> None:
    endpoints = running.endpoints
    with zmq.Context() as context, context.socket(zmq.SUB) as source, context.socket(zmq.SUB) as mirror:
        for socket_ in (source, mirror):
            socket_.setsockopt(zmq.RCVHWM, 0)
            socket_.rcvtimeo = 20_000
            socket_.subscribe(b"")
        source.connect(endpoints["frames"])
        source.connect(endpoints["estimates"])
        originals: set[tuple[bytes, ...]] = set()
        while not {b"axis/frame", b"axis/estimate"} <= {parts[0] for parts in originals}:
            originals.add(tuple(source.recv_multipart()))
        mirror.connect(endpoints["mirror"])
        seqs: list[int] = []
        counts = dict.fromkeys(("frame", "torque", "estimate", "meta", "status", "stats"), 0)
        while min(counts.values()) < 2 or len(seqs) < 50:
            parts = tuple(mirror.recv_multipart())
            while parts not in originals:
                originals.add(tuple(source.recv_multipart()))
            body = msgpack.unpackb(parts[1])
            counts[body["kind"]] += 1
            if body["kind"] == "frame":
                seqs.append(body["seq"])
    assert seqs == sorted(set(seqs))
    assert seqs[-1] - seqs[0] > 5 * len(seqs)  # at 1 kHz, thinned out to 50 Hz: 20 times


def test_a_late_joiner_learns_names_and_units(estimates: str) -> None:
    with Subscriber(estimates, ["axis/meta"]) as stream:
        meta = await_message(stream)
    assert isinstance(meta, BodyMessage)
    assert meta.body["joints"] == ["carriage"]
    assert len(meta.body["parameters"]) > 0
    assert len(meta.body["hash"]) == 64


def test_newest_drains_what_waits(estimates: str) -> None:
    with Subscriber(estimates, ["axis/torque"]) as stream:
        first = await_message(stream)
        deadline = time.monotonic() + 30.0
        while True:  # until several wait
            before = stream.counts["axis/torque", "estimator"].received
            newest = stream.newest()
            if stream.counts["axis/torque", "estimator"].received > before + 1:
                break
            assert time.monotonic() < deadline
            with Subscriber(estimates, ["axis/status"]) as other:  # passes time by waiting for something
                await_message(other)
    assert newest.envelope.seq > first.envelope.seq


def test_a_subscriber_to_nothing_times_out(estimates: str) -> None:
    with Subscriber(estimates, ["nobody/estimate"]) as stream, pytest.raises(ClientTimeoutError, match="no message"):
        stream.receive(0.2)


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with Control(endpoint) as control, pytest.raises(UnreachableError, match="no answer"):
            control.request("ping", timeout_s=0.2)


def test_requests_and_their_errors(control: Control) -> None:
    assert control.request("ping")["pong"] is True
    status = control.request("status")
    assert status["daemon"]["ready"] is True
    assert {process["state"] for process in status["processes"]} == {"ready"}
    for verb, args, type, word in (
        ("fly", {}, "unknown_verb", "snapshot"),
        ("snapshot", {"arm": "other"}, "bad_argument", "axis"),
        ("activate", {"theta": [1.0] * 99}, "bad_argument", "theta"),
        ("activate", {"theta": "much"}, "bad_argument", "theta"),
        ("record", {"action": "rewind"}, "bad_argument", "rewind"),
    ):
        with pytest.raises(ControlError, match=word) as caught:
            control.request(verb, **args)
        assert caught.value.type == type


def test_a_snapshot_holds_everything_and_is_saved(running: Site, control: Control) -> None:
    snapshot = control.request("snapshot")
    p = len(snapshot["theta"])
    assert np.shape(snapshot["covariance"]) == (p, p)
    assert len(snapshot["meta"]["parameters"]) == p
    assert Path(snapshot["path"]).is_file()


def test_an_active_model_predicts_and_a_reset_forgets(control: Control, estimates: str) -> None:
    p = len(control.request("snapshot")["theta"])
    with Subscriber(estimates, ["axis/torque"]) as stream:
        control.request("activate", theta=[0.0] * p)
        torque = await_message(
            stream, lambda message: isinstance(message, TorqueMessage) and not np.any(message.predicted)
        )
        assert isinstance(torque, TorqueMessage)
        control.request("activate", theta=None)
    before = control.request("snapshot")["resets"]
    control.request("reset_estimator")
    assert control.request("snapshot")["resets"] == before + 1


def test_recording_is_started_and_stopped_by_request(running: Site, control: Control) -> None:
    files = processes(control)["axis/recorder"]["info"].get("files", 0)
    control.request("record", action="start")
    await_status(control, lambda found: found["axis/recorder"]["info"].get("written", 0) > 100)
    first = control.request("record", action="stop")
    assert first["recording"] is False
    assert read_recording(first["path"]).samples > 100
    control.request("record", action="start")
    await_status(control, lambda found: found["axis/recorder"]["info"].get("files", 0) == files + 2)
    second = control.request("record", action="stop")
    assert second["path"] != first["path"]


@pytest.mark.parametrize(
    ("change", "word"),
    [({"robot": "arm7"}, "7"), ({"driver": {"kind": "replay", "recording": "none.mcap"}}, "none.mcap")],
)
def test_what_only_a_process_can_notice_stops_the_start(tmp_path: Path, change: dict[str, object], word: str) -> None:
    arm = replayed(make_recording(tmp_path / "rec.mcap", seconds=0.1)) | change
    with pytest.raises(LaunchError, match=word):
        start(config(tmp_path, arm, runtime_dir=str(tmp_path / "r")), tmp_path)
    assert list((tmp_path / "r").iterdir()) == []


@pytest.mark.parametrize(("key", "name"), [("mirror_port", "mirror"), ("control_port", "control")])
def test_a_taken_port_is_refused(running: Site, tmp_path: Path, key: str, name: str) -> None:
    port = int(running.endpoints[name].rpartition(":")[2])
    with pytest.raises(LaunchError, match=rf"daemon\.{key}.*{port}"):
        start(config(tmp_path, replayed(running.path / "rec.mcap"), **{key: port}), tmp_path)


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
    for args, word in (
        ({"seconds": 1.0, "path": str(target)}, "there already"),
        ({"seconds": 1.0, "path": str(running.path / "outside")}, "state directory"),
        ({"seconds": 1.0, "path": str(folder / ("x" * 245 + ".window"))}, "File name too long"),  # with ".new"
        ({"seconds": 1000.0, "path": str(folder / "long.window")}, "of frames are there"),
    ):
        with pytest.raises(ControlError, match=word):
            control.request("set_aside", **args)
    target.unlink()
    assert list(folder.iterdir()) == []
    assert processes(control)["axis/estimator"]["info"]["lost"] % PAUSE == 0
