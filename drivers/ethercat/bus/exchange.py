"""Cyclic exchange of process data on the grid of the bus clock, with counts, timing and validity of inputs."""

from collections.abc import Sequence

import numpy as np

from drivers.ethercat.bus._clock import BusClock
from drivers.ethercat.bus.al_status import SAFEOP, AlStatus
from drivers.ethercat.bus.bus import Bus
from drivers.ethercat.config import EthercatConfig
from drivers.timing import Histogram, now_ns, sleep_until
from rt_core.types import BoolArray

#: After this many frames without an answer, the next answers may belong to older frames: SOEM has 16 indices.
_DISTRUST_AFTER = 12
_DISTRUSTED = 3
_MAX_WAIT_NS = 25_000_000
#: So much later than usual a frame may pass the slaves. One that may pass them on either side of SYNC0 waits for it:
#: otherwise the drives may take its set positions a cycle later than these were extrapolated to.
_ON_ITS_WAY_NS = 150_000
#: Time without an answer after which the bus counts as silent.
SILENCE_NS = 200_000_000


def next_cycle(last: int, now_ns: int, deadline_of_next_ns: int, cycle_ns: int) -> int:
    """Return the cycle to wait for: the one after `last`, or if that is late by half a cycle the next in time.

    Late cycles are not made up for: a burst of frames would give the drives several targets in one of their cycles.
    """
    late_ns = now_ns - deadline_of_next_ns
    if late_ns <= cycle_ns // 2:
        return last + 1
    return last + 1 + late_ns // cycle_ns + 1


class CycleCounter:
    """Counts every cycle from 0 on once; `last` is the highest counted, -1 before the first.

    `frames` (answered), `lost` (sent without an answer, or passed while waiting for one) and `overruns` (not sent,
    because the loop was late) add up to `last + 1`; `repeated` answers, of a cycle that had one, give no frame.
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


class Exchange:
    """The cycle of a bus with mapped process data.

    `histograms` are "period" from frame to frame, "lateness" of waking up, "round_trip", and "execution" from sending
    to the finished frame. `has_dc`: frames carry DC time; otherwise the grid is that of CLOCK_MONOTONIC. `index` is
    that of the last exchange on the clock's grid, `sent_ns` its time. Exchanges were `unanswered` since `begin`, and
    `unanswered_in_a_row` since the last answer.
    """

    def __init__(self, bus: Bus, config: EthercatConfig) -> None:
        self._bus = bus
        self._positions = config.positions
        self._timeout_ns = config.answer_timeout_ns
        ahead_ns = config.shift_ns or config.cycle_ns // 2  # of SYNC0, at the deadline
        self._on_its_way_ns = min(_ON_ITS_WAY_NS, ahead_ns // 2)
        self.clock = BusClock(config.cycle_ns, config.shift_ns)
        self.has_dc = config.dc
        self.index = 0
        self.sent_ns = 0
        self.unanswered_in_a_row = 0
        self._first = 0
        self._answered_ns = now_ns()
        self._distrust = 0
        self._raw_dc_ns = 0
        self.begin()

    def start(self, has_dc: bool) -> None:
        """Note that process data starts; `has_dc`: frames carry DC time."""
        self.has_dc = has_dc
        self._answered_ns = now_ns()

    def begin(self) -> None:
        """Reset all counts; the next cycle has number 0."""
        self.account = CycleCounter()
        self.histograms = {name: Histogram() for name in ("period", "round_trip", "lateness", "execution")}
        self.unanswered = 0
        self._first = self.index + 1

    @property
    def seq(self) -> int:
        """Number of the last exchange's cycle."""
        return self.index - self._first

    @property
    def due(self) -> int:
        """Index of an exchange sent now."""
        return self.clock.sample_index(self.clock.to_dc(now_ns()))

    @property
    def silent(self) -> bool:
        """Whether there was no answer for `SILENCE_NS`."""
        return now_ns() - self._answered_ns > SILENCE_NS

    def deadline_ns(self) -> int:
        """Return the deadline of the next cycle; cycles that have passed are skipped."""
        clock = self.clock
        index = next_cycle(self.index, now_ns(), clock.deadline_ns(self.index + 1), clock.cycle_ns)
        return clock.deadline_ns(index)

    def wait(self, limit_ns: int) -> bool:
        """Sleep to the next deadline, or to `limit_ns` if that is earlier; return False then.

        A process that wakes shortly before SYNC0 waits for that, too.
        """
        deadline_ns = self.deadline_ns()
        if deadline_ns > limit_ns:
            sleep_until(limit_ns)
            return False
        sleep_until(deadline_ns)
        woke_ns = now_ns()
        self.histograms["lateness"].add(woke_ns - deadline_ns)
        while self.has_dc and (left_ns := self._before_sync0_ns(woke_ns)) < self._on_its_way_ns:
            sleep_until(woke_ns + left_ns + 1)
            woke_ns = now_ns()
        return True

    def _before_sync0_ns(self, at_ns: int) -> int:
        """Return how long before the next SYNC0 a frame that is sent now usually passes the slaves."""
        return (self.clock.shift_ns - self.clock.to_dc(at_ns)) % self.clock.cycle_ns

    def run(self, images: Sequence[bytes]) -> int:
        """Send the drives' output images and date the answer; return its working counter, or -1 without one."""
        bus = self._bus
        for position, image in zip(self._positions, images, strict=True):
            bus.set_output(position, image)
        sent_ns = now_ns()
        bus.send()
        # Wait longer after each lost frame: otherwise a slow bus would receive frames faster than it can answer, and no
        # answer would ever be in time.
        patience_ns = min(self._timeout_ns << min(self.unanswered_in_a_row, 5), max(_MAX_WAIT_NS, self._timeout_ns))
        wkc = bus.receive(sent_ns + patience_ns)
        received_ns = now_ns()
        self.histograms["period"].add(sent_ns - self.sent_ns)
        self.sent_ns = sent_ns
        dc_ns = self._date(received_ns) if wkc >= 0 else None
        if wkc >= 0:
            first_after = self.unanswered_in_a_row >= _DISTRUST_AFTER
            self._distrust = self._distrust - 1 if self._distrust else _DISTRUSTED * first_after
        if dc_ns is None or self._distrust:
            self.unanswered += 1
            self.unanswered_in_a_row += 1
            self.account.unanswered()
            self.index = self.clock.sample_index(self.clock.to_dc(sent_ns))
            return -1
        self.unanswered_in_a_row = 0
        self._answered_ns = received_ns
        self.histograms["round_trip"].add(received_ns - sent_ns)
        self.index = self.clock.sample_index(dc_ns)
        return wkc

    def _date(self, received_ns: int) -> int | None:
        """Return the DC time at which the frame passed the reference slave; None if it is not this frame."""
        if self.has_dc:
            raw_ns = self._bus.dc_time_ns
            if raw_ns != self._raw_dc_ns:  # otherwise the reference slave did not answer
                self._raw_dc_ns = raw_ns
                return self.clock.update(raw_ns, self.sent_ns, received_ns - self.sent_ns)
        return self.clock.to_dc(self.sent_ns)


def valid_joints(
    missing: int, statuses: Sequence[AlStatus | None], weights: Sequence[tuple[int, int]], positions: Sequence[int]
) -> tuple[BoolArray, bool]:
    """Return the joints (n,) with valid inputs where the working counter is `missing` too low, and whether known.

    It is not known if the states do not explain the difference; then no joint is valid. `statuses` per slave are as
    last read, None without an answer; `weights` the contributions of its outputs and its inputs to the working counter;
    `positions` (n,) the slave of each joint.
    """
    gone = [status is None or status.state < SAFEOP for status in statuses]
    silent = sum(out + in_ for (out, in_), away in zip(weights, gone, strict=True) if away)
    # In SAFE-OP a slave sends inputs; after an error some accept no outputs.
    no_outputs = sum(
        weights[k][0] for k, status in enumerate(statuses) if status is not None and status.state == SAFEOP
    )
    if missing in (silent, silent + no_outputs):
        return np.array([not gone[position] for position in positions], dtype=np.bool_), True
    return np.zeros(len(positions), dtype=np.bool_), False
