"""Local clocks of a segment: drift, receive times, the system time and its compensation, the SYNC0 grid.

A local clock counts nanoseconds from power-on and runs fast by its drift.  The system time of a slave is its local time
plus the offset at 0x0920; the master reads it less the delay at 0x0928, so that all slaves return the time of the
reference clock when the frame passed it.  Drift compensation: a write to 0x0910 compares the slave's system time with
the received one.  The clock is steered by a critically damped proportional-integral controller with a slew of at most
`MAX_SLEW`.  Of the registers of real compensation only the reset by a write to 0x0930 and the filter depth of 0x092C
are modelled.  Source: Beckhoff EtherCAT slave controller data sheet, section I, 9 (distributed clocks).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from rt_core.jit import jit
from rt_core.types import FloatArray, IntArray
from sim_backend.ethercat import registers as reg
from sim_backend.ethercat.registers import UInt8Array

# Columns of the state: whole nanoseconds (N, CLOCK_TIMES) and (N, CLOCK_RATES).
HOST, LOCAL, COMPARED = 0, 1, 2  # host and local time of the last change of rate; host time of the last comparison
CLOCK_TIMES = 3
FRACTION, DRIFT, CORRECTION, DIFFERENCE = 0, 1, 2, 3  # ns; ratios; mean difference to the received time [ns]
CLOCK_RATES = 4

#: Largest change of a clock's rate by compensation.
MAX_SLEW = 1e-3
_PROPORTIONAL, _INTEGRAL = 1.0 / 8.0, 1.0 / 256.0
#: Comparisons further apart than this do not change the rate [ns].
_MAX_GAP = 100_000_000
#: Shortest cycle of the SYNC0 unit [ns].
MIN_CYCLE_NS = 50_000
#: Step while no SYNC0 runs [ns].
FREE_RUN_NS = 1_000_000
_LOW = 0xFFFFFFFF


@jit
def get16(memory: UInt8Array, slave: int, address: int) -> int:
    """Read unsigned 16 bits."""
    return int(np.int64(memory[slave, address]) | np.int64(memory[slave, address + 1]) << 8)


@jit
def get32(memory: UInt8Array, slave: int, address: int) -> int:
    """Read unsigned 32 bits."""
    return get16(memory, slave, address) | get16(memory, slave, address + 2) << 16


@jit
def get64(memory: UInt8Array, slave: int, address: int) -> int:
    """Read signed 64 bits."""
    high = get32(memory, slave, address + 4)
    if high >= 0x80000000:
        high -= 0x100000000
    return high * 0x100000000 + get32(memory, slave, address)


@jit
def put(memory: UInt8Array, slave: int, address: int, value: int, count: int) -> None:
    """Store the lowest `count` bytes of `value`."""
    for k in range(count):
        memory[slave, address + k] = value >> 8 * k & 0xFF


@jit
def add64(a: int, b: int) -> int:
    """Return the sum modulo 2^64, signed."""
    low = (a & _LOW) + (b & _LOW)
    high = (a >> 32) + (b >> 32) + (low >> 32)
    high = (high + 0x80000000 & _LOW) - 0x80000000
    return high * 0x100000000 + (low & _LOW)


@jit
def local_time(times: IntArray, rates: FloatArray, slave: int, host_ns: int) -> int:
    """Return the local time at `host_ns` [ns]."""
    elapsed = host_ns - times[slave, HOST]
    gained = (rates[slave, DRIFT] + rates[slave, CORRECTION]) * elapsed + rates[slave, FRACTION]
    return int(times[slave, LOCAL] + elapsed + np.int64(np.floor(gained)))


@jit
def rebase(times: IntArray, rates: FloatArray, slave: int, host_ns: int) -> None:
    """Count from `host_ns` on, where the rate may change; the fraction of a nanosecond is kept."""
    elapsed = host_ns - times[slave, HOST]
    gained = (rates[slave, DRIFT] + rates[slave, CORRECTION]) * elapsed + rates[slave, FRACTION]
    whole = np.floor(gained)
    times[slave, HOST] = host_ns
    times[slave, LOCAL] += elapsed + np.int64(whole)
    rates[slave, FRACTION] = gained - whole


@jit
def system_time(memory: UInt8Array, times: IntArray, rates: FloatArray, slave: int, host_ns: int) -> int:
    """Return the local copy of the system time at `host_ns` [ns, modulo 2^64]."""
    return add64(local_time(times, rates, slave, host_ns), get64(memory, slave, reg.DC_SYSTEM_TIME_OFFSET))


@jit
def show_system_time(memory: UInt8Array, times: IntArray, rates: FloatArray, slave: int, host_ns: int) -> None:
    """Store in 0x0910 what the master reads in a frame that arrives at `host_ns`."""
    now = system_time(memory, times, rates, slave, host_ns)
    put(memory, slave, reg.DC_SYSTEM_TIME, add64(now, -get32(memory, slave, reg.DC_SYSTEM_TIME_DELAY)), 8)


@jit
def latch_port(memory: UInt8Array, times: IntArray, rates: FloatArray, slave: int, port: int, host_ns: int) -> None:
    """Store the local time at which a frame arrived at `port` (0 or 1)."""
    put(memory, slave, reg.DC_RECEIVE_TIME_PORT[port], local_time(times, rates, slave, host_ns), 4)


@jit
def latch_unit(memory: UInt8Array, times: IntArray, rates: FloatArray, slave: int, host_ns: int) -> None:
    """Store the local time at which a frame arrived at the processing unit."""
    put(memory, slave, reg.DC_RECEIVE_TIME_UNIT, local_time(times, rates, slave, host_ns), 8)


@jit
def compare(memory: UInt8Array, times: IntArray, rates: FloatArray, slave: int, host_ns: int, received: int) -> None:
    """Compare the system time with the lowest 32 bits of the received one, and steer the clock."""
    own = system_time(memory, times, rates, slave, host_ns) - get32(memory, slave, reg.DC_SYSTEM_TIME_DELAY)
    ahead = (own - received + 0x80000000 & _LOW) - 0x80000000
    elapsed = host_ns - times[slave, COMPARED]
    times[slave, COMPARED] = host_ns
    depth = min(int(np.int64(memory[slave, reg.DC_DIFFERENCE_FILTER_DEPTH])), 15)
    rates[slave, DIFFERENCE] += (ahead - rates[slave, DIFFERENCE]) / (1 << depth)
    mean = int(np.rint(rates[slave, DIFFERENCE]))
    put(memory, slave, reg.DC_SYSTEM_TIME_DIFFERENCE, min(abs(mean), 0x7FFFFFFF) | (0x80000000 if mean < 0 else 0), 4)
    rebase(times, rates, slave, host_ns)
    if elapsed <= 0 or elapsed > _MAX_GAP:
        return
    nudge = -_PROPORTIONAL * ahead
    most = MAX_SLEW * elapsed
    if abs(nudge) > most:
        nudge = most if nudge > 0.0 else -most
    else:
        correction = rates[slave, CORRECTION] - _INTEGRAL * ahead / elapsed
        rates[slave, CORRECTION] = min(max(correction, -MAX_SLEW), MAX_SLEW)
    gained = rates[slave, FRACTION] + nudge
    whole = np.floor(gained)
    times[slave, LOCAL] += np.int64(whole)
    rates[slave, FRACTION] = gained - whole


@jit
def reset_control(memory: UInt8Array, times: IntArray, rates: FloatArray, slave: int, host_ns: int) -> None:
    """Reset the compensation."""
    put(memory, slave, reg.DC_SYSTEM_TIME_DIFFERENCE, 0, 4)
    rebase(times, rates, slave, host_ns)
    rates[slave, CORRECTION] = 0.0
    rates[slave, DIFFERENCE] = 0.0


@dataclass(frozen=True)
class ClockSettings:
    """Local clock of one slave: gain on CLOCK_MONOTONIC (negative is slow), and local time at power-on [ns]."""

    ppm: float = 0.0
    start_ns: int = 0


class Clocks:
    """Local clocks of the slaves of a segment, over the segment's memory (N, MEMORY_SIZE)."""

    def __init__(self, memory: UInt8Array, settings: list[ClockSettings]) -> None:
        self.memory = memory
        self.times: IntArray = np.zeros((len(memory), CLOCK_TIMES), np.int64)
        self.rates: FloatArray = np.zeros((len(memory), CLOCK_RATES))
        self._settings = settings
        for slave, clock in enumerate(settings):
            self.rates[slave, DRIFT] = clock.ppm * 1e-6

    def power_on(self, slave: int, host_ns: int) -> None:
        """Restart the local clock; its drift is kept, as a property of the crystal."""
        self.times[slave] = host_ns, self._settings[slave].start_ns, 0
        self.rates[slave] = 0.0, self.rates[slave, DRIFT], 0.0, 0.0

    def step(self, slave: int, by_ns: int) -> None:
        """Shift the local clock."""
        self.times[slave, LOCAL] += by_ns

    def drift(self, slave: int, ppm: float, host_ns: int) -> None:
        """Change the drift of the local clock from `host_ns` on."""
        rebase(self.times, self.rates, slave, host_ns)
        self.rates[slave, DRIFT] = ppm * 1e-6

    def system_ns(self, slave: int, host_ns: int) -> int:
        """Return the system time [ns, 0 to 2^64 - 1] of a slave at `host_ns`."""
        return int(system_time(self.memory, self.times, self.rates, slave, host_ns)) % 2**64

    def host_ns(self, slave: int, system_ns: int, near_ns: int) -> int:
        """Return the host time at which a slave's system time is `system_ns`; `near_ns` is a host time nearby."""
        rate = 1.0 + float(self.rates[slave, DRIFT] + self.rates[slave, CORRECTION])
        ahead = system_ns - self.system_ns(slave, near_ns)
        if abs(ahead) >= reg.NEVER_NS:
            return reg.NEVER_NS
        host = near_ns + round(ahead / rate)
        short = system_ns - self.system_ns(slave, host)  # what the rounding of a long way left
        return host + round(short / rate) if abs(short) < 1_000_000 else host

    def cycle_ns(self, slave: int) -> int:
        """Return the cycle of a slave's SYNC0 [ns], 0 if it does not run."""
        row = self.memory[slave]
        active = reg.DC_ACTIVATE_CYCLIC | reg.DC_ACTIVATE_SYNC0
        if not row[reg.FEATURES] & reg.FEATURE_DC or row[reg.DC_ACTIVATION] & active != active:
            return 0
        cycle = int.from_bytes(row[reg.DC_SYNC0_CYCLE : reg.DC_SYNC0_CYCLE + 4].tobytes(), "little")
        return cycle if cycle >= MIN_CYCLE_NS else 0

    def next_pulse(self, slave: int, cycle_ns: int, host_ns: int) -> int:
        """Return the system time of the first SYNC0 after `host_ns` [ns].

        The start time only defines the grid; a real slave controller would wait for it.
        """
        row = self.memory[slave]
        start = int.from_bytes(row[reg.DC_SYNC0_START : reg.DC_SYNC0_START + 8].tobytes(), "little")
        now = self.system_ns(slave, host_ns)
        return start + ((now - start) // cycle_ns + 1) * cycle_ns


class SyncGrid:
    """Times of the machine's steps: at SYNC0 of the reference clock, or every millisecond without one.

    The reference is the first powered slave along the cable whose SYNC0 runs.  All drives step on its grid, also before
    its start time. The next step is at host time `due_ns`; the nominal time from step to step is `period_ns`.
    """

    def __init__(self, clocks: Clocks, host_ns: int) -> None:
        self._clocks = clocks
        self.reference: int | None = None
        self._pulse_ns = 0
        self.period_ns = FREE_RUN_NS
        self.due_ns = host_ns + FREE_RUN_NS

    def choose(self, slaves: Iterable[int], host_ns: int) -> None:
        """Find the reference among the powered `slaves` and its next SYNC0, after clocks or sync units changed."""
        free_running = self.reference is None
        self.reference = next((slave for slave in slaves if self._clocks.cycle_ns(slave)), None)
        if self.reference is not None:
            self.period_ns = self._clocks.cycle_ns(self.reference)
            self._pulse_ns = self._clocks.next_pulse(self.reference, self.period_ns, host_ns)
            self.due_ns = self._clocks.host_ns(self.reference, self._pulse_ns, host_ns)
        elif not free_running:
            self.period_ns = FREE_RUN_NS
            self.due_ns = host_ns + FREE_RUN_NS

    def advance(self, steps: int = 1) -> None:
        """Advance by a number of steps."""
        if self.reference is None:
            self.due_ns += steps * self.period_ns
            return
        self._pulse_ns += steps * self.period_ns
        near = self.due_ns + steps * self.period_ns
        self.due_ns = self._clocks.host_ns(self.reference, self._pulse_ns, near)
