"""Messages of workers to the supervisor, checked before use: an invalid one must not end the supervisor."""

import re
from collections.abc import Mapping
from typing import Any

from service.protocol.json_values import shortened
from service.protocol.messages import MAX_REPLY, WireError, check_json, unpack_map

#: Fields of each type of message.
_FIELDS: dict[str, dict[str, type]] = {
    "beat": {"info": dict}, "ready": {"info": dict}, "promise": {"within_s": float, "otherwise": str},
    "event": {"event": str, "text": str, "data": dict, "ids": dict},
    "ask": {"id": int, "verb": str, "args": dict, "role": str}, "reply": {"id": int},
    "fatal": {"message": str, "again": bool}, "crash": {"message": str, "again": bool},
}  # fmt: skip
#: Ports that a worker reports when it is ready, by role.
_PORTS: dict[str, tuple[str, ...]] = {"gateway": ("frames_port", "estimates_port"), "web": ("http_port",)}
GATEWAY_PORTS = (*_PORTS["gateway"], "mirror_port")  # including the optional one
#: Identifiers by which an event refers to other messages.
_IDS = frozenset(("source_epoch", "frame", "estimator_epoch", "estimate"))
_EVENT = re.compile(r"[a-z][a-z0-9_]{0,63}")
MAX_PROMISE_S = 86_400.0
MAX_EVENT = 1 << 20  # bytes; leaves room for a time and an arm, which are added
MAX_WORDS = 1 << 17  # characters of a final message
MAX_INFO = 1 << 18  # bytes of a worker's facts, in one message and in all; see `WorkerHandle.on_info`
_INFO_DEPTH = 6  # of a worker's facts, which are nested deeper in the reply to `status`
_TEXT = 80  # characters of invalid input repeated in an error


def decode_worker_message(data: bytes, role: str) -> dict[str, Any]:
    """Decode a message of a worker of `role`.

    Raises `WireError`: invalid message, unknown type, or a field is missing or invalid; no other error is raised,
    whatever the bytes.
    """
    message = unpack_map(data, MAX_REPLY, text=MAX_REPLY)
    kind = message.get("type")
    fields = _FIELDS.get(kind) if type(kind) is str else None
    if fields is None:
        raise WireError(f"type: {kind!r:.{_TEXT}} is none of {', '.join(_FIELDS)}")
    for name, wanted in fields.items():
        _check(message, name, wanted)
    if "info" in fields:
        if len(data) > MAX_INFO:
            raise WireError(f"info: the message has {len(data)} bytes; the limit is {MAX_INFO}")
        check_json(message["info"], _INFO_DEPTH)
    if kind == "ready":
        ports = GATEWAY_PORTS if role == "gateway" and "mirror_port" in message["info"] else _PORTS.get(role, ())
        for name in ports:
            _check(message["info"], name, int)
            if not 0 < message["info"][name] < 1 << 16:
                raise WireError(f"{name}: {message['info'][name]} is no port")
    elif kind == "promise":
        if not 0.0 <= message["within_s"] <= MAX_PROMISE_S:
            raise WireError(f"within_s: {message['within_s']} is no time")
    elif kind == "event":
        _check_event(message, len(data))
    elif kind == "reply":
        _check_reply(message)
    for name in ("message", "otherwise"):  # appear in events, the status and the log
        if name in fields:
            message[name] = shortened(message[name], MAX_WORDS)
    return message


def _check(table: Mapping[str, Any], name: str, wanted: type) -> None:
    value = table.get(name)
    if type(value) is not wanted and not (wanted is float and type(value) is int):
        raise WireError(f"{name}: expected {wanted.__name__}, not {type(value).__name__}")


def _check_event(message: Mapping[str, Any], size: int) -> None:
    if size > MAX_EVENT:
        raise WireError(f"event: has {size} bytes; the limit is {MAX_EVENT}")
    if not _EVENT.fullmatch(message["event"]):
        raise WireError(f"event: {message['event']!r:.{_TEXT}} is no name of a kind")
    if type(message["data"].get("arm", "")) is not str:
        raise WireError("data.arm: expected a text")
    for name in message["ids"]:
        if name not in _IDS:
            raise WireError(f"ids: {name!r:.{_TEXT}} is none of {', '.join(sorted(_IDS))}")


def _check_reply(message: Mapping[str, Any]) -> None:
    if ("result" in message) == ("error" in message):
        raise WireError("a reply has a result or an error")
    if "result" in message:
        _check(message, "result", dict)
        return
    _check(message, "error", dict)
    for name in ("type", "message"):
        _check(message["error"], name, str)
