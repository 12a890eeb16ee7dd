"""Clock, absolute sleep and histograms of durations for real-time loops; all times are CLOCK_MONOTONIC."""

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


def now_ns() -> int:
    """Return CLOCK_MONOTONIC [ns]."""
    return time.monotonic_ns()


class Histogram:
    """Histogram of durations, of fixed size, with bins as wide as 1/32 of their value.

    Negative durations count as 0, those above about 17 s as that.
    """

    _BITS = 5
    _BINS = 30 << _BITS

    def __init__(self) -> None:
        self.counts: IntArray = np.zeros(self._BINS, dtype=np.int64)
        self.total = 0
        self.highest_ns = 0

    @staticmethod
    def bin_of(duration_ns: int) -> int:
        """Return the bin of a duration [ns]."""
        exponent = duration_ns.bit_length() - 1 - Histogram._BITS
        if exponent <= 0:
            return max(duration_ns, 0)
        return min((exponent << Histogram._BITS) + (duration_ns >> exponent), Histogram._BINS - 1)

    @staticmethod
    def edges_ns(index: int) -> tuple[int, int]:
        """Return the smallest durations of bin `index` and of the next one [ns]."""
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
        """Return the quantile of all durations, to half the width of a bin [ns]; 0 without any."""
        if self.total == 0:
            return 0.0
        index = int(np.searchsorted(np.cumsum(self.counts), max(fraction * self.total, 1.0)))
        return min(0.5 * sum(self.edges_ns(index)), float(self.highest_ns))

    def summary(self) -> dict[str, Any]:
        """Return percentiles and the non-empty bins, in microseconds."""
        used = np.flatnonzero(self.counts)
        return {
            "p50_us": self.quantile_ns(0.5) * 1e-3, "p99_us": self.quantile_ns(0.99) * 1e-3,
            "p999_us": self.quantile_ns(0.999) * 1e-3, "max_us": self.highest_ns * 1e-3,
            "bins_us": [self.edges_ns(int(index))[0] * 1e-3 for index in used], "counts": self.counts[used].tolist(),
        }  # fmt: skip
