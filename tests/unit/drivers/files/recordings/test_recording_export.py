"""Exports of a recording, read by other packages and compared with their own output."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory
from mcap_ros2.writer import Writer as Ros2Writer

from drivers.files.recordings.export import export_recording, joint_state_cdr
from drivers.files.recordings.recording import (
    Recording,
    RecordingExistsError,
    RecordingFormatError,
    RecordingWriteError,
    read_recording,
)
from service.cli._common import CliError
from tests.lab.recordings.frames import write
from tests.unit.service.cli.test_recording_commands import run

SAMPLES = 25
SEPARATOR = "=" * 80
DEFINITION = "\n".join(
    [
        "std_msgs/Header header", "string[] name", "float64[] position", "float64[] velocity", "float64[] effort",
        SEPARATOR, "MSG: std_msgs/Header", "builtin_interfaces/Time stamp", "string frame_id",
        SEPARATOR, "MSG: builtin_interfaces/Time", "int32 sec", "uint32 nanosec", "",
    ]
)  # fmt: skip


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """A recording with one invalid joint sample."""
    whole = read_recording(write(tmp_path / "rec.mcap", SAMPLES))
    valid = np.ones((SAMPLES, 2), dtype=bool)
    valid[3, 1] = False
    return replace(whole, valid=valid)


def messages(path: Path, *decoders: Any) -> list[tuple[Any, Any, Any, Any]]:
    with path.open("rb") as stream:
        return list(make_reader(stream, decoder_factories=list(decoders)).iter_decoded_messages())


def test_ros2_reads_joint_states(recording: Recording, tmp_path: Path) -> None:
    export_recording(recording, tmp_path / "out.mcap", "ros2")
    found = messages(tmp_path / "out.mcap", DecoderFactory())
    assert len(found) == SAMPLES
    for k, (schema, channel, message, state) in enumerate(found):
        assert (schema.name, schema.encoding) == ("sensor_msgs/msg/JointState", "ros2msg")
        assert (channel.topic, channel.message_encoding) == ("/arm/joint_states", "cdr")
        assert message.log_time == message.publish_time == recording.t_ns[k]
        assert message.sequence == recording.seq[k]
        assert state.header.stamp.sec * 10**9 + state.header.stamp.nanosec == recording.t_ns[k]
        assert state.name == ["shoulder", "slide"]
        for field, name in (("position", "q"), ("velocity", "dq"), ("effort", "tau")):
            wanted = recording.channels[name][k].copy()
            if k == 3:
                wanted[1] = np.nan
            np.testing.assert_array_equal(getattr(state, field), wanted)
    with (tmp_path / "out.mcap").open("rb") as stream:
        assert make_reader(stream).get_header().profile == "ros2"


@pytest.mark.parametrize("names", [("a",), ("ab", "abc"), ("joint_1", "joint_22", "wrist é")])
@pytest.mark.parametrize("measured", [(True, True, True), (True, False, True), (False, False, False)])
def test_cdr_equals_that_of_mcap_ros2(names: tuple[str, ...], measured: tuple[bool, ...]) -> None:
    rng = np.random.default_rng(len(names))
    fields = tuple(rng.normal(size=len(names) if there else 0) for there in measured)
    t_ns = 1_234_567_890_987_654_321
    stream = io.BytesIO()
    writer = Ros2Writer(stream)
    schema = writer.register_msgdef("sensor_msgs/msg/JointState", DEFINITION)
    header = {"stamp": {"sec": t_ns // 10**9, "nanosec": t_ns % 10**9}, "frame_id": "base"}
    state = {"header": header, "name": list(names)}
    state |= {key: values.tolist() for key, values in zip(("position", "velocity", "effort"), fields, strict=True)}
    writer.write_message("/joint_states", schema, state, log_time=0)
    writer.finish()
    stream.seek(0)
    ((_, _, message),) = make_reader(stream).iter_messages()
    assert joint_state_cdr(t_ns, "base", names, fields) == message.data


def test_foxglove_reads_joint_states(recording: Recording, tmp_path: Path) -> None:
    export_recording(recording, tmp_path / "out.mcap", "foxglove")
    with (tmp_path / "out.mcap").open("rb") as stream:
        found = list(make_reader(stream).iter_messages())
    assert len(found) == SAMPLES
    for k, (schema, channel, message) in enumerate(found):
        assert schema is not None
        assert (schema.name, schema.encoding) == ("foxglove.JointStates", "jsonschema")
        assert (channel.topic, channel.message_encoding) == ("arm/joint_states", "json")
        state = json.loads(message.data, parse_constant=pytest.fail)
        assert state["timestamp"]["sec"] * 10**9 + state["timestamp"]["nsec"] == recording.t_ns[k] == message.log_time
        assert [joint["name"] for joint in state["joints"]] == ["shoulder", "slide"]
        for i, joint in enumerate(state["joints"]):
            given = {"position": "q", "velocity": "dq", "effort": "tau"} if (k, i) != (3, 1) else {}
            assert {key: value for key, value in joint.items() if key != "name"} == {
                field: recording.channels[name][k, i] for field, name in given.items()
            }


#: Fields of `foxglove.JointStates` and their types, as the Foxglove SDK's JSON schema of that name has them.
JOINT_STATES = {
    "timestamp": {"sec": "integer", "nsec": "integer"},
    "joints": {"name": "string"} | dict.fromkeys(("position", "velocity", "acceleration", "effort"), "number"),
}


def test_the_schema_is_that_of_foxglove(recording: Recording, tmp_path: Path) -> None:
    """Foxglove recognises the message by the names of schema and fields."""
    export_recording(recording, tmp_path / "out.mcap", "foxglove")
    with (tmp_path / "out.mcap").open("rb") as stream:
        summary = make_reader(stream).get_summary()
    assert summary is not None
    (schema,) = summary.schemas.values()
    described = json.loads(schema.data)
    assert (described["title"], described["type"]) == ("foxglove.JointStates", "object")
    assert set(described["required"]) == set(described["properties"]) == set(JOINT_STATES)
    stamp, joints = described["properties"]["timestamp"], described["properties"]["joints"]
    assert (stamp["type"], joints["type"], joints["items"]["type"]) == ("object", "array", "object")
    for found, known in ((stamp, JOINT_STATES["timestamp"]), (joints["items"], JOINT_STATES["joints"])):
        assert {name: entry["type"] for name, entry in found["properties"].items()}.items() <= known.items()
    assert joints["items"]["required"] == ["name"]


@pytest.mark.parametrize("form", [None, "ros2", "foxglove"])
def test_the_summary_has_what_viewers_need(form: Any, recording: Recording, tmp_path: Path) -> None:
    """PlotJuggler and Foxglove read counts, encodings, schemas and index at the end of a file.

    PlotJuggler requires a summary and a schema for each channel, with the encodings `json` or `cdr`, and JSON without
    NaN or infinity.
    """
    path = recording.path
    if form is not None:
        path = tmp_path / "out.mcap"
        export_recording(recording, path, form)
    assert path is not None
    data = path.read_bytes()
    assert data[:8] == data[-8:] == b"\x89MCAP0\r\n"
    with path.open("rb") as stream:
        summary = make_reader(stream, validate_crcs=True).get_summary()
        assert summary is not None
        assert summary.statistics is not None
        (channel,) = summary.channels.values()
        assert summary.statistics.channel_message_counts == {channel.id: SAMPLES}
        schema = summary.schemas[channel.schema_id]
        assert schema.id != 0
        assert (channel.message_encoding, schema.encoding) in {("json", "jsonschema"), ("cdr", "ros2msg")}
        assert sum(sum(index.message_index_offsets.values()) > 0 for index in summary.chunk_indexes) >= 1
        assert {index.compression for index in summary.chunk_indexes} == {"zstd"}
        for _, _, message in make_reader(stream).iter_messages():
            if channel.message_encoding == "json":
                assert isinstance(json.loads(message.data, parse_constant=pytest.fail), dict)
            else:
                assert message.data[:4] == b"\x00\x01\x00\x00"  # CDR, little endian


def test_table_holds_every_bit(recording: Recording, tmp_path: Path) -> None:
    export_recording(recording, tmp_path / "out.csv", "csv")
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    columns = [f"{channel}_{joint}" for channel in ("q", "dq", "tau") for joint in ("shoulder", "slide")]
    assert list(rows[0]) == ["t", "seq", *columns]
    assert [float(row["t"]) for row in rows] == recording.t.tolist()
    assert [int(row["seq"]) for row in rows] == recording.seq.tolist()
    for k, row in enumerate(rows):
        assert float(row["tau_shoulder"]) == recording.channels["tau"][k, 0]
        assert row["q_slide"] == ("" if k == 3 else repr(float(recording.channels["q"][k, 1])))


def test_unmeasured_channels_are_left_out(recording: Recording, tmp_path: Path) -> None:
    bare = replace(recording, channels={"q": recording.channels["q"]}, valid=None)
    export_recording(bare, tmp_path / "ros.mcap", "ros2")
    assert all(len(m[3].effort) == len(m[3].velocity) == 0 for m in messages(tmp_path / "ros.mcap", DecoderFactory()))
    export_recording(bare, tmp_path / "fox.mcap", "foxglove")
    with (tmp_path / "fox.mcap").open("rb") as stream:
        joints = [json.loads(m[2].data)["joints"] for m in make_reader(stream).iter_messages()]
    assert all(set(joint) == {"name", "position"} for state in joints for joint in state)


def test_names_that_ros_does_not_allow(recording: Recording, tmp_path: Path) -> None:
    named = replace(recording, meta=replace(recording.meta, robot="6.axis-b"))
    export_recording(named, tmp_path / "out.mcap", "ros2")
    assert messages(tmp_path / "out.mcap", DecoderFactory())[0][1].topic == "/arm_6_axis_b/joint_states"


def test_failed_exports_leave_no_file(recording: Recording, tmp_path: Path) -> None:
    (tmp_path / "there.csv").write_text("mine")
    with pytest.raises(RecordingExistsError, match="already there"):
        export_recording(recording, tmp_path / "there.csv", "csv")
    with pytest.raises(RecordingWriteError, match=r"no/out\.csv: cannot be written: No such file"):
        export_recording(recording, tmp_path / "no" / "out.csv", "csv")
    late = replace(recording, t_ns=recording.t_ns + 2**62)
    with pytest.raises(RecordingFormatError, match="later than ROS 2 can tell"):
        export_recording(late, tmp_path / "late.mcap", "ros2")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rec.mcap", "there.csv"]


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "rec.mcap", 100)
    assert run("recordings", "export", path, "--as", "csv", "--span", "0:0.5", "--json") == 0
    expected = {"path": str(tmp_path / "rec.csv"), "source": str(path), "form": "csv", "samples": 50}
    assert json.loads(capsys.readouterr().out) == expected
    assert len((tmp_path / "rec.csv").read_text().splitlines()) == 51
    assert run("recordings", "export", path, "--as", "ros2") == 0
    assert "100 samples of arm" in capsys.readouterr().out
    assert (tmp_path / "rec.ros2.mcap").exists()
    with pytest.raises(RecordingExistsError):
        run("recordings", "export", path, "--as", "csv")
    assert run("recordings", "export", path, "--as", "csv", "--force") == 0
    with pytest.raises(CliError, match="is the recording itself"):
        run("recordings", "export", path, "--as", "foxglove", "-o", path, "--force")
