"""What a client may ask for: by its role, at its rate, and never longer than it is registered."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest
import zmq
from structlog.testing import CapturingLogger

from service.client import ClientKey, Control, ControlError
from service.io.log import get_log
from service.protocol.control import STOPPING, VERBS, Request, decode_reply, encode_request
from service.protocol.roles import ROLES, Role, allows
from service.security.access import Access
from service.security.files import make_directory
from service.security.keys import new_pair
from service.security.registry import Client, Registry
from tests.lab.daemon.desk import LONG_S, Desk

#: Written down a second time, for a change of what a role may do is a change of what people rely on.
EXPECTED: dict[Role, set[str]] = {
    "read": {"ping", "status", "validity", "jobs", "job", "events", "models", "robot", "prior"},
    "operate": {
        "disable", "disarm", "abort", "snapshot", "reset_estimator", "guiding_model", "set_aside", "record", "submit",
        "reidentify", "cancel", "retry", "rollback",
    },
    "motion": {"start", "enable", "confirm_positions", "arm", "run_trajectory", "zero_force", "heartbeat", "activate"},
    "admin": {"backup", "shutdown"},
}  # fmt: skip


@contextlib.contextmanager
def connected(desk: Desk, key: ClientKey, identity: bytes = b"") -> Iterator[zmq.Socket[bytes]]:
    """Connect a socket with nothing but pyzmq to a desk that serves."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket, desk.serving():
        socket.linger = 0
        if identity:
            socket.identity = identity
        socket.curve_serverkey = key.server.encode()
        socket.curve_publickey, socket.curve_secretkey = key.pair.public.encode(), key.pair.secret.encode()
        socket.connect(desk.endpoint)
        yield socket


def test_every_verb_has_the_role_that_is_promised() -> None:
    assert {role: {name for name, verb in VERBS.items() if verb.role == role} for role in ROLES} == EXPECTED
    assert all(allows("operate", VERBS[verb].role) for verb in STOPPING)


@pytest.mark.parametrize("role", ROLES)
def test_every_verb_is_granted_to_its_role_and_denied_below(desk: Desk, role: Role) -> None:
    """Asked through the socket; the desk answers what it is given."""
    granted = set().union(*(EXPECTED[lower] for lower in ROLES[: ROLES.index(role) + 1]))
    with Control(desk.endpoint, desk.client("anna", role)) as control, desk.serving():
        for verb in VERBS:
            if verb in granted:
                assert control.request(verb, timeout_s=LONG_S) == {"verb": verb}
                continue
            with pytest.raises(ControlError, match=f"{verb}: needs the role {VERBS[verb].role}, and anna has") as error:
                control.request(verb, timeout_s=LONG_S)
            assert error.value.type == "denied"
    assert desk.socket.describe()["refused"].get("denied", 0) == len(VERBS) - len(granted)


def test_garbage_and_a_revoked_key_are_answered(desk: Desk) -> None:
    with connected(desk, desk.client("anna")) as socket:
        for parts in ([b""], [b"rubbish"], [b"", b"rubbish"], [b"one", b"two", b"three"]):
            socket.send_multipart(parts)
            assert socket.poll(1000 * LONG_S)
            assert msgpack.unpackb(socket.recv_multipart()[-1])["error"]["type"] == "bad_request"
        for id in (41, 42):
            socket.send(encode_request(Request(id, "ping")))
            assert socket.poll(1000 * LONG_S)
            reply = decode_reply(socket.recv())
            assert reply.id == id
            if id == 41:
                Registry(desk.keys).revoke("anna")
        assert reply.error.type == "denied"
    assert desk.socket.garbage == 4


def test_an_arm_can_be_stopped_while_the_registry_cannot_be_read(limited: tuple[Access, Clock, Client, Client]) -> None:
    """By who was let in before, with the role of then; and not by who was revoked before.  The log says why, once."""
    given, clock, anna, bert = limited
    log = CapturingLogger()
    access = Access(given.registry, 10.0, log, clock)
    for client in (anna, bert):
        assert access.client(client.public_key) == client
    access.registry.revoke(bert.name)
    with pytest.raises(ControlError, match="revoked"):
        access.client(bert.public_key)
    access.registry.path.chmod(0o644)
    for verb in ("abort", "disarm", "disable"):
        assert access.client(anna.public_key, verb) == anna
        with pytest.raises(ControlError, match="cannot be used"):
            access.client(bert.public_key, verb)
    for verb in ("ping", "enable", ""):
        with pytest.raises(ControlError, match="cannot be used"):
            access.client(anna.public_key, verb)
    (said,) = log.calls
    assert (said.method_name, said.args) == ("error", ("registry_unusable",))
    assert "chmod 600" in said.kwargs["reason"]


def test_a_client_cannot_say_who_it_is_in_the_message(desk: Desk) -> None:
    """The name is that of the connection's key, whatever identity and fields a client makes up."""
    admin, reader = desk.client("anna"), desk.client("ben", "read")
    with connected(desk, reader, admin.pair.public.encode()) as socket:
        socket.send(msgpack.packb({"v": 1, "id": 1, "verb": "shutdown", "User-Id": admin.pair.public, "role": "admin"}))
        assert socket.poll(1000 * LONG_S)
        assert msgpack.unpackb(socket.recv())["error"]["type"] == "denied"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def limited(tmp_path: Path) -> tuple[Access, Clock, Client, Client]:
    """Ten requests a second, a clock that is set, and two clients."""
    make_directory(tmp_path / "keys")
    registry, clock = Registry(tmp_path / "keys"), Clock()
    clients = [registry.add(name, "admin", new_pair().public) for name in ("anna", "ben")]
    return Access(registry, 10.0, get_log("test"), clock), clock, clients[0], clients[1]


def count(access: Access, client: Client, number: int, verb: str = "status") -> int:
    """Make so many requests; return how many were granted."""
    refused: list[str] = []
    for _ in range(number):
        try:
            access.count(client, verb)
        except ControlError as error:
            refused.append(error.type)
    assert set(refused) <= {"too_many"}
    return number - len(refused)


def test_a_client_has_its_rate_and_two_seconds_at_once(limited: tuple[Access, Clock, Client, Client]) -> None:
    access, clock, anna, ben = limited
    assert count(access, anna, 100) == 20
    clock.now += 0.5
    assert count(access, anna, 100) == 5
    assert count(access, ben, 100) == 20  # whatever the other does
    clock.now += 1000.0
    assert count(access, anna, 100) == 20
    assert access.refused["too_many"] == 80 + 95 + 80 + 80
    for verb in ("abort", "disarm", "disable", "heartbeat"):  # what stops an arm or keeps a run going is always taken
        assert count(access, anna, 100, verb) == 100
    granted = 0
    for _ in range(150):  # who asks too often, 15 a second for ten seconds, is granted the rate and not nothing
        clock.now += 1 / 15
        granted += count(access, anna, 1)
    assert 98 <= granted <= 100


def test_too_many_requests_are_refused_by_the_socket(tmp_path: Path) -> None:
    desk = Desk(tmp_path, requests_per_s=1.0)
    with Control(desk.endpoint, desk.client("anna")) as control, desk.serving():
        refused = set()
        for _ in range(100):
            try:
                control.request("ping", timeout_s=LONG_S)
            except ControlError as error:
                refused.add(error.type)
        assert refused == {"too_many"}
        assert control.request("abort", timeout_s=LONG_S) == {"verb": "abort"}
    desk.context.destroy(linger=0)
