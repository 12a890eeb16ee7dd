"""Access of the master to the memory of one slave: permissions and events.

Registers accept only the bits that the master may write.  An enabled sync manager keeps its settings and guards its
part of the RAM: a mailbox changes hands as a whole, from its first byte to its last; a buffer of process data is always
open in one direction; one that the device has deactivated is locked.  Of the three buffers of process data only one is
modelled: frames and device access it in turn.
"""

from typing import NamedTuple

import numpy as np

from rt_core.jit import jit
from rt_core.types import FloatArray, IntArray
from sim_backend.ethercat import registers as reg
from sim_backend.ethercat._clock import compare, get16, latch_port, latch_unit, reset_control, show_system_time
from sim_backend.ethercat.registers import UInt8Array

_SM_END = reg.SM + reg.SM_COUNT * reg.SM_SIZE
_DC_END = 0x0A00
#: Arrival of a frame at a slave: host times [ns] at the processing unit and at ports 0 and 1.
AT_UNIT, AT_PORT_0, AT_PORT_1 = range(3)
#: In place of a time: the frame does not arrive at that port, or another frame will.
NOT_THERE, ANOTHER = 0, -1
#: Event bit for the segment only: port 1 latches the time of the next frame.
WAITING = 1 << reg.EVENT_COUNT


class SlaveArrays(NamedTuple):
    """Arrays of all slaves of a segment, and those that a kernel works in."""

    memory: UInt8Array
    """(N, MEMORY_SIZE)"""
    opened: UInt8Array
    """Mailboxes that have been accessed in part (N, SM_COUNT)"""
    live: UInt8Array
    """0 where a slave passes frames on without processing them (N,)"""
    times: IntArray
    """Clocks (N, CLOCK_TIMES)"""
    rates: FloatArray
    """Clocks (N, CLOCK_RATES)"""
    events: IntArray
    """One bit for each kind of event (N,)"""
    arrival: IntArray
    """Of the frame at the present slave, see `AT_UNIT` (3,)"""
    arrived: UInt8Array
    """Data of a datagram as they arrived (2048,)"""
    covered: UInt8Array
    """Bytes that a mapping covers partly (2048,)"""


def _write_masks() -> UInt8Array:
    """Return the bits of each register that the master may write."""
    masks = np.full(reg.RAM_START, 0xFF, np.uint8)
    read_only = (
        (0x0000, 0x0010), (0x0012, 0x0014), (0x0110, 0x0112), (0x0130, 0x0136), (0x0140, 0x0160), (0x0210, 0x0224),
        (reg.RX_ERROR_COUNTER, reg.COUNTERS_END), (0x0440, 0x0444), (0x0501, 0x0502),
        (reg.DC_RECEIVE_TIME_PORT[0], reg.DC_SYSTEM_TIME_OFFSET), (0x092C, 0x0930), (0x0932, 0x0934),
        (0x0984, 0x0990), (0x09AE, 0x09D0), (0x0E00, 0x0F00),
    )  # fmt: skip
    for start, end in read_only:
        masks[start:end] = 0
    masks[reg.SII_CONTROL], masks[reg.SII_CONTROL + 1] = 0x01, 0x07
    for k in range(reg.SM_COUNT):
        masks[reg.SM + k * reg.SM_SIZE + reg.SM_STATUS] = 0
        masks[reg.SM + k * reg.SM_SIZE + reg.SM_PDI_CONTROL] = 0
    return masks


_MASKS = _write_masks()


@jit
def _raise(events: IntArray, slave: int, kind: int) -> None:
    events[slave] |= 1 << kind


@jit
def _touched(memory: UInt8Array, slave: int, start: int, end: int) -> int:
    """Return one bit for each sync manager that guards bytes from `start` to `end`."""
    bits = 0
    for k in range(reg.SM_COUNT):
        at = reg.SM + k * reg.SM_SIZE
        if memory[slave, at + reg.SM_ACTIVATE] & reg.SM_ACTIVATE_ENABLE:
            first, length = get16(memory, slave, at + reg.SM_START), get16(memory, slave, at + reg.SM_LENGTH)
            if length > 0 and start < first + length and first < end:
                bits |= 1 << k
    return bits


@jit
def _admits(memory: UInt8Array, opened: UInt8Array, slave: int, touched: int, start: int, direction: int) -> bool:
    """Return whether the sync managers `touched` permit the access from `start`; a deactivated one locks its RAM."""
    for k in range(reg.SM_COUNT):
        at = reg.SM + k * reg.SM_SIZE
        if not touched >> k & 1:
            continue
        if memory[slave, at + reg.SM_PDI_CONTROL] & reg.SM_PDI_DEACTIVATE:
            return False
        if memory[slave, at + reg.SM_CONTROL] & reg.SM_CONTROL_DIRECTION_MASK != direction:
            return False
        if memory[slave, at + reg.SM_CONTROL] & reg.SM_CONTROL_MODE_MASK == reg.SM_MODE_MAILBOX:
            full = memory[slave, at + reg.SM_STATUS] & reg.SM_STATUS_FULL != 0
            if full != (direction == reg.SM_DIRECTION_READ):
                return False
            if start > get16(memory, slave, at + reg.SM_START) and not opened[slave, k]:
                return False
    return True


@jit
def _advance(arrays: SlaveArrays, slave: int, touched: int, end: int, direction: int) -> None:
    """Hand over the buffers `touched` that end before `end`, open the others."""
    memory, opened, events = arrays.memory, arrays.opened, arrays.events
    for k in range(reg.SM_COUNT):
        at = reg.SM + k * reg.SM_SIZE
        if not touched >> k & 1:
            continue
        first = get16(memory, slave, at + reg.SM_START)
        if end < first + get16(memory, slave, at + reg.SM_LENGTH):
            opened[slave, k] = 1
            continue
        opened[slave, k] = 0
        mailbox = memory[slave, at + reg.SM_CONTROL] & reg.SM_CONTROL_MODE_MASK == reg.SM_MODE_MAILBOX
        status = np.int64(memory[slave, at + reg.SM_STATUS])
        if direction == reg.SM_DIRECTION_WRITE:
            status = (status | reg.SM_STATUS_WRITTEN) & ~reg.SM_STATUS_READ
            if mailbox:
                status |= reg.SM_STATUS_FULL
            _raise(events, slave, reg.EVENT_MAILBOX_IN if mailbox else reg.EVENT_OUTPUTS)
        else:
            status = (status | reg.SM_STATUS_READ) & ~reg.SM_STATUS_WRITTEN
            if mailbox:
                status &= ~reg.SM_STATUS_FULL
                _raise(events, slave, reg.EVENT_MAILBOX_OUT)
        memory[slave, at + reg.SM_STATUS] = status


@jit
def read(arrays: SlaveArrays, slave: int, start: int, target: UInt8Array, combine: bool) -> bool:
    """Read bytes from address `start` on into `target`, or OR them to it; False if not acknowledged."""
    memory, count = arrays.memory, target.shape[0]
    end = start + count
    if count <= 0 or end > reg.MEMORY_SIZE:
        return False
    touched = _touched(memory, slave, start, end) if end > reg.RAM_START else 0
    if touched and not _admits(memory, arrays.opened, slave, touched, start, reg.SM_DIRECTION_READ):
        return False
    if start < reg.DC_SYSTEM_TIME + 8 and end > reg.DC_SYSTEM_TIME and memory[slave, reg.FEATURES] & reg.FEATURE_DC:
        show_system_time(memory, arrays.times, arrays.rates, slave, arrays.arrival[AT_UNIT])
    if combine:
        for k in range(count):
            target[k] |= memory[slave, start + k]
    else:
        for k in range(count):
            target[k] = memory[slave, start + k]
    if touched:
        _advance(arrays, slave, touched, end, reg.SM_DIRECTION_READ)
    return True


@jit
def write(arrays: SlaveArrays, slave: int, start: int, source: UInt8Array) -> bool:
    """Write `source` from address `start` on; False if not acknowledged."""
    memory, count = arrays.memory, source.shape[0]
    end = start + count
    if count <= 0 or end > reg.MEMORY_SIZE:
        return False
    touched = _touched(memory, slave, start, end) if end > reg.RAM_START else 0
    if touched and not _admits(memory, arrays.opened, slave, touched, start, reg.SM_DIRECTION_WRITE):
        return False
    enabled = _enabled(memory, slave) if start < _SM_END and end > reg.SM else 0
    clocked = memory[slave, reg.FEATURES] & reg.FEATURE_DC != 0
    for address in range(start, min(end, reg.RAM_START)):
        if address >= reg.DC_RECEIVE_TIME_PORT[0] and address < _DC_END and not clocked:
            continue
        if enabled and _is_locked(enabled, address):
            continue
        mask = np.int64(_MASKS[address])
        kept = np.int64(memory[slave, address]) & ~mask
        memory[slave, address] = kept | np.int64(source[address - start]) & mask
    for address in range(max(start, reg.RAM_START), end):
        memory[slave, address] = source[address - start]
    if start < reg.RAM_START:
        _registers_written(arrays, slave, start, end, enabled)
        if clocked and start < reg.DC_UNIT_END and end > reg.DC_RECEIVE_TIME_PORT[0]:
            _clock_written(arrays, slave, start, source)
    if touched:
        _advance(arrays, slave, touched, end, reg.SM_DIRECTION_WRITE)
    return True


@jit
def _enabled(memory: UInt8Array, slave: int) -> int:
    """Return one bit for each enabled sync manager."""
    bits = 0
    for k in range(reg.SM_COUNT):
        bits |= (int(memory[slave, reg.SM + k * reg.SM_SIZE + reg.SM_ACTIVATE]) & reg.SM_ACTIVATE_ENABLE) << k
    return bits


@jit
def _is_locked(enabled: int, address: int) -> bool:
    """Return whether a register is start, length or control of an enabled sync manager."""
    unit, place = divmod(address - reg.SM, reg.SM_SIZE)
    return 0 <= unit < reg.SM_COUNT and place <= reg.SM_CONTROL and enabled >> unit & 1 != 0


@jit
def _registers_written(arrays: SlaveArrays, slave: int, start: int, end: int, enabled: int) -> None:
    memory, events = arrays.memory, arrays.events
    if start < reg.AL_CONTROL + 2 and end > reg.AL_CONTROL:
        _raise(events, slave, reg.EVENT_AL_CONTROL)
    if start < reg.SII_CONTROL + 2 and end > reg.SII_CONTROL:
        _raise(events, slave, reg.EVENT_SII)
        if memory[slave, reg.SII_CONTROL + 1] & 0x07:
            memory[slave, reg.SII_CONTROL + 1] |= 0x80  # busy until the device has answered
    if start < reg.COUNTERS_END and end > reg.RX_ERROR_COUNTER:
        memory[slave, reg.RX_ERROR_COUNTER : reg.COUNTERS_END] = 0
    if start < reg.WATCHDOG_PROCESS_DATA_COUNTER + 2 and end > reg.WATCHDOG_PROCESS_DATA_COUNTER:
        memory[slave, reg.WATCHDOG_PROCESS_DATA_COUNTER : reg.WATCHDOG_PROCESS_DATA_COUNTER + 2] = 0
    if start < _SM_END and end > reg.SM:
        changed = enabled ^ _enabled(memory, slave)
        for k in range(reg.SM_COUNT):
            at = reg.SM + k * reg.SM_SIZE
            if changed >> k & 1:
                memory[slave, at + reg.SM_STATUS] = 0
                arrays.opened[slave, k] = 0
            if start <= at + reg.SM_ACTIVATE and end > at + reg.SM_ACTIVATE:
                _raise(events, slave, reg.EVENT_SM_CHANGED)


@jit
def _clock_written(arrays: SlaveArrays, slave: int, start: int, source: UInt8Array) -> None:
    memory, times, rates, events = arrays.memory, arrays.times, arrays.rates, arrays.events
    arrival, end = arrays.arrival, start + source.shape[0]
    if start < reg.DC_RECEIVE_TIME_PORT[1] and end > reg.DC_RECEIVE_TIME_PORT[0]:
        latch_unit(memory, times, rates, slave, arrival[AT_UNIT])
        for port in range(2):
            if arrival[AT_PORT_0 + port] == ANOTHER:
                events[slave] |= WAITING
            elif arrival[AT_PORT_0 + port] != NOT_THERE:
                latch_port(memory, times, rates, slave, port, arrival[AT_PORT_0 + port])
        _raise(events, slave, reg.EVENT_CLOCK)
    if start <= reg.DC_SYSTEM_TIME and end >= reg.DC_SYSTEM_TIME + 4:
        received = 0
        for k in range(4):
            received |= int(np.int64(source[reg.DC_SYSTEM_TIME - start + k])) << 8 * k
        compare(memory, times, rates, slave, arrival[AT_UNIT], received)
    if start < reg.DC_SPEED_COUNTER_START + 2 and end > reg.DC_SPEED_COUNTER_START:
        reset_control(memory, times, rates, slave, arrival[AT_UNIT])
    if start < reg.DC_SPEED_COUNTER_START + 2 and end > reg.DC_SYSTEM_TIME_OFFSET:
        _raise(events, slave, reg.EVENT_CLOCK)
    if start < reg.DC_UNIT_END and end > reg.DC_CYCLIC_UNIT_CONTROL:
        _raise(events, slave, reg.EVENT_DC_CHANGED)
