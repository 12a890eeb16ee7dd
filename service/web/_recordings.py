"""Recordings by their names: what is in the folder of an arm, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from service.config.load import ArmConfig, Config
from service.protocol.control import ControlError

MAX = 500  # that are listed, the newest
FRESH_S = 1.0  # a list so old is given again
_STAMP = r"-\d{8}T\d{6}(-\d{1,3})?\.mcap"  # what the recorder puts behind the name of the arm


@dataclass(frozen=True)
class Recorded:
    """A recording of an arm; `changed` is the time of its last frame or so [s since 1970]."""

    arm: str
    name: str
    path: Path
    size: int
    changed: float

    def plain(self) -> dict[str, Any]:
        """Return what a browser is told; where the file lies is not part of it."""
        time = datetime.fromtimestamp(self.changed, UTC).isoformat(timespec="seconds")
        return {"arm": self.arm, "name": self.name, "bytes": self.size, "changed": time}


def recordings_of(config: Config, arm: ArmConfig) -> list[Recorded]:
    """Return the recordings in the folder of an arm, newest first; of several arms in one folder each its own.

    Links are left out: they may lead anywhere.  Raises `OSError` if the folder is there and cannot be read.
    """
    folder, own = config.recording_dir(arm), re.compile(re.escape(arm.name) + _STAMP)
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not own.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
                    continue
                with contextlib.suppress(FileNotFoundError):  # it has gone meanwhile
                    stat = entry.stat(follow_symlinks=False)
                    found.append(Recorded(arm.name, entry.name, Path(entry.path), stat.st_size, stat.st_mtime))
    except FileNotFoundError:  # there is none yet
        return []
    return sorted(found, key=lambda each: each.changed, reverse=True)[:MAX]


def find_recording(config: Config, arm: ArmConfig, name: str) -> Path | None:
    """Return the path of the recording that is listed by a name; None if there is none."""
    return next((each.path for each in recordings_of(config, arm) if each.name == name), None)


class Listing:
    """The recordings of all arms, looked up by one thread at a time: a folder may be on a slow disk.

    Parameters
    ----------
    config : Config
    clock : callable
        Monotonic time [s].
    """

    def __init__(self, config: Config, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self._clock = config, clock
        self._looking: asyncio.Future[list[dict[str, Any]]] | None = None
        self._began = 0.0

    async def newest(self) -> list[dict[str, Any]]:
        """Return what a browser is told of each; raises `ControlError` if a folder cannot be read."""
        now = self._clock()
        if self._looking is None or (self._looking.done() and now - self._began >= FRESH_S):
            self._began = now
            self._looking = asyncio.get_running_loop().run_in_executor(None, self._look)
        try:
            return await asyncio.shield(self._looking)
        except OSError as error:
            raise ControlError("failed", f"recordings: their folder cannot be read: {error.strerror}") from error

    def _look(self) -> list[dict[str, Any]]:
        return [each.plain() for arm in self._config.arm for each in recordings_of(self._config, arm)]
