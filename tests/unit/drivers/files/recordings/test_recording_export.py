"""Exports of a recording, read by other packages and compared with their own output."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory

from drivers.files.importing._mapping import parse_mapping
from drivers.files.importing.importer import load_data
from drivers.files.recordings.export import export_recording
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
OFFSET_NS = 90_000_123_456_789


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """A recording with one invalid joint sample."""
    whole = read_recording(write(tmp_path / "rec.mcap", SAMPLES))
    valid = np.ones((SAMPLES, 2), dtype=bool)
    valid[3, 1] = False
    return replace(whole, valid=valid)


@pytest.fixture
def dated(recording: Recording) -> Recording:
    """The same, of a clock whose offset from Unix time was recorded."""
    return replace(recording, metadata={"unix_offset_ns": str(OFFSET_NS)})


def messages(path: Path, *decoders: Any) -> list[tuple[Any, Any, Any, Any]]:
    with path.open("rb") as stream:
        return list(make_reader(stream, decoder_factories=list(decoders)).iter_decoded_messages())


def test_ros2_reads_joint_states(recording: Recording, dated: Recording, tmp_path: Path) -> None:
    named = replace(dated, meta=replace(recording.meta, robot="6.axis-b"))  # no name that ROS allows
    export_recording(named, tmp_path / "out.mcap", "ros2")
    found = messages(tmp_path / "out.mcap", DecoderFactory())
    assert len(found) == SAMPLES
    for k, (schema, channel, message, state) in enumerate(found):
        assert (schema.name, schema.encoding) == ("sensor_msgs/msg/JointState", "ros2msg")
        assert (channel.topic, channel.message_encoding) == ("/arm_6_axis_b/joint_states", "cdr")
        assert message.log_time == message.publish_time == recording.t_ns[k] + OFFSET_NS
        assert message.sequence == recording.seq[k]
        assert state.header.stamp.sec * 10**9 + state.header.stamp.nanosec == message.log_time
        assert state.name == ["shoulder", "slide"]
        for field, name in (("position", "q"), ("velocity", "dq"), ("effort", "tau")):
            wanted = recording.channels[name][k].copy()
            if k == 3:
                wanted[1] = np.nan
            np.testing.assert_array_equal(getattr(state, field), wanted)
    with (tmp_path / "out.mcap").open("rb") as stream:
        assert make_reader(stream).get_header().profile == "ros2"


def test_foxglove_reads_joint_states(recording: Recording, tmp_path: Path) -> None:
    export_recording(recording, tmp_path / "out.mcap", "foxglove")
    with (tmp_path / "out.mcap").open("rb") as stream:
        found = list(make_reader(stream).iter_messages())
    assert len(found) == SAMPLES
    for k, (schema, channel, message) in enumerate(found):
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


def test_table_holds_every_bit(recording: Recording, dated: Recording, tmp_path: Path) -> None:
    export_recording(dated, tmp_path / "out.csv", "csv")
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    columns = [f"{channel}_{joint}" for channel in ("q", "dq", "tau") for joint in ("shoulder", "slide")]
    assert list(rows[0]) == ["t", "seq", *columns, "t_unix_ns"]
    assert [int(row["t_unix_ns"]) for row in rows] == (recording.t_ns + OFFSET_NS).tolist()
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
    with pytest.raises(RecordingExistsError):
        run("recordings", "export", path, "--as", "csv")
    assert run("recordings", "export", path, "--as", "csv", "--force") == 0
    with pytest.raises(CliError, match="is the recording itself"):
        run("recordings", "export", path, "--as", "foxglove", "-o", path, "--force")


def test_a_ros2_bag_is_imported_by_the_names_of_its_joints(recording: Recording, tmp_path: Path) -> None:
    path = tmp_path / "bag.mcap"
    whole = replace(recording, valid=None)
    export_recording(whole, path, "ros2")
    first, second = recording.joint_names
    text = (
        f'format = 1\nname = "bag"\njoints = ["{second}", "{first}"]\n[time]\ncolumn = "t_ns"\nunit = "ns"\n'
        + "".join(
            f'[{channel}]\ncolumns = "{column}"\nunit = "{unit}"\n'
            for channel, column, unit in (("q", "position", "rad"), ("tau", "effort", "N*m"))
        )
    )
    mapping = parse_mapping((text + '[checks]\nplausibility = "warn"\n').encode())
    found, said = load_data(path, mapping)
    assert "not closed" not in str(said["warnings"])
    assert found.joint_names == (second, first)
    np.testing.assert_array_equal(found.t_ns, whole.t_ns)
    for channel in ("q", "tau"):
        np.testing.assert_array_equal(found.channels[channel], whole.channels[channel][:, ::-1])
    path.write_bytes(path.read_bytes()[:-1])
    assert f"was not closed: {SAMPLES} messages were read" in str(load_data(path, mapping)[1]["warnings"])
