"""Clock of the PLC: cycles on an exact grid.

Cycle `k` begins `k` cycles of the PLC's clock after the first one.  PLC time counts 100 ns since 1601, the distributed
clock ns since 2000; the host's clock runs at another rate.
"""

from __future__ import annotations

#: From 1601-01-01 to 1970-01-01 [100 ns], and from 1970-01-01 to 2000-01-01 [ns], both UTC.
EPOCH_1601_100NS = 116_444_736_000_000_000
EPOCH_2000_NS = 946_684_800_000_000_000


class PlcClock:
    """Grid of the cycles, of `cycle_ns`, a whole number of 100 ns.

    The first one is at CLOCK_MONOTONIC `now_ns`, when the PLC's clock shows `wall_ns` [ns since 1970]; that drifts by
    `ppm` relative to the host's.
    """

    def __init__(self, cycle_ns: int, now_ns: int, wall_ns: int, ppm: float = 0.0) -> None:
        self._cycle_ns = cycle_ns
        self._start_ns = now_ns
        self._rate_ppb = round(ppm * 1000.0)
        # On the grid of its own cycles, as a task driven by the distributed clock is.
        first_ns = wall_ns // cycle_ns * cycle_ns
        self._time_100ns = first_ns // 100 + EPOCH_1601_100NS
        self._dc_ns = first_ns - EPOCH_2000_NS

    def due_ns(self, cycle: int) -> int:
        """Return CLOCK_MONOTONIC at which a cycle begins [ns]."""
        return self._start_ns + cycle * self._cycle_ns * 1_000_000_000 // (1_000_000_000 + self._rate_ppb)

    def time_100ns(self, cycle: int) -> int:
        """Return the time of a cycle on the PLC's clock [100 ns since 1601-01-01 UTC]."""
        return self._time_100ns + cycle * self._cycle_ns // 100

    def dc_ns(self, cycle: int) -> int:
        """Return the time of a cycle on the distributed clock [ns since 2000-01-01 UTC]."""
        return self._dc_ns + cycle * self._cycle_ns

    def step(self, amount_100ns: int) -> None:
        """Shift the PLC's clock, as time synchronisation does; the distributed clock stays."""
        self._time_100ns += amount_100ns
