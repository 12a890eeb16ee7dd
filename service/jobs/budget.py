"""Disk budget of recordings: the oldest are deleted first, and none that a job has still to read."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from service.jobs.queue.retention import DAY_S, age_clock_ns

_QUIET_S = 60.0  # a file written to more recently is being recorded


@dataclass(frozen=True)
class Found:
    """A recording on the disk."""

    path: Path
    bytes: int
    written_s: float  # since 1970


def recordings_of(arm: str, directory: Path) -> list[Found]:
    """Return the recordings of `arm` in `directory`, oldest first.

    Files with other names belong to users and are never touched. Paths are resolved, as jobs name them.
    """
    found = []
    for path in directory.resolve().glob(f"{arm}-[0-9]*T[0-9]*.mcap"):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        found.append(Found(path, status.st_size, status.st_mtime))
    return sorted(found, key=lambda one: (one.written_s, one.path.name))


def to_delete(
    found: Iterable[Found], now_s: float, keep_days: float | None, max_gb: float | None, needed: set[str]
) -> list[Found]:
    """Return the recordings to delete: those older than `keep_days`, and the oldest beyond `max_gb` in total.

    Files that are being written or `needed` stay, and count.
    """
    files = list(found)
    total = sum(one.bytes for one in files)
    gone = []
    for one in files:
        if str(one.path) in needed or abs(now_s - one.written_s) < _QUIET_S:  # the clock may have been set back
            continue
        keep_s = None if keep_days is None else keep_days * DAY_S
        old = keep_s is not None and min(now_s, 1e-9 * age_clock_ns(keep_s)) - one.written_s > keep_s
        if old or (max_gb is not None and total > max_gb * 1e9):
            gone.append(one)
            total -= one.bytes
    return gone
