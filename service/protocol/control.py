"""Requests, replies and verbs of the control socket.

A request is `[payload]` (DEALER) or `["", payload]` (REQ) with the msgpack map `{"v", "id", "verb", "args"}`; its reply
is `{"v", "id", "ok", "result"}` or `{"v", "id", "ok", "error"}` with an error of `{"type", "message"}`. Every request
gets one reply.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from service.protocol import messages as wire
from service.protocol.endpoints import ANSWER_S
from service.protocol.roles import Role

Target = Literal["supervisor", "acquisition", "estimator", "recorder", "jobs"]
ErrorType = Literal[
    "bad_request", "unknown_verb", "bad_argument", "denied", "too_many", "unavailable", "timeout", "failed"
]


class ControlError(RuntimeError):
    """A request that was answered with an error; `type` is one of `ErrorType`."""

    def __init__(self, type: str, message: str) -> None:
        super().__init__(message)
        self.type, self.message = type, message


@dataclass(frozen=True)
class Verb:
    """Target, role, help and arguments (besides `arm`) of a verb.

    A standing request holds until the next of its kind: it is repeated to a restarted process. A reply is awaited for
    `within_s`.
    """

    target: Target
    role: Role
    help: str
    arguments: tuple[str, ...] = ()
    standing: bool = False
    within_s: float = ANSWER_S


VERBS: Mapping[str, Verb] = {
    "ping": Verb("supervisor", "read", "answer at once"),
    "status": Verb("supervisor", "read", "state and counters of every process and arm"),
    "start": Verb("acquisition", "motion", "let a held arm send its first frame", standing=True),
    "enable": Verb(
        "acquisition", "motion", "switch the drives of a real arm on; a motion that was stopped begins again"
    ),
    "disable": Verb("acquisition", "operate", "stop the drives of a real arm and switch them off"),
    "confirm_positions": Verb(
        "acquisition", "motion", "confirm where joints stand that came back elsewhere or were unknown", ("joints",)
    ),
    "arm": Verb(
        "acquisition", "motion", "switch the drives on and grant a permit, for one use and a limited time", ("for_s",)
    ),
    "disarm": Verb("acquisition", "operate", "stop within the acceleration limits and switch the drives off"),
    "run_trajectory": Verb(
        "acquisition",
        "motion",
        "check a trajectory, approach its start, and run it so many times",
        ("permit", "trajectory", "periods", "hold", "name", "changed_robot"),
        within_s=60.0,  # checked between frames, see `service.motion.trajectory_run.MAX_S`
    ),
    "zero_force": Verb(
        "acquisition", "motion",
        "let an arm be guided by hand: drives in torque mode, by the active model or a given one",
        ("permit", "for_s", "friction_share", "damping_time_s", "speed_share", "model"),
    ),
    "heartbeat": Verb(
        "acquisition", "motion", "say that the client of a run is there; how far the run is", ("permit",)
    ),
    "abort": Verb(
        "acquisition", "operate", "stop a run or guiding within the acceleration limits and switch the drives off"
    ),
    "snapshot": Verb(
        "estimator", "operate", "save the estimator's state and return parameters, covariance and meta data"
    ),
    "reset_estimator": Verb("estimator", "operate", "forget everything that was estimated"),
    "activate": Verb(
        "estimator", "motion", "predict torque by a batch model, and watch for drift from it; null: by the estimate",
        ("theta", "constants", "covariance", "model", "adopt", "robot", "temperatures", "speeds", "elastic"),
        standing=True,
    ),
    "guiding_model": Verb(
        "estimator", "operate", "the active model, or a given one, as zero-force control takes it",
        ("theta", "constants", "robot", "name", "temperatures", "speeds"),
    ),
    "validity": Verb(
        "estimator", "read", "which model is active, and what speaks against it, or against a given one",
        ("theta", "constants", "robot", "name", "temperatures", "speeds", "started"),
    ),
    "prior": Verb("estimator", "read", "parameters and friction by the robot's description, beside the estimate"),
    "set_aside": Verb("estimator", "operate", "write the last seconds of frames to a file", ("seconds", "path")),
    "record": Verb("recorder", "operate", "start or stop recording", ("action", "owner"), True),
    "submit": Verb(
        "jobs",
        "operate",
        "queue a job: its kind and parameters",
        ("kind", "parameters", "arm", "after", "priority", "due_s", "time_s", "memory_mb"),
        within_s=120.0,  # recordings of gigabytes are read once
    ),
    "reidentify": Verb(
        "jobs", "operate", "identify an arm from its last frames, validate, and promote", ("arm", "promote")
    ),
    "jobs": Verb("jobs", "read", "the latest jobs", ("states", "arm", "kind", "limit")),
    "job": Verb("jobs", "read", "one job, with its parts and the end of its log", ("id",)),
    "cancel": Verb("jobs", "operate", "cancel a job", ("id",)),
    "retry": Verb("jobs", "operate", "queue a job again that failed or was cancelled", ("id",)),
    "events": Verb("jobs", "read", "what happened, oldest first", ("arm", "job", "limit", "after")),
    "models": Verb("jobs", "read", "the models that are kept, and which are active", ("arm",)),
    "robot": Verb("jobs", "read", "the description of an arm's robot", ("arm",)),
    "rollback": Verb(
        "jobs", "operate", "make the model active again that was before the present one", ("arm", "reason")
    ),
    "backup": Verb(
        "jobs", "admin", "copy the state directory's database, models and estimates while they are in use",
        ("directory",), within_s=3600.0,
    ),
    "shutdown": Verb("supervisor", "admin", "stop the daemon in order"),
}  # fmt: skip

#: Verbs that stop an arm.
STOPPING = frozenset(("abort", "disarm", "disable"))
#: Verbs that a later request to stop undoes, also where that overtakes them.
OVERTAKEN = frozenset(("enable", "arm", "run_trajectory", "zero_force"))
#: Verbs without a rate limit: stopping, and the heartbeat that keeps a run alive.
UNLIMITED = STOPPING | {"heartbeat"}

#: Verbs that concern one arm and take `arm`, optional if there is only one.
ARM_VERBS = frozenset(name for name, verb in VERBS.items() if verb.target not in ("supervisor", "jobs"))


class Request(msgspec.Struct, frozen=True, tag_field="type", tag="request"):
    """One request; sent to a worker as it is."""

    id: int
    verb: str
    args: dict[str, Any] = {}


@dataclass(frozen=True)
class Reply:
    """One reply; `id` is 0 if the daemon could not read the request's."""

    id: int
    result: dict[str, Any]
    error: ControlError | None


_Id = Annotated[int, msgspec.Meta(gt=-(1 << 62), lt=1 << 62)]


class _Request(wire.Versioned, kw_only=True):
    id: _Id
    verb: str
    args: dict[str, Any] = msgspec.field(default_factory=dict)


class Refusal(msgspec.Struct, frozen=True):
    """Why a request has no result."""

    type: str
    message: str


class _Reply(wire.Versioned, kw_only=True):
    id: _Id
    ok: bool
    result: dict[str, Any] | None = None
    error: Refusal | None = None


_REQUEST = msgspec.msgpack.Decoder(_Request)
_REPLY = msgspec.msgpack.Decoder(_Reply)
_T = TypeVar("_T")


def encode_request(request: Request) -> bytes:
    """Encode a request; raises `WireError` if an argument cannot be sent."""
    body = {"v": wire.VERSION, "id": request.id, "verb": request.verb, "args": request.args}
    return wire.pack_map(body, wire.MAX_REQUEST)


def decode_request(data: bytes) -> Request:
    """Decode a request; any bytes decode or raise `WireError`."""
    body = wire.decode_versioned(_REQUEST, data, wire.MAX_REQUEST)
    wire.check_json(body.args, wire.MAX_DEPTH - 1, wire.MAX_TEXT)
    return Request(body.id, body.verb, body.args)


def encode_result(id: int, result: Mapping[str, Any]) -> bytes:
    """Encode the reply to a request that succeeded."""
    return wire.pack_map({"v": wire.VERSION, "id": id, "ok": True, "result": result}, wire.MAX_REPLY)


def encode_error(id: int, type: str, message: str) -> bytes:
    """Encode the reply to a request that failed."""
    return wire.pack_map({"v": wire.VERSION, "id": id, "ok": False, "error": Refusal(type, message)}, wire.MAX_REPLY)


def decode_reply(data: bytes) -> Reply:
    """Decode a reply; any bytes decode or raise `WireError`."""
    body = wire.decode_versioned(_REPLY, data, wire.MAX_REPLY)
    if body.ok and body.result is not None:
        wire.check_json(body.result, wire.MAX_DEPTH - 1, wire.MAX_REPLY)  # a robot's description is one text
        return Reply(body.id, body.result, None)
    if body.ok or body.error is None:
        raise wire.WireError("a reply needs ok and a result or an error")
    return Reply(body.id, {}, ControlError(body.error.type, body.error.message))


def reply_as(form: type[_T], result: Any) -> _T:
    """Return a result, or part of one, as the type `form`; raises `WireError`."""
    try:
        return msgspec.convert(result, form)
    except msgspec.ValidationError as error:
        raise wire.WireError(f"the daemon's reply: {error}") from error


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
