"""Frames that are gathered to be sent as one message."""

import time


class FrameGathering:
    """Encoded frames of at most `most`, none of which waits longer than `longest_ns`.

    `cycle_ns` is the time between two frames: they are sent where the next one would come too late.
    """

    def __init__(self, most: int, longest_ns: int, cycle_ns: int) -> None:
        self._most, self._longest_ns, self._cycle_ns = most, longest_ns, cycle_ns
        self.frames: list[bytes] = []
        self._began_ns = 0  # when the first of them was received

    def add(self, frame: bytes, received_ns: int) -> bool:
        """Add a frame, received at that CLOCK_MONOTONIC [ns]; return whether they are to be sent now."""
        if not self.frames:
            self._began_ns = received_ns
        self.frames.append(frame)
        return len(self.frames) >= self._most or received_ns - self._began_ns >= self._longest_ns - self._cycle_ns

    def take(self) -> list[bytes]:
        """Return the frames, and begin anew."""
        frames, self.frames = self.frames, []
        return frames

    def wait_s(self, longest_s: float) -> float:
        """Return how long to wait for the next frame: a source that delivers several at once may pause then."""
        if not self.frames:
            return longest_s
        return min(longest_s, max(self._began_ns + self._longest_ns - time.monotonic_ns(), 0) * 1e-9)
