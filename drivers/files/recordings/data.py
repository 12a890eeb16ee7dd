"""Recordings in memory: arrays, spans, a hash of the content, frames."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from drivers.files.recordings.format import UNIX_OFFSET, VERIFIED, RecordingMeta
from drivers.files.recordings.span import Span, SpanError
from drivers.frame import JointFrame
from rt_core.types import BoolArray, FloatArray, IntArray

#: What is said of a recording that was recovered without proof of its metadata.
UNVERIFIED = "metadata unverified: the recording was damaged, so check its robot, joints, units and rate"


@dataclass(frozen=True)
class Recording:
    """Frames of one robot as arrays: N samples, n joints, joint side, SI units.

    Attributes
    ----------
    t : (N,) float64
        Seconds since the first sample of the whole recording, strictly increasing.
    t_ns : (N,) int64
        Time on the clock of the source [ns].
    seq : (N,) int64
        Cycle count of the source.
    channels : dict of (N, n) float64
        By name, see `drivers.frame.CHANNELS`; a value that was not measured is NaN.
    valid : (N, n) bool or None
        False where a joint's values must not be used; None: all are valid.
    status_word : (N, n) int64 or None
        The drives' own status.
    meta : RecordingMeta
        Robot, joints, units, rate, origin.
    parts : tuple of Recording
        Recordings that this one was joined from, see `drivers.files.recordings.join`; otherwise empty.
    """

    t: FloatArray
    t_ns: IntArray
    seq: IntArray
    channels: Mapping[str, FloatArray]
    meta: RecordingMeta
    valid: BoolArray | None = None
    status_word: IntArray | None = None
    path: Path | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    parts: "tuple[Recording, ...]" = ()

    @property
    def file_name(self) -> str | None:
        """Name of the file, or of the joined files; None without one."""
        paths = [r.path for r in self.parts or (self,)]
        known = [path.name for path in paths if path is not None]
        return " + ".join(known) or None

    @property
    def spans(self) -> tuple[tuple[float, float], ...]:
        """First and last time [s] of each recording in this one."""
        last = np.cumsum([r.samples for r in self.parts or (self,)])
        first = np.concatenate(([0], last[:-1]))
        return tuple((float(self.t[a]), float(self.t[b - 1])) for a, b in zip(first, last, strict=True))

    @property
    def notes(self) -> tuple[str, ...]:
        """What has to be said of results from this recording: that nothing proves its metadata."""
        unproven = any(r.metadata.get(VERIFIED) == "no" for r in self.parts or (self,))
        return (UNVERIFIED,) if unproven else ()

    @property
    def unix_offset_ns(self) -> int | None:
        """Unix time minus `t_ns` [ns], by the clock of the computer that recorded; None if it was not recorded."""
        text = self.metadata.get(UNIX_OFFSET, "")
        return int(text) if re.fullmatch(r"-?\d{1,18}|1\d{18}|2[0-2]\d{17}", text) and not self.parts else None

    @property
    def stamps(self) -> IntArray:
        """Unix time of each sample (N,) [ns] if the offset is known, otherwise `t_ns`."""
        return self.t_ns + (self.unix_offset_ns or 0)

    @property
    def robot(self) -> str:
        """Name of the arm."""
        return self.meta.robot

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Names of the n joints."""
        return self.meta.joint_names

    @property
    def units(self) -> tuple[str, ...]:
        """Unit of each joint's position: "rad" or "m"."""
        return self.meta.units

    @property
    def rate_hz(self) -> float:
        """Nominal sample rate [Hz]."""
        return self.meta.rate_hz

    @property
    def n(self) -> int:
        """Number of joints."""
        return self.meta.n

    @property
    def samples(self) -> int:
        """Number of samples N."""
        return len(self.t)

    @property
    def duration_s(self) -> float:
        """Time from the first to the last sample [s]."""
        return float(self.t[-1] - self.t[0])

    @cached_property
    def sha256(self) -> str:
        """Hash of robot, joints and all samples, independent of the file's encoding."""
        digest = hashlib.sha256()
        head = {"robot": self.robot, "joints": list(self.joint_names), "units": list(self.units)}
        digest.update(json.dumps(head, sort_keys=True).encode())
        columns: dict[str, FloatArray | IntArray | BoolArray | None] = {
            "t_ns": self.t_ns, "seq": self.seq, "valid": self.valid, "status_word": self.status_word, **self.channels,
        }  # fmt: skip
        for name in sorted(columns):
            array = columns[name]
            if array is None:
                continue
            if array.dtype == np.float64:
                # One bit pattern for all forms of NaN.
                array = np.where(np.isnan(array), np.nan, array)
            digest.update(f"\0{name}{array.shape}{array.dtype.str}\0".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def span(self, span: Span | None) -> "Recording":
        """Select the samples with `start <= t < stop`, and the last one if the span ends with the recording.

        Times still count from the first sample of the whole recording.

        Raises `SpanError`: the span lies outside the recording or holds fewer than two samples.
        """
        if span is None:
            return self
        period = 1.0 / self.rate_hz
        start, stop = span.bounds(float(self.t[0]), float(self.t[-1]), period)
        first, last = (int(i) for i in np.searchsorted(self.t, [start - 1e-10, stop - 1e-10], side="left"))
        if last - first < 2:
            raise SpanError(f"span {span}: holds {max(last - first, 0)} of the recording's {self.samples} samples")
        part = slice(first, last)
        return Recording(
            self.t[part], self.t_ns[part], self.seq[part],
            {name: array[part] for name, array in self.channels.items()}, self.meta,
            None if self.valid is None else self.valid[part],
            None if self.status_word is None else self.status_word[part], self.path, self.metadata,
        )  # fmt: skip

    def frame(self, index: int) -> JointFrame:
        """Return sample `index` as a new frame without host time; a channel without any value is None."""
        values = {name: array[index].copy() for name, array in self.channels.items()}
        for name in self._incomplete:
            if np.isnan(values[name]).all():
                del values[name]
        return JointFrame(
            seq=int(self.seq[index]), t_bus_ns=int(self.t_ns[index]), t_host_ns=0,
            status_word=None if self.status_word is None else self.status_word[index].copy(),
            valid=None if self.valid is None else self.valid[index].copy(), **values,
        )  # fmt: skip

    @cached_property
    def _incomplete(self) -> tuple[str, ...]:
        """Channels with missing values."""
        return tuple(name for name, array in self.channels.items() if np.isnan(array).any())

    def frames(self) -> Iterator[JointFrame]:
        """Yield all samples as frames, in order."""
        for index in range(self.samples):
            yield self.frame(index)
