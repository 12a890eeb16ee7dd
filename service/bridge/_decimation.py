"""Fewer messages a second than are published, evenly spaced on the messages' own clock."""

from __future__ import annotations

from collections.abc import Hashable


class Decimation:
    """Lets at most `rate_hz` messages a second of each stream pass.

    Attributes
    ----------
    left_out : int
        Messages that did not pass, of all streams.
    """

    def __init__(self, rate_hz: float) -> None:
        self.left_out = 0
        self._period_ns = round(1e9 / rate_hz)
        self._due: dict[Hashable, tuple[int, int]] = {}  # epoch and time of the next message of each stream

    def passes(self, stream: Hashable, epoch: int, t_ns: int) -> bool:
        """Tell whether a message of this time goes on; the first after a start of the sender, or a step back, does."""
        period = self._period_ns
        known, due = self._due.get(stream, (epoch, t_ns))
        if known != epoch or t_ns < due - 2 * period:
            due = t_ns
        if t_ns < due - period // 32:  # times that are rounded, or early by a little, are not late by a whole cycle
            self.left_out += 1
            return False
        self._due[stream] = epoch, due + period if t_ns < due + period else t_ns + period
        return True
