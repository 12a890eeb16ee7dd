"""Disk budget of recordings: the oldest are deleted first, and none that a job has still to read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_DAY_S = 86_400.0
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
        if str(one.path) in needed or now_s - one.written_s < _QUIET_S:
            continue
        old = keep_days is not None and now_s - one.written_s > keep_days * _DAY_S
        if old or (max_gb is not None and total > max_gb * 1e9):
            gone.append(one)
            total -= one.bytes
    return gone
