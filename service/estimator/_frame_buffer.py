"""Ring buffer of an arm's latest frames, and its saving as a window file.

The rings hold the window and a margin. Another thread copies frames slice by slice while new ones arrive: within the
margin none of the requested frames is overwritten.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import gt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivers.files.recordings.format import RecordingMeta
from drivers.frame import CHANNELS
from rt_core.types import BoolArray, FloatArray
from service.estimator._frame_consumer import FrameBlock, FrameConsumer
from service.io.state_file import MAX_BYTES, save_state
from service.operations.inputs import WINDOW_OWNER, WINDOW_SUFFIX, window_state
from service.protocol.control import ControlError

#: Frames that arrive while a window is copied [s].
MARGIN_S = 10.0
#: Share of the frames of a span that have to be there.
MIN_SHARE = 0.9
#: Folder of window files, below the state directory.
FOLDER = Path("jobs", "windows")
_SLICE = 4096  # frames copied at a time; NumPy releases the GIL meanwhile
_HEAD_BYTES = 4096  # of a window's file, beside its frames


class FrameBuffer(FrameConsumer):
    """Rings of the last `window_s` seconds (0: none) of frames; `push` takes a few microseconds and allocates nothing.

    Kept are the `channels` that the source delivers, but for set points.
    """

    def __init__(self, window_s: float, rate_hz: float, n: int, channels: Sequence[str]) -> None:
        self.window_s, self.rate_hz, self.n = window_s, rate_hz, n
        self.wanted = round(window_s * rate_hz)
        self.channels = tuple(name for name in CHANNELS if name in channels and name != "setpoint")
        size = self.wanted + round(MARGIN_S * rate_hz) if self.wanted else 0
        self._size = size
        self._stamps: NDArray[np.int64] = np.empty((3, size), np.int64)  # t_bus_ns, t_host_ns, seq
        self._valid: BoolArray = np.empty((size, n), np.bool_)
        self._rings: dict[str, FloatArray] = {name: np.empty((size, n)) for name in self.channels}
        for array in (self._stamps, self._valid, *self._rings.values()):
            array.fill(0)  # allocates the memory now
        self._columns = tuple(self._rings.items())
        self._last_ns = 0
        #: Frames from `begin` to `end` belong to the present epoch; frame `k` stands at `k % size`.
        self.begin = self.end = 0
        #: Number of times that frames were dropped after their arrival.
        self.truncations = 0
        #: Times of the latest frame, and of the latest that was not masked.
        self.latest_ns = self.unmasked_ns = 0

    @property
    def frame_bytes(self) -> int:
        """Bytes of a frame, in memory and in a file."""
        return 3 * 8 + self.n * (1 + 8 * len(self.channels))

    def __len__(self) -> int:
        """Return the number of frames that can be saved."""
        return min(self.end - self.begin, self.wanted)

    def restart_stream(self) -> None:
        """Start anew: the source has restarted, and with it the clock."""
        self.begin = self.end

    def drop_since(self, t_ns: int) -> None:
        """Drop the frames from `t_ns` on."""
        oldest = max(self.begin, self.end - self._size)
        end = self._first_later(t_ns - 1, oldest, self.end)
        if end == self.end:
            return
        self.begin = oldest  # earlier frames were overwritten by those dropped now
        self.end = end
        self.truncations += 1
        self._last_ns = self._time_ns(end - 1) if end > self.begin else 0

    def push(self, block: FrameBlock) -> None:
        """Append frames that are not masked; one that is not later than the one before is left out."""
        self.latest_ns = block.t_ns[-1]
        if block.masked:
            return
        self.unmasked_ns = self.latest_ns
        if not self._size:
            return
        later = [block.t_ns[0] > self._last_ns or self.end == self.begin, *map(gt, block.t_ns[1:], block.t_ns)]
        first, size = self.end % self._size, len(block)
        if size > 1 and (first + size > self._size or not all(later)):
            for half in block.split(size // 2):
                if half is not None:
                    self.push(half)
            return
        if not all(later):
            return
        at = slice(first, first + size)
        self._stamps[0, at], self._stamps[1, at], self._stamps[2, at] = block.t_ns, block.t_host_ns, block.seq
        for name, ring in self._columns:
            values = block.channels.get(name)
            ring[at] = np.nan if values is None or values.shape[1] != self.n else values
        valid = block.valid
        self._valid[at] = True if valid is None or valid.shape[1] != self.n else valid
        self._last_ns = self.latest_ns
        self.end += size

    def select(self, seconds: float) -> range:
        """Return the numbers of the frames of the last `seconds` of the frames' own clock.

        Raises `ControlError`: they do not reach back so far, or more than a few are missing, as in a pause.
        """
        expected, end, there = round(seconds * self.rate_hz), self.end, len(self)
        if not self.wanted:
            raise ControlError("failed", "no frames are kept: set window_s of the arm above 0")
        if expected < 2:
            raise ControlError("bad_argument", f"seconds: {seconds:g} s are fewer than two frames")
        oldest = end - there
        start = self._first_later(self._time_ns(end - 1) - round(seconds * 1e9), oldest, end) if there else end
        if start == oldest:  # none is older; a full window of frames that are faster than stated may be a little short
            spare_s = 1.5 / self.rate_hz if oldest == self.begin else (1.0 - MIN_SHARE) * seconds
            reach_s = (self._time_ns(end - 1) - self._time_ns(start)) * 1e-9 if there else 0.0
            if expected > self.wanted or reach_s < seconds - spare_s:
                raise ControlError(
                    "failed",
                    f"the last {there / self.rate_hz:.1f} s of frames are there, not {seconds:g} s: wait, or ask for"
                    f" less (window_s of the arm is {self.window_s:g})",
                )
        count = end - start
        if count < max(2.0, MIN_SHARE * expected):
            raise ControlError(
                "failed",
                f"of the last {seconds:g} s only {count / self.rate_hz:.1f} s of frames are there: the source paused or"
                " lost some, or a hand guided the arm; wait, or ask for less",
            )
        if count * self.frame_bytes + _HEAD_BYTES > MAX_BYTES:
            most = (MAX_BYTES - _HEAD_BYTES) / (self.frame_bytes * self.rate_hz)
            raise ControlError("failed", f"{seconds:g} s of frames are too many for one file: at most {most:.0f} s")
        return range(start, end)

    def since(self, t_ns: int) -> range:
        """Return the numbers of the frames from `t_ns` on."""
        return range(self._first_later(t_ns - 1, self.end - len(self), self.end), self.end)

    def _time_ns(self, number: int) -> int:
        return int(self._stamps[0, number % self._size])

    def _first_later(self, t_ns: int, first: int, end: int) -> int:
        """Return the first of the frames `first` to `end` that is later than `t_ns`; `end` if none is."""
        while first < end:
            middle = (first + end) // 2
            if self._time_ns(middle) > t_ns:
                end = middle
            else:
                first = middle + 1
        return first

    def copy(self, frames: range, truncations: int) -> dict[str, NDArray[Any]]:
        """Copy frames that `select` returned at this count of `truncations`, also while `push` runs in another thread.

        `ControlError`: they were overwritten, as copying took longer than the margin, or perhaps dropped meanwhile.
        """
        count = len(frames)
        sources = {"stamps": self._stamps.T, "valid": self._valid, **self._rings}
        copies = {name: np.empty((count, *ring.shape[1:]), ring.dtype) for name, ring in sources.items()}
        done = 0
        while done < count:
            first = (frames.start + done) % self._size
            size = min(_SLICE, count - done, self._size - first)
            for name, ring in sources.items():
                copies[name][done : done + size] = ring[first : first + size]
            done += size
        if self.end - frames.start >= self._size:  # `push` fills a frame's place before it counts it in `end`
            raise ControlError("failed", "frames came faster than they could be saved; try again")
        if self.truncations != truncations:
            raise ControlError("failed", "the latest frames were discarded while they were saved; try again")
        return copies


@dataclass(frozen=True)
class SaveRequest:
    """A request to save frames of a window: which, where to, and the description of their source."""

    frames: range
    path: Path
    meta: RecordingMeta
    truncations: int  # of the buffer at that time

    def write(self, window: FrameBuffer) -> dict[str, Any]:
        """Copy and write the frames; return the reply to the request, or raise `ControlError`."""
        copies = window.copy(self.frames, self.truncations)
        stamps = copies["stamps"]
        channels = {name: copies[name] for name in window.channels}
        state = window_state(
            self.meta, stamps[:, 0], stamps[:, 2], channels, t_host_ns=stamps[:, 1], valid=copies["valid"]
        )
        try:
            save_state(self.path, state, WINDOW_OWNER)
        except OSError as error:
            raise ControlError("failed", f"{self.path}: {error.strerror}") from error
        return {"path": str(self.path), "frames": len(self.frames), "t_ns": [int(stamps[0, 0]), int(stamps[-1, 0])]}


def save_request(args: Mapping[str, Any], window: FrameBuffer, state_dir: Path, meta: RecordingMeta) -> SaveRequest:
    """Check the arguments `seconds` and `path` of the verb `set_aside`; raises `ControlError`.

    The path is that of a new file `jobs/windows/NAME.window` below the state directory; other places there belong to
    the queue and its results.
    """
    seconds, path = args.get("seconds"), args.get("path")
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not 0.0 < seconds <= 3600.0:
        raise ControlError("bad_argument", f"seconds: expected a number above 0, at most 3600, not {seconds!r:.40}")
    if not isinstance(path, str) or "\0" in path:
        raise ControlError("bad_argument", "path: expected the path of a file")
    try:
        folder, whole = (state_dir / FOLDER).resolve(), (state_dir / path).resolve()
        inside = whole.parent == folder and whole.suffix == WINDOW_SUFFIX
        has_folder, exists = folder.is_dir(), inside and whole.exists()
    except (OSError, ValueError, RuntimeError) as error:  # too long, not allowed, not a name, links in a circle
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ControlError("bad_argument", f"path: {path!r:.200}: {reason}") from error
    if not inside:
        raise ControlError(
            "bad_argument", f"path: {path!r:.200} is not {FOLDER}/NAME{WINDOW_SUFFIX} below the state directory"
        )
    if not has_folder:
        raise ControlError("failed", f"path: there is no folder {folder}")
    if exists:
        raise ControlError("failed", f"path: {whole} is there already")
    return SaveRequest(window.select(float(seconds)), whole, meta, window.truncations)
