"""Random bytes, oversized messages and nonsense on every socket: the daemon stays up, its memory bounded."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
from collections.abc import Iterator
from typing import Any

import msgpack
import psutil
import pytest
import zmq

from service.client import Control, ControlError, Subscriber
from service.security.authenticator import HANDSHAKE_MS
from tests.lab.daemon.daemons import await_message, log_lines, processes
from tests.lab.daemon.shared import Keeper, Site
from tests.lab.daemon.sockets import PORTS, hung_up_on, plain

HUGE = 100 * 1024 * 1024
GREETING = b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL" + bytes(16) + b"\x00" + bytes(31)


@pytest.fixture(scope="module")
def running(keeper: Keeper) -> Site:
    site = keeper.get(plain)
    with site.control() as control:
        control.request("submit", 30.0, kind="excite", due_s=1e6)  # what a first job loads is no growth by an attack
    return site


@pytest.fixture(autouse=True)
def unharmed(running: Site) -> Iterator[None]:
    """Check that everything works afterwards, nothing was restarted, and no process has grown."""
    with running.control() as control:
        pids = {name: process["pid"] for name, process in processes(control).items()} | {"self": running.daemon.pid}
        before = {name: psutil.Process(pid).memory_info().rss for name, pid in pids.items()}
        yield
        for port, kind in (("estimates", "estimate"), ("frames", "frame")):
            with Subscriber(running.endpoints[port], [f"axis/{kind}"]) as stream:
                await_message(stream)
        after = processes(control)
    assert {name: process["pid"] for name, process in after.items()} | {"self": running.daemon.pid} == pids
    assert all(process["state"] == "ready" for process in after.values())
    for name, pid in pids.items():
        assert psutil.Process(pid).memory_info().rss < before[name] + 60_000_000, name


def attack(endpoint: str, data: bytes, kind: str = "") -> None:
    """Send bytes to a port, after the handshake of a socket of this kind if given, until the connection is closed."""
    host, _, port = endpoint.removeprefix("tcp://").partition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 10.0) as raw:
        if kind:
            shake_hands(raw, kind)
        raw.sendall(data)
        raw.shutdown(socket.SHUT_WR)
        while raw.recv(65536):
            pass


def test_whoever_does_not_get_on_with_the_handshake_is_hung_up_on(running: Site) -> None:
    """Nothing, a part of the greeting, a greeting alone: after the time for a handshake the connection ends."""
    endpoints = [running.endpoints[port] for port in PORTS]
    assert hung_up_on(endpoints, (b"", GREETING[:10], GREETING)) > 0.9e-3 * HANDSHAKE_MS


def ready(kind: str) -> bytes:
    """The ZMTP command READY of a socket of this kind."""
    name, value = b"Socket-Type", kind.encode()
    body = b"\x05READY" + bytes([len(name)]) + name + struct.pack(">I", len(value)) + value
    return b"\x04" + bytes([len(body)]) + body


def shake_hands(raw: socket.socket, kind: str) -> None:
    """Complete the handshake of a socket of this kind; sending earlier than the answer ends the connection."""
    raw.sendall(GREETING + ready(kind))
    with raw.makefile("rb") as answer:
        answer.read(len(GREETING) + 1)
        answer.read(answer.read(1)[0])


@pytest.mark.parametrize(("port", "kind"), [("frames", "SUB"), ("estimates", "SUB"), ("control", "DEALER")])
def test_a_message_announced_with_a_hundred_megabytes(running: Site, port: str, kind: str) -> None:
    for length in (HUGE, 2**62, 2**64 - 1):
        for flags, name in ((b"\x02", b""), (b"\x06", b"\x09SUBSCRIBE"), (b"\x06", b"\x04PING")):
            announced = flags + struct.pack(">Q", length) + name
            attack(running.endpoints[port], announced + bytes(1 << 20), kind)


@pytest.mark.parametrize(
    ("port", "kind"),
    [("frames", zmq.XSUB), ("estimates", zmq.XSUB), ("control", zmq.DEALER), ("control", zmq.REQ)],
)
def test_a_real_message_of_a_hundred_megabytes(running: Site, port: str, kind: int) -> None:
    with zmq.Context() as context, context.socket(kind) as attacker, attacker.get_monitor_socket() as monitor:
        attacker.setsockopt(zmq.LINGER, 0)
        attacker.connect(running.endpoints[port])
        attacker.send(b"x" * HUGE)
        while True:  # until the daemon hangs up
            assert monitor.poll(30_000)
            event = struct.unpack("=hi", monitor.recv_multipart()[0])[0]
            if event == zmq.EVENT_DISCONNECTED:
                break
        attacker.disable_monitor()


def test_garbage_in_requests_is_answered_and_counted(running: Site) -> None:
    requests = [
        *([b""], [b"", b""], [b"", b"rubbish"], [b"one", b"two", b"three"], [os.urandom(200_000)], [b"\x91" * 10_000]),
        [msgpack.packb([1, 2])],
        [msgpack.packb({"v": 1, "id": 1})],
        [msgpack.packb({"v": 9, "id": 1, "verb": "ping"})],
        [msgpack.packb({"v": 1, "id": 1, "verb": "ping", "args": [1]})],
        [msgpack.packb({"v": 1, "id": 2**63, "verb": "ping"})],
    ]
    with running.control() as control, zmq.Context() as context, context.socket(zmq.DEALER) as attacker:
        attacker.setsockopt(zmq.LINGER, 0)
        attacker.connect(running.endpoints["control"])
        garbage = control.request("status")["control"]["garbage"]
        for parts in requests:
            attacker.send_multipart(parts)
            assert attacker.poll(10_000), parts
            reply = msgpack.unpackb(attacker.recv_multipart()[-1])
            assert reply["ok"] is False
            assert reply["error"]["type"] == "bad_request", parts
        assert control.request("status")["control"]["garbage"] == garbage + len(requests)
        assert "request_refused" in log_lines(running.path)


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
def test_a_long_text_is_refused_and_not_repeated_whole(running: Site, verb: str, args: dict[str, object]) -> None:
    with Control(running.endpoints["control"]) as control:
        with pytest.raises(ControlError) as refused:
            control.request(verb, 30.0, **args)
        assert refused.value.type in ("bad_argument", "unavailable", "failed")
        assert len(refused.value.message) < 5000


def test_a_robot_with_a_long_description(running: Site) -> None:
    with Control(running.endpoints["control"]) as control:
        robot = control.request("robot", 30.0)["robot"]
        assert len(robot) > 200_000
        job = control.request("submit", 30.0, kind="excite", due_s=1e6)
        assert control.request("job", 30.0, id=job["id"])["parameters"]["robot"] == robot


def test_a_flood_of_requests_that_reads_no_answer(running: Site) -> None:
    endpoint = running.endpoints["control"]
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


def test_private_sockets_are_private(running: Site) -> None:
    (directory,) = (running.path / "r").iterdir()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {"axis.frames", "axis.estimator", "supervisor"} <= {path.name for path in directory.iterdir()}


def test_only_loopback_is_listened_on(running: Site) -> None:
    for process in [psutil.Process(running.daemon.pid), *psutil.Process(running.daemon.pid).children()]:
        for connection in process.net_connections("inet"):
            if connection.status == psutil.CONN_LISTEN:
                assert connection.laddr.ip == "127.0.0.1"


@pytest.mark.parametrize(
    ("verb", "args", "word"),
    [
        ("submit", {"kind": "compare", "parameters": {"seconds": float("nan")}}, "seconds"),
        ("submit", {"kind": "compare", "parameters": {"seeds": 10**9}}, "seeds"),
        ("submit", {"kind": "compare", "memory_mb": -1.0}, "memory_mb"),
        ("submit", {"kind": "compare", "after": [-1]}, "after"),
        ("submit", {"kind": "nothing"}, "identify, validate"),
        ("submit", {"kind": "compare", "after": [2**61]}, "there is no job"),
        ("submit", {"kind": "identify", "parameters": {"recording": "/proc/self/mem"}}, "recording"),
        ("submit", {"kind": "identify", "parameters": {"recording": "/a\0b"}}, "recording"),
        ("submit", {"kind": "identify", "parameters": {"recording": "live:1e9"}}, "live"),
        ("submit", {"kind": "compare", "arm": "none"}, "there is no 'none'"),
        ("job", {"id": 0}, "id"),
        ("job", {"id": 2**61}, "no job"),
        ("cancel", {"id": "one"}, "id"),
        ("events", {"job": -5}, "job"),
        ("rollback", {}, "no model is active"),
        ("backup", {"directory": "relative"}, "whole path"),
        ("backup", {"directory": "/tmp/a\0b"}, "null byte"),
        ("set_aside", {"seconds": 1.0, "path": "jobs/queue.db"}, "path"),
    ],
)
def test_nonsense_is_refused_and_harms_nothing(running: Site, verb: str, args: dict[str, Any], word: str) -> None:
    with running.control() as control:
        with pytest.raises(ControlError) as refused:
            control.request(verb, 30.0, **args)
        assert refused.value.type in ("bad_argument", "failed")
        assert word in refused.value.message
