"""Two thousand random messages to every socket, without and with keys; a million in a soak."""

import contextlib
import os
import random
import socket
import struct
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import msgpack
import pytest
import zmq

from service.protocol.control import ARM_VERBS
from service.protocol.control import VERBS as CONTROL_VERBS
from tests.lab.daemon.daemons import await_status
from tests.lab.daemon.shared import Keeper, Site
from tests.lab.daemon.sockets import PORTS, TOKENS, keyed, plain
from tests.lab.odd_values import ODD

MESSAGES = int(os.environ.get("THETAD_FUZZ", "2000"))  # to each socket
AT_ONCE = 50  # bare connections of strangers
PIPELINED = 10  # requests by HTTP on one connection
IN_FLIGHT = 50  # the daemon queues a hundred answers for a client
HELD = 10_000  # messages of one subscriber: what it subscribes to is kept as long as it is connected
#: Among them all of arms: what an estimator or an acquisition cannot take must not end it.
VERBS = (*sorted(ARM_VERBS - {"record", "set_aside"}), "status", "submit", "events", "models", "\xff", "")


@pytest.fixture(scope="module", params=["plain", "keyed"])
def attacked(request: pytest.FixtureRequest, keeper: Keeper) -> Site:
    return keeper.get(plain) if request.param == "plain" else keeper.get(keyed)


@pytest.fixture(autouse=True)
def recorded(attacked: Site, unharmed: None) -> Iterator[None]:
    """Record, and check that it goes on."""

    def written(found: dict[str, dict[str, Any]]) -> int:
        return int(found["axis/recorder"]["info"].get("written", 0))

    with attacked.control() as control:
        control.request("record", action="start")
        before = written(await_status(control, lambda found: written(found) > 0))
        yield
        await_status(control, lambda found: written(found) > before)
        control.request("record", action="stop")


def connect(context: zmq.Context[zmq.Socket[bytes]], kind: int, site: Site, port: str) -> zmq.Socket[bytes]:
    """Return a connected socket, with a key if the daemon requires one."""
    found = context.socket(kind)
    found.linger = 0
    if (key := site.admin) is not None:
        found.curve_serverkey = key.server.encode()
        found.curve_publickey, found.curve_secretkey = key.pair.public.encode(), key.pair.secret.encode()
    found.connect(site.endpoints[port])
    return found


def noise(source: random.Random) -> bytes:
    """Bytes that are nothing, or nearly something: a cut request, a changed one, a map of odd values."""
    body = {
        "v": source.choice((1, 1, 1, 2, -1)),
        "id": source.getrandbits(62),
        "verb": (verb := source.choice(("ping", source.choice(VERBS)))),
    }
    if source.random() < 0.7:
        names = (*getattr(CONTROL_VERBS.get(verb), "arguments", ()), *(() if source.random() < 0.9 else ("arm", "")))
        body["args"] = {name: source.choice(ODD) for name in names if source.random() < 0.6}
    good = msgpack.packb(body)
    how = source.randrange(4)
    if how == 0:
        return source.randbytes(source.randrange(200))
    if how == 1:
        return bytes(good[: source.randrange(len(good))])
    place = source.randrange(len(good))
    return bytes(good[:place] + source.randbytes(1) + good[place + 1 :]) if how == 2 else bytes(good)


def greeting(source: random.Random, mechanism: bytes) -> bytes:
    """The start of a ZMTP connection, and then commands of random bytes."""
    start = (
        b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03" + source.choice((b"\x00", b"\x01")) + mechanism.ljust(20, b"\0")
    )
    data = start + b"\x00" + bytes(31)
    for _ in range(source.randrange(4)):
        body = source.choice((b"\x05READY", b"\x05HELLO", b"\x08INITIATE", b"\x05ERROR", b"")) + source.randbytes(200)
        data += (
            b"\x04" + bytes([len(body)]) + body if len(body) < 256 else b"\x06" + struct.pack(">Q", len(body)) + body
        )
    return data


@pytest.mark.parametrize("port", PORTS)
def test_strangers(attacked: Site, port: str) -> None:
    source = random.Random(f"strangers {port}")
    host, _, number = attacked.endpoints[port].removeprefix("tcp://").partition(":")
    for first in range(0, MESSAGES, AT_ONCE):
        with contextlib.ExitStack() as stack:
            connections = []
            for k in range(first, min(first + AT_ONCE, MESSAGES)):
                data = source.randbytes(100_000 if k % 500 == 0 else source.randrange(300))
                if k % 500 and source.random() < 0.7:
                    mechanism = source.choice((b"NULL", b"PLAIN", b"CURVE", b"GSSAPI", source.randbytes(20)))
                    data = greeting(source, mechanism)
                own = f"127.0.0.{1 + k % 250}", 0  # one address alone has no ports left after some ten thousand
                raw = stack.enter_context(socket.create_connection((host, int(number)), 30.0, own))
                connections.append(raw)
                with contextlib.suppress(OSError):  # it may have been hung up on
                    raw.sendall(data)
                    raw.shutdown(socket.SHUT_WR)
            for raw in connections:
                with contextlib.suppress(ConnectionError):
                    while raw.recv(65536):
                        pass


def test_requests(attacked: Site) -> None:
    """Every message has one answer, and none of them is that of an internal error."""
    source = random.Random("requests")
    kinds: set[str] = set()
    with zmq.Context() as context, connect(context, zmq.DEALER, attacked, "control") as attacker:
        waiting = 0
        for sent in range(1, MESSAGES + 1):
            parts = [noise(source) for _ in range(source.choice((1, 1, 1, 1, 2, 3)))]
            attacker.send_multipart([b"", *parts] if source.random() < 0.2 else parts)
            waiting += 1
            while waiting and (waiting == IN_FLIGHT or sent == MESSAGES):
                assert attacker.poll(60_000), sent
                answer = msgpack.unpackb(attacker.recv_multipart()[-1], strict_map_key=False)
                kinds.add("ok" if answer["ok"] else answer["error"]["type"])
                assert kinds.isdisjoint({"failed", "timeout"}), answer
                waiting -= 1
    known = {"ok", "bad_request", "unknown_verb", "bad_argument", "unavailable", "too_many"}
    assert {"ok", "bad_request", "unknown_verb"} <= kinds <= known | ({"denied"} if attacked.admin else set())


@pytest.mark.parametrize("port", ["frames", "estimates"])
def test_subscriptions(attacked: Site, port: str) -> None:
    source = random.Random(f"subscriptions {port}")
    with zmq.Context() as context:
        for first in range(0, MESSAGES, HELD):
            with connect(context, zmq.XSUB, attacked, port) as attacker:
                for number in range(first, min(first + HELD, MESSAGES)):
                    data = source.randbytes(source.randrange(100))
                    attacker.send(source.choice((b"\x00", b"\x01", b"\x02", b"")) + data)
                    if number % 100 == 0:
                        attacker.send(b"\x01")  # everything: the noise may have taken it back
                        assert attacker.poll(60_000)
                        attacker.recv_multipart()


def http_request(source: random.Random) -> bytes:
    """A request by HTTP, most of the time with something changed in it."""
    method = source.choice(("GET", "GET", "GET", "HEAD", "POST", "OPTIONS", "BREW"))
    path = source.choice(("/healthz", "/readyz", "/metrics", "/", "/none", "*", "/healthz?a=%ff"))
    body = source.randbytes(source.choice((0, 0, 0, 10, 1000)))
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {TOKENS['read']}"]
    lines += [f"Content-Length: {len(body)}"] if body else []
    odd = ("Transfer-Encoding: chunked", "Connection: upgrade", "Upgrade: websocket", "Expect: 100-continue")
    lines += source.sample(odd, source.choice((0, 0, 0, 1, 2)))
    data = bytearray("\r\n".join([*lines, "", ""]).encode() + body)
    for _ in range(source.choice((0, 0, 1, 3))):
        data[source.randrange(len(data))] = source.randrange(256)
    return bytes(data) if source.random() < 0.95 else source.randbytes(source.randrange(1, 300))


@pytest.mark.parametrize("attacked", ["plain"], indirect=True)  # with the same tokens
def test_http(attacked: Site) -> None:
    """Each connection is answered or hung up on, and the answers are those of HTTP."""
    source = random.Random("http")
    parts = urlsplit(attacked.endpoints["http"])
    began: set[bytes] = set()
    for _ in range(MESSAGES // PIPELINED):
        data = b"".join(http_request(source) for _ in range(PIPELINED))
        with contextlib.suppress(OSError), socket.create_connection((parts.hostname, parts.port), 20.0) as raw:
            raw.sendall(data)
            raw.shutdown(socket.SHUT_WR)
            answer = b""
            while chunk := raw.recv(65536):
                answer += chunk
            began.add(answer[:12])
    assert {b"HTTP/1.1 200", b"HTTP/1.1 400"} <= began
    assert all(each.startswith(b"HTTP/1.1 ") or not each for each in began), began


@pytest.mark.parametrize("attacked", ["plain"], indirect=True)
@pytest.mark.parametrize(
    ("name", "between"), [("supervisor", 0), ("axis.frames", 100), ("axis.estimator", 100), ("axis.recorder", 5000)]
)  # the recorder says something once a second
def test_private_sockets(attacked: Site, name: str, between: int) -> None:
    """Only processes of the same user reach them; a faulty one must not disturb the others."""
    source = random.Random(f"private {name}")
    kind = zmq.DEALER if name == "supervisor" else zmq.XSUB
    (private,) = (attacked.path / "r").iterdir()
    with zmq.Context() as context, context.socket(kind) as attacker:
        attacker.linger = 0
        attacker.connect(f"ipc://{private / name}")
        for number in range(MESSAGES):
            attacker.send_multipart([noise(source) for _ in range(source.choice((1, 1, 1, 2, 3)))])
            if between and number % between == 0:
                attacker.send(b"\x01")
                assert attacker.poll(60_000)
                attacker.recv_multipart()
