"""Oversized and endless messages and nonsense on every socket: the daemon stays up, its memory bounded."""

import contextlib
import socket
import stat
import struct
import time
from typing import Any

import msgpack
import psutil
import pytest
import zmq

from service.client import Control, ControlError, Subscriber
from service.security.authenticator import HANDSHAKE_MS
from tests.lab.daemon.daemons import await_message, await_status, log_lines, processes
from tests.lab.daemon.shared import Keeper, Site
from tests.lab.daemon.sockets import LIMIT_MB, PAUSE, PORTS, hung_up_on, plain

unharmed = pytest.mark.usefixtures("unharmed")
HUGE = 100 * 1024 * 1024
GREETING = b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL" + bytes(16) + b"\x00" + bytes(31)


@pytest.fixture(scope="module")
def running(keeper: Keeper) -> Site:
    site = keeper.get(plain)
    with site.control() as control:
        control.request("submit", 30.0, kind="excite", due_s=1e6)  # what a first job loads is no growth by an attack
    return site


@unharmed
def test_whoever_does_not_get_on_with_the_handshake_is_hung_up_on(running: Site) -> None:
    """Nothing, a part of the greeting, a greeting alone: after the time for a handshake the connection ends."""
    endpoints = [running.endpoints[port] for port in PORTS]
    assert hung_up_on(endpoints, (b"", GREETING[:10], GREETING)) > 0.9e-3 * HANDSHAKE_MS


def shake_hands(raw: socket.socket, kind: str) -> None:
    """Complete the handshake of a socket of this kind; sending earlier than the answer ends the connection."""
    name, value = b"Socket-Type", kind.encode()
    body = b"\x05READY" + bytes([len(name)]) + name + struct.pack(">I", len(value)) + value
    raw.sendall(GREETING + b"\x04" + bytes([len(body)]) + body)
    with raw.makefile("rb") as answer:
        answer.read(len(GREETING) + 1)
        answer.read(answer.read(1)[0])


@unharmed
@pytest.mark.parametrize(("port", "kind"), [("frames", zmq.XSUB), ("control", zmq.DEALER)])
def test_a_real_message_of_a_hundred_megabytes(running: Site, port: str, kind: int) -> None:
    with zmq.Context() as context, context.socket(kind) as attacker, attacker.get_monitor_socket() as monitor:
        attacker.setsockopt(zmq.LINGER, 0)
        attacker.connect(running.endpoints[port])
        attacker.send(b"x" * HUGE)
        event = 0
        while event != zmq.EVENT_DISCONNECTED:  # until the daemon hangs up
            assert monitor.poll(30_000)
            event = struct.unpack("=hi", monitor.recv_multipart()[0])[0]
        attacker.disable_monitor()


@unharmed
def test_a_flood_of_requests_that_reads_no_answer(running: Site, control: Control) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as attacker:
        attacker.setsockopt(zmq.LINGER, 0)
        attacker.setsockopt(zmq.RCVHWM, 1)
        attacker.setsockopt(zmq.SNDTIMEO, 1000)
        attacker.connect(running.endpoints["control"])
        request = msgpack.packb({"v": 1, "id": 1, "verb": "status"})
        sent = 0
        with contextlib.suppress(zmq.Again):
            for _ in range(5000):
                attacker.send(request)
                sent += 1
        assert sent > 100
        assert control.request("ping", timeout_s=30.0)["pong"] is True


@unharmed
def test_sockets_are_private_or_listen_on_loopback_alone(running: Site) -> None:
    (directory,) = (running.path / "r").iterdir()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {"axis.frames", "axis.estimator", "supervisor"} <= {path.name for path in directory.iterdir()}
    for process in [psutil.Process(running.daemon.pid), *psutil.Process(running.daemon.pid).children()]:
        for connection in process.net_connections("inet"):
            assert connection.status != psutil.CONN_LISTEN or connection.laddr.ip == "127.0.0.1"


LONG = "\0" * 20_000  # four times as long where it is repeated in a refusal
NONSENSE: list[tuple[str, dict[str, Any], str]] = [
    ("submit", {"kind": LONG}, ""),
    ("submit", {"kind": "identify", "parameters": {LONG[:k]: 1 for k in range(1, 500)}}, ""),
    ("submit", {"kind": "identify", "parameters": {"recording": "/" + LONG}}, ""),
    ("backup", {"directory": LONG}, ""),
    ("activate", {"theta": LONG}, ""),
    ("submit", {"kind": "compare", "parameters": {"seconds": float("nan")}}, "seconds"),
    ("submit", {"kind": "compare", "after": [2**61]}, "there is no job"),
    ("submit", {"kind": "identify", "parameters": {"recording": "/proc/self/mem"}}, "recording"),
    ("events", {"job": -5}, "job"),
    ("backup", {"directory": "/tmp/a\0b"}, "null byte"),
    ("set_aside", {"seconds": 1.0, "path": "jobs/queue.db"}, "path"),
]


@unharmed
def test_nonsense_is_refused_and_a_long_text_not_repeated_whole(control: Control) -> None:
    for verb, args, word in NONSENSE:
        with pytest.raises(ControlError) as refused:
            control.request(verb, 30.0, **args)
        assert refused.value.type in ("bad_argument", "unavailable", "failed")
        assert word in refused.value.message
        assert len(refused.value.message) < 5000


# ---------------------------------------------------------------- endless messages


def send_without_end(endpoint: str, kind: str, part: bytes) -> int:
    """Send one message of ever more parts until the connection is closed; returns the bytes sent."""
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


def test_an_endless_subscription_ends_with_the_gateway(running: Site, control: Control) -> None:
    """The gateway is started again within its limit, subscribers come back, and nobody else notices."""
    endpoints = running.endpoints
    with Subscriber(endpoints["frames"], ["axis/frame"]) as frames:
        await_message(frames)
        before = processes(control)["gateway"]["restarts"]
        assert send_without_end(endpoints["frames"], "SUB", b"\x01\xff" + bytes(255)) > 10_000_000
        found = await_status(
            control, lambda p: p["gateway"]["restarts"] == before + 1 and p["gateway"]["state"] == "ready"
        )
        assert f"larger than {LIMIT_MB:g} MB" in found["gateway"]["last_error"]
        assert psutil.Process(found["gateway"]["pid"]).memory_info().rss < LIMIT_MB * 1e6
        last = frames.counts["axis/frame", "acquisition"].expected
        await_message(frames, lambda message: message.envelope.seq > last)
        assert found["axis/estimator"]["info"]["lost"] % PAUSE == 0
        assert found["axis/estimator"]["restarts"] == found["axis/acquisition"]["restarts"] == 0


def test_an_endless_request_is_hung_up_on(running: Site, control: Control) -> None:
    """The control socket is opened anew, gives its memory back, and clients that were there go on."""
    endpoint = running.endpoints["control"]
    before = control.request("status")["control"]["reopened"]
    part = b"\x03" + struct.pack(">Q", 200_000) + bytes(200_000)
    assert send_without_end(endpoint, "DEALER", part) > 10_000_000
    with Control(endpoint) as other:
        assert other.request("status", timeout_s=30.0)["control"]["reopened"] == before + 1
    assert control.request("ping", timeout_s=30.0)["pong"] is True
    assert psutil.Process(running.daemon.pid).memory_info().rss < LIMIT_MB * 1e6
    assert "control_reopened" in log_lines(running.path)
