"""Choice of the next cycle, and counts of answered, lost and overrun cycles.

A cycle is answered (a frame), lost (sent without an answer, or passed while waiting for one) or overrun (not sent,
because the loop was late).  Late cycles are skipped, not made up for: a burst of frames would give the drives several
targets in one of their cycles.
"""


def next_cycle(last: int, now_ns: int, deadline_of_next_ns: int, cycle_ns: int) -> int:
    """Return the cycle to wait for: the one after `last`, or if that is late by half a cycle the next in time."""
    late_ns = now_ns - deadline_of_next_ns
    if late_ns <= cycle_ns // 2:
        return last + 1
    return last + 1 + late_ns // cycle_ns + 1


class CycleCounter:
    """Counts every cycle from 0 on once; `last` is the highest counted, -1 before the first.

    `frames`, `lost` and `overruns` add up to `last + 1`; `repeated` answers, for a cycle that already had one, give no
    frame.
    """

    def __init__(self) -> None:
        self.last = -1
        self.frames = 0
        self.lost = 0
        self.overruns = 0
        self.repeated = 0
        self._unanswered = 0

    def unanswered(self) -> None:
        """Note an exchange without an answer; the next answer shows which cycle it was."""
        self._unanswered += 1

    def answered(self, index: int) -> bool:
        """Count an answer for cycle `index`; return False if that cycle already has its frame."""
        if index <= self.last:
            self.repeated += 1
            return False
        gap = index - self.last - 1
        if self._unanswered:
            self.lost += gap
            self._unanswered = 0
        else:
            self.overruns += gap
        self.frames += 1
        self.last = index
        return True
