"""The wire format: what goes in comes out, and any bytes decode or raise `WireError`."""

import base64
import contextlib
import dataclasses
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from drivers.frame import CHANNELS, JointFrame
from service.protocol import control
from service.protocol import messages as wire

INT64 = st.integers(-(2**63), 2**63 - 1)
ARMS = st.from_regex(r"\A[A-Za-z][A-Za-z0-9_-]{0,31}\Z")
ENVELOPES = st.builds(
    wire.Envelope,
    **dict.fromkeys(("epoch", "seq", "t_ns", "t_host_ns"), INT64),
    **dict.fromkeys(("src", "clock"), st.text(max_size=20)),
)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


def floats(n: int) -> st.SearchStrategy[Any]:
    return hnp.arrays(np.float64, n)


@st.composite
def frames(draw: st.DrawFn) -> wire.FrameMessage:
    n = draw(st.integers(1, 9))
    envelope = draw(ENVELOPES)
    frame = JointFrame(envelope.seq, envelope.t_ns, envelope.t_host_ns)
    for name in draw(st.lists(st.sampled_from(CHANNELS), min_size=1, unique=True)):
        setattr(frame, name, draw(floats(n)))
    frame.status_word = draw(st.none() | hnp.arrays(np.int64, n))
    frame.valid = draw(st.none() | hnp.arrays(np.bool_, n))
    return wire.FrameMessage(draw(ARMS), envelope, frame)


@st.composite
def estimates(draw: st.DrawFn) -> wire.EstimateMessage:
    p, n = draw(st.integers(0, 12)), draw(st.integers(1, 3))
    counts = {name: draw(INT64) for name in ("frames", "used", "masked", "lost", "resets")}
    return wire.EstimateMessage(
        draw(ARMS), draw(ENVELOPES), **{name: draw(floats(p)) for name in ("theta", "validated", "std")},
        status=tuple(draw(st.lists(st.sampled_from(["estimated", "stale"]), min_size=p, max_size=p))),
        excited=draw(hnp.arrays(np.bool_, p)), **{name: draw(floats(n)) for name in ("lam", "innovation", "sigma")},
        delay_s=draw(st.floats()), hash=draw(st.text(max_size=64)), **counts,
    )  # fmt: skip


@st.composite
def torques(draw: st.DrawFn) -> wire.TorqueMessage:
    n = draw(st.integers(1, 9))
    return wire.TorqueMessage(draw(ARMS), draw(ENVELOPES), draw(floats(n)), draw(floats(n)), draw(floats(n)))


BODIES = st.builds(
    wire.BodyMessage, arm=ARMS, kind=st.sampled_from(["elastic", "status", "stats", "meta", "event"]),
    envelope=ENVELOPES, body=st.dictionaries(st.text(max_size=8).map("x".__add__), PLAIN, max_size=4),
)  # fmt: skip
MESSAGES = frames() | estimates() | torques() | BODIES


def comparable(value: Any) -> Any:
    """Return nested plain values that compare equal where NaN meets NaN."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: comparable(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        return comparable(value.tolist())
    if isinstance(value, dict):
        return {key: comparable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [comparable(item) for item in value]
    return "nan" if isinstance(value, float) and value != value else value


@given(MESSAGES)
def test_every_message_survives_the_wire_and_a_plain_msgpack_reader_sees_lists_of_numbers(
    message: wire.Message,
) -> None:
    parts = topic, payload = wire.encode(message)
    assert comparable(wire.decode(parts)) == comparable(message)
    body = msgpack.unpackb(payload)
    assert topic.decode().split("/") == [message.arm, body["kind"]]
    assert body["v"] == 1
    assert type(body["t"]) is float
    assert body["t"] == pytest.approx(message.envelope.t_ns / 1e9)
    if body["kind"] in ("frame", "torque"):
        lists = [value for value in body.values() if isinstance(value, list)]
        assert lists
        assert all(type(item) in (int, float) for items in lists for item in items)


@given(st.lists(st.binary(max_size=200), max_size=4))
@example([b"a/frame", b""])
def test_any_parts_decode_or_raise_wire_error(parts: list[bytes]) -> None:
    with contextlib.suppress(wire.WireError):
        wire.decode(parts)


@given(MESSAGES, st.data())
def test_a_message_with_one_field_replaced_decodes_or_raises_wire_error(
    message: wire.Message, data: st.DataObject
) -> None:
    topic, payload = wire.encode(message)
    body = msgpack.unpackb(payload)
    body[data.draw(st.sampled_from(sorted(body)))] = data.draw(PLAIN)
    with contextlib.suppress(wire.WireError):
        assert wire.encode(wire.decode([topic, msgpack.packb(body)]))[0] == topic


@pytest.mark.parametrize(
    "payload",
    [
        b"\x91" * 100_000,  # nested lists
        b"\x81\xa1x" * 100_000,  # nested maps
        b"\xdd\xff\xff\xff\xff",  # a list said to have four thousand million elements
        b"\xdb\xff\xff\xff\xff",
        b"\xd6\xff\x00\x00\x00\x01",  # a time stamp extension
        b"\xc7\x00\x05",  # an empty extension
        b"\x81\x01\x01",  # a key that is no text
        b"\x81\xa1\xff\x01",  # text that is no UTF-8
        b"\x00" * (wire.MAX_MESSAGE + 1),
    ],
)
def test_hostile_payloads_are_refused(payload: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.decode([b"a/meta", payload])
    with pytest.raises(wire.WireError):
        control.decode_request(payload)
    with pytest.raises(wire.WireError):
        control.decode_reply(payload)


def test_only_replies_hold_long_texts() -> None:
    text = "x" * (wire.MAX_TEXT + 1)
    assert control.decode_reply(control.encode_result(1, {"robot": text})).result == {"robot": text}
    with pytest.raises(wire.WireError, match="a text of more than"):
        control.decode_request(control.encode_request(control.Request(1, "submit", {"kind": text})))
    with pytest.raises(wire.WireError, match="a text of more than"):
        wire.unpack_map(wire.pack_map({"x": text}))


def frame_body(**changes: Any) -> bytes:
    frame = JointFrame(1, 2, 3, q=np.zeros(2), tau=np.zeros(2))
    body = msgpack.unpackb(wire.encode_frame(b"a/frame", "acquisition", 1, "sim", frame)[1])
    return msgpack.packb({**body, **changes})


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"q": [1.0, "2.0"]}, "q"), ({"q": [1.0, True]}, "q"), ({"q": [1.0, None]}, "q"), ({"tau": [1.0]}, "tau"),
        ({"q": [], "tau": []}, "joints"), ({"valid": [1, 2.5]}, "valid"),
        ({"status_word": [1, 2**63]}, "status_word"), ({"seq": True}, "seq"), ({"t_ns": 2**63}, "t_ns"),
        ({"kind": "torque"}, "kind"), ({"q": [0.0] * 65, "tau": [0.0] * 65}, "joints"), ({"valid": [1]}, "valid"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(wire.WireError, match=word):
        wire.decode([b"a/frame", frame_body(**changes)])


def test_lists_of_an_estimate_are_of_one_length_each() -> None:
    one, envelope = np.ones(1), wire.Envelope("estimator", 1, 2, 3, "sim", 4)
    values: dict[str, Any] = dict.fromkeys(("theta", "validated", "std", "lam", "innovation", "sigma"), one)
    counts = dict.fromkeys(("frames", "used", "masked", "lost", "resets"), 0)
    flags = {"status": ("stale",), "excited": one > 0.0, "delay_s": 0.0, "hash": ""}
    for name in ("std", "status", "excited", "sigma"):
        longer = {name: ("stale", "stale") if name == "status" else np.ones(2, bool if name == "excited" else float)}
        with pytest.raises(wire.WireError, match=name):
            wire.decode(wire.encode(wire.EstimateMessage("a", envelope, **values | flags | counts | longer)))


@pytest.mark.parametrize("version", [2, "1", None, 1.0, True])
def test_another_major_version_is_told_apart_and_an_added_field_is_compatible(version: object) -> None:
    with pytest.raises(wire.WireVersionError):
        wire.decode([b"a/frame", frame_body(v=version)])
    assert isinstance(wire.decode([b"a/frame", frame_body(extra={"deep": [1, [2]]})]), wire.FrameMessage)


@pytest.mark.parametrize(
    "topic", [b"a/frames", b"a", b"/frame", b"a/b/frame", b"\xff/frame", b"1a/frame", b"a/frame\n"]
)
def test_a_wrong_topic_is_refused(topic: bytes) -> None:
    with pytest.raises(wire.WireError, match="topic"):
        wire.decode([topic, frame_body()])


@pytest.mark.parametrize("name", ["", "a/b", "a b", "1a", "ä", "a" * 33, "a\n", "a.b"])
def test_names_that_would_break_topics_are_refused(name: str) -> None:
    with pytest.raises(wire.WireError):
        wire.check_arm_name(name)


# ---------------------------------------------------------------- control


@given(st.integers(-(2**61), 2**61), st.text(max_size=20), st.dictionaries(st.text(max_size=8), PLAIN, max_size=3))
def test_requests_survive_the_wire(id: int, verb: str, args: dict[str, Any]) -> None:
    again = control.decode_request(control.encode_request(control.Request(id, verb, args)))
    assert (again.id, again.verb, comparable(again.args)) == (id, verb, comparable(args))


@given(st.binary(max_size=100) | PLAIN.map(msgpack.packb))
def test_any_bytes_are_a_request_or_raise_wire_error(data: bytes) -> None:
    for decode in (control.decode_request, control.decode_reply):
        with contextlib.suppress(wire.WireError):
            decode(data)


def test_replies_carry_results_and_errors() -> None:
    assert control.decode_reply(control.encode_result(7, {"x": [1.5]})).result == {"x": [1.5]}
    reply = control.decode_reply(control.encode_error(7, "unknown_verb", "no such verb"))
    assert (reply.id, reply.error.type, reply.error.message) == (7, "unknown_verb", "no such verb")


def test_what_cannot_be_sent_is_a_wire_error() -> None:
    with pytest.raises(wire.WireError):
        control.encode_request(control.Request(1, "activate", {"theta": object()}))
    with pytest.raises(wire.WireError, match="limit"):
        control.encode_request(control.Request(1, "activate", {"theta": [1.5] * 100_000}))


def test_requests_are_checked_before_they_reach_a_process() -> None:
    arms = ("left", "right")
    assert control.check_request(control.Request(1, "snapshot", {"arm": "left"}), arms).args == {"arm": "left"}
    assert control.check_request(control.Request(1, "snapshot"), ("only",)).args == {"arm": "only"}
    for request, type, word in (
        (control.Request(1, "explode"), "unknown_verb", "snapshot"),
        (control.Request(1, "snapshot"), "bad_argument", "left, right"),
        (control.Request(1, "snapshot", {"arm": "middle"}), "bad_argument", "middle"),
        (control.Request(1, "snapshot", {"arm": 5}), "bad_argument", "5"),
        (control.Request(1, "ping", {"arm": "left"}), "bad_argument", "arm"),
        (control.Request(1, "record", {"arm": "left", "acton": "start"}), "bad_argument", "action"),
    ):
        with pytest.raises(control.ControlError, match=word) as caught:
            control.check_request(request, arms)
        assert caught.value.type == type
    assert all(verb.help for verb in control.VERBS.values())


#: Messages as the first version of the wire format sent them.
SENT = {
    "frame": (
        "jKF2AaRraW5kpWZyYW1lo3NyY6thY3F1aXNpdGlvbqVlcG9jaM8ABmFMOo0gAKNzZXEHoXTLP/O+dsi0OVikdF9uc85JjViApWNsb2Nr"
        "o3Npbal0X2hvc3RfbnNjoXGSyz/gAAAAAAAAy7/wAAAAAAAAomRxkss/0AAAAAAAAMt/+AAAAAAAAKV2YWxpZJIBAA=="
    ),
    "estimate": (
        "3gAYoXYBpGtpbmSoZXN0aW1hdGWjc3JjqWVzdGltYXRvcqVlcG9jaM8ABmFMOo0gAKNzZXEHoXTLP/O+dsi0OVikdF9uc85JjViApWNs"
        "b2Nro3Npbal0X2hvc3RfbnNjpXRoZXRhkss/+AAAAAAAAMt/+AAAAAAAAKl2YWxpZGF0ZWSSyz/wAAAAAAAAy0AAAAAAAAAAo3N0ZJLL"
        "P7mZmZmZmZrLP8mZmZmZmZqmc3RhdHVzkqllc3RpbWF0ZWSlc3RhbGWnZXhjaXRlZJIBAKNsYW2Syz/vrhR64Ueuyz/wAAAAAAAAqmlu"
        "bm92YXRpb26Syz/gAAAAAAAAy3/4AAAAAAAApXNpZ21hkss/uZmZmZmZmss/uZmZmZmZmqdkZWxheV9zyz+pmZmZmZmapmZyYW1lcwmk"
        "dXNlZAimbWFza2VkAaRsb3N0AKZyZXNldHMCpGhhc2iiYWI="
    ),
}


@pytest.mark.parametrize("kind", SENT)
def test_messages_of_the_first_version_are_read_and_sent_to_the_byte(kind: str) -> None:
    parts = [f"a/{kind}".encode(), base64.b64decode(SENT[kind])]
    message = wire.decode(parts)
    assert (message.envelope.epoch, message.envelope.t_ns) == (1795829888000000, 1234000000)
    assert wire.encode(message) == parts
