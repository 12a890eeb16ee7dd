"""Who may ask for what by HTTP; and that the supervisor does not take the web process at its word."""

import json
from typing import Any
from unittest import mock

import pytest

from service.config.daemon import DaemonConfig
from service.protocol.control import STOPPING, VERBS, ControlError
from service.protocol.messages import unpack_map
from service.protocol.worker_messages import Ask
from service.security.http_policy import HTTP_VERBS, allowed_verbs, check_http
from service.supervisor._routing import Routing
from service.supervisor._worker_handle import WorkerHandle

READ = {"jobs", "job", "events", "models", "prior"}
OPERATE = READ | {"abort", "disarm", "disable", "record", "submit", "reidentify", "cancel", "retry", "rollback"}
MOTION = OPERATE | {"arm"}


def test_nothing_that_moves_an_arm_or_names_a_file_is_there() -> None:
    assert HTTP_VERBS == MOTION


@pytest.mark.parametrize(
    ("most", "role", "keyed", "expected"),
    [
        ("motion", "motion", True, MOTION),
        ("motion", "read", True, READ),
        ("motion", "read", False, READ | STOPPING & HTTP_VERBS),  # the socket beside it asks nobody for a key either
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
    with pytest.raises(ValueError, match="http_origins: anyone who reaches that address could look"):
        DaemonConfig.model_validate_json(json.dumps({"http_origins": origins}))
    unusual = ("*", "null", "robots.example", "https://robots.example/", "https://a b", "ftp://x", "https://x\n")
    for wrong in (*unusual, "https://x:443", "http://x:80"):
        with pytest.raises(ValueError, match="http_origins"):
            DaemonConfig.model_validate_json(json.dumps({"http_origins": [wrong], "http_token_file": "t"}))
    with pytest.raises(ValueError, match="http_role"):
        DaemonConfig.model_validate_json(json.dumps({"http_role": "admin"}))


def asked(verb: str, role: str, **args: Any) -> dict[str, Any]:
    """What comes of a question of the web process: the error, or what the jobs process is sent."""
    private = mock.Mock()
    web, jobs = (WorkerHandle(name, None, state="ready") for name in ("web", "jobs"))
    routing = Routing([web, jobs], private, lambda *_: None, ("a",), DaemonConfig(http_role="operate"))
    routing.on_ask(web, Ask(1, verb, args, role))
    ((identity, data), _) = private.send_multipart.call_args.args
    sent = unpack_map(data)
    assert identity == (web if "error" in sent else jobs).identity
    return sent


def test_the_supervisor_refuses_what_the_web_process_should_not_have_asked() -> None:
    assert asked("cancel", "operate", id=3)["verb"] == "cancel"
    for verb, role, words in (
        ("cancel", "read", "needs the role operate, and you have read"),
        ("arm", "admin", "daemon.http_role is operate"), ("shutdown", "admin", "not available over HTTP"),
        ("run_trajectory", "motion", "not available over HTTP"), ("x" * 1000, "read", "not available over HTTP"),
        ("cancel", "", "you have none"), ("submit", "operate", "jobs of kind 'None' are not available over HTTP"),
    ):  # fmt: skip
        answer = asked(verb, role)
        assert answer["type"] == "answer"
        assert answer["error"]["type"] == "denied"
        assert words in answer["error"]["message"]
    # Of jobs those kinds pass that the page has.
    assert asked("submit", "operate", kind="identify", arm="a", parameters={})["verb"] == "submit"
    assert asked("submit", "operate", kind="compare", parameters={})["error"]["type"] == "denied"
