"""PLC time in integers, and its rate against CLOCK_MONOTONIC.

TwinCAT counts 100 ns since 1601-01-01 UTC (FILETIME) and, with EtherCAT, nanoseconds of the distributed clock since
2000-01-01.  Both become nanoseconds since 1970-01-01; floating-point numbers would lose microseconds.
"""

from collections import deque

import numpy as np

from rt_core.types import IntArray

#: 1601-01-01 to 1970-01-01 [100 ns], and 1970-01-01 to 2000-01-01 [ns].
FILETIME_1970 = 116_444_736_000_000_000
DC_2000_NS = 946_684_800_000_000_000
_WINDOW_NS = 1_000_000_000
_WINDOWS = 120
_STEP_NS = 50_000_000
_STEP_REPLIES = 20


def filetime_to_ns(filetime: int) -> int:
    """Convert a time in 100 ns since 1601 to ns since 1970."""
    return (filetime - FILETIME_1970) * 100


def filetimes_to_ns(filetimes: IntArray) -> IntArray:
    """Convert int64 arrays as `filetime_to_ns` does."""
    return (filetimes - FILETIME_1970) * 100


def dc_to_ns(dc_ns: IntArray) -> IntArray:
    """Convert times of the distributed clock, int64, to ns since 1970."""
    return dc_ns + DC_2000_NS


class PlcClock:
    """Offset and rate of the PLC's clock against CLOCK_MONOTONIC, from the times in replies.

    The time in a reply is a lower bound of the PLC's clock when the reply arrives.  The mapping is a line through the
    freshest reply of each second over the last two minutes.  The delay of even these replies, some tenths of a
    millisecond up to a cycle, is not included.  `steps` counts the jumps of the PLC's clock by more than 50 ms.
    """

    def __init__(self) -> None:
        self.steps = 0
        self._points: deque[tuple[int, int]] = deque(maxlen=_WINDOWS)  # host time, PLC minus host
        self._best: tuple[int, int] | None = None  # of the present second
        self._window_ns = 0
        self._away = 0
        self._fitted: tuple[int, int, float] | None = None

    def add(self, plc_ns: int, received_ns: int) -> None:
        """Add the PLC's time [ns since 1970] in a reply, and its time of receipt."""
        offset = plc_ns - received_ns
        if self._best is not None and abs(offset - self._best[1]) > _STEP_NS:
            self._away += 1
            if self._away < _STEP_REPLIES:  # single late replies are no jump
                return
            self.steps += 1
            self.restart()
        self._away = 0
        if self._best is None or received_ns - self._window_ns >= _WINDOW_NS:
            if self._best is not None:
                self._points.append(self._best)
                self._fitted = self._line()
            self._best, self._window_ns = (received_ns, offset), received_ns
        elif offset > self._best[1]:
            self._best = (received_ns, offset)

    def restart(self) -> None:
        """Discard everything but the count of steps."""
        self._away = 0
        self._fitted = None
        self._points.clear()
        self._best = None

    def _line(self) -> tuple[int, int, float]:
        """Return a host time, PLC minus host at that time, and its growth per nanosecond."""
        newest = self._points[-1]
        host = np.array([point[0] - newest[0] for point in self._points], dtype=np.float64)
        offset = np.array([point[1] - newest[1] for point in self._points], dtype=np.float64)
        middle = float(host.mean())
        spread = float(((host - middle) ** 2).sum())
        slope = float(((host - middle) * offset).sum()) / spread if spread > 0.0 else 0.0
        return newest[0] + round(middle), newest[1] + round(float(offset.mean())), slope

    @property
    def known(self) -> bool:
        """Whether there is a mapping."""
        return self._best is not None

    @property
    def drift_ppm(self) -> float | None:
        """Rate of the PLC's clock [ppm], positive if it runs fast; None during the first three seconds."""
        return self._fitted[2] * 1e6 if self._fitted is not None and len(self._points) >= 3 else None

    def to_host(self, plc_ns: int) -> int:
        """Return CLOCK_MONOTONIC at a time of the PLC [ns since 1970]; requires `known`."""
        assert self._best is not None
        middle_ns, offset, slope = self._fitted or (*self._best, 0.0)
        host_ns = plc_ns - offset
        return host_ns - round(slope * (host_ns - middle_ns))
