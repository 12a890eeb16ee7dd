"""A daemon over real sockets: it becomes ready, streams, answers, and ends in order."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgpack
import numpy as np
import psutil
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
from service.supervisor.launch import DaemonProcess, LaunchError
from tests.lab.daemon.daemons import (
    await_message,
    await_status,
    config,
    log_lines,
    make_recording,
    processes,
    replayed,
    start,
)

ROOT = Path(__file__).resolve().parents[2]
EVERY_SECOND = ("meta", "status", "stats")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DaemonProcess, Path]]:
    """A daemon that replays a recording of two seconds for ever, with a recorder that is off."""
    path = tmp_path_factory.mktemp("daemon")
    arm = replayed(make_recording(path / "rec.mcap"), loop=True, recorder={"enabled": False})
    daemon = start(config(path, arm, mirror_port=0), path)
    yield daemon, path
    daemon.stop()


@pytest.fixture
def control(running: tuple[DaemonProcess, Path]) -> Iterator[Control]:
    with Control(running[0].endpoints["control"]) as control:
        yield control


@pytest.fixture
def estimates(running: tuple[DaemonProcess, Path]) -> str:
    return running[0].endpoints["estimates"]


def failure(tmp_path: Path, settings: object) -> str:
    with pytest.raises(LaunchError) as caught:
        DaemonProcess(settings, tmp_path / "log").start(240.0)  # type: ignore[arg-type]
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"robot": "no_such_robot"}, "no_such_robot"),
        ({"robot": "arm7"}, "7"),
        ({"driver": {"kind": "replay", "recording": "none.mcap"}}, "none.mcap"),
        ({"estimator": {"memry_s": 1.0}}, "did you mean 'memory_s'"),
        ({"driver": {"kind": "replay", "recording": "rec.mcap", "span": "0.9:0.1"}}, "span"),
    ],
)
def test_what_only_a_process_can_notice_stops_the_start(tmp_path: Path, change: dict[str, object], word: str) -> None:
    arm = replayed(make_recording(tmp_path / "rec.mcap", seconds=0.1)) | change
    assert word in failure(tmp_path, config(tmp_path, arm, runtime_dir=str(tmp_path / "r")))
    assert list((tmp_path / "r").iterdir()) == []


def test_sigterm_ends_all_in_order(tmp_path: Path) -> None:
    arm = replayed(make_recording(tmp_path / "rec.mcap"), loop=True, recorder={"directory": "recordings"})
    daemon = start(config(tmp_path, arm, runtime_dir=str(tmp_path / "r")), tmp_path)
    with Control(daemon.endpoints["control"]) as control:
        await_status(control, lambda found: found["axis/recorder"]["info"].get("written", 0) > 200)
        children = [psutil.Process(process["pid"]) for process in processes(control).values()]
    began = time.monotonic()
    assert daemon.stop() == 0
    assert time.monotonic() - began < 5.0
    assert not any(child.is_running() for child in children)
    assert (tmp_path / "state" / "axis" / "estimator.state").is_file()
    (path,) = (tmp_path / "recordings").glob("*.mcap")
    assert read_recording(path).samples > 200
    assert list((tmp_path / "r").iterdir()) == []
    assert "process_killed" not in log_lines(tmp_path)


def test_a_daemon_ends_when_all_is_played_and_loses_nothing(tmp_path: Path) -> None:
    source = make_recording(tmp_path / "rec.mcap", seconds=5.0)
    arms = [
        replayed(source, name, speed="max", recorder={"directory": f"{name}-recordings"}) for name in ("left", "right")
    ]
    daemon = start(config(tmp_path, *arms, exit_at_end=True), tmp_path)
    try:
        assert daemon.wait(120.0) == 0
    finally:
        daemon.stop()
    original = read_recording(source)
    for name in ("left", "right"):
        (path,) = (tmp_path / f"{name}-recordings").glob("*.mcap")
        recorded = read_recording(path)
        np.testing.assert_array_equal(recorded.channels["q"], original.channels["q"])
        np.testing.assert_array_equal(recorded.t_ns, original.t_ns)
    drained = [line for line in log_lines(tmp_path).splitlines() if '"drained"' in line]
    assert len(drained) == 2
    assert all('"received": 5000, "lost": 0' in line for line in drained)


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


def test_frames_reach_a_subscriber_in_order_and_whole(running: tuple[DaemonProcess, Path]) -> None:
    recording = read_recording(running[1] / "rec.mcap")
    with Subscriber(running[0].endpoints["frames"], ["axis/frame"]) as stream:
        messages = [await_message(stream) for _ in range(1000)]
        assert stream.invalid == 0
        counts = stream.counts["axis/frame", "acquisition"]
        assert (counts.received, counts.epochs, counts.repeated) == (1000, 1, 0)
    lap = 2999  # two seconds of frames, and one second's pause, from first to first
    for message in messages:
        assert isinstance(message, FrameMessage)
        index = message.frame.seq % lap
        np.testing.assert_array_equal(message.frame.q, recording.channels["q"][index])
        np.testing.assert_array_equal(message.frame.tau, recording.channels["tau"][index])
        assert message.frame.dq is None
    seqs = [message.envelope.seq for message in messages]
    assert counts.lost == seqs[-1] - seqs[0] - 999  # only the pause of the loop


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
    """Yield what lists and maps hold, at any depth; keys must be texts."""
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
def test_plotters_read_the_bytes_as_they_are(running: tuple[DaemonProcess, Path], stream: str, kinds: set[str]) -> None:
    """What PlotJuggler's ZeroMQ subscriber makes of a message, with MessagePack as the protocol and `t` as the time.

    It takes each part as a message of its own if it is an older one: a topic must then be no MessagePack document.
    A map's numbers and booleans become curves, texts and nil do not; anything else would end in an error there.
    """
    seen: dict[tuple[str, str], float] = {}
    with zmq.Context() as context, context.socket(zmq.SUB) as subscriber:
        subscriber.rcvtimeo = 20_000
        subscriber.subscribe(b"")
        subscriber.connect(running[0].endpoints[stream])
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


def test_the_mirror_passes_on_some_of_the_same_bytes(running: tuple[DaemonProcess, Path]) -> None:
    endpoints = running[0].endpoints
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


def test_a_snapshot_holds_everything_and_is_saved(running: tuple[DaemonProcess, Path], control: Control) -> None:
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


def test_recording_is_started_and_stopped_by_request(running: tuple[DaemonProcess, Path], control: Control) -> None:
    control.request("record", action="start")
    await_status(control, lambda found: found["axis/recorder"]["info"].get("written", 0) > 100)
    first = control.request("record", action="stop")
    assert first["recording"] is False
    assert read_recording(first["path"]).samples > 100
    control.request("record", action="start")
    await_status(control, lambda found: found["axis/recorder"]["info"].get("files", 0) == 2)
    second = control.request("record", action="stop")
    assert second["path"] != first["path"]


@pytest.mark.parametrize("example", ["subscribe_client.py", "subscribe_plain.py"])
def test_the_examples_print_estimates(estimates: str, example: str) -> None:
    with subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / example), estimates, "axis"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        process.terminate()
    assert all(line.strip() for line in lines)


# ---------------------------------------------------------------- start and end


def test_a_taken_port_and_a_second_instance_are_refused(
    running: tuple[DaemonProcess, Path], tmp_path: Path, control: Control
) -> None:
    arm = replayed(running[1] / "rec.mcap")
    for key, name in (("frames_port", "frames"), ("mirror_port", "mirror"), ("control_port", "control")):
        port = int(running[0].endpoints[name].rpartition(":")[2])
        message = failure(tmp_path, config(tmp_path, arm, **{key: port}))
        assert f"daemon.{key}" in message
        assert str(port) in message
    message = failure(tmp_path, config(running[1], arm))
    assert "already running" in message
    assert str(running[0].pid) in message
    assert control.request("ping")["pong"] is True
