"""Wire format: message types, topics, and their encoding; docs/wire.md describes every field.

A message is exactly two ZeroMQ parts, `[topic, msgpack map]`. Every map has the envelope `v`, `kind`, `src`, `epoch`,
`seq`, `t`, `t_ns`, `clock`, `t_host_ns`. All functions are pure; any bytes decode or raise `WireError`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from types import NoneType
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar, get_args, get_type_hints

import msgspec
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
_ENVELOPE = frozenset(("v", "kind", "src", "epoch", "seq", "t", "t_ns", "clock", "t_host_ns"))
_TEXT = frozenset((str,))
_JSON = frozenset((type(None), bool, int, float, str, list, dict))


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


def block_topic(arm: str) -> bytes:
    """Return the topic of several frames in one message, among the daemon's processes.

    Its other parts are the second parts of the messages of the frames.  Subscribers to frames receive it, too.
    """
    return topic(arm, "frames")


def messages_of(parts: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Yield the messages of single frames for one of several frames; any other message as it is."""
    if parts[0].endswith(b"/frames") and len(parts) > 1:
        yield from ((parts[0][:-1], part) for part in parts[1:])
    else:
        yield parts


# ---------------------------------------------------------------- fields on the wire


_Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_Name = Annotated[str, msgspec.Meta(max_length=200)]
_Layout: TypeAlias = "list[tuple[str, _WireType]]"


class _WireType(NamedTuple):
    """How values of one type are sent: the type that a decoder expects, and both conversions."""

    expected: Any
    send: Callable[[Any], Any]
    receive: Callable[[Any], Any]
    per_item: bool = False  # one of each parameter or joint


#: By the type of a field.
_WIRE_TYPES: dict[Any, _WireType] = {
    FloatArray: _WireType(list[float], np.ndarray.tolist, lambda value: np.array(value, np.float64), True),
    IntArray: _WireType(list[_Int64], np.ndarray.tolist, lambda value: np.array(value, np.int64), True),
    BoolArray: _WireType(
        list[bool | int], lambda value: value.astype(np.int64).tolist(),
        lambda value: np.array([item != 0 for item in value], np.bool_), True,
    ),
    tuple[str, ...]: _WireType(list[str], list, tuple, True),
    float: _WireType(float, float, float),
    int: _WireType(_Int64, int, int),
    str: _WireType(_Name, str, str),
}  # fmt: skip


class Versioned(msgspec.Struct, kw_only=True):
    """What every map has: the major version of the format."""

    v: Any = None


class _Head(Versioned, kw_only=True):
    src: _Name
    epoch: _Int64
    seq: _Int64
    t_ns: _Int64
    clock: _Name
    t_host_ns: _Int64
    kind: Any = None

    def envelope(self) -> Envelope:
        return Envelope(self.src, self.epoch, self.seq, self.t_ns, self.clock, self.t_host_ns)


def _layout(message: type, *left_out: str) -> _Layout:
    hints = get_type_hints(message)
    return [
        (field.name, _WIRE_TYPES[_given(hints[field.name])]) for field in fields(message) if field.name not in left_out
    ]


def _given(hint: Any) -> Any:
    """Return the type of a field where it is not None."""
    return next(kind for kind in get_args(hint) if kind is not NoneType) if NoneType in get_args(hint) else hint


def _decoder(layout: _Layout, *, optional: bool = False) -> msgspec.msgpack.Decoder[Any]:
    wanted = [
        (name, type.expected | msgspec.UnsetType, msgspec.UNSET) if optional else (name, type.expected)
        for name, type in layout
    ]
    return msgspec.msgpack.Decoder(msgspec.defstruct("_Body", wanted, bases=(_Head,), kw_only=True))


_FRAME = _layout(JointFrame, "seq", "t_bus_ns", "t_host_ns")
_RECEIVED = tuple((name, type.receive) for name, type in _FRAME)
_ESTIMATE = _layout(EstimateMessage, "arm", "envelope")
_TORQUE = _layout(TorqueMessage, "arm", "envelope")
_JOINTS = frozenset(("lam", "innovation", "sigma"))  # of an estimate; its other lists have an item for each parameter
_DECODERS: dict[str, msgspec.msgpack.Decoder[Any]] = {
    "frame": _decoder(_FRAME, optional=True),
    "estimate": _decoder(_ESTIMATE),
    "torque": _decoder(_TORQUE),
} | dict.fromkeys(("elastic", "status", "stats", "meta", "event"), msgspec.msgpack.Decoder(_Head))
_VERSION = msgspec.msgpack.Decoder(Versioned)
_MAP = msgspec.msgpack.Decoder(dict[str, Any])


# ---------------------------------------------------------------- encoding


def _encodable(value: object) -> Any:
    """Return what msgspec encodes for a subclass, such as NumPy's float64; raises `TypeError`."""
    for kind in (float, int, str):
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_encodable)


def encode_frame(arm_topic: bytes, envelope_src: str, epoch: int, clock: str, frame: JointFrame) -> list[bytes]:
    """Encode a frame, the only message sent at the cycle's rate."""
    t_ns = int(frame.t_bus_ns)
    body: dict[str, Any] = {
        "v": VERSION, "kind": "frame", "src": envelope_src, "epoch": epoch, "seq": int(frame.seq), "t": t_ns * 1e-9,
        "t_ns": t_ns, "clock": clock, "t_host_ns": int(frame.t_host_ns),
    }  # fmt: skip
    for name, type in _FRAME:
        value = getattr(frame, name)
        if value is not None:
            body[name] = type.send(value)
    return [arm_topic, _ENCODER.encode(body)]


def encode(message: Message) -> list[bytes]:
    """Encode any message as its two parts; raises `WireError` if that is impossible."""
    envelope = message.envelope
    if isinstance(message, FrameMessage):
        return encode_frame(topic(message.arm, "frame"), envelope.src, envelope.epoch, envelope.clock, message.frame)
    if isinstance(message, BodyMessage):
        kind = message.kind
        body = {key: value for key, value in message.body.items() if key not in _ENVELOPE}
    else:
        kind, layout = ("estimate", _ESTIMATE) if isinstance(message, EstimateMessage) else ("torque", _TORQUE)
        body = {name: type.send(getattr(message, name)) for name, type in layout}
    head = {
        "v": VERSION, "kind": kind, "src": envelope.src, "epoch": envelope.epoch, "seq": envelope.seq,
        "t": envelope.t_ns * 1e-9, "t_ns": envelope.t_ns, "clock": envelope.clock, "t_host_ns": envelope.t_host_ns,
    }  # fmt: skip
    return [topic(message.arm, kind), pack_map(head | body, MAX_MESSAGE)]


def pack_map(value: Mapping[str, Any] | msgspec.Struct, limit: int = MAX_MESSAGE) -> bytes:
    """Encode a map or struct; raises `WireError` for what msgspec cannot encode, or more than `limit` bytes."""
    try:
        data = _ENCODER.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise WireError(f"cannot encode the message: {error}") from error
    if len(data) > limit:
        raise WireError(f"the message has {len(data)} bytes; the limit is {limit}")
    return data


# ---------------------------------------------------------------- decoding

_T = TypeVar("_T")
_V = TypeVar("_V", bound=Versioned)


def unpack_map(data: bytes, limit: int = MAX_MESSAGE, depth: int = MAX_DEPTH, text: int = MAX_TEXT) -> dict[str, Any]:
    """Decode exactly one msgpack map of JSON values; raises `WireError` otherwise.

    `text` is the length of the longest text in it.
    """
    value = decode_as(_MAP, data, limit)
    check_json(value, depth, text)
    return value


def decode_versioned(decoder: msgspec.msgpack.Decoder[_V], data: bytes, limit: int) -> _V:
    """Decode exactly one msgpack map; raises `WireError`, and first of all `WireVersionError`."""
    try:
        body = decode_as(decoder, data, limit)
    except WireError:
        _check_version(decode_as(_VERSION, data, limit))
        raise
    _check_version(body)
    return body


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
    body = decode_versioned(_DECODERS[kind], parts[1], MAX_MESSAGE)
    if body.kind != kind:
        raise WireError(f"kind: the map's {str(body.kind)[:40]!r} is not the topic's {kind!r}")
    envelope = body.envelope()
    if kind == "frame":
        values: dict[str, Any] = {}
        n = 0
        for name, receive in _RECEIVED:  # without a call for each: frames are most of all messages
            if (value := getattr(body, name)) is not msgspec.UNSET:
                n = n if values else len(value)
                if len(value) != n:
                    raise WireError(f"{name}: has {len(value)} elements where {n} are expected")
                values[name] = receive(value)
        if not (0 < n <= MAX_JOINTS and any(name in values for name in CHANNELS)):
            raise WireError(f"a frame needs a channel ({', '.join(CHANNELS)}) of 1 to {MAX_JOINTS} joints")
        return FrameMessage(arm, envelope, JointFrame(envelope.seq, envelope.t_ns, envelope.t_host_ns, **values))
    if kind == "estimate":
        values = _received(body, _ESTIMATE)
        lists = [name for name, type in _ESTIMATE if type.per_item]
        _check_lengths(values, [name for name in lists if name in _JOINTS])
        _check_lengths(values, [name for name in lists if name not in _JOINTS])
        return EstimateMessage(arm, envelope, **values)
    if kind == "torque":
        values = _received(body, _TORQUE)
        _check_lengths(values, list(values))
        return TorqueMessage(arm, envelope, **values)
    content = unpack_map(parts[1])
    return BodyMessage(arm, kind, envelope, {key: value for key, value in content.items() if key not in _ENVELOPE})


def _received(body: _Head, layout: _Layout) -> dict[str, Any]:
    return {name: type.receive(getattr(body, name)) for name, type in layout}


def _check_lengths(values: Mapping[str, Any], names: Sequence[str]) -> None:
    n = len(values[names[0]]) if names else 0
    for name in names:
        if len(values[name]) != n:
            raise WireError(f"{name}: has {len(values[name])} elements where {n} are expected")


def decode_as(decoder: msgspec.msgpack.Decoder[_T], data: bytes, limit: int) -> _T:
    """Decode exactly one msgpack map, with what is in it unchecked where the type is `Any`; raises `WireError`."""
    if len(data) > limit:
        raise WireError(f"the message has {len(data)} bytes; the limit is {limit}")
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `")
        raise WireError(f"{where.strip('$.`') or 'map'}: {what}"[:200]) from error  # it may repeat a value
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise WireError(f"not a msgpack map: {error}") from error


def _check_version(body: Versioned) -> None:
    if type(body.v) is not int or body.v != VERSION:
        raise WireVersionError(body.v if type(body.v) is int else None)


def check_json(value: Mapping[str, Any] | Sequence[Any], depth: int = MAX_DEPTH, text: int | None = None) -> None:
    """Check that lists and maps are nested at most `depth` deep, with texts as keys; raises `WireError`.

    With `text`, also that they hold nothing but JSON values, and no longer text.
    """
    _check_level(value, depth, depth, text)


def _check_level(value: Mapping[str, Any] | Sequence[Any], left: int, depth: int, text: int | None) -> None:
    if left <= 0:
        raise WireError(f"nested deeper than {depth}")
    items: Sequence[Any] = value  # type: ignore[assignment]
    if isinstance(value, dict):
        items = list(value.values())
        if not _TEXT.issuperset(map(type, value)):
            raise WireError("a key of a map is not text")
        if text is not None and value and max(map(len, value)) > text:
            raise WireError(f"a key of more than {text} characters")
    types = set(map(type, items))
    if text is not None and not types <= _JSON:
        names = ", ".join(sorted(type.__name__ for type in types - _JSON))
        raise WireError(f"{names}: values are numbers, texts, truth values, lists and maps")
    if text is not None and str in types and any(type(item) is str and len(item) > text for item in items):
        raise WireError(f"a text of more than {text} characters")
    if list in types or dict in types:
        for item in items:
            if type(item) is list or type(item) is dict:
                _check_level(item, left - 1, depth, text)
