"""Frames of one arm from blocks of the ring, polled or notified, each cycle once and in order."""

from collections import deque
from itertools import repeat
from queue import Empty, Queue
from typing import Any

import numpy as np

from drivers.ads.link.program import Head, PlcProgram
from drivers.ads.ring._ring import BlockState, RingReader
from drivers.ads.ring._timeline import Timeline
from drivers.ads.ring.clock import PlcClock, filetime_to_ns
from drivers.ads.ring.decode import Block, Decoder
from drivers.frame import CHANNELS, JointFrame
from drivers.timing import Histogram, now_ns, sleep_until
from rt_core.types import IntArray

_TRIES = 3  # attempts to read a block with inconsistent samples
_MAX_BLOCKS = 16  # in one request, when the reader is behind
_MAX_NOTIFIED = 64  # waiting blocks; later ones are dropped, and read from the ring


class SampleStream:
    """Frames of one arm over all runs of the PLC program and all connections.

    `frames` are pending, with the PLC's cycle of each; `notified` has blocks received by notification, with the time of
    receipt.  `head` is the last one read, `new_ns` the CLOCK_MONOTONIC of the last known progress of the PLC.
    """

    def __init__(self, cycle_ns: int, dc: bool) -> None:
        self.frames: deque[tuple[JointFrame, int]] = deque()
        self.notified: Queue[tuple[int, bytes]] = Queue(_MAX_NOTIFIED)
        self.clock = PlcClock()
        self.head: Head | None = None
        self.new_ns = 0
        self.blocks = self.samples = self.by_notification = 0
        self.round_trip = Histogram()
        self.age = Histogram()  # of a block's last sample on arrival
        self._dc = dc
        self._dc_ahead_ns = 0  # distributed clock minus PLC time, as last seen
        self._timeline = Timeline(cycle_ns)
        self._tries, self._anew = 0, False  # anew: no frame has come since the program began anew
        self._corrupt = 0
        self._gone = {"overruns": 0, "skipped": 0, "torn": 0}  # counts of former rings
        self._ring: RingReader | None = None
        self._first: tuple[int, bytes] | None = None  # notified, pending
        self._skip = False  # start with the block that is being written
        self._exceeded_block = -1  # block during which the task last exceeded its cycle

    # ------------------------------------------------------------ runs and connections

    def attach(self, program: PlcProgram, decoder: Decoder, head: Head, restarted: bool) -> None:
        """Continue with the variables of `program`; `restarted`: another run than before."""
        old, self._ring = self._ring, RingReader(program.sizes.blocks)
        if old is None:
            self._ring.start(head.blocks)
        elif restarted:
            self._timeline.restart()
            self.clock.restart()
            self._anew = True
            self._exceeded_block = -1
        else:
            self._ring.next = old.next
        if old is not None:
            for name in self._gone:
                self._gone[name] += getattr(old, name)
        self._program, self._decoder = program, decoder
        self._observe(head)
        self._forget_notified()

    def begin(self) -> None:
        """Start with the block that is being written at the next poll."""
        self._skip = True

    def _forget_notified(self) -> None:
        self._first = None
        while not self.notified.empty():
            self.notified.get_nowait()

    def _observe(self, head: Head) -> None:
        old = self.head
        if old is None or (head.start, head.samples) != (old.start, old.samples):
            self.new_ns = now_ns()
        if old is not None and head.start == old.start and head.exceeded != old.exceeded:
            self._exceeded_block = head.blocks
        self.head = head

    # ------------------------------------------------------------ reading

    def poll(self, expected: int, lag: int = 0) -> Head:
        """Read `stHead` and all complete blocks, `expected` of them in the first request; append to `frames`.

        The newest `lag` blocks are left to notifications.  If the returned head is of another run, nothing was read.
        """
        ring = self._ring
        assert ring is not None
        numbers = [number for number in ring.expected(min(expected, _MAX_BLOCKS, ring.blocks)) if self._may_be(number)]
        for _ in range(2 + _TRIES):
            sent_ns = now_ns()
            head, found = self._program.read(numbers)
            received_ns = now_ns()
            self.round_trip.add(received_ns - sent_ns)
            if self.head is not None and head.start != self.head.start:
                return head
            self._observe(head)
            self.clock.add(filetime_to_ns(head.time), received_ns)
            if self._skip:
                self._skip = False
                ring.start(head.blocks)
                self._forget_notified()
                return head
            for number, raw in zip(numbers, found, strict=True):
                if number < head.blocks and not self._consider(number, raw, received_ns):
                    break
            numbers = [number for number in ring.due(head.blocks, _MAX_BLOCKS) if number < head.blocks - lag]
            if not numbers or len(self.frames) > _MAX_BLOCKS * self._program.sizes.block_samples:
                return head
        return head

    def _may_be(self, number: int) -> bool:
        """Return whether a block may be complete by now, from the PLC's last known cycle."""
        head = self.head
        assert head is not None
        samples = head.samples + (now_ns() - self.new_ns) // self._timeline.cycle_ns + 1
        return (number + 1) * self._program.sizes.block_samples <= samples

    def wait_notified(self, until_ns: int) -> None:
        """Wait until a block comes by notification, or until a time of CLOCK_MONOTONIC [ns]."""
        if self._first is not None:  # it waits for earlier blocks
            sleep_until(until_ns)
            return
        try:
            self._first = self.notified.get(timeout=max(until_ns - now_ns(), 0) * 1e-9)
        except Empty:
            return

    def take_notified(self) -> bool:
        """Process notified blocks; return False if earlier blocks are missing, which `poll` reads."""
        ring = self._ring
        assert ring is not None
        while True:
            try:
                received_ns, raw = self._first or self.notified.get_nowait()
            except Empty:
                return True
            self._first = None
            if len(raw) < self._decoder.block_bytes:
                continue
            number, last = self._decoder.numbers(raw)
            # A number far ahead is damage; later blocks would have to wait for it.
            if number != last or number < ring.next or not self._may_be(number - ring.blocks):
                continue
            if number > ring.next:
                self._first = received_ns, raw
                return False
            if self._consider(number, raw, received_ns):
                self.by_notification += 1

    def _consider(self, number: int, raw: Any, received_ns: int) -> bool:
        """Process a block if it is complete; return False if it has to be read again."""
        ring = self._ring
        assert ring is not None
        verdict = ring.classify(number, *self._decoder.numbers(raw))
        if verdict is BlockState.KNOWN:
            return True
        if verdict is not BlockState.COMPLETE:
            return False
        block = self._decoder.decode(raw)
        rows = self._usable(block)
        if len(rows) < len(block.counter):
            self._tries += 1
            if self._tries < _TRIES:
                ring.torn += 1
                return False
            self._corrupt += len(block.counter) - len(rows)
        self._tries = 0
        ring.take(number)
        self.blocks += 1
        self._emit(block, rows, received_ns)
        return True

    def _usable(self, block: Block) -> list[int]:
        """Return the rows of intact samples that belong to this block and come after the last one."""
        first = block.number * len(block.counter)
        return [
            row
            for row, (intact, counter) in enumerate(zip(block.intact.tolist(), block.counter.tolist(), strict=True))
            if intact and counter == first + row and self._timeline.fresh(counter)
        ]

    def _emit(self, block: Block, rows: list[int], received_ns: int) -> None:
        counters, times = block.counter.tolist(), self._times(block).tolist()
        self.samples += len(rows)
        if self.clock.known:
            self.age.add(received_ns - self.clock.to_host(int(block.plc_ns[-1])))
        # A row of each channel, in the order of JointFrame; None for absent ones.
        columns: list[Any] = [block.channels.get(name) for name in CHANNELS]
        columns += [block.status_word, block.valid]
        every = zip(*[repeat(None) if column is None else column for column in columns], strict=False)
        wanted = set(rows)
        exceeded = block.number <= self._exceeded_block
        cycle_ns, last = self._timeline.cycle_ns, len(counters) - 1
        for row, (counter, time, values) in enumerate(zip(counters, times, every, strict=False)):
            if row in wanted:
                seq, time_ns = self._timeline.place(counter, time, received_ns - (last - row) * cycle_ns, exceeded)
                frame = JointFrame(seq, time_ns, received_ns, *values)
                if self._anew:  # drives may have been without power as well: what they deliver is to be looked at
                    frame.valid, self._anew = np.zeros(block.status_word.shape[1], np.bool_), False
                self.frames.append((frame, counter))

    def _times(self, block: Block) -> IntArray:
        """Return the times of the samples on the clock of this source."""
        if not self._dc:
            return block.plc_ns
        there = block.dc_ns != 0
        if there.all():
            self._dc_ahead_ns = int(block.dc_ns[-1] - block.plc_ns[-1])
            return block.dc_ns
        # EtherCAT is down: continue with the PLC's time where the distributed clock ended.
        return np.where(there, block.dc_ns, block.plc_ns + self._dc_ahead_ns)

    # ------------------------------------------------------------ counts

    @property
    def expected_in_ns(self) -> int:
        """Time from the last known cycle to the end of the block that is being written [ns]."""
        assert self.head is not None
        samples = self._program.sizes.block_samples
        return (samples - self.head.samples % samples) * self._timeline.cycle_ns

    def counts(self) -> dict[str, int]:
        """Return counts since the source was opened."""
        ring = self._ring
        now = {name: count + (getattr(ring, name) if ring is not None else 0) for name, count in self._gone.items()}
        return {
            "frames": self.samples, "lost_cycles": self._timeline.lost, "blocks": self.blocks,
            "blocks_notified": self.by_notification, "ring_overruns": now["overruns"], "lost_blocks": now["skipped"],
            "torn_reads": now["torn"], "corrupt_samples": self._corrupt,
            "clock_steps": self._timeline.steps + self.clock.steps,
        }  # fmt: skip
