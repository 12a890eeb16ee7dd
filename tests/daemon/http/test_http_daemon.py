"""HTTP of a daemon: health, refusals, and rude clients."""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from service.client import Control
from service.web._connection import MAX, REQUEST_S
from tests.lab.daemon.daemons import processes
from tests.lab.daemon.shared import Keeper
from tests.lab.web.http_client import ask
from tests.lab.web.http_daemon import Running, two_arms

LATENCY = "thetad_estimate_latency_seconds"


@pytest.fixture(scope="module")
def running(keeper: Keeper) -> Running:
    return keeper.get(two_arms)


@pytest.fixture
def url(running: Running) -> str:
    return running.url


@pytest.fixture
def control(running: Running) -> Iterator[Control]:
    with running.control() as control:
        yield control


@pytest.fixture
def unharmed(control: Control, url: str) -> Iterator[None]:
    """Check that the same process answers after an attack."""
    before = processes(control)["web"]
    yield
    after = processes(control)["web"]
    assert (after["pid"], after["restarts"], after["state"]) == (before["pid"], before["restarts"], "ready")
    assert ask(url, "/healthz").status == 200


# ---------------------------------------------------------------- answers


def test_health(url: str) -> None:
    answer = ask(url, "/healthz")
    assert (answer.status, answer.json) == (200, {"status": "ok"})
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert "server" not in answer.headers


def test_ready_is_an_arm_at_work_or_at_its_end(running: Running) -> None:
    answer = ask(running.url, "/readyz")
    assert answer.json["status"] == "ready"
    assert answer.json["arms"] == [
        {"arm": "axis", "ready": True, "problems": []},
        {"arm": "over", "ready": True, "problems": []},
    ]
    assert len(answer.body.splitlines()) == 4  # one for each arm


def test_a_held_arm_is_not_ready(running: Running) -> None:
    assert running.held is not None
    assert running.held.status == 503
    assert running.held.json["status"] == "not ready"
    (axis,) = (arm for arm in running.held.json["arms"] if arm["arm"] == "axis")
    assert axis["ready"] is False
    assert "thetad control start arm=axis" in axis["problems"][0]


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_head_is_get_without_the_body(url: str, path: str) -> None:
    get, head = ask(url, path), ask(url, path, "HEAD")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-type"] == get.headers["content-type"]
    assert int(head.headers["content-length"]) > 0


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/none", 404),
        ("GET", "/static/", 404),
        ("GET", "/static/../server.py", 404),
        ("GET", "/static/%2e%2e/server.py", 404),
        ("GET", "/api/", 404),
        ("GET", "/healthz/", 404),
        ("GET", "/metrics/../../etc/passwd", 404),
        ("GET", "/%00", 404),
        ("POST", "/metrics", 405),
        ("DELETE", "/healthz", 405),
        ("BREW", "/readyz", 405),
    ],
)
def test_what_is_not_there_is_refused_in_one_line(url: str, method: str, path: str, status: int) -> None:
    answer = ask(url, path, method)
    assert answer.status == status
    assert list(answer.json) == ["error"]
    assert answer.body.count(b"\n") == 1
    assert answer.headers["content-type"] == "application/json"
    if status == 405:
        assert answer.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("127.3.2.1:9874", 200),
        ("[::1]:9874", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost@evil.example", 421),
        ("192.168.1.1", 421),
        ("", 421),
    ],
)
def test_only_loopback_names_are_answered(url: str, host: str, status: int) -> None:
    for path in ("/healthz", "/metrics", "/none"):
        answer = ask(url, path, Host=host)
        assert answer.status == (404 if (status, path) == (200, "/none") else status)
        assert status == 200 or "Host" in answer.json["error"]


# ---------------------------------------------------------------- rude clients


def connect(url: str, received: int = 0) -> socket.socket:
    """Connect, with a receive buffer of `received` bytes if positive."""
    parts = urlsplit(url)
    raw = socket.socket()
    raw.settimeout(20.0)
    if received:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received)
    raw.connect((str(parts.hostname), int(parts.port or 0)))
    return raw


def until_the_end(raw: socket.socket) -> bytes:
    """Receive until the other side closes the connection."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while chunk := raw.recv(65536):
            found += chunk
    return found


@pytest.mark.usefixtures("unharmed")
@pytest.mark.parametrize(
    "data",
    [
        random.Random(1).randbytes(10_000),
        random.Random(2).randbytes(1_000_000),
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 1_000_000,
        b"GET /" + b"x" * 1_000_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 100_000,
        b"\r\n" * 500_000,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + random.Random(3).randbytes(10_000),
    ],
    ids=["random", "much-random", "header", "path", "headers", "lines", "http2", "after-a-request"],
)
def test_what_is_no_request_is_hung_up_on(url: str, data: bytes) -> None:
    with connect(url) as raw:
        with contextlib.suppress(ConnectionError):
            raw.sendall(data)
        answer = until_the_end(raw)
    answered = b"HTTP/1.1 200" if data.startswith(b"GET /healthz") else b"HTTP/1.1 4"
    assert answer.startswith(answered) or (answer == b"" and answered == b"HTTP/1.1 4")


@pytest.mark.usefixtures("unharmed")
def test_headers_that_come_at_once_have_a_limit_too(url: str) -> None:
    for long in (b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 20_000, b"GET /" + b"x" * 20_000 + b" HTTP/1.1"):
        with connect(url) as raw:
            raw.sendall(long + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = until_the_end(raw)
        assert answer.startswith(b"HTTP/1.1 431 "), answer
        assert b"8192 bytes" in answer


@pytest.mark.usefixtures("unharmed")
def test_a_slow_request_is_hung_up_on_and_delays_nobody(url: str) -> None:
    """Single bytes do not extend the time limit, before a request, in its headers, or in its body."""
    began = time.monotonic()
    starts = (
        b"",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n",
        b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n",
    )
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connect(url)) for _ in starts]
        for raw, data in zip(slow, starts, strict=True):
            raw.sendall(data)
        left = list(slow[1:])
        while left:
            assert ask(url, "/healthz").status == 200
            assert time.monotonic() - began < 6.0 * REQUEST_S
            for raw in list(left):
                try:
                    raw.sendall(b"x")
                except OSError:
                    left.remove(raw)
            time.sleep(0.2)
        assert until_the_end(slow[0]) == b""
    assert time.monotonic() - began > 0.9 * REQUEST_S


@pytest.mark.usefixtures("unharmed")
def test_many_silent_connections_make_room(url: str) -> None:
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connect(url)) for _ in range(3 * MAX)]
        for _ in range(5):
            assert ask(url, "/readyz").status in (200, 503)
        assert until_the_end(silent[0]) == b""


@pytest.mark.usefixtures("unharmed")
def test_many_that_take_no_answer_make_room(url: str) -> None:
    asked = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"
    with contextlib.ExitStack() as stack:
        for number in range(MAX + 4):
            raw = stack.enter_context(connect(url, received=2048))
            raw.sendall(asked + (b"Connection: close\r\n\r\n" if number % 2 else b"\r\n" + 4 * (asked + b"\r\n")))
        for _ in range(3):
            assert ask(url, "/readyz").status == 200


@pytest.mark.usefixtures("unharmed")
def test_a_long_body_is_not_waited_for(url: str) -> None:
    with connect(url) as raw:
        raw.sendall(b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            raw.sendall(bytes(1_000_000))
        assert raw.recv(100).startswith(b"HTTP/1.1 405")
