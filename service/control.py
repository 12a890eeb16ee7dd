"""The control socket's requests and replies, and which verbs there are.

A request is `[payload]` (DEALER) or `["", payload]` (REQ) with the msgpack map
`{"v", "id", "verb", "args"}`; its reply is `{"v", "id", "ok", "result"}` or `{"v", "id", "ok", "error"}`
with an error of `{"type", "message"}`.  Every request gets one reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from service.wire import MAX_REPLY, MAX_REQUEST, VERSION, WireError, WireVersionError, pack_map, unpack_map

Target = Literal["supervisor", "acquisition", "estimator", "recorder"]
ErrorType = Literal["bad_request", "unknown_verb", "bad_argument", "unavailable", "timeout", "failed"]


class ControlError(RuntimeError):
    """A request that was answered with an error; `type` is one of `ErrorType`."""

    def __init__(self, type: str, message: str) -> None:
        super().__init__(message)
        self.type = type
        self.message = message


@dataclass(frozen=True)
class Verb:
    """What a verb does, who answers it, and which arguments it knows beside `arm`.

    A standing request holds until the next of its kind: a process that was restarted is told again.
    """

    target: Target
    help: str
    arguments: tuple[str, ...] = ()
    standing: bool = False


VERBS: Mapping[str, Verb] = {
    "ping": Verb("supervisor", "answer at once"),
    "status": Verb("supervisor", "state and counters of every process and arm"),
    "start": Verb("acquisition", "let a held arm send its first frame", standing=True),
    "enable": Verb("acquisition", "switch the drives of a real arm on; a motion that was stopped begins again"),
    "disable": Verb("acquisition", "stop the drives of a real arm and switch them off"),
    "snapshot": Verb("estimator", "save the estimator's state and return parameters, covariance and meta data"),
    "reset_estimator": Verb("estimator", "forget everything that was estimated"),
    "activate": Verb(
        "estimator", "predict torque by a batch model; null: by the estimate", ("theta", "constants"), True
    ),
    "record": Verb("recorder", "start or stop recording", ("action",), True),
    "shutdown": Verb("supervisor", "stop the daemon in order"),
}

#: Verbs that concern one arm and take `arm`; it may be left out where there is only one.
ARM_VERBS = frozenset(name for name, verb in VERBS.items() if verb.target != "supervisor")


@dataclass(frozen=True)
class Request:
    """One request."""

    id: int
    verb: str
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """One reply; `id` is 0 where the daemon could not read the request's."""

    id: int
    result: dict[str, Any]
    error: ControlError | None


def encode_request(request: Request) -> bytes:
    """Encode a request; raises `WireError` if an argument cannot be sent."""
    return pack_map({"v": VERSION, "id": request.id, "verb": request.verb, "args": request.args}, MAX_REQUEST)


def decode_request(data: bytes) -> Request:
    """Decode a request; raises `WireError`, and nothing else, whatever the bytes."""
    body = _checked(data, MAX_REQUEST)
    verb, args = body.get("verb"), body.get("args", {})
    if type(verb) is not str:
        raise WireError("verb: expected a text")
    if type(args) is not dict:
        raise WireError("args: expected a map")
    return Request(body["id"], verb, args)


def encode_result(id: int, result: Mapping[str, Any]) -> bytes:
    """Encode the reply to a request that succeeded."""
    return pack_map({"v": VERSION, "id": id, "ok": True, "result": result}, MAX_REPLY)


def encode_error(id: int, type: str, message: str) -> bytes:
    """Encode the reply to a request that failed."""
    return pack_map({"v": VERSION, "id": id, "ok": False, "error": {"type": type, "message": message}}, MAX_REPLY)


def decode_reply(data: bytes) -> Reply:
    """Decode a reply; raises `WireError`, and nothing else, whatever the bytes."""
    body = _checked(data, MAX_REPLY)
    if body.get("ok") is True and type(body.get("result")) is dict:
        return Reply(body["id"], body["result"], None)
    error = body.get("error")
    if body.get("ok") is not False or type(error) is not dict:
        raise WireError("a reply needs ok and a result or an error")
    return Reply(body["id"], {}, ControlError(str(error.get("type")), str(error.get("message"))))


def _checked(data: bytes, limit: int) -> dict[str, Any]:
    body = unpack_map(data, limit)
    if body.get("v") != VERSION or type(body.get("v")) is not int:
        raise WireVersionError(body.get("v") if type(body.get("v")) is int else None)
    if type(body.get("id")) is not int or abs(body["id"]) >> 62:
        raise WireError("id: expected an integer")
    return body


def check_request(request: Request, arms: tuple[str, ...]) -> Request:
    """Return the request with its arm filled in; raises `ControlError` for an unknown verb, argument or arm."""
    verb = VERBS.get(request.verb)
    if verb is None:
        raise ControlError("unknown_verb", f"unknown verb {request.verb[:80]!r}; verbs: {', '.join(VERBS)}")
    known = verb.arguments + (("arm",) if request.verb in ARM_VERBS else ())
    for name in request.args:
        if name not in known:
            raise ControlError(
                "bad_argument", f"{request.verb}: unknown argument {name[:80]!r}; known: {', '.join(known) or 'none'}"
            )
    if request.verb not in ARM_VERBS:
        return request
    arm = request.args.get("arm")
    if arm is None and len(arms) == 1:
        arm = arms[0]
    if arm not in arms:
        what = "which arm?" if arm is None else f"no arm {str(arm)[:80]!r};"
        raise ControlError("bad_argument", f"{request.verb}: {what} there are: {', '.join(arms)}")
    return Request(request.id, request.verb, {**request.args, "arm": arm})
