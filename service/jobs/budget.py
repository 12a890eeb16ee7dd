"""How much disk recordings may take: the oldest go first, and none that a job still has to read."""

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
    """Return the recordings that the recorder of `arm` has made in `directory`, oldest first.

    Files by other names are somebody's own and are never touched.  Paths are without links, as jobs name them.
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
    """Choose what goes: what is older than `keep_days`, and the oldest beyond `max_gb` in all.

    What is still written to, and what is `needed`, stays and counts.
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
