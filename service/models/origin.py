"""Origin of a model: the data it was fitted to, and the check whether others are among them.

A model file has it under `data`: file, hash, times and fingerprints of frames. Joined recordings have a list,
`sources`, of each with its own clock, because times and hash of the joined one are found in no file.

The fingerprint of a frame is its time stamp and its joint positions, to the last bit: the same in a window of live
frames and in a file of the recorder.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from drivers.files.recordings.recording import Recording, Span
from drivers.files.robots.file import RobotFile
from rt_core.identification.preprocess import SignalSettings
from rt_core.types import FloatArray

#: Fingerprints that are kept of the fitted frames, evenly spread.
MAX_FINGERPRINTS = 200


@dataclass(frozen=True, eq=False)
class Dataset:
    """A span of a recording (None: all of it), the robot it is of, and how its signals are prepared."""

    recording: Recording
    robot: RobotFile
    settings: SignalSettings
    span: Span | None = None


def origin_of(recording: Recording, t: FloatArray) -> dict[str, Any]:
    """Return the entry for the recording that a model was fitted to, whose rows were at times `t` (K,) [s]."""
    first, last = float(t[0]), float(t[-1])
    out: dict[str, Any] = {
        "recording": recording.file_name, "sha256": recording.sha256, "first_s": first, "last_s": last,
    }  # fmt: skip
    if not recording.parts:
        return out | {"frames": frame_fingerprints(recording, first, last)}
    sources = []
    for part, (begin, end) in zip(recording.parts, recording.spans, strict=True):
        own = t[(t >= begin) & (t <= end)] - begin + float(part.t[0])
        if own.size:
            sources.append(origin_of(part, own))
    return out | {"sources": sources}


def share_seen(data: Mapping[str, Any], recording: Recording, t: FloatArray, guard_s: float = 0.0) -> float:
    """Return the share of the rows at `t` (K,) [s] of a recording that a model was fitted to.

    `data` is that of the model file; rows within `guard_s` [s] of those of the fit count as well. Where another file
    holds frames of the fit, it is the share of the fit's marks that are among the rows.
    """
    seen = 0.0
    for source in data.get("sources") or (data,):
        if source.get("sha256") == recording.sha256:
            first, last = float(source["first_s"]) - guard_s, float(source["last_s"]) + guard_s
            seen += float(np.mean((t >= first) & (t <= last)))
        else:
            known = source.get("frames")
            known = known if isinstance(known, list) else []  # an online model has their number
            seen = max(seen, share_of_fingerprints(known, recording, float(t[0]) - guard_s, float(t[-1]) + guard_s))
    return min(seen, 1.0)


def frame_fingerprints(recording: Recording, begin_s: float, end_s: float, count: int = MAX_FINGERPRINTS) -> list[str]:
    """Return the fingerprints of `count` frames between two times [s] of a recording."""
    inside = np.flatnonzero((recording.t >= begin_s) & (recording.t <= end_s))
    if not inside.size:
        return []
    chosen = inside[np.unique(np.linspace(0, inside.size - 1, min(count, inside.size)).round().astype(np.int64))]
    return [_fingerprint(recording, int(k)) for k in chosen]


def share_of_fingerprints(known: Sequence[str], recording: Recording, begin_s: float, end_s: float) -> float:
    """Return the share of the fingerprints `known` whose frames lie between two times [s] of a recording."""
    if not known:
        return 0.0
    wanted = {int(fingerprint.partition(":")[0]): fingerprint for fingerprint in known}
    inside = np.flatnonzero((recording.t >= begin_s) & (recording.t <= end_s))
    there = inside[np.isin(recording.t_ns[inside], np.array(list(wanted), np.int64))]
    found = sum(_fingerprint(recording, int(k)) == wanted[int(recording.t_ns[k])] for k in there)
    return found / len(known)


def _fingerprint(recording: Recording, k: int) -> str:
    return f"{int(recording.t_ns[k])}:{zlib.crc32(np.ascontiguousarray(recording.channels['q'][k]).tobytes()):08x}"
