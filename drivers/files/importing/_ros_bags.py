"""Joint states of ROS 2 bags, from MCAP and SQLite files, without ROS."""

import sqlite3
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from drivers.files.importing.data_source import ArraySource, DataError
from drivers.files.recordings.mcap_scan import Scan
from rt_core.types import FloatArray

_JOINT_STATE = "sensor_msgs/msg/JointState"
_ZSTD = b"\x28\xb5\x2f\xfd"  # the beginning of what zstd has compressed
BAG_SUFFIXES = (".mcap", ".db3")


def bag_file(folder: Path) -> Path:
    """Return the only file with messages of a bag, which is a folder; raises `DataError` if there is not one."""
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in BAG_SUFFIXES and file.is_file())
    if not files:
        raise DataError(f"{folder}: a directory without a ROS 2 bag ({', '.join(BAG_SUFFIXES)}); name a file")
    if len(files) > 1:
        raise DataError(f"{folder}: a directory with {len(files)} files of a bag; join them with `ros2 bag convert`")
    return files[0]


def read_mcap_bag(scan: Scan) -> ArraySource | None:
    """Read the joint states of a bag; None if the file holds none."""
    path = scan.path
    messages: dict[str, list[bytes]] = {}
    for content in scan.contents():
        schemas = {i: scan.schemas[c.schema_id].name for i, c in scan.channels.items() if c.schema_id in scan.schemas}
        for channel, _, _, _, data in content.messages:
            if schemas.get(channel) == _JOINT_STATE:
                messages.setdefault(scan.channels[channel].topic, []).append(data)
    if not messages:
        return None
    if scan.corrupt:
        raise DataError(f"{path}: a damaged ROS 2 bag: {scan.damage}; `mcap recover` keeps what is intact")
    source = _joint_states(path, messages)
    if not scan.whole:
        count = sum(map(len, messages.values()))
        source.warnings = (f"the ROS 2 bag was not closed: {count} messages were read; {scan.damage}",)
    return source


def read_sqlite_bag(path: Path) -> ArraySource:
    """Read the joint states of a bag; raises `DataError` if it is damaged or holds none."""
    messages: dict[str, list[bytes]] = {}
    # what a recorder that was killed wrote last is in these, and SQLite has to read them, too
    beside = [f"{path.name}{end}" for end in ("-wal", "-journal") if _size(Path(f"{path}{end}"))]
    try:
        mode = "mode=ro" if beside else "mode=ro&immutable=1"
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True)
        try:
            rows = connection.execute(
                "SELECT name, data FROM messages JOIN topics ON topics.id = topic_id WHERE type = ? "
                "ORDER BY timestamp, messages.id", (_JOINT_STATE,)
            )  # fmt: skip
            for topic, data in rows:
                if not isinstance(data, bytes):
                    raise TypeError(f"a message of {topic} is not a blob")
                messages.setdefault(str(topic), []).append(data)
            types = sorted({str(name) for (name,) in connection.execute("SELECT type FROM topics")})
        finally:
            connection.close()
    except (sqlite3.Error, TypeError, ValueError, OverflowError) as error:
        how = f"; copy it with {beside[0]} to a folder that can be written, and import it there" if beside else ""
        raise DataError(f"{path}: not a complete ROS 2 bag: {error}{how}") from error
    if not messages:
        raise DataError(f"{path}: a ROS 2 bag without messages of {_JOINT_STATE}; topics: {', '.join(types) or 'none'}")
    source = _joint_states(path, messages)
    if beside:
        source.warnings = (f"the ROS 2 bag was not closed: {beside[0]} was read, too",)
    return source


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _joint_states(path: Path, messages: Mapping[str, list[bytes]]) -> ArraySource:
    """Return `t` [s], `t_ns`, `position`, `velocity`, `effort` (N, n) of messages, by `joint_names`."""
    if len(messages) > 1:
        raise DataError(
            f"{path}: a ROS 2 bag with joint states on {', '.join(sorted(messages))}; keep one topic "
            "(`ros2 bag convert`, or `mcap filter`)"
        )
    ((topic, found),) = messages.items()
    names: tuple[str, ...] | None = None
    stamps: list[int] = []
    columns: dict[str, list[FloatArray]] = {"position": [], "velocity": [], "effort": []}
    for number, data in enumerate(found):
        try:
            stamp, of_message, values = _decode_joint_state(data)
        except (struct.error, UnicodeDecodeError, ValueError) as error:
            raise DataError(f"{path}: message {number} of {topic} is no {_JOINT_STATE}: {error}") from error
        names = of_message if names is None else names
        if of_message != names:
            raise DataError(
                f"{path}: message {number} of {topic} is of joints {', '.join(of_message)}, the first of "
                f"{', '.join(names)}: several publishers share the topic; keep one"
            )
        stamps.append(stamp)
        for name, value in values.items():
            columns[name].append(value if value.size else np.full(len(names), np.nan))
    t_ns = np.array(stamps, dtype=np.int64)
    arrays: dict[str, Any] = {"t": (t_ns - t_ns[0]) * 1e-9, "t_ns": t_ns}
    for name, rows in columns.items():
        table = np.array(rows)
        if np.isfinite(table).any():
            arrays[name] = table
    source = ArraySource(path, list(arrays), lambda name: arrays[name])
    source.joint_names = names or ()
    return source


def _decode_joint_state(data: bytes) -> tuple[int, tuple[str, ...], dict[str, FloatArray]]:
    """Return stamp [ns], joint names and fields of a message in CDR (OMG DDS-XTypes 7.4, plain CDR, version 1)."""
    if data.startswith(_ZSTD):
        raise ValueError("it is compressed; write the bag without compression (`ros2 bag convert`)")
    if len(data) < 4:
        raise ValueError("it ends within its head")
    order = "<" if data[1] & 1 else ">"
    body = data[4:]
    at = 0

    def number(code: str, size: int) -> int:
        nonlocal at
        at += -at % size
        (value,) = struct.unpack_from(order + code, body, at)
        at += size
        return int(value)

    def text() -> str:
        nonlocal at
        length = number("I", 4)
        value = body[at : at + length]
        if len(value) < length:
            raise ValueError("the message ends within a name")
        at += length
        return value.rstrip(b"\0").decode()

    seconds, nanoseconds = number("i", 4), number("I", 4)
    text()  # frame
    count = number("I", 4)
    if count > len(body):
        raise ValueError(f"{count} joints")
    names = tuple(text() for _ in range(count))
    fields: dict[str, FloatArray] = {}
    for name in ("position", "velocity", "effort"):
        size = number("I", 4)
        if size not in (0, count):
            raise ValueError(f"{name} has {size} values for {count} joints")
        at += -at % 8 if size else 0
        fields[name] = np.frombuffer(body, dtype=np.dtype(order + "f8"), count=size, offset=at).astype(np.float64)
        at += 8 * size
    return seconds * 1_000_000_000 + nanoseconds, names, fields
