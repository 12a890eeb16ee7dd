"""Epochs: start numbers that increase, also after the clock was set back."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from drivers.files.atomic_write import atomic_write

#: No clock has got further; a file with a larger number is damaged.
_MAX = 1 << 62


class BootCounter:
    """Issues epochs, microseconds since 1970 where the clock allows, and keeps the last one in a file.

    Whoever hears two sources takes the one with the larger epoch for the later one.  After an hour was taken back from
    the clock, by hand or because it had no battery, all frames of a restarted source would be taken for late ones. A
    missing or damaged file counts as none; `clock` gives ns since 1970.
    """

    def __init__(self, path: Path, clock: Callable[[], int] = time.time_ns) -> None:
        self._path, self._clock = path, clock
        self._last = _read(path)

    def next(self) -> int:
        """Return an epoch larger than all before."""
        self._last = max(self._clock() // 1000, self._last + 1)
        try:
            with atomic_write(self._path) as file:
                file.write(f"{self._last}\n".encode())
        except OSError:
            pass  # a full disk must not keep a process from starting: the epoch is larger all the same
        return self._last


def _read(path: Path) -> int:
    try:
        last = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0
    return last if 0 <= last < _MAX else 0
