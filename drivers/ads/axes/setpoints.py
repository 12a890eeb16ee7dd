"""Set positions by cycle, written to the PLC in two alternating buffers.  No I/O.

The target for the frame of cycle `c` is the set position of cycle `c + lead`.  The constant lead covers the delays of
blocks, polling and network; it delays a motion, but does not distort it.  Each buffer holds every point that is still
to come, so the PLC can switch buffers in any cycle.
"""

from dataclasses import dataclass

import numpy as np

from drivers.ads._checksum import checksum
from drivers.ads.layout import Sizes, structure
from drivers.driver import CommandRefusedError
from rt_core.types import FloatArray

_WORD = 0xFFFFFFFF


@dataclass(frozen=True)
class Buffer:
    """Points for consecutive cycles."""

    sequence: int  # from 1
    first: int  # cycle of the first point
    points: FloatArray  # (m, axes)

    @property
    def place(self) -> int:
        """Which of the PLC's two buffers to write."""
        return self.sequence % 2


class SetpointStream:
    """Points by cycle, from the first command after enabling.

    `lead` are the cycles from a frame to its target, `capacity` the points in a buffer, `margin` the cycles that the
    PLC may advance beyond its last known cycle until a buffer reaches it.  `active`: there was a target since `begin`;
    `written` counts the buffers.
    """

    def __init__(self, lead: int, capacity: int, margin: int) -> None:
        self.lead = lead
        self.capacity = capacity
        self.margin = margin
        self.active = False
        self.written = 0
        self._batch = max(lead // 4, 1)  # new points that trigger a buffer
        self._sequence = 0
        self._run: int | None = None  # of the PLC program, which the sequence belongs to
        self._points: list[FloatArray] = []  # that may still be to come
        self._first = 0  # cycle of the first of them
        self._sent = 0  # cycle after the last one written

    def forget(self) -> None:
        """Discard all points."""
        self.active = False
        self._points = []

    def begin(self, sequence: int, run: int) -> None:
        """Discard all points; `sequence` is the last buffer that run `run` of the PLC program has seen.

        A number is not used twice within a run, because the PLC ignores buffers that it has seen.
        """
        self.forget()
        if run != self._run or 0 < (sequence - self._sequence & _WORD) < _WORD // 2:
            self._sequence = sequence
        self._run = run

    @property
    def last(self) -> int:
        """Cycle of the last point."""
        return self._first + len(self._points) - 1

    def approach(self, cycle: int, now: int) -> int:
        """Return the number of cycles for the approach to the first target, for the frame of `cycle`.

        Half the lead, or as much of it as can still reach the PLC, which is at least in cycle `now`.  Raises
        `CommandRefusedError`: too late: the PLC would have passed the first points when they reach it, and start with a
        jump.
        """
        goal = cycle + self.lead
        reached = now + self.margin
        if goal <= reached:
            raise CommandRefusedError(
                f"command refused: it comes {reached - goal + 1} cycles too late for the PLC; a longer lead_ms lets "
                "set positions come later"
            )
        return min(max(self.lead // 2, 1), goal - reached + 1)

    def add(self, cycle: int, target: FloatArray, held: FloatArray, now: int) -> None:
        """Add the target for the frame of `cycle`, in the axes' units; the PLC is at least in cycle `now`.

        The first target is approached along a line from `held`, the present position.  Points for lost frames lie on a
        line between the targets before and after.  Raises `CommandRefusedError`: as `approach`; or the points before
        have run out, so that the axes have stopped and would jump.
        """
        goal = cycle + self.lead
        if not self.active:
            ramp = self.approach(cycle, now)
            self.active = True
            self._first = self._sent = goal - ramp + 1
            self._points = []
            self._line(held, target, ramp)
            return
        if self.last < now:
            raise CommandRefusedError(
                f"command refused: it comes {now - self.last} cycles after the last set position ran out; a longer "
                "lead_ms lets set positions come later"
            )
        if goal > self.last:
            self._line(self._points[-1], target, goal - self.last)

    def _line(self, start: FloatArray, end: FloatArray, count: int) -> None:
        for k in range(1, count):
            self._points.append(start + (end - start) * (k / count))
        self._points.append(np.array(end, dtype=np.float64))

    def due(self, now: int, urgent_cycles: int) -> Buffer | None:
        """Return the buffer to write in cycle `now` of the PLC, if any.

        A buffer is due after enough new points, or when those written end within `urgent_cycles`.
        """
        if not self._points or self.last < self._sent:
            return None
        if self.last + 1 - self._sent < self._batch and self._sent - now > urgent_cycles:
            return None
        over = min(max(now + 1 - self._first, 0), len(self._points) - 1)
        del self._points[:over]
        self._first += over
        points = np.array(self._points[: self.capacity])
        self._sequence = self._sequence + 1 & _WORD
        self._sent = self._first + len(points)
        self.written += 1
        return Buffer(self._sequence, self._first, points)


def encode(buffer: Buffer, start: int, sizes: Sizes) -> bytearray:
    """Encode a buffer as `ST_ThetaSetpoints` for the run `start` of the PLC program."""
    kind = structure("ST_ThetaSetpoints", sizes)
    data = bytearray(np.dtype(kind).itemsize)
    record = np.frombuffer(data, dtype=np.dtype(kind))
    record["nStart"], record["nFirst"] = start, buffer.first
    record["nSequence"], record["nCount"] = buffer.sequence, len(buffer.points)
    record["aPoint"][0, : len(buffer.points)] = buffer.points
    words = np.frombuffer(data, dtype=np.uint32)
    words[-1] = checksum(words[:-1])  # compiled by the decoder
    return data
