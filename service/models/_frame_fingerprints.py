"""Marks of frames, by which to tell whether two recordings hold the same ones, whatever else they hold.

A window of live frames and a file of the recorder are different files with different beginnings; a frame is the same
in both: its time stamp and its joint positions, to the last bit.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from drivers.files.recordings.recording import Recording

#: Marks that are kept of the frames that a model was fitted to, evenly spread.
COUNT = 200


def marks(recording: Recording, begin_s: float, end_s: float, count: int = COUNT) -> list[str]:
    """Return the marks of `count` frames between two times [s] of a recording."""
    inside = np.flatnonzero((recording.t >= begin_s) & (recording.t <= end_s))
    if not inside.size:
        return []
    chosen = inside[np.unique(np.linspace(0, inside.size - 1, min(count, inside.size)).round().astype(np.int64))]
    return [_mark(recording, int(k)) for k in chosen]


def shared(known: Sequence[str], recording: Recording, begin_s: float, end_s: float) -> float:
    """Return the share of the marks `known` whose frames lie between two times [s] of a recording."""
    if not known:
        return 0.0
    wanted = {int(mark.partition(":")[0]): mark for mark in known}
    inside = np.flatnonzero((recording.t >= begin_s) & (recording.t <= end_s))
    there = inside[np.isin(recording.t_ns[inside], np.array(list(wanted), np.int64))]
    found = sum(_mark(recording, int(k)) == wanted[int(recording.t_ns[k])] for k in there)
    return found / len(known)


def _mark(recording: Recording, k: int) -> str:
    return f"{int(recording.t_ns[k])}:{zlib.crc32(np.ascontiguousarray(recording.channels['q'][k]).tobytes()):08x}"
