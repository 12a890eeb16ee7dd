"""Who connects to a protected socket: registered keys, and nobody while the authenticator is not at work."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import zmq

from service.client import ClientError, Control, NotAdmittedError, Subscriber, UnreachableError
from service.io.log import get_log
from service.security import authenticator
from service.security.authenticator import Authenticator, protect
from service.security.files import make_directory
from service.security.keys import ClientKey, new_pair, write_pair
from service.security.registry import CLIENTS, Client, Registry, RegistryError
from tests.lab.daemon.desk import LONG_S, Desk

#: In which a client that is let in has its answer many times over, and a handshake that hangs is given up.
SHORT_S = 1.5
SOME_S = 10.0


def unanswered(desk: Desk, control: Control, done: Callable[[str], bool]) -> None:
    """Ask, and have no answer, until what the client says or else what has happened is as wanted."""
    deadline = time.monotonic() + LONG_S
    said = ""
    while not done(said):
        assert time.monotonic() < deadline, said
        with pytest.raises(UnreachableError) as error:
            desk.ask(control, 0.5)
        said = str(error.value)


def unknown(desk: Desk) -> ClientKey:
    return ClientKey(new_pair(), desk.server.public)


def revoked(desk: Desk) -> ClientKey:
    key = desk.client("anna")
    Registry(desk.keys).revoke("anna")
    return key


@pytest.mark.parametrize("make", [unknown, revoked])
def test_other_keys_are_refused_with_a_reason(desk: Desk, make: Callable[[Desk], ClientKey]) -> None:
    with Control(desk.endpoint, make(desk)) as control:
        with pytest.raises(NotAdmittedError, match="does not admit this key"):
            desk.ask(control)
        assert desk.socket.describe()["authenticator"]["refused"] == {make.__name__: 1}


def test_a_client_without_a_key_is_told_to_bring_one(desk: Desk) -> None:
    """Which of the two sides notices first is a matter of chance, and so is how sure the client can be."""
    with Control(desk.endpoint) as control, pytest.raises(ClientError, match="asks for a key"):
        desk.ask(control, SOME_S)
    assert desk.socket.requests == 0


def test_a_client_that_holds_another_server_for_this_one_says_so(desk: Desk) -> None:
    key = desk.client("anna")
    with Control(desk.endpoint, ClientKey(key.pair, new_pair().public)) as control:
        unanswered(desk, control, lambda said: "is the server's key that of this daemon?" in said)


def test_a_key_for_a_daemon_that_uses_none_is_said_to_be_too_much() -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as plain:
        port = plain.bind_to_random_port("tcp://127.0.0.1")
        key = ClientKey(new_pair(), new_pair().public)
        with Control(f"tcp://127.0.0.1:{port}", key) as control:
            for _ in range(2):  # the second before anything is sent: libzmq has given the connection up
                with pytest.raises(NotAdmittedError, match="uses no keys"):
                    control.request("ping", timeout_s=LONG_S)


def test_a_registry_that_cannot_be_read_admits_nobody_until_it_can(desk: Desk) -> None:
    key = desk.client("anna")
    good = (desk.keys / CLIENTS).read_text()
    (desk.keys / CLIENTS).write_text("rubbish")
    with Control(desk.endpoint, key) as control:
        unanswered(desk, control, lambda _: "registry" in desk.socket.describe()["authenticator"]["refused"])
        (desk.keys / CLIENTS).write_text(good)
        assert desk.ask(control) == {"verb": "ping"}


def test_while_nobody_authenticates_nobody_is_let_in(desk: Desk) -> None:
    """The authenticator hangs: it is there and does not answer; once it does, a registered key is admitted."""
    with Control(desk.endpoint, desk.client("anna")) as control:
        with pytest.raises(UnreachableError):
            control.request("ping", timeout_s=SHORT_S)
        assert desk.ask(control) == {"verb": "ping"}
    admissions = desk.socket.describe()["authenticator"]
    assert admissions["accepted"] > 0
    assert (admissions["restarts"], admissions["refused"]) == (0, {})


class Failing(Registry):
    """A registry with a fault that its caller does not expect, for as long as it is told."""

    fails = True

    def find(self, public_key: str) -> Client | None:
        if self.fails:
            raise ZeroDivisionError
        return super().find(public_key)


def test_an_authenticator_that_dies_lets_nobody_in_and_is_started_again(desk: Desk) -> None:
    key, other = desk.client("anna"), desk.client("ben")
    with Control(desk.endpoint, key) as control:
        assert desk.ask(control) == {"verb": "ping"}
        registry = Failing(desk.keys)
        desk.socket._registry = registry
        desk.socket._authenticator.registry = registry  # type: ignore[union-attr]
        with Control(desk.endpoint, other) as late:
            unanswered(desk, late, lambda _: desk.socket.describe()["authenticator"]["restarts"] > 0)
            registry.fails = False
            assert desk.ask(late) == {"verb": "ping"}
        assert desk.ask(control) == {"verb": "ping"}  # who was in stays in


def test_whoever_is_revoked_after_admission_is_named(tmp_path: Path) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    make_directory(tmp_path / "keys")
    registry, pair, server = Registry(tmp_path / "keys"), new_pair(), new_pair()
    registry.add("anna", "read", pair.public)
    registry.add("ben", "read", new_pair().public)
    door = Authenticator(context, registry, get_log("test"))
    with context.socket(zmq.XPUB) as publisher:
        protect(publisher, server)
        port = publisher.bind_to_random_port("tcp://127.0.0.1")
        with Subscriber(f"tcp://127.0.0.1:{port}", [""], key=ClientKey(pair, server.public)):
            deadline = time.monotonic() + LONG_S
            while not publisher.poll(20):
                assert time.monotonic() < deadline
                door.serve()
    registry.revoke("ben")  # who has never come
    assert door.revoked() == []
    registry.revoke("anna")
    assert door.revoked() == ["anna"]
    (tmp_path / "keys" / CLIENTS).write_text("rubbish")
    with pytest.raises(RegistryError):
        registry.find(pair.public)
    assert door.revoked() == []
    door.close()
    context.destroy(linger=0)


CLIENT = """
import pathlib, sys
from service.client import Control
from service.security.keys import client_key
Control(f"tcp://127.0.0.1:{sys.argv[1]}", client_key(pathlib.Path(sys.argv[2]))).request("ping", timeout_s=60.0)
"""


@pytest.mark.slow
def test_a_peer_that_falls_silent_is_hung_up_on(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when its cable is pulled: nothing tells the daemon but the missing signs of life.  Here its process stops."""
    monkeypatch.setattr(authenticator, "HEARTBEAT_MS", 500)
    write_pair(desk.keys / "anna.key", desk.client("anna").pair, "about", desk.server.public)
    with desk.context.socket(zmq.ROUTER) as router, desk.context.socket(zmq.PAIR) as monitor:
        protect(router, desk.server)
        router.monitor("inproc://peers", zmq.EVENT_DISCONNECTED)
        monitor.connect("inproc://peers")
        port = router.bind_to_random_port("tcp://127.0.0.1")
        with subprocess.Popen([sys.executable, "-c", CLIENT, str(port), str(desk.keys / "anna.key")]) as client:
            try:
                with desk.serving():
                    assert router.poll(1000 * LONG_S)  # it is in, and its request is here
                    assert not monitor.poll(1500)  # for all of these signs of life it was not silent
                client.send_signal(signal.SIGSTOP)
                assert monitor.poll(1000 * LONG_S)
            finally:
                client.kill()
        router.disable_monitor()
