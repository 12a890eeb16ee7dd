"""The recordings that a soak makes, looked at one by one as they are closed: which frames do they lack, and when?"""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drivers.files.recordings.mcap_scan import Scan
from drivers.files.recordings.recording import RecordingError, RecordingNotFoundError, recording_info, recover


@dataclass(frozen=True)
class Mark:
    """A frame: its source's start, its number, and when it was received [s, CLOCK_MONOTONIC]."""

    epoch: str
    seq: int
    at_s: float


@dataclass(frozen=True)
class Hole:
    """Frames that no recording has.

    Attributes
    ----------
    count : int
        0 where the source was started anew, and nobody can tell what it had sent before that was not recorded.
    since_s, until_s : float
        When the frames before and after them were received [s, CLOCK_MONOTONIC].
    place : str
        Where the frame after them is.
    """

    count: int
    since_s: float
    until_s: float
    place: str

    def __str__(self) -> str:
        what = f"lacks {self.count} frames" if self.count else "is of another start of the source"
        return f"{self.place} {what} without a fault ({self.until_s - self.since_s:.3f} s)"


class Recordings:
    """The files of one arm's recorder.

    A file of which the recorder was killed is recovered.  Frames that lack within a file, or between it and the one
    before, are a hole; `judge` says for which of these no fault was under way.

    Attributes
    ----------
    holes : list of Hole
        In order.
    problems : list of str
    """

    def __init__(self, directory: Path) -> None:
        self.holes: list[Hole] = []
        self.problems: list[str] = []
        self._directory = directory
        self._seen: set[str] = set()
        self._files = self._torn = self._frames = 0
        self._most_bytes = 0
        self._last: Mark | None = None  # newest frame that is recorded
        self._followed = True  # from the first frame on

    def work_off(self, *, last: bool = False) -> None:
        """Look at the files that are closed: all but the newest, or, at the end, all."""
        found = sorted(self._stamps())
        self._most_bytes = max(self._most_bytes, sum(size for _, size, _ in found))
        new = [path for _, _, path in found if path.name not in self._seen]
        for path in new if last else new[:-1]:
            self._seen.add(path.name)
            self._files += 1
            try:
                self._look(path)
            except RecordingNotFoundError:  # beyond the budget, and deleted just now: nobody knows what it had
                self.problems.append(f"{path.name} was deleted before it was looked at")
                self._last, self._followed = None, False

    def end(self, epoch: int, sent: int, now_s: float) -> None:
        """Compare with what the source has sent since it was started as `epoch`; after everything is worked off."""
        last = self._last
        recorded = last.seq + 1 if last is not None and last.epoch == str(epoch) else 0
        if recorded < sent:
            self.holes.append(Hole(sent - recorded, now_s if last is None else last.at_s, now_s, "the end"))

    def judge(self, windows: Sequence[tuple[float, float]]) -> None:
        """Add to the problems each hole that is not whole within one of the times [s] in which frames may lack."""
        self.problems += [
            str(hole)
            for hole in self.holes
            if not any(begin <= hole.since_s and hole.until_s <= end for begin, end in windows)
        ]

    def _stamps(self) -> list[tuple[int, int, Path]]:
        found = []
        for path in self._directory.glob("*.mcap"):
            with contextlib.suppress(FileNotFoundError):  # beyond the budget, and deleted
                status = path.stat()
                found.append((status.st_mtime_ns, status.st_size, path))
        return found

    def _look(self, path: Path) -> None:
        try:
            info = recording_info(path)
        except RecordingNotFoundError:
            raise
        except RecordingError:  # killed before its first chunk was complete
            self._torn += 1
            return
        if info.restarts or info.time_reversals:
            self.problems.append(
                f"{path.name}: {info.restarts} frames out of order, {info.time_reversals} times that go back"
            )
        self._frames += info.frames
        if info.complete:
            self._compare(path, path.name)
            return
        self._torn += 1
        whole = path.with_suffix(".whole")
        try:
            recover(path, whole)
            self._compare(whole, path.name)
        finally:
            whole.unlink(missing_ok=True)

    def _compare(self, path: Path, name: str) -> None:
        for first, last in stretches(path):
            before = self._last
            self._last = last
            if before is None:
                if first.seq and self._followed:
                    self.holes.append(Hole(first.seq, first.at_s, first.at_s, name))
            elif before.epoch != first.epoch:
                self.holes.append(Hole(first.seq, before.at_s, first.at_s, name))
            elif first.seq > before.seq + 1:
                self.holes.append(Hole(first.seq - before.seq - 1, before.at_s, first.at_s, name))

    def told(self) -> dict[str, Any]:
        """How much there was."""
        return {
            "files": self._files,
            "torn": self._torn,
            "frames": self._frames,
            "missing": sum(hole.count for hole in self.holes),
            "holes": len(self.holes),
            "longest_hole_s": max((hole.until_s - hole.since_s for hole in self.holes), default=0.0),
            "most_mb": self._most_bytes / 1e6,
        }


def stretches(path: Path) -> list[tuple[Mark, Mark]]:
    """First and last frame of each stretch of a whole recording in which none is missing."""
    scan = Scan(path)
    found: list[tuple[tuple[int, bytes], tuple[int, bytes]]] = []
    for content in scan.contents():
        for _, seq, _, _, data in content.messages:
            if found and seq == found[-1][1][0] + 1:
                found[-1] = found[-1][0], (seq, data)
            else:
                found.append(((seq, data), (seq, data)))
    epoch = next(record.metadata["epoch"] for record in scan.metadata if "epoch" in record.metadata)
    return [(_mark(epoch, *first), _mark(epoch, *last)) for first, last in found]


def _mark(epoch: str, seq: int, data: bytes) -> Mark:
    return Mark(epoch, seq, json.loads(data)["t_host_ns"] * 1e-9)
