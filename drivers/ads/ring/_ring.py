"""Which blocks of the ring to read next, and what to make of what was read.  No I/O: numbers in, numbers out."""

from __future__ import annotations

from enum import Enum


class Verdict(Enum):
    """What a block turned out to be."""

    COMPLETE = "complete"
    NOT_YET = "not yet written"
    TORN = "written meanwhile"  # read again
    GONE = "overwritten"
    KNOWN = "known already"


class RingReader:
    """Follows the ring of one run of the PLC program.

    Block `k` lies at place `k % blocks`.  The place after the newest complete block may be written at any time, so the
    oldest block that can be read is number `complete - blocks + 1`.

    Parameters
    ----------
    blocks : int
        In the ring.

    Attributes
    ----------
    next : int
        Number of the block that is due.
    overruns : int
        How often the ring overran this reader.
    skipped : int
        Blocks lost to that.
    torn : int
        Blocks that had to be read again.
    """

    _MARGIN = 2  # blocks that the PLC may write while a request is under way

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.next = 0
        self.overruns = 0
        self.skipped = 0
        self.torn = 0
        self._skipping = False

    def start(self, complete: int) -> None:
        """Begin with the block after the `complete` ones: what came before is of no interest."""
        self.next = complete

    def place(self, number: int) -> int:
        """Place of a block in the ring."""
        return number % self.blocks

    def due(self, complete: int, most: int) -> list[int]:
        """Numbers of the blocks to read now, in order, at most `most`, when `complete` ones have been written.

        Blocks that have been overwritten meanwhile are given up and counted.
        """
        oldest = complete - self.blocks + 1
        if self.next < oldest:
            self._skip(min(oldest + self._MARGIN, complete))
        return list(range(self.next, min(complete, self.next + most)))

    def expected(self, count: int) -> list[int]:
        """Numbers of the next blocks, whether they are complete or not."""
        return list(range(self.next, self.next + count))

    def judge(self, number: int, first: int, last: int) -> Verdict:
        """Verdict about what was read as block `number`, by its `nBlock` and `nBlockEnd`."""
        if number < self.next:
            return Verdict.KNOWN
        if first == last == number:
            return Verdict.COMPLETE
        if first > number:
            return Verdict.GONE
        if first == number:
            self.torn += 1
            return Verdict.TORN
        return Verdict.NOT_YET

    def take(self, number: int) -> None:
        """Block `number` has been used; those before it that were not are lost."""
        if number > self.next and not self._skipping:
            self.overruns += 1
        self.skipped += number - self.next
        self.next = number + 1
        self._skipping = False

    def _skip(self, to: int) -> None:
        if not self._skipping:
            self.overruns += 1
        self._skipping = True
        self.skipped += to - self.next
        self.next = to
