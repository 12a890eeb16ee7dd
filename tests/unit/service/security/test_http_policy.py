"""Who may ask for what by HTTP; and that the supervisor does not take the web process at its word."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import zmq

from service.config.daemon import DaemonConfig
from service.protocol.control import STOPPING, VERBS, ControlError
from service.protocol.messages import pack_map, unpack_map
from service.security.http_policy import HTTP_VERBS, allowed_verbs, check_http
from service.supervisor._routing import Routing
from service.supervisor._worker_handle import WorkerHandle

READ = {"jobs", "job", "events", "models", "prior"}
OPERATE = READ | {"abort", "disarm", "disable", "record", "submit", "reidentify", "cancel", "retry", "rollback"}
MOTION = OPERATE | {"arm"}


def test_nothing_that_moves_an_arm_or_names_a_file_is_there() -> None:
    assert HTTP_VERBS == MOTION
    assert not HTTP_VERBS & {"run_trajectory", "zero_force", "enable", "start", "heartbeat", "activate"}
    assert not HTTP_VERBS & {"shutdown", "backup", "set_aside", "snapshot", "reset_estimator"}


@pytest.mark.parametrize(
    ("most", "role", "keyed", "expected"),
    [
        ("read", "read", False, READ | STOPPING & HTTP_VERBS),  # the socket beside it asks nobody for a key either
        ("read", "read", True, READ),
        ("operate", "operate", True, OPERATE),
        ("motion", "motion", True, MOTION),
        ("motion", "read", True, READ),
        ("motion", "read", False, READ | STOPPING & HTTP_VERBS),
        ("read", "motion", True, READ),  # whatever it says it is
        ("operate", "admin", True, OPERATE),
        ("motion", "", True, set()),
        ("motion", "boss", True, set()),
    ],
)
def test_role_and_ceiling(most: str, role: str, keyed: bool, expected: set[str]) -> None:
    settings = DaemonConfig(http_role=most, require_keys=keyed)  # type: ignore[arg-type]
    assert set(allowed_verbs(role, settings)) == expected
    for verb in [*VERBS, "nonsense"]:
        if verb in expected:
            check_http(verb, role, settings)
        else:
            with pytest.raises(ControlError) as error:
                check_http(verb, role, settings)
            assert error.value.type == "denied"


def test_a_page_from_another_address_needs_a_token() -> None:
    origins = ["https://robots.example", "http://10.0.0.7:8080"]
    given = DaemonConfig.model_validate_json(json.dumps({"http_origins": origins, "http_token_file": "t"}))
    assert given.http_origins == tuple(origins)
    with pytest.raises(ValueError, match="http_origins: whoever can ask that address could look"):
        DaemonConfig.model_validate_json(json.dumps({"http_origins": origins}))
    for wrong in ("*", "null", "robots.example", "https://robots.example/", "https://a b", "ftp://x", "https://x\n"):
        with pytest.raises(ValueError, match="http_origins"):
            DaemonConfig.model_validate_json(json.dumps({"http_origins": [wrong], "http_token_file": "t"}))
    for wrong, right in (("https://x:443", "https://x"), ("http://x:80", "http://x")):
        with pytest.raises(ValueError, match=f"browsers leave the usual port out: write {right}"):
            DaemonConfig.model_validate_json(json.dumps({"http_origins": [wrong], "http_token_file": "t"}))
    for wrong in ("admin", "", "all"):
        with pytest.raises(ValueError, match="http_role"):
            DaemonConfig.model_validate_json(json.dumps({"http_role": wrong}))


class Supervised:
    """The supervisor's routing, with a web process that sends what it likes, and the process of the jobs."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], settings: DaemonConfig) -> None:
        self.private = context.socket(zmq.ROUTER)
        self.private.bind("inproc://supervisor")
        self.managed = {role: WorkerHandle(role, None, state="ready") for role in ("web", "jobs")}
        self.sockets = {}
        for role, process in self.managed.items():
            socket = context.socket(zmq.DEALER)
            socket.setsockopt(zmq.IDENTITY, process.identity)
            socket.setsockopt(zmq.RCVTIMEO, 10_000)
            socket.connect("inproc://supervisor")
            self.sockets[role] = socket
        self.routing = Routing(list(self.managed.values()), self.private, lambda *_: None, ("a",), settings)

    def ask(self, verb: str, role: str, **args: Any) -> dict[str, Any]:
        """What comes of a question of the web process: the error, or what the jobs process was sent."""
        message = {"type": "ask", "id": 1, "verb": verb, "args": args, "role": role}
        for name in ("web", "jobs"):
            self.sockets[name].send(pack_map({"name": name}))
            self.private.recv_multipart()  # so that the way back is known
        self.routing.on_ask(self.managed["web"], message)
        poller = zmq.Poller()
        for socket in self.sockets.values():
            poller.register(socket, zmq.POLLIN)
        (socket,) = dict(poller.poll(10_000))
        return unpack_map(socket.recv())


@pytest.fixture
def supervised() -> Iterator[Supervised]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    found = Supervised(context, DaemonConfig(http_role="operate"))
    yield found
    for socket in (found.private, *found.sockets.values()):
        socket.close(linger=0)
    context.term()


def test_the_supervisor_refuses_what_the_web_process_should_not_have_asked(supervised: Supervised) -> None:
    assert supervised.ask("cancel", "operate", id=3)["verb"] == "cancel"
    for verb, role, words in (
        ("cancel", "read", "needs the role operate, and you have read"),
        ("arm", "motion", "daemon.http_role is operate"),
        ("arm", "admin", "daemon.http_role is operate"),
        ("shutdown", "admin", "not to be had by HTTP"),
        ("backup", "admin", "not to be had by HTTP"),
        ("run_trajectory", "motion", "not to be had by HTTP"),
        ("status", "read", "not to be had by HTTP"),
        ("x" * 1000, "read", "not to be had by HTTP"),
        ("cancel", "", "you have none"),
        ("submit", "operate", "jobs of kind 'None' are not to be had by HTTP"),
    ):
        answer = supervised.ask(verb, role)
        assert answer["type"] == "answer"
        assert answer["error"]["type"] == "denied"
        assert words in answer["error"]["message"]


def test_the_supervisor_lets_only_the_kinds_of_jobs_through_that_the_page_has(supervised: Supervised) -> None:
    assert supervised.ask("submit", "operate", kind="identify", arm="a", parameters={})["verb"] == "submit"
    refused = supervised.ask("submit", "operate", kind="compare", parameters={})
    assert refused["error"] == {"type": "denied", "message": "submit: jobs of kind 'compare' are not to be had by HTTP"}
