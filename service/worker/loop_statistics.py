"""Histograms of durations; adding a value costs a few tenths of a microsecond and allocates nothing."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

#: Upper bounds of the bins of periods [ns], the same for every arm, so that arms can be added up: fine near those of
#: 2000, 1000, 500, 250, 200, 125 and 100 Hz, coarse between them.
PERIOD_NS = tuple(
    round(ms * 1e6)
    for ms in (
        0.1, 0.25, 0.475, 0.525, 0.6, 0.75, 0.95, 1.05, 1.2, 1.5, 1.9, 2.1, 2.5, 3, 3.8, 4.2, 4.75, 5.25, 6, 7.6, 8.4,
        9.5, 10.5, 12.5, 15, 20, 50, 100, 1000,
    )
)  # fmt: skip
#: Upper bounds of the bins of executions [ns].
_EXECUTION_NS = tuple(round(us * 1e3) for us in (20, 50, 100, 150, 200, 300, 500, 1000, 2000, 5000, 10_000, 50_000))
#: Upper bounds of the bins of the time from a frame to its estimate [ns].
LATENCY_NS = tuple(round(ms * 1e6) for ms in (0.2, 0.5, 1, 1.5, 2, 3, 5, 10, 20, 50, 100, 500, 1000, 10_000))


class Durations:
    """Counts of durations in fixed bins.

    `bounds_ns` are the upper bounds of the bins, which include them, ascending [ns]; one more bin takes what is longer.
    """

    __slots__ = ("bounds_ns", "counts", "max_ns", "sum_ns")

    def __init__(self, bounds_ns: Sequence[int]) -> None:
        self.bounds_ns = tuple(bounds_ns)
        self.counts = [0] * (len(self.bounds_ns) + 1)
        self.sum_ns = self.max_ns = 0

    def add(self, duration_ns: int) -> None:
        """Count a duration [ns]."""
        self.counts[bisect_left(self.bounds_ns, duration_ns)] += 1
        self.sum_ns += duration_ns
        if duration_ns > self.max_ns:
            self.max_ns = duration_ns

    def report(self) -> dict[str, Any]:
        """Return the counts as plain values, for messages."""
        return {
            "bounds_us": [bound * 1e-3 for bound in self.bounds_ns], "counts": list(self.counts),
            "sum_us": self.sum_ns * 1e-3, "max_us": self.max_ns * 1e-3,
        }  # fmt: skip


class LoopStatistics:
    """Statistics of a loop with a nominal rate of `rate_hz` turns a second.

    `period` counts from the beginning of a turn to that of the next, `execution` to its end; `overruns` are turns that
    took longer than a period.
    """

    __slots__ = ("_began_ns", "execution", "nominal_ns", "overruns", "period")

    def __init__(self, rate_hz: float) -> None:
        self.nominal_ns = round(1e9 / rate_hz)
        self.period = Durations(PERIOD_NS)
        self.execution = Durations(_EXECUTION_NS)
        self.overruns = 0
        self._began_ns = 0

    def add(self, began_ns: int, ended_ns: int) -> None:
        """Count a turn that began and ended at these times [ns]."""
        if self._began_ns:  # inlined `Durations.add`: this runs in every cycle
            period, duration = self.period, began_ns - self._began_ns
            period.counts[bisect_left(period.bounds_ns, duration)] += 1
            period.sum_ns += duration
            if duration > period.max_ns:
                period.max_ns = duration
        self._began_ns = began_ns
        execution, duration = self.execution, ended_ns - began_ns
        execution.counts[bisect_left(execution.bounds_ns, duration)] += 1
        execution.sum_ns += duration
        if duration > execution.max_ns:
            execution.max_ns = duration
        if duration > self.nominal_ns:
            self.overruns += 1

    def report(self) -> dict[str, Any]:
        """Return the statistics as plain values, for messages."""
        return {
            "nominal_us": self.nominal_ns * 1e-3, "overruns": self.overruns, "period": self.period.report(),
            "execution": self.execution.report(),
        }  # fmt: skip
