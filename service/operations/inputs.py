"""Input files of operations besides models: recordings, windows of live frames, robots."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivers.files.recordings.format import RecordingFormatError, RecordingMeta, with_digest
from drivers.files.recordings.recording import Recording, read_recording
from drivers.files.recordings.span import Span
from drivers.files.recordings.writer import SLOW_CHANNELS
from drivers.files.robots.file import RobotFile, load_robot, robot_from_source
from drivers.frame import CHANNELS
from rt_core.types import BoolArray, FloatArray
from service.io.state_file import MAGIC, State, StateError, load_state
from service.operations.errors import OperationError

#: Owner in a window's file, see `service.io.state_file`.
WINDOW_OWNER = "window"
WINDOW_SUFFIX = ".window"
_FIELDS = ("robot", "rate_hz", "clock", "source", "joint_names", "units")


def open_recording(path: Path) -> Recording:
    """Read a recording, or a saved window of live frames, by its first bytes; errors as `read_recording`."""
    try:
        with path.open("rb") as stream:
            is_window = stream.read(len(MAGIC)) == MAGIC
    except OSError:
        is_window = False  # the reader reports the error
    return read_window(path) if is_window or path.suffix == WINDOW_SUFFIX else read_recording(path)


def open_robot(text: str | None) -> RobotFile:
    """Load a robot by name, path, or JSON text of `RobotFile.source`; `OperationError` without one, or for no JSON."""
    if text is None:
        raise OperationError("robot: is not given, and the job concerns no arm that has one: name a robot or an arm")
    if not text.lstrip().startswith("{"):
        return load_robot(text)
    try:
        source = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OperationError(f"robot: the description is not JSON: {error}") from None
    return robot_from_source(source, "robot")


def span_of(text: str | None) -> Span | None:
    """Read a span parameter; raises `SpanError`."""
    return None if text is None else Span.parse(text)


def window_state(
    meta: RecordingMeta, t_bus_ns: NDArray[np.int64], seq: NDArray[np.int64], channels: Mapping[str, FloatArray], *,
    t_host_ns: NDArray[np.int64] | None = None, valid: BoolArray | None = None,
) -> State:  # fmt: skip
    """Return the content of a window's file for `service.io.state_file.save_state` with owner `WINDOW_OWNER`.

    `t_bus_ns` and `seq` (N,) are those of the frames (`drivers.frame.JointFrame`); `channels` (N, n) only those that
    were measured, NaN where a value is missing; `valid` (N, n) is False where a joint's values must not be used.
    """
    state: dict[str, Any] = {
        "robot": meta.robot, "rate_hz": float(meta.rate_hz), "clock": meta.clock, "source": meta.source,
        "joint_names": "\n".join(meta.joint_names), "units": "\n".join(meta.units),
        "t_bus_ns": np.asarray(t_bus_ns, dtype=np.int64), "seq": np.asarray(seq, dtype=np.int64),
    }  # fmt: skip
    for name, array in channels.items():
        if name not in CHANNELS:
            raise ValueError(f"no channel {name!r}; there are {', '.join(CHANNELS)}")
        state[name] = np.asarray(array, dtype=np.float64)
    if t_host_ns is not None:
        state["t_host_ns"] = np.asarray(t_host_ns, dtype=np.int64)
    if valid is not None:
        state["valid"] = np.asarray(valid, dtype=np.bool_)
    return state


def read_window(path: Path) -> Recording:
    """Read a window of frames, with the same result as for a file of the recorder; raises `RecordingFormatError`."""
    try:
        state = load_state(path, WINDOW_OWNER)
    except StateError as error:
        raise RecordingFormatError(f"{error}: this window of frames cannot be used") from error
    try:
        return _recording(path, state)
    except KeyError as error:
        raise RecordingFormatError(f"{path}: a window without {error}") from None
    except RecordingFormatError as error:
        raise RecordingFormatError(f"{path}: {error}") from None


def _recording(path: Path, state: Mapping[str, Any]) -> Recording:
    robot, rate_hz, clock, source, joints, units = (state[name] for name in _FIELDS)
    meta = RecordingMeta(
        str(robot), tuple(str(joints).split("\n")), tuple(str(units).split("\n")), float(rate_hz), str(clock),
        str(source),
    )  # fmt: skip
    t_ns, seq = _column(state["t_bus_ns"], "t_bus_ns"), _column(state["seq"], "seq")
    count = t_ns.size
    if count < 2:
        raise RecordingFormatError(f"holds {count} frames of {meta.robot}; at least two are needed")
    if seq.size != count:
        raise RecordingFormatError(f"seq has {seq.size} values for {count} frames")
    backwards = np.flatnonzero(np.diff(t_ns) <= 0)
    if backwards.size:
        raise RecordingFormatError(
            f"time stamps do not increase at {backwards.size} of {count} frames, first at frame {backwards[0] + 1}"
        )
    shape = (count, meta.n)
    valid = np.ones(shape, dtype=bool)
    if "valid" in state:
        valid = _table(state["valid"], "valid", shape, "b").copy()
    channels: dict[str, FloatArray] = {}
    for name in CHANNELS:
        if name not in state:
            continue
        array = _table(state[name], name, shape, "f")
        array = np.where(np.isfinite(array), array, np.nan)  # as in a recording, which has no infinity
        channels[name] = array
        if name not in SLOW_CHANNELS:
            valid &= np.isfinite(array)
    return Recording(
        t=(t_ns - t_ns[0]) * 1e-9, t_ns=t_ns, seq=seq, channels=channels, meta=meta,
        valid=None if valid.all() else valid, path=path, metadata=with_digest(meta.to_metadata()),
    )  # fmt: skip


def _column(array: Any, name: str) -> NDArray[np.int64]:
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype != np.int64:
        raise RecordingFormatError(f"{name} is not one whole number a frame")
    return array


def _table(array: Any, name: str, shape: tuple[int, int], kind: str) -> NDArray[Any]:
    if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype.kind != kind:
        raise RecordingFormatError(f"{name} is not one value for each of {shape[0]} frames and {shape[1]} joints")
    return array
