"""Opening of logs (CSV and other text, NPZ, NPY, MATLAB, recordings), as float64, or int64 for integers."""

import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io

from drivers.files.importing._mapping import CsvTable, Ref
from drivers.files.importing._text_files import TextSource
from drivers.files.importing.data_source import INDEXED, DataError, DataNotFoundError, DataSource, Progress
from drivers.files.recordings.mcap_scan import Scan
from drivers.files.recordings.recording import RecordingError, read_recording
from rt_core.types import FloatArray, IntArray

#: What the parsers of NumPy, SciPy and zipfile raise on incomplete or damaged files.
_DAMAGE = (
    ArithmeticError, EOFError, LookupError, MemoryError, NotImplementedError, OSError, RecursionError, RuntimeError,
    SyntaxError, TypeError, ValueError, struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip

TEXT_SUFFIXES = (".csv", ".txt", ".tsv", ".dat")
SUFFIXES = (*TEXT_SUFFIXES, ".npz", ".npy", ".mat", ".mcap")


class ArraySource(DataSource):
    """Named arrays: NPZ, NPY with fields, MATLAB, a recording."""

    def __init__(self, path: Path, names: list[str], read: Callable[[str], Any]) -> None:
        super().__init__(path)
        self._names = names
        self._read = read

    @property
    def names(self) -> list[str]:
        """Names of the arrays."""
        return self._names

    def load(self, refs: Iterable[Ref]) -> dict[Ref, FloatArray | IntArray]:
        """Load arrays; raises `DataError` for text, complex numbers, objects."""
        found: dict[Ref, FloatArray | IntArray] = {}
        for ref in refs:
            name = str(ref)
            match = INDEXED.fullmatch(name)
            if name in self._names or match is None:
                found[ref] = self._numbers(name)
                continue
            array = self._numbers(match[1])
            index = int(match[2])
            if array.ndim != 2 or index >= array.shape[1]:
                raise DataError(
                    f"{self.path}: {name}: array {match[1]!r} has shape {array.shape}, no column {index} (from 0)"
                )
            found[ref] = array[:, index]
        return found

    def _numbers(self, name: str) -> FloatArray | IntArray:
        array = np.asarray(self._read(name))
        if array.dtype.kind in "iu":
            return array.astype(np.int64)
        if array.dtype.kind in "fb":
            return array.astype(np.float64)
        raise DataError(f"{self.path}: array {name!r} holds {array.dtype}, not real numbers")


class MatrixSource(DataSource):
    """One array (N, k) without names; columns are numbered from 0."""

    def __init__(self, path: Path, array: FloatArray) -> None:
        super().__init__(path)
        self._array = array

    @property
    def names(self) -> list[str]:
        """Numbers of the columns."""
        return [str(i) for i in range(self._array.shape[1])]

    def has(self, ref: Ref) -> bool:
        """Return whether the array has a column of that number."""
        return isinstance(ref, int) and 0 <= ref < self._array.shape[1]

    def load(self, refs: Iterable[Ref]) -> dict[Ref, FloatArray | IntArray]:
        """Load columns."""
        return {ref: self._array[:, int(ref)] for ref in refs}


def open_data(path: Path, csv: CsvTable, masking: bool = False, progress: Progress | None = None) -> DataSource:
    """Open a log by its suffix.

    For text files: `csv` describes the layout, `masking` turns empty fields into NaN instead of an error, and
    `progress` is called while reading.  Raises `DataNotFoundError`; `DataError` if the file is empty, of an unknown
    format, incomplete, or damaged.
    """
    if path.is_dir():
        raise DataError(f"{path}: a directory; name one file of it")
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise DataNotFoundError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if size == 0:
        raise DataError(f"{path}: the file is empty")
    suffix = path.suffix.lower()
    try:
        if suffix in TEXT_SUFFIXES:
            return TextSource(path, csv, masking=masking, progress=progress)
        if suffix == ".npz":
            return _open_npz(path)
        if suffix == ".npy":
            return _open_npy(path)
        if suffix == ".mat":
            return _open_mat(path)
        if suffix == ".mcap":
            return _open_recording(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    raise DataError(f"{path}: format {suffix or 'without suffix'!r} is not known; known are {', '.join(SUFFIXES)}")


def _open_npz(path: Path) -> DataSource:
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path}: not a complete NPZ file; it was cut off, or is of another format")
    try:
        with np.load(path, allow_pickle=False) as archive:
            names = list(archive.files)
    except _DAMAGE as error:
        raise DataError(f"{path}: the NPZ file is damaged: {error}") from error

    def read(name: str) -> Any:
        try:
            with warnings.catch_warnings(action="ignore"), np.load(path, allow_pickle=False) as archive:
                return archive[name]
        except _DAMAGE as error:
            if "allow_pickle" in str(error):
                raise DataError(f"{path}: array {name!r} cannot be read without running its pickle") from error
            raise DataError(f"{path}: array {name!r} is damaged: {error}") from error

    return ArraySource(path, names, read)


def _open_npy(path: Path) -> DataSource:
    try:
        with warnings.catch_warnings(action="ignore"):
            array = np.load(path, allow_pickle=False)
    except _DAMAGE as error:
        raise DataError(f"{path}: not a complete NPY file of numbers: {error}") from error
    if array.dtype.names:
        return ArraySource(path, list(array.dtype.names), lambda name: array[name])
    if array.ndim != 2 or array.dtype.kind not in "iufb":
        raise DataError(
            f"{path}: holds {array.dtype} of shape {array.shape}; a table of numbers (N, columns) is needed"
        )
    return MatrixSource(path, array.astype(np.float64))


def _open_mat(path: Path) -> DataSource:
    try:
        with warnings.catch_warnings(action="ignore"):
            content = scipy.io.loadmat(path, simplify_cells=True)
    except NotImplementedError as error:
        raise DataError(f"{path}: a MATLAB 7.3 file; save it again with `save -v7`") from error
    except (*_DAMAGE, scipy.io.matlab.MatReadError) as error:
        raise DataError(f"{path}: not a complete MATLAB file (up to v7): {error}") from error
    arrays: dict[str, Any] = {}

    def flatten(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                flatten(f"{prefix}.{key}" if prefix else key, item)
        else:
            arrays[prefix] = value

    flatten("", {key: value for key, value in content.items() if not key.startswith("__")})
    return ArraySource(path, list(arrays), lambda name: arrays[name])


def _open_recording(path: Path) -> DataSource:
    try:
        scan = Scan(path)
        states = _joint_states(scan)
        if states is not None:
            return states
        recording = read_recording(path)
    except RecordingError as error:
        raise DataError(str(error)) from error
    arrays: dict[str, Any] = {"t": recording.t, "t_ns": recording.t_ns, "seq": recording.seq, **recording.channels}
    return ArraySource(path, list(arrays), lambda name: arrays[name])


class JointStateSource(ArraySource):
    """Joint states of a ROS 2 bag: `t` [s], `t_ns`, `position`, `velocity`, `effort` (N, n), by `joint_names`."""

    def __init__(self, path: Path, arrays: dict[str, Any], joint_names: tuple[str, ...]) -> None:
        super().__init__(path, list(arrays), lambda name: arrays[name])
        self._joint_names = joint_names

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Names of the recorded joints, in the order of the columns."""
        return self._joint_names


def _joint_states(scan: Scan) -> JointStateSource | None:
    """Read the joint states of a ROS 2 bag; None if the file holds none."""
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
    source = JointStateSource(path, arrays, names or ())
    if not scan.whole:
        source.warnings = (f"the ROS 2 bag was not closed: {len(found)} messages were read; {scan.damage}",)
    return source


_JOINT_STATE = "sensor_msgs/msg/JointState"


def _decode_joint_state(data: bytes) -> tuple[int, tuple[str, ...], dict[str, FloatArray]]:
    """Return stamp [ns], joint names and fields of a message in CDR (OMG DDS-XTypes 7.4, plain CDR, version 1)."""
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
