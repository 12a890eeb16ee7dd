"""Random bytes and oversized messages on every socket: the daemon stays up and its memory bounded."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

import msgpack
import psutil
import pytest
import zmq

from service.client import Control, ControlError, Subscriber
from service.security.authenticator import HANDSHAKE_MS
from service.supervisor.launch import DaemonProcess
from tests.lab.daemon.daemons import await_message, config, log_lines, make_recording, processes, replayed, start
from tests.lab.daemon.silent import hung_up_on

HUGE = 100 * 1024 * 1024
#: A robot whose whole description is a longer text than any message but a reply may hold.
WORDY = f"""
format = 1
name = "wordy"
description = "{"word " * 40_000}"
kinematics = "mdh"
gravity = "floor"
[[joint]]
name = "carriage"
kind = "prismatic"
alpha_deg = 90
lower = -1.0
upper = 1.0
velocity = 10.0
effort = 1000
"""
GREETING = b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL" + bytes(16) + b"\x00" + bytes(31)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DaemonProcess, Path]]:
    path = tmp_path_factory.mktemp("hostile")
    (path / "wordy.toml").write_text(WORDY, encoding="utf-8")
    arm = replayed(make_recording(path / "rec.mcap"), robot=str(path / "wordy.toml"), loop=True)
    daemon = start(config(path, arm, runtime_dir=str(path / "r"), mirror_port=0), path)
    with Control(daemon.endpoints["control"]) as control:
        control.request("submit", 30.0, kind="excite", due_s=1e6)  # what a first job loads is no growth by an attack
    yield daemon, path
    daemon.stop()


@pytest.fixture(autouse=True)
def unharmed(running: tuple[DaemonProcess, Path]) -> Iterator[None]:
    """After each attack everything works, nothing was restarted, and no process has grown."""
    with Control(running[0].endpoints["control"]) as control:
        pids = {name: process["pid"] for name, process in processes(control).items()} | {"self": running[0].pid}
        before = {name: psutil.Process(pid).memory_info().rss for name, pid in pids.items()}
        yield
        with Subscriber(running[0].endpoints["estimates"], ["axis/estimate"]) as stream:
            await_message(stream)
        with Subscriber(running[0].endpoints["frames"], ["axis/frame"]) as stream:
            await_message(stream)
        after = processes(control)
        assert all(process["restarts"] == 0 and process["state"] == "ready" for process in after.values())
    for name, pid in pids.items():
        assert psutil.Process(pid).memory_info().rss < before[name] + 60_000_000, name


def attack(endpoint: str, data: bytes, kind: str = "") -> None:
    """Send bytes to a port, as a socket of this kind if one is given, until the other side hangs up."""
    host, _, port = endpoint.removeprefix("tcp://").partition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 10.0) as raw:
        if kind:
            shake_hands(raw, kind)
        raw.sendall(data)
        raw.shutdown(socket.SHUT_WR)
        while raw.recv(65536):
            pass


PORTS = ("frames", "estimates", "mirror", "control")


@pytest.mark.parametrize("port", PORTS)
def test_random_bytes(running: tuple[DaemonProcess, Path], port: str) -> None:
    source = random.Random(port)
    for length in (0, 1, 10, 64, 1000, 100_000):
        noise = source.randbytes(length)
        for data in (noise, GREETING + noise, GREETING[:12] + noise, GREETING + ready("SUB") + noise):
            attack(running[0].endpoints[port], data)


def test_whoever_does_not_get_on_with_the_handshake_is_hung_up_on(running: tuple[DaemonProcess, Path]) -> None:
    """Nothing, a part of the greeting, a greeting alone: after the time for a handshake the connection ends."""
    endpoints = [running[0].endpoints[port] for port in PORTS]
    assert hung_up_on(endpoints, (b"", GREETING[:10], GREETING)) > 0.9e-3 * HANDSHAKE_MS


def ready(kind: str) -> bytes:
    """The ZMTP command READY of a socket of this kind."""
    name, value = b"Socket-Type", kind.encode()
    body = b"\x05READY" + bytes([len(name)]) + name + struct.pack(">I", len(value)) + value
    return b"\x04" + bytes([len(body)]) + body


def shake_hands(raw: socket.socket, kind: str) -> None:
    """Introduce a socket of this kind; who sends more before the other side's READY is hung up on for that alone."""
    raw.sendall(GREETING + ready(kind))
    with raw.makefile("rb") as answer:
        answer.read(len(GREETING) + 1)
        answer.read(answer.read(1)[0])


@pytest.mark.parametrize(("port", "kind"), [("frames", "SUB"), ("estimates", "SUB"), ("control", "DEALER")])
def test_a_message_announced_with_a_hundred_megabytes(
    running: tuple[DaemonProcess, Path], port: str, kind: str
) -> None:
    for length in (HUGE, 2**62, 2**64 - 1):
        for flags, name in ((b"\x02", b""), (b"\x06", b"\x09SUBSCRIBE"), (b"\x06", b"\x04PING")):
            announced = flags + struct.pack(">Q", length) + name
            attack(running[0].endpoints[port], announced + bytes(1 << 20), kind)


@pytest.mark.parametrize(
    ("port", "kind"),
    [("frames", zmq.XSUB), ("estimates", zmq.XSUB), ("control", zmq.DEALER), ("control", zmq.REQ)],
)
def test_a_real_message_of_a_hundred_megabytes(running: tuple[DaemonProcess, Path], port: str, kind: int) -> None:
    with zmq.Context() as context, context.socket(kind) as attacker, attacker.get_monitor_socket() as monitor:
        attacker.setsockopt(zmq.LINGER, 0)
        attacker.connect(running[0].endpoints[port])
        attacker.send(b"x" * HUGE)
        while True:  # until the daemon hangs up
            assert monitor.poll(30_000)
            event = struct.unpack("=hi", monitor.recv_multipart()[0])[0]
            if event == zmq.EVENT_DISCONNECTED:
                break
        attacker.disable_monitor()


def test_garbage_in_requests_is_answered_and_counted(running: tuple[DaemonProcess, Path]) -> None:
    endpoint = running[0].endpoints["control"]
    source = random.Random(7)
    requests = [
        [b""],
        [b"", b""],
        [b"rubbish"],
        [b"", b"rubbish"],
        [b"one", b"two", b"three"],
        [source.randbytes(200_000)],
        [msgpack.packb([1, 2])],
        [msgpack.packb({"v": 1, "id": 1})],
        [msgpack.packb({"v": 9, "id": 1, "verb": "ping"})],
        [msgpack.packb({"v": 1, "id": 1, "verb": "ping", "args": [1]})],
        [msgpack.packb({"v": 1, "id": 2**63, "verb": "ping"})],
        [b"\x91" * 10_000],
    ]
    with Control(endpoint) as control, zmq.Context() as context, context.socket(zmq.DEALER) as attacker:
        attacker.setsockopt(zmq.LINGER, 0)
        attacker.connect(endpoint)
        garbage = control.request("status")["control"]["garbage"]
        for parts in requests:
            attacker.send_multipart(parts)
            assert attacker.poll(10_000), parts
            reply = msgpack.unpackb(attacker.recv_multipart()[-1])
            assert reply["ok"] is False
            assert reply["error"]["type"] == "bad_request"
        assert control.request("status")["control"]["garbage"] == garbage + len(requests)
        assert "request_refused" in log_lines(running[1])


LONG = "\0" * 20_000  # four times as long where it is repeated in a refusal


@pytest.mark.parametrize(
    ("verb", "args"),
    [
        ("submit", {"kind": LONG}),
        ("submit", {"kind": "identify", "parameters": {LONG: 1}}),
        ("submit", {"kind": "identify", "parameters": {LONG[:k]: 1 for k in range(1, 500)}}),
        ("submit", {"kind": "identify", "parameters": {"recording": LONG}}),
        ("submit", {"kind": "identify", "parameters": {"recording": "/" + LONG}}),
        ("submit", {"kind": "validate", "parameters": {"recording": "x", "model": f"model:{LONG}"}}),
        ("submit", {"kind": "identify", "arm": LONG}),
        ("submit", {"kind": "identify", "after": LONG}),
        ("rollback", {"reason": LONG}),
        ("backup", {"directory": LONG}),
        ("jobs", {"states": [LONG]}),
        ("record", {"action": LONG}),
        ("activate", {"theta": LONG}),
    ],
)
def test_a_long_text_is_refused_and_not_repeated_whole(
    running: tuple[DaemonProcess, Path], verb: str, args: dict[str, object]
) -> None:
    with Control(running[0].endpoints["control"]) as control:
        with pytest.raises(ControlError) as refused:
            control.request(verb, 30.0, **args)
        assert refused.value.type in ("bad_argument", "unavailable", "failed")
        assert len(refused.value.message) < 5000


def test_a_robot_with_a_long_description(running: tuple[DaemonProcess, Path]) -> None:
    with Control(running[0].endpoints["control"]) as control:
        robot = control.request("robot", 30.0)["robot"]
        assert len(robot) > 200_000
        job = control.request("submit", 30.0, kind="excite", due_s=1e6)
        assert control.request("job", 30.0, id=job["id"])["parameters"]["robot"] == robot


def test_a_flood_of_requests_that_reads_no_answer(running: tuple[DaemonProcess, Path]) -> None:
    endpoint = running[0].endpoints["control"]
    with Control(endpoint) as control, zmq.Context() as context, context.socket(zmq.DEALER) as attacker:
        attacker.setsockopt(zmq.LINGER, 0)
        attacker.setsockopt(zmq.RCVHWM, 1)
        attacker.connect(endpoint)
        request = msgpack.packb({"v": 1, "id": 1, "verb": "status"})
        sent = 0
        with contextlib.suppress(zmq.Again):
            attacker.setsockopt(zmq.SNDTIMEO, 1000)
            for _ in range(5000):
                attacker.send(request)
                sent += 1
        assert sent > 100
        assert control.request("ping", timeout_s=30.0)["pong"] is True


def test_messages_to_the_publishing_ports_are_ignored(running: tuple[DaemonProcess, Path]) -> None:
    """A subscriber may send up to half a kilobyte upwards: it must disturb nobody."""
    for port in ("frames", "estimates", "mirror"):
        with zmq.Context() as context, context.socket(zmq.XSUB) as attacker:
            attacker.setsockopt(zmq.LINGER, 0)
            attacker.connect(running[0].endpoints[port])
            attacker.send(b"\x01")  # everything
            assert attacker.poll(10_000)
            for payload in (b"", b"\x00", b"\x01@estimator", b"\x00@estimator", b"\x02" * 500, os.urandom(100)):
                attacker.send(payload)
                attacker.send_multipart([payload, payload])
            attacker.send(b"\x01")
            for _ in range(50):
                assert attacker.poll(10_000)
                attacker.recv_multipart()


def test_private_sockets_are_private(running: tuple[DaemonProcess, Path]) -> None:
    (directory,) = (running[1] / "r").iterdir()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {"axis.frames", "axis.estimator", "supervisor"} <= {path.name for path in directory.iterdir()}


def test_only_loopback_is_listened_on(running: tuple[DaemonProcess, Path]) -> None:
    for process in [psutil.Process(running[0].pid), *psutil.Process(running[0].pid).children()]:
        for connection in process.net_connections("inet"):
            if connection.status == psutil.CONN_LISTEN:
                assert connection.laddr.ip == "127.0.0.1"
