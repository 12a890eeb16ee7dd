"""Recordings of an arm's folder, by name."""

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

MAX = 500  # length of the list, newest first
FRESH_S = 1.0  # greatest age of a list that is reused
_STAMP = r"-\d{8}T\d{6}(-\d{1,3})?\.mcap"  # suffix of the recorder after the arm's name


@dataclass(frozen=True)
class RecordingEntry:
    """A recording of an arm; `changed` is about the time of its last frame [s since 1970]."""

    arm: str
    name: str
    path: Path
    size: int
    changed: float

    def json_values(self) -> dict[str, Any]:
        """Return its entry for a browser, without the path."""
        time = datetime.fromtimestamp(self.changed, UTC).isoformat(timespec="seconds")
        return {"arm": self.arm, "name": self.name, "bytes": self.size, "changed": time}


def recordings_of(config: Config, arm: ArmConfig) -> list[RecordingEntry]:
    """Return the recordings in an arm's folder, newest first; arms that share a folder only get their own.

    Links are left out, because they may lead anywhere. Raises `OSError` if the folder exists and cannot be read.
    """
    folder, own = config.recording_dir(arm), re.compile(re.escape(arm.name) + _STAMP)
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not own.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
                    continue
                with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                    stat = entry.stat(follow_symlinks=False)
                    found.append(RecordingEntry(arm.name, entry.name, Path(entry.path), stat.st_size, stat.st_mtime))
    except FileNotFoundError:  # no folder yet
        return []
    return sorted(found, key=lambda each: each.changed, reverse=True)[:MAX]


def find_recording(config: Config, arm: ArmConfig, name: str) -> Path | None:
    """Return the path of the listed recording with this name, or None."""
    return next((each.path for each in recordings_of(config, arm) if each.name == name), None)


class RecordingList:
    """Recordings of all arms, listed by one thread at a time, because a folder may be on a slow disk."""

    def __init__(self, config: Config, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self._clock = config, clock
        self._looking: asyncio.Future[list[dict[str, Any]]] | None = None
        self._began = 0.0

    async def newest(self) -> list[dict[str, Any]]:
        """Return the entries for a browser; raises `ControlError` if a folder cannot be read."""
        now = self._clock()
        if self._looking is None or (self._looking.done() and now - self._began >= FRESH_S):
            self._began = now
            self._looking = asyncio.get_running_loop().run_in_executor(None, self._look)
        try:
            return await asyncio.shield(self._looking)
        except OSError as error:
            raise ControlError("failed", f"recordings: their folder cannot be read: {error.strerror}") from error

    def _look(self) -> list[dict[str, Any]]:
        return [each.json_values() for arm in self._config.arm for each in recordings_of(self._config, arm)]
