"""What of a daemon's messages a viewer gets to see."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mcap.reader import make_reader

from drivers.files.recordings.export import export_recording
from drivers.files.recordings.recording import RecordingMeta, RecordingWriter, read_recording
from service.bridge._schemas import Stream
from service.bridge.conversion import Decimation, MessageConverter
from service.protocol.messages import BodyMessage
from tests.lab.bridge.publisher import CYCLE_NS, START_NS, Arm

ALL_HZ = 1e6


def shaped(shaper: MessageConverter, *messages: Any) -> dict[str, list[dict[str, Any]]]:
    """What is to be shown of messages, by topic, as JSON has it."""
    found: dict[str, list[dict[str, Any]]] = {}
    for message in messages:
        for each in shaper.take(message):
            found.setdefault(each.topic, []).append(json.loads(json.dumps(each.content, allow_nan=False)))
    return found


def taken(shaper: MessageConverter) -> dict[str, Stream]:
    streams = {stream.topic: stream for stream in shaper.fresh}
    shaper.fresh.clear()
    return streams


def test_frames_are_the_messages_of_recordings_and_their_exports(tmp_path: Path) -> None:
    """So that a layout that shows the one shows the other: topics, names of the schemas, fields, values."""
    arm = Arm()
    frames = [arm.frame(0), arm.frame(1, valid=[True, False]), arm.frame(2)]
    shaper = MessageConverter(ALL_HZ)
    live = shaped(shaper, *arm.meta(), *frames)
    streams = taken(shaper)
    meta = RecordingMeta("demo", arm.joints, ("rad", "m"), 1000.0, "dc")
    with RecordingWriter(tmp_path / "rec.mcap", meta) as writer:
        for message in frames:
            writer.write(message.frame)
    export_recording(read_recording(tmp_path / "rec.mcap"), tmp_path / "out.mcap", "foxglove")
    for name, topic in (("rec.mcap", "demo/frame"), ("out.mcap", "demo/joint_states")):
        with (tmp_path / name).open("rb") as stream:
            recorded = list(make_reader(stream).iter_messages())
        assert len(recorded) == len(live[topic]) == len(frames)
        for k, (schema, channel, message) in enumerate(recorded):
            assert (channel.topic, schema.name) == (topic, streams[topic].name)
            described = json.loads(schema.data)
            described["properties"].get("t", {}).pop("description", None)  # on the source's clock, or since the start
            streams[topic].schema["properties"].get("t", {}).pop("description", None)
            assert described == streams[topic].schema
            content = json.loads(message.data)
            if topic == "demo/frame":
                assert live[topic][k]["t"] == (START_NS + k * CYCLE_NS) * 1e-9
                content["t"] = live[topic][k]["t"]
            assert content == live[topic][k]
    assert live["demo/joint_states"][1]["joints"][1].keys() == {"name"}  # of an invalid one nothing else


def test_estimates_have_names_and_bounds_and_no_numbers_without_support() -> None:
    arm = Arm()
    message = arm.estimate(5)
    (found,) = shaped(MessageConverter(ALL_HZ), *arm.meta(), message)["demo/estimate"]
    assert [(row["name"], row["unit"], row["status"]) for row in found["parameters"]] == [
        ("Ia1", "kg*m^2", "estimated"),
        ("fv1", "N*m*s/rad", "unestimated"),
        ("m2", "kg", "stale"),
    ]
    for k, row in enumerate(found["parameters"]):
        if row["status"] == "unestimated":
            assert {row[key] for key in ("value", "lower", "upper", "std", "validated")} == {None}
            continue
        assert row["value"] == message.theta[k]
        half = 1.959964 * message.std[k]
        assert math.isclose(row["upper"] - row["value"], half, rel_tol=1e-12)
        assert math.isclose(row["value"] - row["lower"], half, rel_tol=1e-12)
    assert [row["excited"] for row in found["parameters"]] == [True, False, False]
    assert found["joints"][0] == {"name": "turn", "lam": 0.999, "innovation": None, "sigma": 0.1}
    assert (found["frames"], found["hash"], found["seq"]) == (5, message.hash, 5)
    torque = arm.torque(3)
    (found,) = shaped(MessageConverter(ALL_HZ), torque)["demo/torque"]
    for key in ("measured", "predicted", "residual"):
        np.testing.assert_array_equal(found[key], getattr(torque, key))


def test_events_are_lines_of_the_log_and_other_bodies_go_on_as_they_are() -> None:
    arm, shaper = Arm(), MessageConverter(1.0)
    springs = [arm.body("elastic", "estimator", joints={name: {"lam": math.nan}}) for name in arm.joints]
    events = [arm.event("drift", "it has drifted"), arm.event("model_adopted", "another")]
    found = shaped(shaper, *arm.status(), *springs, *events)
    first = found["demo/event"][0]
    assert (first["event"], first["text"], first["data"]) == ("drift", "it has drifted", {"model": "m1"})
    assert [(line["level"], line["message"], line["name"]) for line in found["demo/log"]] == [
        (3, "it has drifted", "demo drift"),
        (2, "another", "demo model_adopted"),
    ]
    assert found["demo/log"][0]["timestamp"] == {"sec": START_NS // 10**9, "nsec": START_NS % 10**9}
    assert {topic for topic in found if "status" in topic} == {"demo/status/acquisition", "demo/status/estimator"}
    assert [each["joints"] for each in found["demo/elastic"]] == [{name: {"lam": None}} for name in arm.joints]
    assert found.keys() <= taken(shaper).keys()


def test_fewer_a_second_of_each_arm() -> None:
    arms, shaper = (Arm("left"), Arm("right")), MessageConverter(50.0)
    for arm in arms:
        shaped(shaper, *arm.meta())
    messages = [make(k) for k in range(200) for arm in arms for make in (arm.frame, arm.torque, arm.estimate)]
    found = shaped(shaper, *messages)
    for arm in arms:
        for kind in ("frame", "joint_states", "torque", "estimate"):
            assert len(found[f"{arm.name}/{kind}"]) == 10
    assert shaper.left_out == len(messages) - 2 * 3 * 10
    assert shaper.counts["frame"] == 400


def test_names_count_only_for_the_start_that_they_are_of() -> None:
    """After a restart with another arm, frames wait for the new names, which come within a second."""
    old, new, shaper = Arm(), Arm(epoch=2, joints=("a", "b", "c")), MessageConverter(ALL_HZ)
    assert shaped(shaper, old.frame(0), old.estimate(0)) == {}
    assert shaper.counts["early"] == 2
    shaped(shaper, *old.meta())
    assert taken(shaper).keys() >= {"demo/frame", "demo/estimate"}
    assert shaped(shaper, *old.meta(), new.frame(0), new.estimate(0)) == {}
    assert taken(shaper) == {}
    found = shaped(shaper, *new.meta(), new.frame(1), new.estimate(1))
    assert [joint["name"] for joint in found["demo/joint_states"][0]["joints"]] == ["a", "b", "c"]
    assert len(found["demo/estimate"]) == 1
    assert taken(shaper)["demo/frame"].schema["properties"]["q"]["minItems"] == 3


def test_what_lacks_something_is_counted_and_the_rest_goes_on() -> None:
    arm, shaper = Arm(), MessageConverter(ALL_HZ)
    more = Arm("more", joints=("a", "b", "c"))
    short = replace(more.estimate(0), lam=more.estimate(0).lam[:2])
    shaped(shaper, *more.meta())
    assert shaped(shaper, short) == {}
    assert shaper.counts.pop("unusable") == 1
    lacking = BodyMessage("demo", "meta", arm.envelope("acquisition", 0), {"joint_names": ["a"]})
    odd = BodyMessage("demo", "event", arm.envelope("estimator", 0), {"text": "no kind"})
    assert shaped(shaper, lacking, odd) == {}
    assert shaper.counts["unusable"] == 2
    assert len(shaped(shaper, *arm.meta(), arm.frame(0))) == 2


SECONDS = 4


def passed(times_ns: list[int]) -> list[int]:
    decimation = Decimation(50.0)
    found = [t_ns for t_ns in times_ns if decimation.passes("frame", 1, t_ns)]
    assert decimation.left_out == len(times_ns) - len(found)
    return found


@pytest.mark.parametrize(("source_hz", "wanted_hz"), [(1000.0, 50.0), (50.0, 50.0), (60.0, 50.0), (10.0, 10.0)])
@pytest.mark.parametrize("jitter_ns", [0, 300_000])
def test_the_rate_is_kept_and_used(source_hz: float, wanted_hz: float, jitter_ns: int) -> None:
    count = round(source_hz * SECONDS)
    times = [round(1e9 * k / source_hz) + (jitter_ns if k % 2 else 0) for k in range(count)]
    found = passed(times)
    assert len(found) <= wanted_hz * SECONDS + 1
    assert len(found) >= 0.95 * wanted_hz * SECONDS
    if source_hz % wanted_hz == 0.0 and not jitter_ns:
        assert found == times[:: round(source_hz / wanted_hz)]


def test_after_a_gap_a_start_or_a_step_back_it_goes_on_at_once_and_makes_up_for_nothing() -> None:
    times = [k * 1_000_000 for k in (*range(100), *range(1000, 1100))]
    assert passed(times) == [k * 1_000_000 for k in (0, 20, 40, 60, 80, 1000, 1020, 1040, 1060, 1080)]
    decimation = Decimation(50.0)
    assert decimation.passes("frame", 1, 10**9)
    assert not decimation.passes("frame", 1, 10**9 + 1_000_000)
    assert decimation.passes("frame", 2, 10**9 + 2_000_000)
    assert decimation.passes("frame", 2, 0)
    assert not decimation.passes("frame", 2, 1_000_000)
    assert decimation.passes("torque", 2, 1_000_000)
