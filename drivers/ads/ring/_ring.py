"""Choice of the blocks of the ring to read next, and their classification.  No I/O."""

from enum import Enum


class BlockState(Enum):
    """State of a block that was read."""

    COMPLETE = "complete"
    NOT_YET = "not yet written"
    TORN = "written meanwhile"  # read again
    GONE = "overwritten"
    KNOWN = "known already"


class RingReader:
    """Reader of the ring, of `blocks` blocks, of one run of the PLC program.

    Block `k` is at place `k % blocks`.  The place after the newest complete block may be written at any time, so the
    oldest readable block is number `complete - blocks + 1`.  `next` is the number of the next block; `overruns` counts
    how often the ring overran this reader, `skipped` blocks lost to that, and `torn` blocks that had to be read again.
    """

    _MARGIN = 2  # blocks that the PLC may write during a request

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.next = 0
        self.overruns = 0
        self.skipped = 0
        self.torn = 0
        self._skipping = False

    def start(self, complete: int) -> None:
        """Start with the block after the `complete` ones."""
        self.next = complete

    def place(self, number: int) -> int:
        return number % self.blocks

    def due(self, complete: int, most: int) -> list[int]:
        """Return the numbers of at most `most` blocks to read, of `complete` ones; skip and count overwritten ones."""
        oldest = complete - self.blocks + 1
        if self.next < oldest:
            self._skip(min(oldest + self._MARGIN, complete))
        return list(range(self.next, min(complete, self.next + most)))

    def expected(self, count: int) -> list[int]:
        """Return the numbers of the next blocks, complete or not."""
        return list(range(self.next, self.next + count))

    def classify(self, number: int, first: int, last: int) -> BlockState:
        """Classify what was read as block `number`, by its `nBlock` and `nBlockEnd`."""
        if number < self.next:
            return BlockState.KNOWN
        if first == last == number:
            return BlockState.COMPLETE
        if first > number:
            return BlockState.GONE
        if first == number:
            self.torn += 1
            return BlockState.TORN
        return BlockState.NOT_YET

    def take(self, number: int) -> None:
        """Note that block `number` was used; unused blocks before it are lost."""
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
