"""Set positions on their way to the PLC: collected by cycle, written in buffers that take turns.  No I/O.

A target that is given for the frame of cycle `c` is the set position of cycle `c + lead`.  The constant lead is what
blocks, polling and the network may take together; a motion is delayed by it, and otherwise as it was planned.  Each
buffer holds every point that is still to come, so the PLC can go from one to the other in any cycle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from drivers.ads.link.layout import Sizes, structure
from drivers.ads.ring.decode import checksum
from drivers.driver import CommandRefusedError
from rt_core.types import FloatArray

_WORD = 0xFFFFFFFF


@dataclass(frozen=True)
class Buffer:
    """Points for consecutive cycles.

    Attributes
    ----------
    sequence : int
        From 1; place `sequence % 2` is written.
    first : int
        Cycle of the first point.
    points : (m, axes) float64
    """

    sequence: int
    first: int
    points: FloatArray


class SetpointStream:
    """Points by cycle, from the first command after enabling on.

    Parameters
    ----------
    lead : int
        From a frame's cycle to the one that its target is for.
    capacity : int
        Points of a buffer.
    margin : int
        Cycles that the PLC may be ahead of what is known of it, when a buffer reaches it.

    Attributes
    ----------
    active : bool
        Whether a target has been given since `begin`.
    written : int
        Buffers.
    """

    def __init__(self, lead: int, capacity: int, margin: int) -> None:
        self.lead = lead
        self.capacity = capacity
        self.margin = margin
        self.active = False
        self.written = 0
        self._batch = max(lead // 4, 1)  # new points that are worth a buffer
        self._sequence = 0
        self._run: int | None = None  # of the PLC program, that the number belongs to
        self._points: list[FloatArray] = []  # those not known to be over
        self._first = 0  # cycle of the first of them
        self._sent = 0  # cycle after the last one written

    def forget(self) -> None:
        """Forget all points."""
        self.active = False
        self._points = []

    def begin(self, sequence: int, run: int) -> None:
        """Forget all points; the PLC program's run `run` has seen buffer number `sequence` last.

        A number is not used twice within a run: the PLC would take the buffer for one that it knows.
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
        """Return the number of cycles over which the first target, for the frame of `cycle`, is approached.

        Half the lead, or as much of it as the PLC, which is in cycle `now` at least, can still get in time.

        Raises
        ------
        CommandRefusedError
            None: the PLC would have passed the first points when they reach it, and begin with a jump.
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
        """Take the target for the frame of `cycle`, in the axes' units; the PLC is in cycle `now` at least.

        The first one is approached along a line from `held`, where the axes are.  Where frames were lost the points
        between the last target and this one lie on a line.

        Raises
        ------
        CommandRefusedError
            As `approach`; or the points before have run out: the axes have stopped, and this one would be a jump.
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
        """Buffer to write now, if there is one: the PLC is in cycle `now`.

        It is due when enough new points have come, or when those that were written reach no farther than
        `urgent_cycles`.
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
    """Return the bytes of `ST_ThetaSetpoints` for the run `start` of the PLC program."""
    kind = structure("ST_ThetaSetpoints", sizes)
    data = bytearray(np.dtype(kind).itemsize)
    record = np.frombuffer(data, dtype=np.dtype(kind))
    record["nStart"], record["nFirst"] = start, buffer.first
    record["nSequence"], record["nCount"] = buffer.sequence, len(buffer.points)
    record["aPoint"][0, : len(buffer.points)] = buffer.points
    words = np.frombuffer(data, dtype=np.uint32)
    words[-1] = checksum(words[:-1])  # compiled by the decoder
    return data
