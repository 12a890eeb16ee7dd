"""Mapping of distributed-clock (DC) time to CLOCK_MONOTONIC, and counting of samples on the SYNC0 grid.

SYNC0 fires at every multiple of the cycle plus the shift, in DC time; a frame that passes the reference slave carries
what was latched at the SYNC0 before.  Deadlines come from the mapping, so the loop stays locked to the DC clock however
late the process wakes.

The mapping is a second-order phase-locked loop with limited input: a frame that was delayed between the send call and
the wire is late by milliseconds, but moves a deadline by microseconds only.
"""

_MEDIAN_STEP_NS = 1000
_DISAGREE_NS = 2_000_000


class BusClock:
    """Mapping between DC time and CLOCK_MONOTONIC, for a cycle with SYNC0 `shift_ns` after its multiples.

    One frame corrects the mapping by at most `slew_ns`. `drift_ppm` is the rate of the DC clock against
    CLOCK_MONOTONIC, positive if it runs fast; `steps` counts its jumps.
    """

    _KP = 1.0 / 128.0  # critically damped, settles in some 500 frames
    _KI = 1.0 / 65536.0
    _STEP_FRAMES = 3  # consecutive frames that confirm a jump
    _ACQUIRE_FRAMES = 64  # during which a frame that is less late resets the mapping

    def __init__(self, cycle_ns: int, shift_ns: int, slew_ns: float | None = None) -> None:
        self.cycle_ns, self.shift_ns = cycle_ns, shift_ns
        self.steps = 0
        self._limit_ns = 0.02 * cycle_ns if slew_ns is None else slew_ns
        self._host_ns = 0  # last update
        self._dc_ns = 0  # DC time then, by the mapping; integer part
        self._fraction_ns = 0.0
        self._drift = 0.0  # ns a ns
        self._shifted_ns = 0  # DC time on which the grid counts, minus the slave's; changes when it jumps
        self._disagreeing = 0
        self._away_ns = 0
        self._started = False
        self._frames = 0
        self._typical_ns = 0  # median of the round trips, followed by steps

    @property
    def drift_ppm(self) -> float:
        """Rate of the DC clock against CLOCK_MONOTONIC [ppm]."""
        return self._drift * 1e6

    def start(self, dc_ns: int, host_ns: int) -> None:
        """Set the mapping from one frame, sent at `host_ns`, that passed the reference slave at `dc_ns`."""
        self._host_ns, self._dc_ns, self._fraction_ns = host_ns, dc_ns, 0.0
        self._started = True

    def update(self, dc_ns: int, host_ns: int, round_trip_ns: int = 0) -> int | None:
        """Update the mapping with a frame sent at `host_ns`; return its DC time on the continuous time scale.

        Frames with a round trip above the median are dated, but do not correct the mapping.  A time that differs from
        the mapping by more than two cycles is rejected (None), as that of an old frame.  If the next frames confirm
        it, the clock has jumped: the mapping follows, and the count of samples continues.
        """
        if not self._started:
            self.start(dc_ns, host_ns)
            return dc_ns
        predicted = self.to_dc(host_ns)
        measured = dc_ns + self._shifted_ns
        error = measured - predicted
        self._frames += 1
        if error < 0 and self._frames < self._ACQUIRE_FRAMES:
            self.start(measured, host_ns)
            return measured
        if abs(error) > max(2 * self.cycle_ns, _DISAGREE_NS):
            return self._disagree(error, host_ns, predicted)
        self._disagreeing = 0
        slow = round_trip_ns > self._typical_ns
        self._typical_ns += _MEDIAN_STEP_NS if slow else -_MEDIAN_STEP_NS
        if slow:
            return measured
        limited = min(max(float(error), -self._limit_ns), self._limit_ns)
        elapsed = max(host_ns - self._host_ns, 1)
        exact = self._fraction_ns + self._drift * (host_ns - self._host_ns) + self._KP * limited
        whole = round(exact)
        self._dc_ns += host_ns - self._host_ns + whole
        self._fraction_ns = exact - whole
        self._drift += self._KI * limited / max(elapsed, self.cycle_ns)
        self._host_ns = host_ns
        return measured

    def _disagree(self, error: int, host_ns: int, predicted: int) -> int | None:
        if self._disagreeing and abs(error - self._away_ns) > self.cycle_ns:
            self._disagreeing = 0
        self._disagreeing += 1
        self._away_ns = error
        if self._disagreeing < self._STEP_FRAMES:
            return None
        # Whole cycles, so that SYNC0 stays on the slaves' grid.
        whole = round(error / self.cycle_ns) * self.cycle_ns
        self._shifted_ns -= whole
        self._disagreeing = 0
        self.steps += 1
        self.start(predicted + error - whole, host_ns)
        return predicted + error - whole

    def to_dc(self, host_ns: int) -> int:
        """Return the DC time at a time of CLOCK_MONOTONIC [ns]."""
        elapsed = host_ns - self._host_ns
        return self._dc_ns + elapsed + round(self._fraction_ns + self._drift * elapsed)

    def to_host(self, dc_ns: int) -> int:
        """Return CLOCK_MONOTONIC at a DC time [ns]."""
        elapsed = dc_ns - self._dc_ns
        return self._host_ns + elapsed - round(self._fraction_ns + self._drift * elapsed)

    def to_slave(self, dc_ns: int) -> int:
        """Return the time of the slaves' clocks at a time of the continuous scale [ns]."""
        return dc_ns - self._shifted_ns

    def sample_index(self, dc_ns: int) -> int:
        """Return the index of the last SYNC0 before a DC time, counted from DC time 0."""
        return (dc_ns - self.shift_ns) // self.cycle_ns

    def sample_time_ns(self, index: int) -> int:
        """Return the DC time of SYNC0 number `index` [ns]."""
        return index * self.cycle_ns + self.shift_ns

    def deadline_ns(self, index: int) -> int:
        """Return when to send the frame that fetches sample `index` [ns of CLOCK_MONOTONIC].

        The frame passes the reference slave one shift before the SYNC0 that follows: at a multiple of the cycle.
        """
        return self.to_host((index + 1) * self.cycle_ns if self.shift_ns else (2 * index + 1) * self.cycle_ns // 2)
