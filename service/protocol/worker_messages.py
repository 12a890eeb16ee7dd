"""Messages between the supervisor and its workers, checked before use: an invalid one must not end the supervisor."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from service.protocol.control import Refusal, Request
from service.protocol.messages import MAX_DEPTH, MAX_REPLY, WireError, check_json, decode_as

#: Ports that a worker reports when it is ready, by role; only the gateway's last one is optional.
_PORTS = {"gateway": ("frames_port", "estimates_port", "mirror_port"), "web": ("http_port",)}
MAX_EVENT = 1 << 20  # bytes; leaves room for a time and an arm, which are added
MAX_WORDS = 1 << 17  # characters of a final message
MAX_INFO = 1 << 18  # bytes of a worker's facts, in one message and in all; see `WorkerHandle.on_info`


class _Message(msgspec.Struct, frozen=True, tag_field="type", tag=str.lower):
    pass


class Beat(_Message, frozen=True):
    """A heartbeat, with facts about the worker."""

    info: dict[str, Any]


class Ready(Beat, frozen=True):
    """Work can begin."""


class Promise(_Message, frozen=True):
    """The worker is ready within so many seconds, or has failed for the reason `otherwise`."""

    within_s: Annotated[float, msgspec.Meta(ge=0.0, le=86_400.0)]
    otherwise: str


class Event(_Message, frozen=True, omit_defaults=True):
    """An event; `ids` are those of the messages that it rests on.  `t_ns` since 1970 and `arm` are for the history."""

    event: Annotated[str, msgspec.Meta(pattern=r"\A[a-z][a-z0-9_]{0,63}\Z")]
    text: str
    data: dict[str, Any]
    ids: dict[Literal["source_epoch", "frame", "estimator_epoch", "estimate"], Any] = {}
    t_ns: int = 0
    arm: str | None = None


class Ask(Request, frozen=True, tag="ask"):
    """A request to another worker; `role` is that of the client for whom it is made, if any."""

    role: str = ""


class Reply(_Message, frozen=True, omit_defaults=True):
    """A worker's reply to a `Request`."""

    id: int
    result: dict[str, Any] | None = None
    error: Refusal | None = None


class Crash(_Message, frozen=True):
    """Why the worker ends; `again`: a later start of the daemon may succeed."""

    message: str
    again: bool


class Fatal(Crash, frozen=True):
    """Why it cannot work as configured."""


class Answer(Reply, frozen=True):
    """The supervisor's reply to an `Ask`."""


class Status(_Message, frozen=True):
    """The reply to `status`, for the web process, with the time of CLOCK_MONOTONIC; the last one if `stopping`."""

    monotonic_ns: int
    stopping: bool = False
    daemon: dict[str, Any] = {}
    arms: list[str] = []
    configuration: dict[str, Any] = {}
    processes: list[dict[str, Any]] = []
    control: dict[str, Any] = {}
    events: dict[str, int] = {}


WorkerMessage: TypeAlias = Beat | Ready | Promise | Event | Ask | Reply | Crash | Fatal
SupervisorMessage: TypeAlias = Request | Answer | Event | Status
_FROM_WORKER: msgspec.msgpack.Decoder[WorkerMessage] = msgspec.msgpack.Decoder(WorkerMessage)
_FROM_SUPERVISOR: msgspec.msgpack.Decoder[SupervisorMessage] = msgspec.msgpack.Decoder(SupervisorMessage)
#: Bytes and nesting of messages of workers; facts are nested deeper in the reply to `status`.
_LIMITS: dict[type, tuple[int, int]] = {Beat: (MAX_INFO, 7), Ready: (MAX_INFO, 7), Event: (MAX_EVENT, MAX_DEPTH)}


def decode_worker_message(data: bytes, role: str) -> WorkerMessage:
    """Decode a message of a worker of `role`; any bytes decode or raise `WireError`."""
    message = decode_as(_FROM_WORKER, data, MAX_REPLY)
    most, depth = _LIMITS.get(type(message), (MAX_REPLY, MAX_DEPTH))
    if len(data) > most:
        raise WireError(f"the message has {len(data)} bytes; the limit is {most}")
    _check(message, depth)
    if isinstance(message, Ready):
        ports(role, message.info)
    elif isinstance(message, Event) and type(message.data.get("arm", "")) is not str:
        raise WireError("data.arm: expected a text")
    elif isinstance(message, Reply) and (message.result is None) == (message.error is None):
        raise WireError("a reply has a result or an error")
    return message


def decode_supervisor_message(data: bytes) -> SupervisorMessage:
    """Decode a message of the supervisor; any bytes decode or raise `WireError`."""
    message = decode_as(_FROM_SUPERVISOR, data, MAX_REPLY)
    _check(message, MAX_DEPTH)
    return message


def ports(role: str, info: Mapping[str, Any]) -> dict[str, int]:
    """Return the ports that a worker of `role` reports when it is ready; raises `WireError`."""
    found = {name: info.get(name) for name in _PORTS.get(role, ()) if name != "mirror_port" or name in info}
    try:
        return msgspec.convert(found, dict[str, Annotated[int, msgspec.Meta(gt=0, lt=1 << 16)]])
    except msgspec.ValidationError as error:
        raise WireError(f"{', '.join(found)}: {error}") from error


def _check(message: msgspec.Struct, depth: int) -> None:
    fields = msgspec.structs.astuple(message)
    check_json([value for value in fields if type(value) in (dict, list)], depth, MAX_REPLY)
