"""Absolute deadlines, and the account of what became of each cycle.

A cycle is answered (a frame), lost (sent, no answer, or passed while an answer was waited for) or overrun (not sent,
because the loop was late).  Late cycles are skipped, never made up for: a burst of frames would reach the drives as
several targets in one of their cycles.
"""

from __future__ import annotations

import ctypes
import time
from typing import Any

import numpy as np

from rt_core.types import IntArray

_CLOCK_MONOTONIC = 1
_TIMER_ABSTIME = 1
_EINTR = 4


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


_clock_nanosleep = ctypes.CDLL(None, use_errno=True).clock_nanosleep
_clock_nanosleep.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.POINTER(_Timespec), ctypes.c_void_p)
_clock_nanosleep.restype = ctypes.c_int


def sleep_until(deadline_ns: int) -> None:
    """Sleep to an absolute time of CLOCK_MONOTONIC [ns]; return at once if it has passed."""
    at = _Timespec(deadline_ns // 1_000_000_000, deadline_ns % 1_000_000_000)
    while True:
        error = _clock_nanosleep(_CLOCK_MONOTONIC, _TIMER_ABSTIME, ctypes.byref(at), None)
        if error == 0:
            return
        if error != _EINTR:
            raise OSError(error, "clock_nanosleep")


def next_cycle(last: int, now_ns: int, deadline_of_next_ns: int, cycle_ns: int) -> int:
    """Index of the cycle to wait for.

    It is the one after `last`, unless that one's deadline passed more than half a cycle ago: then the next whose
    deadline is still to come, on the same grid.
    """
    late_ns = now_ns - deadline_of_next_ns
    if late_ns <= cycle_ns // 2:
        return last + 1
    return last + 1 + late_ns // cycle_ns + 1


class CycleAccount:
    """Every cycle from 0 on, each counted once.

    Attributes
    ----------
    last : int
        Highest index accounted for; -1 before the first.
    frames, lost, overruns : int
        They add up to `last + 1`.
    repeated : int
        Answers for a cycle that already had one; they are no frames.
    """

    def __init__(self) -> None:
        self.last = -1
        self.frames = 0
        self.lost = 0
        self.overruns = 0
        self.repeated = 0
        self._unanswered = 0

    def unanswered(self) -> None:
        """Take note of an exchange without an answer; which cycle that was, the next answer tells."""
        self._unanswered += 1

    def answered(self, index: int) -> bool:
        """Take note of an answer for cycle `index`; False if that cycle already has its frame."""
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


class Histogram:
    """Counts of durations in bins 1/32 wide of their value; its size never changes.

    Negative durations count as 0, above about 17 s as that.
    """

    _BITS = 5
    _BINS = 30 << _BITS

    def __init__(self) -> None:
        self.counts: IntArray = np.zeros(self._BINS, dtype=np.int64)
        self.total = 0
        self.highest_ns = 0

    @staticmethod
    def bin_of(duration_ns: int) -> int:
        """Bin of a duration [ns]."""
        exponent = duration_ns.bit_length() - 1 - Histogram._BITS
        if exponent <= 0:
            return max(duration_ns, 0)
        return min((exponent << Histogram._BITS) + (duration_ns >> exponent), Histogram._BINS - 1)

    @staticmethod
    def edges_ns(index: int) -> tuple[int, int]:
        """Smallest duration of bin `index`, and of the next [ns]."""
        exponent = max((index >> Histogram._BITS) - 1, 0)
        low = index - (exponent << Histogram._BITS)
        return low << exponent, (low + 1) << exponent

    def add(self, duration_ns: int) -> None:
        """Count a duration [ns]."""
        self.counts[self.bin_of(duration_ns)] += 1
        self.total += 1
        if duration_ns > self.highest_ns:
            self.highest_ns = duration_ns

    def quantile_ns(self, fraction: float) -> float:
        """Duration that `fraction` of all do not exceed, to half the width of a bin [ns]; 0 without any."""
        if self.total == 0:
            return 0.0
        index = int(np.searchsorted(np.cumsum(self.counts), max(fraction * self.total, 1.0)))
        return min(0.5 * sum(self.edges_ns(index)), float(self.highest_ns))

    def summary(self) -> dict[str, Any]:
        """Percentiles and counts for messages, in microseconds; bins without any are left out."""
        used = np.flatnonzero(self.counts)
        return {
            "p50_us": self.quantile_ns(0.5) * 1e-3,
            "p99_us": self.quantile_ns(0.99) * 1e-3,
            "p999_us": self.quantile_ns(0.999) * 1e-3,
            "max_us": self.highest_ns * 1e-3,
            "bins_us": [self.edges_ns(int(index))[0] * 1e-3 for index in used],
            "counts": self.counts[used].tolist(),
        }


def now_ns() -> int:
    """CLOCK_MONOTONIC [ns]."""
    return time.monotonic_ns()
