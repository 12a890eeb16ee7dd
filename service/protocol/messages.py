"""Wire format: message types, topics, and their encoding; docs/wire.md describes every field.

A message is exactly two ZeroMQ parts, `[topic, msgpack map]`. Every map has the envelope `v`, `kind`, `src`, `epoch`,
`seq`, `t`, `t_ns`, `clock`, `t_host_ns`. All functions are pure; any bytes decode or raise `WireError`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgpack
import numpy as np

from drivers.frame import CHANNELS, JointFrame
from rt_core.types import BoolArray, FloatArray, IntArray

VERSION = 1
KINDS = ("frame", "estimate", "torque", "elastic", "status", "stats", "meta", "event")
#: Statuses of parameters that have a value; other parameters must be shown without one.
STATUSES_WITH_VALUE = ("estimated", "stale", "frozen")

MAX_MESSAGE = 1 << 20  # bytes of a payload; also the sockets' MAXMSGSIZE
MAX_REPLY = 1 << 24  # of a reply on the control socket, which may hold a covariance matrix
MAX_REQUEST = 1 << 18
MAX_JOINTS = 64
MAX_DEPTH = 12
MAX_TEXT = 1 << 16

_ARM = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
_INT64 = range(-(1 << 63), 1 << 63)
_NUMBERS = frozenset((float, int))
_BITS = frozenset((bool, int))
_COUNTS = ("frames", "used", "masked", "lost", "resets")
_ENVELOPE = frozenset(("v", "kind", "src", "epoch", "seq", "t", "t_ns", "clock", "t_host_ns"))


class WireError(ValueError):
    """Bytes that are not a message of this format; the message says which field is wrong."""


class WireVersionError(WireError):
    """A message of another major version of the format."""

    def __init__(self, version: object) -> None:
        super().__init__(f"v: version {version!r} of the wire format is not supported; this is version {VERSION}")
        self.version = version


@dataclass(slots=True)
class Envelope:
    """Fields of every message."""

    src: str  # sending process: "acquisition", "estimator", "recorder"
    epoch: int  # boot counter, increasing with each start of the source [microseconds since 1970]
    seq: int  # cycle of the source for frames, else the count of messages of this topic and src; a gap means loss
    t_ns: int  # time of the content on `clock` [ns]; also sent as a float t [s]
    clock: str  # of the source: "recording", "sim", "dc", "plc", "monotonic"
    t_host_ns: int  # CLOCK_MONOTONIC at the arrival of the latest frame used for the content [ns]


@dataclass(slots=True)
class FrameMessage:
    """One frame of an arm; `envelope.seq`, `t_ns` and `t_host_ns` are the frame's own."""

    arm: str
    envelope: Envelope
    frame: JointFrame


@dataclass(slots=True)
class EstimateMessage:
    """Current parameters: p base parameters, n joints; NaN without a value."""

    arm: str
    envelope: Envelope
    theta: FloatArray  # (p,)
    validated: FloatArray  # (p,)
    std: FloatArray  # (p,)
    status: tuple[str, ...]  # (p,) unestimated, estimated, invalid, stale, frozen
    excited: BoolArray  # (p,)
    lam: FloatArray  # (n,) forgetting factors
    innovation: FloatArray  # (n,) [N*m] or [N], NaN for a joint at rest
    sigma: FloatArray  # (n,) usual size of the innovation
    delay_s: float  # of the filters; `t` refers to the past by this much
    frames: int
    used: int
    masked: int
    lost: int
    resets: int
    hash: str  # of model and settings


@dataclass(slots=True)
class TorqueMessage:
    """Measured and predicted joint torques of the active model, and their difference (n,) [N*m] or [N]."""

    arm: str
    envelope: Envelope
    measured: FloatArray
    predicted: FloatArray
    residual: FloatArray


@dataclass(slots=True)
class BodyMessage:
    """An elastic, status, stats, meta or event message: `body` is a map of JSON values, documented in docs/wire.md."""

    arm: str
    kind: str
    envelope: Envelope
    body: dict[str, Any]


Message: TypeAlias = FrameMessage | EstimateMessage | TorqueMessage | BodyMessage


def check_arm_name(name: str) -> str:
    """Return `name` if it is valid in topics: a letter, then up to 31 letters, digits, `_` or `-`; else `WireError`.

    Without slashes no topic is a byte prefix of another.
    """
    if not _ARM.fullmatch(name):
        raise WireError(f"arm name {name!r}: use a letter followed by at most 31 letters, digits, '_' or '-'")
    return name


def topic(arm: str, kind: str) -> bytes:
    """Return the topic of one kind of messages of one arm."""
    return f"{arm}/{kind}".encode()


# ---------------------------------------------------------------- encoding


def encode_frame(arm_topic: bytes, envelope_src: str, epoch: int, clock: str, frame: JointFrame) -> list[bytes]:
    """Encode a frame, the only message sent at the cycle's rate."""
    t_ns = int(frame.t_bus_ns)
    body: dict[str, Any] = {
        "v": VERSION, "kind": "frame", "src": envelope_src, "epoch": epoch, "seq": int(frame.seq), "t": t_ns * 1e-9,
        "t_ns": t_ns, "clock": clock, "t_host_ns": int(frame.t_host_ns),
    }  # fmt: skip
    for name in CHANNELS:
        value = getattr(frame, name)
        if value is not None:
            body[name] = value.tolist()
    if frame.status_word is not None:
        body["status_word"] = frame.status_word.tolist()
    if frame.valid is not None:
        body["valid"] = [1 if ok else 0 for ok in frame.valid.tolist()]
    return [arm_topic, msgpack.packb(body)]


def encode(message: Message) -> list[bytes]:
    """Encode any message as its two parts; raises `WireError` if that is impossible."""
    envelope = message.envelope
    if isinstance(message, FrameMessage):
        return encode_frame(topic(message.arm, "frame"), envelope.src, envelope.epoch, envelope.clock, message.frame)
    if isinstance(message, EstimateMessage):
        kind = "estimate"
        body: dict[str, Any] = {name: getattr(message, name).tolist() for name in ("theta", "validated", "std")}
        body["status"] = list(message.status)
        body["excited"] = [1 if flag else 0 for flag in message.excited.tolist()]
        body |= {name: getattr(message, name).tolist() for name in ("lam", "innovation", "sigma")}
        body["delay_s"] = float(message.delay_s)
        body |= {name: int(getattr(message, name)) for name in _COUNTS} | {"hash": message.hash}
    elif isinstance(message, TorqueMessage):
        kind = "torque"
        body = {name: getattr(message, name).tolist() for name in ("measured", "predicted", "residual")}
    else:
        kind = message.kind
        body = {key: value for key, value in message.body.items() if key not in _ENVELOPE}
    head = {
        "v": VERSION, "kind": kind, "src": envelope.src, "epoch": envelope.epoch, "seq": envelope.seq,
        "t": envelope.t_ns * 1e-9, "t_ns": envelope.t_ns, "clock": envelope.clock, "t_host_ns": envelope.t_host_ns,
    }  # fmt: skip
    return [topic(message.arm, kind), pack_map(head | body, MAX_MESSAGE)]


def pack_map(value: Mapping[str, Any], limit: int = MAX_MESSAGE) -> bytes:
    """Encode a map; raises `WireError` for unsupported types or more than `limit` bytes."""
    try:
        data: bytes = msgpack.packb(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise WireError(f"cannot encode the message: {error}") from error
    if len(data) > limit:
        raise WireError(f"the message has {len(data)} bytes; the limit is {limit}")
    return data


# ---------------------------------------------------------------- decoding


def unpack_map(data: bytes, limit: int = MAX_MESSAGE, depth: int = MAX_DEPTH, text: int = MAX_TEXT) -> dict[str, Any]:
    """Decode exactly one msgpack map with text keys; raises `WireError` otherwise.

    `text` is the longest text in it, in bytes.
    """
    value = _unpack(data, limit, text)
    check_nesting(value, depth)
    return value


def decode(parts: Sequence[bytes]) -> Message:
    """Decode the two parts of a message; any bytes decode or raise `WireError`."""
    if len(parts) != 2:
        raise WireError(f"a message has two parts, topic and map; got {len(parts)}")
    try:
        arm, slash, kind = bytes(parts[0]).decode("ascii").partition("/")
    except UnicodeDecodeError as error:
        raise WireError(f"topic: {error}") from error
    if not slash or not _ARM.fullmatch(arm) or kind not in _DECODERS:
        raise WireError(f"topic {parts[0][:80]!r}: expected <arm>/<kind> with a kind of {', '.join(KINDS)}")
    body = _unpack(parts[1], MAX_MESSAGE)
    version = body.get("v")
    if type(version) is not int or version != VERSION:
        raise WireVersionError(version if type(version) is int else None)
    if body.get("kind") != kind:
        raise WireError(f"kind: the map's {str(body.get('kind'))[:40]!r} is not the topic's {kind!r}")
    envelope = Envelope(
        _text(body, "src"), _int(body, "epoch"), _int(body, "seq"), _int(body, "t_ns"), _text(body, "clock"),
        _int(body, "t_host_ns"),
    )  # fmt: skip
    return _DECODERS[kind](arm, envelope, body)


def _unpack(data: bytes, limit: int, text: int = MAX_TEXT) -> dict[str, Any]:
    if len(data) > limit:
        raise WireError(f"the message has {len(data)} bytes; the limit is {limit}")
    try:
        value = msgpack.unpackb(
            data, strict_map_key=True, max_str_len=text, max_bin_len=0, max_ext_len=0, ext_hook=_refuse_ext
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise WireError(f"not a msgpack map: {str(error) or type(error).__name__}") from error
    if type(value) is not dict:
        raise WireError(f"not a msgpack map but {type(value).__name__}")
    for key in value:
        if type(key) is not str:
            raise WireError("a key of the map is not text")
    return value


def _refuse_ext(code: int, data: bytes) -> object:
    raise ValueError(f"extension type {code} of {len(data)} bytes")


def check_nesting(value: object, depth: int = MAX_DEPTH) -> None:
    """Raise `WireError` unless lists and maps are nested at most `depth` deep, with texts as keys."""
    _check_nesting(value, depth, depth)


def _check_nesting(value: object, depth: int, most: int) -> None:
    if isinstance(value, dict):
        items: Any = value.values()
        if not all(type(key) is str for key in value):
            raise WireError("a key of a map is not text")
    elif isinstance(value, list):
        items = value
    else:
        return
    if depth == 0:
        raise WireError(f"nested deeper than {most}")
    for item in items:
        if type(item) is list or type(item) is dict:
            _check_nesting(item, depth - 1, most)


def _int(body: dict[str, Any], key: str) -> int:
    value = body.get(key)
    if type(value) is not int or value not in _INT64:
        raise WireError(f"{key}: expected an integer of 64 bits")
    return value


def _text(body: dict[str, Any], key: str) -> str:
    value = body.get(key)
    if type(value) is not str or len(value) > 200:
        raise WireError(f"{key}: expected a text of at most 200 characters")
    return value


def _number(body: dict[str, Any], key: str) -> float:
    value = body.get(key)
    if type(value) not in _NUMBERS:
        raise WireError(f"{key}: expected a number")
    return float(value)  # type: ignore[arg-type]


def _list(body: dict[str, Any], key: str, length: int | None = None) -> list[Any]:
    value = body.get(key)
    if type(value) is not list:
        raise WireError(f"{key}: expected a list")
    if length is not None and len(value) != length:
        raise WireError(f"{key}: has {len(value)} elements where {length} are expected")
    return value


def _floats(body: dict[str, Any], key: str, length: int | None = None) -> FloatArray:
    value = _list(body, key, length)
    if not _NUMBERS.issuperset(map(type, value)):
        raise WireError(f"{key}: expected numbers")
    return np.array(value, np.float64)


def _bits(body: dict[str, Any], key: str, length: int | None = None) -> BoolArray:
    value = _list(body, key, length)
    if not _BITS.issuperset(map(type, value)):
        raise WireError(f"{key}: expected zeros and ones")
    return np.array([item != 0 for item in value], np.bool_)


def _ints(body: dict[str, Any], key: str, length: int | None = None) -> IntArray:
    value = _list(body, key, length)
    if any(type(item) is not int or item not in _INT64 for item in value):
        raise WireError(f"{key}: expected integers of 64 bits")
    return np.array(value, np.int64)


def _decode_frame(arm: str, envelope: Envelope, body: dict[str, Any]) -> FrameMessage:
    frame = JointFrame(envelope.seq, envelope.t_ns, envelope.t_host_ns)
    n: int | None = None
    for name in CHANNELS:
        if name in body:
            value = _floats(body, name, n)
            n = len(value)
            setattr(frame, name, value)
    if "status_word" in body:
        frame.status_word = _ints(body, "status_word", n)
    if "valid" in body:
        frame.valid = _bits(body, "valid", n)
    if n is None or not 0 < n <= MAX_JOINTS:
        raise WireError(f"a frame needs a channel ({', '.join(CHANNELS)}) of 1 to {MAX_JOINTS} joints")
    return FrameMessage(arm, envelope, frame)


def _decode_estimate(arm: str, envelope: Envelope, body: dict[str, Any]) -> EstimateMessage:
    theta = _floats(body, "theta")
    lam = _floats(body, "lam")
    status = _list(body, "status", len(theta))
    if any(type(item) is not str for item in status):
        raise WireError("status: expected texts")
    return EstimateMessage(
        arm, envelope, theta=theta, validated=_floats(body, "validated", len(theta)),
        std=_floats(body, "std", len(theta)), status=tuple(status), excited=_bits(body, "excited", len(theta)), lam=lam,
        innovation=_floats(body, "innovation", len(lam)), sigma=_floats(body, "sigma", len(lam)),
        delay_s=_number(body, "delay_s"), **{name: _int(body, name) for name in _COUNTS}, hash=_text(body, "hash"),
    )  # fmt: skip


def _decode_torque(arm: str, envelope: Envelope, body: dict[str, Any]) -> TorqueMessage:
    measured = _floats(body, "measured")
    n = len(measured)
    return TorqueMessage(arm, envelope, measured, _floats(body, "predicted", n), _floats(body, "residual", n))


def _decode_body(arm: str, envelope: Envelope, body: dict[str, Any]) -> BodyMessage:
    check_nesting(body)
    kind = body["kind"]
    return BodyMessage(arm, kind, envelope, {key: value for key, value in body.items() if key not in _ENVELOPE})


_DECODERS: dict[str, Callable[[str, Envelope, dict[str, Any]], Message]] = {
    "frame": _decode_frame,
    "estimate": _decode_estimate,
    "torque": _decode_torque,
} | dict.fromkeys(("elastic", "status", "stats", "meta", "event"), _decode_body)
