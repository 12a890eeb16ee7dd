"""HTTP of a daemon: health, refusals, and rude clients."""

import contextlib
import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from service.client import Control
from service.web._connection import REQUEST_S
from tests.lab.daemon.daemons import processes
from tests.lab.web.http_client import ask
from tests.lab.web.http_daemon import Running


def test_ready_is_an_arm_at_work_or_at_its_end_and_not_one_that_is_held(running: Running) -> None:
    answer = ask(running.url, "/readyz")
    arms = [{"arm": name, "ready": True, "problems": []} for name in ("axis", "over")]
    assert (answer.status, answer.json["status"], answer.json["arms"]) == (200, "ready", arms)
    assert (running.held.status, running.held.json["status"]) == (503, "not ready")
    (axis,) = (arm for arm in running.held.json["arms"] if arm["arm"] == "axis")
    assert axis["ready"] is False
    assert "thetad control start arm=axis" in axis["problems"][0]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/none", 404), ("GET", "/%00", 404), ("POST", "/metrics", 405), ("BREW", "/readyz", 405)],
)
def test_what_is_not_there_is_refused_in_one_line(url: str, method: str, path: str, status: int) -> None:
    answer = ask(url, path, method)
    assert (answer.status, list(answer.json)) == (status, ["error"])
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers.get("allow") == ("GET, HEAD" if status == 405 else None)


# ---------------------------------------------------------------- rude clients


@pytest.fixture
def unharmed(control: Control, url: str) -> Iterator[None]:
    """Check that the same process answers after an attack."""
    before = processes(control)["web"]
    yield
    after = processes(control)["web"]
    assert (after["pid"], after["restarts"], after["state"]) == (before["pid"], before["restarts"], "ready")
    assert ask(url, "/healthz").status == 200


def connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((str(parts.hostname), int(parts.port or 0)), 20.0)


def until_the_end(raw: socket.socket) -> bytes:
    """Receive until the other side closes the connection."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while chunk := raw.recv(65536):
            found += chunk
    return found


GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
WRONG = {
    "header": GET + b"X: " + b"x" * 1_000_000,
    "path": b"GET /" + b"x" * 1_000_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "headers": GET + b"A: b\r\n" * 100_000,
}


@pytest.mark.usefixtures("unharmed")
@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_request_is_hung_up_on(url: str, what: str) -> None:
    with connect(url) as raw:
        with contextlib.suppress(ConnectionError):
            raw.sendall(WRONG[what])
        answer = until_the_end(raw)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")


@pytest.mark.usefixtures("unharmed")
def test_headers_that_come_at_once_have_a_limit_too(url: str) -> None:
    for long in (GET[:-2] + b"\r\nX: " + b"x" * 20_000, b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: localhost"):
        with connect(url) as raw:
            raw.sendall(long + b"\r\nConnection: close\r\n\r\n")
            answer = until_the_end(raw)
        assert answer.startswith(b"HTTP/1.1 431 "), answer
        assert b"8192 bytes" in answer


@pytest.mark.usefixtures("unharmed")
def test_a_slow_request_is_hung_up_on_and_delays_nobody(url: str) -> None:
    """Single bytes do not extend the time limit, before a request, in its headers, or in its body."""
    began = time.monotonic()
    starts = (b"", GET, b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n")
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
