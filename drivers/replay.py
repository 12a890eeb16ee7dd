"""Driver that plays a recording at the recorded pace, at a multiple of it, or as fast as possible."""

import math
import time
from pathlib import Path
from typing import Literal

import numpy as np

from drivers.driver import DriverConfigError, DriverInfo, DriverTimeoutError, EndOfStream, OpenedInWith
from drivers.files.recordings.recording import Recording, RecordingError, SpanError, read_recording
from drivers.files.recordings.span import Span
from drivers.frame import JointFrame
from rt_core.types import IntArray

#: Pause between two passes of a looped recording, whose end does not continue at its start.
LOOP_PAUSE_S = 1.0


class ReplayDriver(OpenedInWith):
    """Driver that plays a recording, or the `span` of it.

    Frames have their recorded time and values.  `seq` starts at 0 and skips cycles that the recording lost.  Each frame
    has a fixed deadline on CLOCK_MONOTONIC, so that the pace does not drift; a late reader receives what it missed
    without delay.  With `loop`, each pass continues time and count of the one before after a pause of one second, which
    is a gap.  `speed` 1 is the recorded pace, 2 twice as fast; "max" never waits and is lossless: the reader sets the
    pace.  Raises `DriverConfigError`: `speed` is not a positive number or "max".
    """

    def __init__(
        self, path: str | Path, speed: float | Literal["max"] = 1.0, span: Span | None = None, loop: bool = False
    ) -> None:
        if speed != "max" and not (
            isinstance(speed, (int, float)) and not isinstance(speed, bool) and math.isfinite(speed) and speed > 0.0
        ):
            raise DriverConfigError(f"replay of {path}: speed {speed!r} is neither a positive number nor 'max'")
        self.path = Path(path)
        self._label = f"replay of {self.path}"
        self._ns_per_ns = None if speed == "max" else 1.0 / float(speed)
        self._span, self._loop = span, loop
        self._recording: Recording | None = None
        self._seq: IntArray = np.zeros(0, dtype=np.int64)
        self._index = 0
        self._lap = 0
        self._start_ns: int | None = None  # when the first frame was due

    def open(self) -> None:
        """Load the recording.

        Raises `DriverConfigError`: it is missing, incomplete, or no recording, or the span lies outside it; the message
        has the remedy; `DriverError`: it is open already.
        """
        self._require_closed()
        try:
            recording = read_recording(self.path, self._span)
        except (RecordingError, SpanError) as error:
            raise DriverConfigError(f"replay: {error}") from error
        # Continue the count where the recorded one starts again (the source was restarted).
        steps = np.maximum(np.diff(recording.seq), 1)
        self._seq = np.concatenate(([0], np.cumsum(steps)))
        self._recording = recording
        self._info = DriverInfo(
            source="replay", joint_names=recording.joint_names, channels=tuple(recording.channels),
            rate_hz=recording.rate_hz, clock="recording", lossless=self._ns_per_ns is None,
        )  # fmt: skip
        self._index = self._lap = 0
        self._start_ns = None

    def read(self, timeout_s: float = 1.0) -> JointFrame:
        """Wait until the next frame is due and return it.

        Raises `EndOfStream` when the recording is finished, `DriverTimeoutError` if the next frame is due later than in
        `timeout_s` (it remains the next one), and `DriverClosedError` unless open.
        """
        self._require_open("read")
        recording = self._recording
        assert recording is not None
        if self._index == recording.samples:
            if not self._loop:
                raise EndOfStream(f"{self._label}: all {recording.samples} frames played")
            self._index = 0
            self._lap += 1
        first_ns = int(recording.t_ns[0])
        lap_ns = int(recording.t_ns[-1]) - first_ns + round(LOOP_PAUSE_S * 1e9)
        shift_ns = self._lap * lap_ns
        if self._ns_per_ns is not None:
            now = time.monotonic_ns()
            if self._start_ns is None:
                self._start_ns = now
            elapsed = int(recording.t_ns[self._index]) - first_ns + shift_ns
            self._wait(self._start_ns + round(elapsed * self._ns_per_ns), now, timeout_s)
        frame = recording.frame(self._index)
        pause = max(1, round(LOOP_PAUSE_S * recording.rate_hz))
        frame.seq = int(self._seq[self._index]) + self._lap * (int(self._seq[-1]) + pause)
        frame.t_bus_ns += shift_ns
        frame.t_host_ns = time.monotonic_ns()
        self._index += 1
        return frame

    def close(self) -> None:
        """Release the recording; may be called more than once."""
        self._recording = None
        self._info = None

    def _wait(self, due_ns: int, now_ns: int, timeout_s: float) -> None:
        limit_ns = now_ns + round(timeout_s * 1e9)
        until_ns = min(due_ns, limit_ns)
        while now_ns < until_ns:
            time.sleep((until_ns - now_ns) * 1e-9)
            now_ns = time.monotonic_ns()
        if due_ns > limit_ns:
            raise DriverTimeoutError(
                f"{self._label}: no frame within {timeout_s:g} s; the next is due in {(due_ns - now_ns) * 1e-9:.3g} s"
            )
