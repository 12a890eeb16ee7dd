"""Export of recordings to ROS 2, Foxglove and CSV.

`ros2` is an MCAP file of `sensor_msgs/msg/JointState` in CDR (OMG DDS-XTypes 1.3, section 7.4, little endian),
`foxglove` one of `foxglove.JointStates` in JSON, and `csv` has one line per sample.  Unmeasured channels are empty
arrays, missing keys or empty fields; a missing value is NaN in `ros2`.  Times are Unix times where the recording has
the offset of its clock, and otherwise that clock's.
"""

import csv
import io
import json
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from mcap.writer import CompressionType, Writer

from drivers.files.atomic_write import atomic_write
from drivers.files.recordings.data import Recording
from drivers.files.recordings.format import RecordingExistsError, RecordingFormatError, RecordingWriteError
from drivers.files.recordings.joint_states import JOINT_STATES, JOINT_STATES_SCHEMA, STATE_FIELDS, joint_states
from drivers.frame import CHANNELS
from rt_core.types import FloatArray

Form = Literal["ros2", "foxglove", "csv"]

#: Usual suffix of each form.
SUFFIXES: dict[Form, str] = {"ros2": ".ros2.mcap", "foxglove": ".foxglove.mcap", "csv": ".csv"}

_LIBRARY = "thetad"
_BILLION = 1_000_000_000
_ROS2_DEFINITION = Path(__file__).with_name("joint_state.msg").read_text(encoding="utf-8")


def export_recording(recording: Recording, path: Path, form: Form, replace: bool = False) -> None:
    """Write `recording` to `path`, atomically.

    Raises `RecordingFormatError`: a time exceeds the 32 bits of seconds in ROS 2; `RecordingExistsError`: `path` exists
    and `replace` is false; `RecordingWriteError`: it cannot be written.
    """
    if path.exists() and not replace:
        raise RecordingExistsError(f"{path}: already there; choose another name or remove it")
    write: dict[Form, Callable[[Recording, BinaryIO], None]] = {"ros2": _ros2, "foxglove": _foxglove, "csv": _csv}
    try:
        with atomic_write(path) as stream:
            write[form](recording, stream)
    except OSError as error:
        raise RecordingWriteError(f"{path}: cannot be written: {error.strerror or error}") from error


def usable(recording: Recording, channel: str) -> FloatArray | None:
    """Return a channel (N, n) with invalid values as NaN; None if it was not measured."""
    values = recording.channels.get(channel)
    if values is None or recording.valid is None:
        return values
    return np.where(recording.valid, values, np.nan)


def ros_name(robot: str) -> str:
    """Return an arm's name as part of a ROS name: invalid characters become `_`, the first is a letter."""
    token = re.sub(r"[^A-Za-z0-9_]", "_", robot)
    return token if token[0].isalpha() else f"arm_{token}"


def joint_state_cdr(t_ns: int, frame_id: str, names: tuple[str, ...], fields: tuple[FloatArray, ...]) -> bytes:
    """Encode one `sensor_msgs/msg/JointState`; `fields` are position, velocity and effort, each (n,) or (0,)."""
    out = bytearray(struct.pack("<iI", *divmod(t_ns, _BILLION)))
    _string(out, frame_id)
    _align(out, 4)
    out += struct.pack("<I", len(names))
    for name in names:
        _string(out, name)
    for values in fields:
        _align(out, 4)
        out += struct.pack("<I", len(values))
        if len(values):
            _align(out, 8)
            out += np.ascontiguousarray(values, dtype="<f8").tobytes()
    return b"\x00\x01\x00\x00" + bytes(out)  # the encapsulation header does not count for alignment


def _align(out: bytearray, size: int) -> None:
    out += bytes(-len(out) % size)


def _string(out: bytearray, text: str) -> None:
    _align(out, 4)
    data = text.encode() + b"\0"
    out += struct.pack("<I", len(data)) + data


def _messages(recording: Recording) -> Iterator[tuple[int, int, list[FloatArray]]]:
    """Yield time [ns], seq, and position, velocity and effort of each sample, (0,) if not measured."""
    none = np.empty((recording.samples, 0))
    fields = [none if (values := usable(recording, name)) is None else values for name in STATE_FIELDS.values()]
    for k, (t_ns, seq) in enumerate(zip(recording.stamps.tolist(), recording.seq.tolist(), strict=True)):
        yield t_ns, seq, [of_joints[k] for of_joints in fields]


def _ros2(recording: Recording, stream: BinaryIO) -> None:
    last = int(recording.stamps[-1])
    if last // _BILLION >= 2**31:
        raise RecordingFormatError(
            f"{recording.path}: {last} ns is later than ROS 2 can tell; export as foxglove or csv"
        )
    topic = f"/{ros_name(recording.robot)}/joint_states"
    writer = _writer(stream, "ros2")
    schema = writer.register_schema("sensor_msgs/msg/JointState", "ros2msg", _ROS2_DEFINITION.encode())
    channel = writer.register_channel(topic, "cdr", schema)
    for t_ns, seq, values in _messages(recording):
        data = joint_state_cdr(t_ns, "", recording.joint_names, tuple(values))
        writer.add_message(channel, t_ns, data, t_ns, seq & 0xFFFFFFFF)
    writer.finish()


def _foxglove(recording: Recording, stream: BinaryIO) -> None:
    writer = _writer(stream, "")
    definition = json.dumps(JOINT_STATES_SCHEMA).encode()
    schema = writer.register_schema(JOINT_STATES, "jsonschema", definition)
    channel = writer.register_channel(f"{recording.robot}/joint_states", "json", schema)
    for t_ns, seq, values in _messages(recording):
        message = joint_states(t_ns, recording.joint_names, [field.tolist() for field in values])
        writer.add_message(channel, t_ns, json.dumps(message).encode(), t_ns, seq & 0xFFFFFFFF)
    writer.finish()


def _csv(recording: Recording, stream: BinaryIO) -> None:
    """Write columns `t` [s], `seq`, then each channel, `q_NAME` for each joint; last `t_unix_ns` if it is known."""
    channels = [name for name in CHANNELS if name in recording.channels]
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
    table = csv.writer(text, lineterminator="\n")
    last = [] if recording.unix_offset_ns is None else ["t_unix_ns"]
    names = [f"{channel}_{joint}" for channel in channels for joint in recording.joint_names]
    table.writerow(["t", "seq", *names, *last])
    fields = [usable(recording, channel) for channel in channels]
    values = np.hstack([field for field in fields if field is not None])
    columns = (recording.t.tolist(), recording.seq.tolist(), values.tolist(), recording.stamps.tolist())
    for t, seq, row, stamp in zip(*columns, strict=True):
        shown = ("" if value != value else repr(value) for value in row)
        table.writerow([repr(t), seq, *shown, *[stamp] * len(last)])
    text.detach()


def _writer(stream: BinaryIO, profile: str) -> Any:  # its methods are not all typed
    writer = Writer(stream, compression=CompressionType.ZSTD)
    writer.start(profile=profile, library=_LIBRARY)
    return writer
