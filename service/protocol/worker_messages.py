"""What a process may say to the supervisor: the shape of each message, checked before anything is done by it.

A message that is none of these comes from a fault of this program.  It must not end the supervisor, and all other
processes with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from service.protocol.json_values import shortened
from service.protocol.messages import MAX_REPLY, WireError, check_nesting, unpack_map

#: The fields of each type of message.
_FIELDS: dict[str, dict[str, type]] = {
    "beat": {"info": dict},
    "ready": {"info": dict},
    "promise": {"within_s": float, "otherwise": str},
    "event": {"event": str, "text": str, "data": dict, "ids": dict},
    "ask": {"id": int, "verb": str, "args": dict, "role": str},
    "reply": {"id": int},
    "fatal": {"message": str, "again": bool},
    "crash": {"message": str, "again": bool},
}
#: Ports that a process has to name when it is ready, by its role.
_PORTS: dict[str, tuple[str, ...]] = {"gateway": ("frames_port", "estimates_port"), "web": ("http_port",)}
GATEWAY_PORTS = (*_PORTS["gateway"], "mirror_port")  # with the one that there need not be
#: What an event may be found by in other messages.
_IDS = frozenset(("source_epoch", "frame", "estimator_epoch", "estimate"))
_EVENT = re.compile(r"[a-z][a-z0-9_]{0,63}")
MAX_PROMISE_S = 86_400.0
MAX_EVENT = 1 << 20  # bytes; it is handed on with a time and an arm, which must not make it too large
MAX_WORDS = 1 << 17  # characters of what it says at its end
MAX_INFO = 1 << 18  # bytes of a process's facts, in one message and of all together; see `WorkerHandle.on_info`
_INFO_DEPTH = 6  # of what a process says of itself: in the reply to `status` it lies deeper still
_TEXT = 80  # characters of what was sent that an error repeats


def read_said(data: bytes, role: str) -> dict[str, Any]:
    """Decode what a process of `role` says.

    Raises
    ------
    WireError
        It is no message, of no known type, or a field is missing or no value that it may have; nothing else is raised,
        whatever the bytes.
    """
    said = unpack_map(data, MAX_REPLY, text=MAX_REPLY)
    kind = said.get("type")
    fields = _FIELDS.get(kind) if type(kind) is str else None
    if fields is None:
        raise WireError(f"type: {kind!r:.{_TEXT}} is none of {', '.join(_FIELDS)}")
    for name, wanted in fields.items():
        _check(said, name, wanted)
    if "info" in fields:
        if len(data) > MAX_INFO:
            raise WireError(f"info: the message has {len(data)} bytes; the limit is {MAX_INFO}")
        check_nesting(said["info"], _INFO_DEPTH)
    if kind == "ready":
        ports = GATEWAY_PORTS if role == "gateway" and "mirror_port" in said["info"] else _PORTS.get(role, ())
        for name in ports:
            _check(said["info"], name, int)
            if not 0 < said["info"][name] < 1 << 16:
                raise WireError(f"{name}: {said['info'][name]} is no port")
    elif kind == "promise":
        if not 0.0 <= said["within_s"] <= MAX_PROMISE_S:
            raise WireError(f"within_s: {said['within_s']} is no time")
    elif kind == "event":
        _check_event(said, len(data))
    elif kind == "reply":
        _check_reply(said)
    for name in ("message", "otherwise"):  # that are told in events, the status and the log
        if name in fields:
            said[name] = shortened(said[name], MAX_WORDS)
    return said


def _check(table: Mapping[str, Any], name: str, wanted: type) -> None:
    value = table.get(name)
    if type(value) is not wanted and not (wanted is float and type(value) is int):
        raise WireError(f"{name}: expected {wanted.__name__}, not {type(value).__name__}")


def _check_event(said: Mapping[str, Any], size: int) -> None:
    if size > MAX_EVENT:
        raise WireError(f"event: has {size} bytes; the limit is {MAX_EVENT}")
    if not _EVENT.fullmatch(said["event"]):
        raise WireError(f"event: {said['event']!r:.{_TEXT}} is no name of a kind")
    if type(said["data"].get("arm", "")) is not str:
        raise WireError("data.arm: expected a text")
    for name in said["ids"]:
        if name not in _IDS:
            raise WireError(f"ids: {name!r:.{_TEXT}} is none of {', '.join(sorted(_IDS))}")


def _check_reply(said: Mapping[str, Any]) -> None:
    if ("result" in said) == ("error" in said):
        raise WireError("a reply has a result or an error")
    if "result" in said:
        _check(said, "result", dict)
        return
    _check(said, "error", dict)
    for name in ("type", "message"):
        _check(said["error"], name, str)
