"""Reading and description of recordings; `docs/recordings.md` describes the file.

The names most often used can be imported from here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from drivers.files.recordings.data import Recording
from drivers.files.recordings.format import (
    METADATA_NAME,
    TOPIC_SUFFIX,
    RecordingError,
    RecordingExistsError,
    RecordingFormatError,
    RecordingMeta,
    RecordingNotFoundError,
    RecordingTruncatedError,
    RecordingWriteError,
    altered,
)
from drivers.files.recordings.mcap_scan import Scan
from drivers.files.recordings.span import Span, SpanError
from drivers.files.recordings.writer import SLOW_CHANNELS, RecordingWriter, RecoveryResult, recover
from drivers.frame import CHANNELS
from rt_core.types import FloatArray, IntArray

__all__ = [
    "Recording", "RecordingError", "RecordingExistsError", "RecordingFormatError", "RecordingInfo", "RecordingMeta",
    "RecordingNotFoundError", "RecordingTruncatedError", "RecordingWriteError", "RecordingWriter", "RecoveryResult",
    "Span", "SpanError", "read_recording", "recording_info", "recover", "write_recording",
]  # fmt: skip


@dataclass(frozen=True)
class RecordingInfo:
    """Description of one robot's frames in a file, which may be incomplete.

    `lost` counts cycles missing between sequence numbers, `gaps` their places, `restarts` the places where the count
    starts again, `time_reversals` the frames not later than the one before.
    """

    path: str
    robot: str
    joint_names: tuple[str, ...]
    units: tuple[str, ...]
    channels: tuple[str, ...]
    frames: int
    duration_s: float
    rate_hz: float
    nominal_rate_hz: float
    step_min_s: float
    step_median_s: float
    step_max_s: float
    gaps: int
    lost: int
    restarts: int
    time_reversals: int
    invalid: int
    clock: str
    source: str
    complete: bool
    damage: str
    chunks: int
    bytes: int
    sha256: str
    robots: tuple[str, ...]
    notes: tuple[str, ...] = ()
    unix_offset_ns: int | None = None  # see `Recording.unix_offset_ns`


def read_recording(path: str | Path, span: Span | None = None, robot: str | None = None) -> Recording:
    """Read one robot's frames; `span` is the part to keep, `robot` is needed if the file holds several.

    Raises `RecordingNotFoundError`; `RecordingTruncatedError`: the file is incomplete, and the message has the remedy;
    `RecordingFormatError`: it is no recording (`thetad import` reads other files), of another version, damaged, without
    frames, or its times do not increase; `SpanError`: the span lies outside the recording.
    """
    scan, recording = _read(Path(path), robot)
    if not scan.whole:
        raise RecordingTruncatedError(
            f"{path}: {scan.damage}: it was cut off, by a killed writer or a partial copy; "
            f"run `thetad recordings recover {path}` and use its output"
        )
    if scan.corrupt:
        raise RecordingFormatError(
            f"{path}: {scan.damage}; run `thetad recordings recover {path}` to keep what is intact"
        )
    if recording is None:
        raise RecordingFormatError(f"{path}: {_nothing(scan)}")
    backwards = np.flatnonzero(np.diff(recording.t_ns) <= 0)
    if backwards.size:
        row = int(backwards[0]) + 1
        raise RecordingFormatError(
            f"{path}: time stamps do not increase at {backwards.size} of {recording.samples} frames, first at frame "
            f"{row} (t = {recording.t[row]:.6f} s after {recording.t[row - 1]:.6f} s); the frames are shuffled, "
            f"repeated, or the clock was set back"
        )
    if recording.samples < 2:
        raise RecordingFormatError(f"{path}: holds a single frame of {recording.robot}; at least two are needed")
    return recording.span(span)


def recording_info(path: str | Path, robot: str | None = None) -> RecordingInfo:
    """Describe a file, complete or not; raises as `read_recording`, except for damage or times."""
    scan, recording = _read(Path(path), robot)
    robots = tuple(sorted(_metas(scan)))
    whole = scan.whole and not scan.corrupt
    if recording is None:
        raise (RecordingFormatError if whole else RecordingTruncatedError)(f"{path}: {_nothing(scan)}")
    steps = np.diff(recording.t_ns) * 1e-9
    jumps = np.diff(recording.seq)
    duration = float(recording.t.max() - recording.t.min())
    return RecordingInfo(
        path=str(path), robot=recording.robot, joint_names=recording.joint_names, units=recording.units,
        channels=tuple(recording.channels), frames=recording.samples, duration_s=duration,
        rate_hz=len(steps) / duration if duration > 0.0 else 0.0,
        nominal_rate_hz=recording.rate_hz, step_min_s=float(steps.min()) if steps.size else 0.0,
        step_median_s=float(np.median(steps)) if steps.size else 0.0,
        step_max_s=float(steps.max()) if steps.size else 0.0, gaps=int(np.count_nonzero(jumps > 1)),
        lost=int(np.sum(jumps[jumps > 1] - 1)), restarts=int(np.count_nonzero(jumps <= 0)),
        time_reversals=int(np.count_nonzero(steps <= 0.0)),
        invalid=0 if recording.valid is None else int(np.count_nonzero(~recording.valid)),
        clock=recording.meta.clock, source=recording.meta.source, complete=whole, damage=scan.damage,
        chunks=scan.chunks, bytes=scan.size, sha256=recording.sha256, robots=robots, notes=recording.notes,
        unix_offset_ns=recording.unix_offset_ns,
    )  # fmt: skip


def write_recording(path: str | Path, recording: Recording, chunk_s: float = 0.5) -> None:
    """Write all samples to a new file; raises as `RecordingWriter`."""
    with RecordingWriter(path, recording.meta, chunk_s) as writer:
        for frame in recording.frames():
            writer.write(frame)


def _nothing(scan: Scan) -> str:
    reason = f"; {scan.damage}" if scan.damage else ""
    return f"holds no complete frame of a robot{reason}"


def _metas(scan: Scan) -> dict[str, Mapping[str, str]]:
    return {r.metadata.get("robot", ""): r.metadata for r in scan.metadata if r.name == METADATA_NAME}


def _read(path: Path, robot: str | None) -> tuple[Scan, Recording | None]:
    scan = Scan(path)
    collected = _Columns(path)
    meta: RecordingMeta | None = None
    for content in scan.contents():
        topics = {i: channel.topic for i, channel in scan.channels.items() if channel.topic.endswith(TOPIC_SUFFIX)}
        if not topics:
            continue
        metas = _metas(scan)
        chosen = _choose(path, robot, metas, {topic.removesuffix(TOPIC_SUFFIX) for topic in topics.values()})
        if meta is None:
            meta = _meta_of(path, metas[chosen])
        ids = {i for i, topic in topics.items() if topic == meta.topic}
        for i in ids:
            if scan.channels[i].message_encoding != "json":
                raise RecordingFormatError(
                    f"{path}: channel {meta.topic} is encoded as {scan.channels[i].message_encoding!r}, not 'json'"
                )
        collected.add([data for channel, _, _, _, data in content.messages if channel in ids], meta.n)
    if meta is None:
        if scan.whole and not scan.corrupt:
            _choose(path, robot, _metas(scan), set())
        return scan, None
    if altered(record := _metas(scan)[meta.robot]):
        scan.corrupt = True
        scan.damage = scan.damage or f"the file contradicts itself: the digest of the metadata of {meta.robot} is wrong"
    return scan, collected.recording(meta, record)


def _meta_of(path: Path, record: Mapping[str, str]) -> RecordingMeta:
    try:
        return RecordingMeta.from_metadata(record)
    except RecordingFormatError as error:
        raise RecordingFormatError(f"{path}: {error}") from None


def _choose(path: Path, robot: str | None, metas: Mapping[str, Mapping[str, str]], topics: set[str]) -> str:
    """Return the name of the robot to read."""
    if not topics:
        raise RecordingFormatError(f"{path}: an MCAP file without a channel '<robot>{TOPIC_SUFFIX}'; not a recording")
    known = sorted(topics & set(metas))
    if not known:
        raise RecordingFormatError(
            f"{path}: no metadata record {METADATA_NAME!r} for robot {', '.join(sorted(topics))}; "
            f"it was not written by thetad, or a tool has dropped the metadata"
        )
    if robot is not None:
        if robot not in known:
            raise RecordingFormatError(f"{path}: holds no robot {robot!r}; it holds {', '.join(known)}")
        return robot
    if len(known) > 1:
        raise RecordingFormatError(f"{path}: holds several robots ({', '.join(known)}); choose one")
    return known[0]


#: Values for frames without a field; NaN for channels.
_MISSING = {"valid": 1.0, "status_word": 0.0}


class _Columns:
    """Arrays from JSON messages, chunk by chunk, so that memory holds numbers rather than objects."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.frames = 0
        self.head: list[IntArray] = []  # (k, 2) t_ns, seq
        self.blocks: dict[str, list[tuple[int, FloatArray]]] = {}  # by field: (first frame, (k, n))

    def add(self, messages: list[bytes], n: int) -> None:
        if not messages:
            return
        try:
            samples = msgspec.json.decode(b"[" + b",".join(messages) + b"]")
            self.head.append(np.array([(s["t_ns"], s["seq"]) for s in samples], dtype=np.int64))
            for name in (*CHANNELS, *_MISSING):
                array = _stack([s.get(name) for s in samples], n, _MISSING.get(name, np.nan))
                if array is not None:
                    self.blocks.setdefault(name, []).append((self.frames, array))
        except KeyError as error:
            raise RecordingFormatError(f"{self.path}: a frame after frame {self.frames} lacks {error}") from None
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise RecordingFormatError(
                f"{self.path}: a frame after frame {self.frames} is not as its schema says: {error}"
            ) from None
        self.frames += len(samples)

    def recording(self, meta: RecordingMeta, metadata: Mapping[str, str]) -> Recording | None:
        if self.frames == 0:
            return None
        head = np.concatenate(self.head)
        t_ns = np.ascontiguousarray(head[:, 0])
        channels: dict[str, FloatArray] = {name: self._joined(name, meta.n) for name in CHANNELS if name in self.blocks}
        valid = self._joined("valid", meta.n, np.bool_)
        for name, array in channels.items():
            if name not in SLOW_CHANNELS:
                valid &= np.isfinite(array)
        return Recording(
            t=(t_ns - t_ns[0]) * 1e-9, t_ns=t_ns, seq=np.ascontiguousarray(head[:, 1]), channels=channels, meta=meta,
            valid=None if valid.all() else valid,
            status_word=self._joined("status_word", meta.n, np.int64) if "status_word" in self.blocks else None,
            path=self.path, metadata=dict(metadata),
        )  # fmt: skip

    def _joined(self, name: str, n: int, kind: type[np.generic] = np.float64) -> Any:
        """Return the array (frames, n) of a field."""
        array = np.full((self.frames, n), _MISSING.get(name, np.nan), dtype=kind)
        for start, block in self.blocks.get(name, ()):
            array[start : start + len(block)] = block
        return array


def _stack(rows: list[list[float | None] | None], n: int, missing: float) -> FloatArray | None:
    """Stack rows to (k, n), with `missing` for absent rows; None if all are absent."""
    if None in rows:
        if all(row is None for row in rows):
            return None
        rows = [[missing] * n if row is None else row for row in rows]
    array = np.array(rows, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != n:
        raise ValueError(f"an array of a frame does not have {n} numbers")
    return array
