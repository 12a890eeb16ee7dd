"""Cycles and times of the PLC to `seq` and `t_bus_ns`, which only go forward whatever the PLC does.

After a restart of the PLC program its counter begins anew; the cycles that were lost meanwhile are estimated from the
time that passed, so that who counts sees a gap and never a step back.

A task that leaves cycles out counts only those that it runs, and its time goes ahead by the others; a clock that is set
forward looks the same.  The count of exceeded cycles, or the time that passed on this computer, tells them apart.
"""

from __future__ import annotations

from collections import deque


class Timeline:
    """Numbers and times of samples.

    Parameters
    ----------
    cycle_ns : int
        Of the PLC's task.

    Attributes
    ----------
    lost : int
        Numbers without a sample: cycles that never arrived.
    steps : int
        How often the PLC's time went backwards or jumped, beyond restarts.
    """

    _JUMP_NS = 1_000_000_000
    _SAMPLES = 1000  # whose times of receipt say how late one comes

    def __init__(self, cycle_ns: int) -> None:
        self.cycle_ns = cycle_ns
        self.lost = 0
        self.steps = 0
        self._counter: int | None = None  # last one, of this run; None: of another run
        self._seq = -1
        self._time_ns = 0
        self._host_ns = 0
        self._ahead_ns = 0  # added to the PLC's time
        self._late_ns: deque[int] = deque(maxlen=self._SAMPLES)  # receipt less number times cycle

    @property
    def seq(self) -> int:
        """Number of the last sample; -1 before the first."""
        return self._seq

    def restart(self) -> None:
        """Take note that the PLC program has begun anew."""
        self._counter = None

    def fresh(self, counter: int) -> bool:
        """Whether a cycle comes after the last one."""
        return self._counter is None or counter > self._counter

    def place(self, counter: int, time_ns: int, host_ns: int, exceeded: bool = False) -> tuple[int, int]:
        """Return `seq` and `t_bus_ns` of a sample that is `fresh`, and could be had at `host_ns` at the latest.

        `exceeded`: the task has lately taken longer than its cycle.
        """
        is_set = False
        if self._seq < 0:
            seq, expected_ns = 0, time_ns + self._ahead_ns
        else:
            seq, is_set = self._next_seq(counter, time_ns, host_ns, exceeded)
            expected_ns = self._time_ns + (seq - self._seq) * self.cycle_ns
        time_ns += self._ahead_ns
        if is_set or time_ns <= self._time_ns or abs(time_ns - expected_ns) > self._JUMP_NS:
            # The PLC's clock was set; time goes on by the count.
            self._ahead_ns += expected_ns - time_ns
            time_ns = expected_ns
            self.steps += 1
        self.lost += seq - self._seq - 1
        self._counter, self._seq, self._time_ns, self._host_ns = counter, seq, time_ns, host_ns
        self._late_ns.append(host_ns - seq * self.cycle_ns)
        return seq, time_ns

    def _next_seq(self, counter: int, time_ns: int, host_ns: int, exceeded: bool) -> tuple[int, bool]:
        """Return `seq`, and whether the PLC's clock was set forward."""
        passed_ns = time_ns + self._ahead_ns - self._time_ns
        if self._counter is None:  # another run
            by_host_ns = host_ns - self._host_ns
            if abs(passed_ns - by_host_ns) > self._JUMP_NS:  # whose clock was set meanwhile
                passed_ns = by_host_ns
            self._late_ns.clear()
            return self._seq + max(round(passed_ns / self.cycle_ns), 1), False
        cycles = counter - self._counter
        beyond_ns = passed_ns - cycles * self.cycle_ns
        is_set = False
        if 3 * self.cycle_ns // 4 < beyond_ns <= self._JUMP_NS:
            late_ns = host_ns - (self._seq + cycles) * self.cycle_ns - min(self._late_ns)
            if exceeded or 4 * late_ns > 3 * beyond_ns:
                cycles += (beyond_ns + self.cycle_ns // 4) // self.cycle_ns
            else:
                is_set = True
        return self._seq + cycles, is_set
