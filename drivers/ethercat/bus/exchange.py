"""One exchange of process data a cycle, on the grid of the bus clock, with its account and its timing."""

from __future__ import annotations

from collections.abc import Sequence

from drivers.ethercat.bus._clock import BusClock
from drivers.ethercat.bus.bus import Bus
from drivers.ethercat.bus.cycle import CycleAccount, Histogram, next_cycle, now_ns, sleep_until
from drivers.ethercat.config import EthercatConfig

#: After so many frames without an answer, the first that come may be of an older frame: SOEM has 16 numbers for them.
_DISTRUST_AFTER = 12
_DISTRUSTED = 3
_MAX_WAIT_NS = 25_000_000
#: Without an answer for so long there is nobody there.
SILENCE_NS = 200_000_000


class Exchange:
    """The cycle of a bus with mapped process data.

    Parameters
    ----------
    bus : Bus
    config : EthercatConfig

    Attributes
    ----------
    clock : BusClock
    account : CycleAccount
        Counts from `begin` on.
    histograms : dict of str to Histogram
        "period" from frame to frame, "lateness" of the loop's waking, "round_trip", and "execution" from sending to
        the finished frame.
    has_dc : bool
        Whether frames carry DC time; else the grid is that of CLOCK_MONOTONIC.
    index : int
        Of the last exchange, on the clock's grid.
    sent_ns : int
        When it was sent [ns].
    unanswered : int
        Exchanges without an answer since `begin`.
    in_a_row : int
        Those since the last answer.
    """

    def __init__(self, bus: Bus, config: EthercatConfig) -> None:
        self._bus = bus
        self._positions = config.positions
        self._timeout_ns = config.answer_timeout_ns
        self.clock = BusClock(config.cycle_ns, config.shift_ns)
        self.has_dc = config.dc
        self.index = 0
        self.sent_ns = 0
        self.in_a_row = 0
        self._first = 0
        self._heard_ns = now_ns()
        self._distrust = 0
        self._raw_dc_ns = 0
        self.begin()

    def start(self, has_dc: bool) -> None:
        """Process data begins now; `has_dc` says whether a slave tells the time."""
        self.has_dc = has_dc
        self._heard_ns = now_ns()

    def begin(self) -> None:
        """Let the next cycle have the number 0, and count from there."""
        self.account = CycleAccount()
        self.histograms = {name: Histogram() for name in ("period", "round_trip", "lateness", "execution")}
        self.unanswered = 0
        self._first = self.index + 1

    @property
    def seq(self) -> int:
        """Number of the last exchange's cycle."""
        return self.index - self._first

    @property
    def due(self) -> int:
        """Index of an exchange that is sent now."""
        return self.clock.sample_index(self.clock.to_dc(now_ns()))

    @property
    def silent(self) -> bool:
        """Whether there has been no answer for a while."""
        return now_ns() - self._heard_ns > SILENCE_NS

    def deadline_ns(self) -> int:
        """Deadline of the cycle to come; cycles that have passed meanwhile are skipped."""
        clock = self.clock
        index = next_cycle(self.index, now_ns(), clock.deadline_ns(self.index + 1), clock.cycle_ns)
        return clock.deadline_ns(index)

    def wait(self, limit_ns: int) -> bool:
        """Sleep to the next deadline; False if `limit_ns` is before it, and is waited for instead."""
        deadline_ns = self.deadline_ns()
        if deadline_ns > limit_ns:
            sleep_until(limit_ns)
            return False
        sleep_until(deadline_ns)
        self.histograms["lateness"].add(now_ns() - deadline_ns)
        return True

    def run(self, images: Sequence[bytes]) -> int:
        """Send the drives' output images, take what comes back, date it; return the working counter or -1."""
        bus = self._bus
        for position, image in zip(self._positions, images, strict=True):
            bus.set_output(position, image)
        sent_ns = now_ns()
        bus.send()
        # One after the other without an answer: the next is waited for longer.  A bus that is only slow would else be
        # sent frames faster than it can answer, and none would ever be answered in time.
        patience_ns = min(self._timeout_ns << min(self.in_a_row, 5), max(_MAX_WAIT_NS, self._timeout_ns))
        wkc = bus.receive(sent_ns + patience_ns)
        received_ns = now_ns()
        self.histograms["period"].add(sent_ns - self.sent_ns)
        self.sent_ns = sent_ns
        dc_ns = self._date(received_ns) if wkc >= 0 else None
        if wkc >= 0:
            first_after = self.in_a_row >= _DISTRUST_AFTER
            self._distrust = self._distrust - 1 if self._distrust else _DISTRUSTED * first_after
        if dc_ns is None or self._distrust:
            self.unanswered += 1
            self.in_a_row += 1
            self.account.unanswered()
            self.index = self.clock.sample_index(self.clock.to_dc(sent_ns))
            return -1
        self.in_a_row = 0
        self._heard_ns = received_ns
        self.histograms["round_trip"].add(received_ns - sent_ns)
        self.index = self.clock.sample_index(dc_ns)
        return wkc

    def _date(self, received_ns: int) -> int | None:
        """DC time at which the frame passed the reference slave; None if it cannot be this frame."""
        if self.has_dc:
            raw_ns = self._bus.dc_time_ns
            if raw_ns != self._raw_dc_ns:  # else the reference slave did not answer
                self._raw_dc_ns = raw_ns
                return self.clock.update(raw_ns, self.sent_ns, received_ns - self.sent_ns)
        return self.clock.to_dc(self.sent_ns)
