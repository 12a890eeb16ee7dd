"""Monotonic `seq` and `t_bus_ns` from the PLC's cycles and times.

After a restart of the PLC program its counter starts again; the lost cycles are estimated from the time that passed,
so that `seq` has a gap and never a step back.

A task that skips cycles counts only those that it runs, while its time advances over all; a clock that is set forward
looks the same.  The count of exceeded cycles, or the time that passed on this computer, distinguishes them.
"""

from collections import deque


class Timeline:
    """Numbers and times of samples; `lost` counts numbers without a sample, `steps` jumps of the PLC's time."""

    _JUMP_NS = 1_000_000_000
    _SAMPLES = 1000  # whose times of receipt are the reference for lateness

    def __init__(self, cycle_ns: int) -> None:
        self.cycle_ns = cycle_ns
        self.lost = 0
        self.steps = 0
        self._counter: int | None = None  # last one of this run; None: of another run
        self.seq = -1  # number of the last sample
        self._time_ns = 0
        self._host_ns = 0
        self._ahead_ns = 0  # added to the PLC's time
        self._late_ns: deque[int] = deque(maxlen=self._SAMPLES)  # time of receipt minus number times cycle

    def restart(self) -> None:
        """Note that the PLC program has restarted."""
        self._counter = None

    def fresh(self, counter: int) -> bool:
        """Return whether a cycle comes after the last one."""
        return self._counter is None or counter > self._counter

    def place(self, counter: int, time_ns: int, host_ns: int, exceeded: bool = False) -> tuple[int, int]:
        """Return `seq` and `t_bus_ns` of a `fresh` sample, available at `host_ns`; `exceeded`: the task was late."""
        is_set = False
        if self.seq < 0:
            seq, expected_ns = 0, time_ns + self._ahead_ns
        else:
            seq, is_set = self._next_seq(counter, time_ns, host_ns, exceeded)
            expected_ns = self._time_ns + (seq - self.seq) * self.cycle_ns
        time_ns += self._ahead_ns
        if is_set or time_ns <= self._time_ns or abs(time_ns - expected_ns) > self._JUMP_NS:
            # The PLC's clock was set: time continues by the count.
            self._ahead_ns += expected_ns - time_ns
            time_ns = expected_ns
            self.steps += 1
        self.lost += seq - self.seq - 1
        self._counter, self.seq, self._time_ns, self._host_ns = counter, seq, time_ns, host_ns
        self._late_ns.append(host_ns - seq * self.cycle_ns)
        return seq, time_ns

    def _next_seq(self, counter: int, time_ns: int, host_ns: int, exceeded: bool) -> tuple[int, bool]:
        """Return `seq`, and whether the PLC's clock was set forward."""
        passed_ns = time_ns + self._ahead_ns - self._time_ns
        if self._counter is None:  # another run
            by_host_ns = host_ns - self._host_ns
            if abs(passed_ns - by_host_ns) > self._JUMP_NS:  # its clock was set meanwhile
                passed_ns = by_host_ns
            self._late_ns.clear()
            return self.seq + max(round(passed_ns / self.cycle_ns), 1), False
        cycles = counter - self._counter
        beyond_ns = passed_ns - cycles * self.cycle_ns
        is_set = False
        if 3 * self.cycle_ns // 4 < beyond_ns <= self._JUMP_NS:
            late_ns = host_ns - (self.seq + cycles) * self.cycle_ns - min(self._late_ns)
            if exceeded or 4 * late_ns > 3 * beyond_ns:
                cycles += (beyond_ns + self.cycle_ns // 4) // self.cycle_ns
            else:
                is_set = True
        return self.seq + cycles, is_set
