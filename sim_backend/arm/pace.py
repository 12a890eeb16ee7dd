"""Deadlines of the samples of a simulated arm."""

import time

from drivers.driver import DriverTimeoutError


class Pace:
    """Absolute deadlines of CLOCK_MONOTONIC: sample `k` is due `k / (rate_hz * pace)` after the first wait.

    `rate_hz` are samples per simulated second, `pace` simulated seconds per second; `name` is the arm's, for messages.
    """

    def __init__(self, name: str, rate_hz: float, pace: float) -> None:
        self._name, self._rate_hz = name, rate_hz * pace
        self._start_ns: int | None = None

    def wait(self, seq: int, timeout_s: float) -> None:
        """Sleep until sample `seq` is due.

        Raises `DriverTimeoutError`: it is due later than `timeout_s` from now; raised after that time.
        """
        now = time.monotonic_ns()
        if self._start_ns is None:
            self._start_ns = now
        left_s = (self._start_ns - now) * 1e-9 + seq / self._rate_hz
        if left_s > timeout_s:
            time.sleep(max(timeout_s, 0.0))
            raise DriverTimeoutError(
                f"the next sample of simulated arm '{self._name}' is due in {left_s:.3g} s, "
                f"after the time-out of {timeout_s:g} s"
            )
        if left_s > 0.0:
            time.sleep(left_s)
