"""Access of the master to the memory of one slave: what may be read and written, and what that sets off.

Registers take only the bits that the master may write.  A sync manager that is enabled keeps its settings, and guards
its part of the RAM: a mailbox is handed over whole, from its first byte to its last; a buffer of process data is always
open in the one direction; one that the device has deactivated is locked.  Of the three buffers behind process data one
is kept: frames and device take turns here.
"""

from __future__ import annotations

import numpy as np

from rt_core.jit import jit
from rt_core.types import FloatArray, IntArray
from sim_backend.ethercat._clock import (
    compare,
    get16,
    latch_port,
    latch_unit,
    reset_control,
    show_system_time,
)
from sim_backend.ethercat.registers import (
    AL_CONTROL,
    COUNTERS_END,
    DC_CYCLIC_UNIT_CONTROL,
    DC_RECEIVE_TIME_PORT,
    DC_SPEED_COUNTER_START,
    DC_SYSTEM_TIME,
    DC_SYSTEM_TIME_OFFSET,
    DC_UNIT_END,
    EVENT_AL_CONTROL,
    EVENT_CLOCK,
    EVENT_COUNT,
    EVENT_DC_CHANGED,
    EVENT_MAILBOX_IN,
    EVENT_MAILBOX_OUT,
    EVENT_OUTPUTS,
    EVENT_SII,
    EVENT_SM_CHANGED,
    FEATURE_DC,
    FEATURES,
    MEMORY_SIZE,
    RAM_START,
    RX_ERROR_COUNTER,
    SII_CONTROL,
    SM,
    SM_ACTIVATE,
    SM_ACTIVATE_ENABLE,
    SM_CONTROL,
    SM_CONTROL_DIRECTION_MASK,
    SM_CONTROL_MODE_MASK,
    SM_COUNT,
    SM_DIRECTION_READ,
    SM_DIRECTION_WRITE,
    SM_LENGTH,
    SM_MODE_MAILBOX,
    SM_PDI_CONTROL,
    SM_PDI_DEACTIVATE,
    SM_SIZE,
    SM_START,
    SM_STATUS,
    SM_STATUS_FULL,
    SM_STATUS_READ,
    SM_STATUS_WRITTEN,
    WATCHDOG_PROCESS_DATA_COUNTER,
    UInt8Array,
)

_SM_END = SM + SM_COUNT * SM_SIZE
_DC_END = 0x0A00
#: Arrival of a frame at a slave (ARRIVAL,): host times [ns] at the processing unit and at ports 0 and 1.
AT_UNIT, AT_PORT_0, AT_PORT_1 = range(3)
ARRIVAL = 3
#: In place of a time: the frame does not come to that port, or another frame will.
NOT_THERE, ANOTHER = 0, -1
#: Bit of the events, for the segment only: port 1 waits for the next frame to latch its time.
WAITING = 1 << EVENT_COUNT


def _write_masks() -> UInt8Array:
    """Bits of each register that the master may write."""
    masks = np.full(RAM_START, 0xFF, np.uint8)
    read_only = (
        (0x0000, 0x0010),
        (0x0012, 0x0014),
        (0x0110, 0x0112),
        (0x0130, 0x0136),
        (0x0140, 0x0160),
        (0x0210, 0x0224),
        (RX_ERROR_COUNTER, COUNTERS_END),
        (0x0440, 0x0444),
        (0x0501, 0x0502),
        (DC_RECEIVE_TIME_PORT[0], DC_SYSTEM_TIME_OFFSET),
        (0x092C, 0x0930),
        (0x0932, 0x0934),
        (0x0984, 0x0990),
        (0x09AE, 0x09D0),
        (0x0E00, 0x0F00),
    )
    for start, end in read_only:
        masks[start:end] = 0
    masks[SII_CONTROL], masks[SII_CONTROL + 1] = 0x01, 0x07
    for k in range(SM_COUNT):
        masks[SM + k * SM_SIZE + SM_STATUS] = 0
        masks[SM + k * SM_SIZE + SM_PDI_CONTROL] = 0
    return masks


_MASKS = _write_masks()


@jit
def _raise(events: IntArray, slave: int, kind: int) -> None:
    events[slave] |= 1 << kind


@jit
def _touched(memory: UInt8Array, slave: int, start: int, end: int) -> int:
    """One bit for each sync manager that guards some of the bytes from `start` to `end`."""
    bits = 0
    for k in range(SM_COUNT):
        at = SM + k * SM_SIZE
        if memory[slave, at + SM_ACTIVATE] & SM_ACTIVATE_ENABLE:
            first, length = get16(memory, slave, at + SM_START), get16(memory, slave, at + SM_LENGTH)
            if length > 0 and start < first + length and first < end:
                bits |= 1 << k
    return bits


@jit
def _admits(memory: UInt8Array, opened: UInt8Array, slave: int, touched: int, start: int, direction: int) -> bool:
    """Tell whether the sync managers `touched` let the master read or write from `start` on.

    One that the device has deactivated locks its part of the RAM.
    """
    for k in range(SM_COUNT):
        at = SM + k * SM_SIZE
        if not touched >> k & 1:
            continue
        if memory[slave, at + SM_PDI_CONTROL] & SM_PDI_DEACTIVATE:
            return False
        if memory[slave, at + SM_CONTROL] & SM_CONTROL_DIRECTION_MASK != direction:
            return False
        if memory[slave, at + SM_CONTROL] & SM_CONTROL_MODE_MASK == SM_MODE_MAILBOX:
            full = memory[slave, at + SM_STATUS] & SM_STATUS_FULL != 0
            if full != (direction == SM_DIRECTION_READ):
                return False
            if start > get16(memory, slave, at + SM_START) and not opened[slave, k]:
                return False
    return True


@jit
def _advance(
    memory: UInt8Array, opened: UInt8Array, events: IntArray, slave: int, touched: int, end: int, direction: int
) -> None:
    """Hand over those of the buffers `touched` whose last byte lies before `end`, open the others."""
    for k in range(SM_COUNT):
        at = SM + k * SM_SIZE
        if not touched >> k & 1:
            continue
        first = get16(memory, slave, at + SM_START)
        if end < first + get16(memory, slave, at + SM_LENGTH):
            opened[slave, k] = 1
            continue
        opened[slave, k] = 0
        mailbox = memory[slave, at + SM_CONTROL] & SM_CONTROL_MODE_MASK == SM_MODE_MAILBOX
        status = np.int64(memory[slave, at + SM_STATUS])
        if direction == SM_DIRECTION_WRITE:
            status = (status | SM_STATUS_WRITTEN) & ~SM_STATUS_READ
            if mailbox:
                status |= SM_STATUS_FULL
            _raise(events, slave, EVENT_MAILBOX_IN if mailbox else EVENT_OUTPUTS)
        else:
            status = (status | SM_STATUS_READ) & ~SM_STATUS_WRITTEN
            if mailbox:
                status &= ~SM_STATUS_FULL
                _raise(events, slave, EVENT_MAILBOX_OUT)
        memory[slave, at + SM_STATUS] = status


@jit
def read(
    memory: UInt8Array,
    opened: UInt8Array,
    times: IntArray,
    rates: FloatArray,
    events: IntArray,
    slave: int,
    start: int,
    count: int,
    arrival: IntArray,
    target: UInt8Array,
    at: int,
    combine: bool,
) -> bool:
    """Read `count` bytes from address `start` into `target[at:]`, or OR them to it; False if not acknowledged."""
    end = start + count
    if count <= 0 or end > MEMORY_SIZE:
        return False
    touched = _touched(memory, slave, start, end) if end > RAM_START else 0
    if touched and not _admits(memory, opened, slave, touched, start, SM_DIRECTION_READ):
        return False
    if start < DC_SYSTEM_TIME + 8 and end > DC_SYSTEM_TIME and memory[slave, FEATURES] & FEATURE_DC:
        show_system_time(memory, times, rates, slave, arrival[AT_UNIT])
    if combine:
        for k in range(count):
            target[at + k] |= memory[slave, start + k]
    else:
        for k in range(count):
            target[at + k] = memory[slave, start + k]
    if touched:
        _advance(memory, opened, events, slave, touched, end, SM_DIRECTION_READ)
    return True


@jit
def write(
    memory: UInt8Array,
    opened: UInt8Array,
    times: IntArray,
    rates: FloatArray,
    events: IntArray,
    slave: int,
    start: int,
    count: int,
    arrival: IntArray,
    source: UInt8Array,
    at: int,
) -> bool:
    """Write `count` bytes of `source[at:]` from address `start` on; False if not acknowledged."""
    end = start + count
    if count <= 0 or end > MEMORY_SIZE:
        return False
    touched = _touched(memory, slave, start, end) if end > RAM_START else 0
    if touched and not _admits(memory, opened, slave, touched, start, SM_DIRECTION_WRITE):
        return False
    enabled = _enabled(memory, slave) if start < _SM_END and end > SM else 0
    clocked = memory[slave, FEATURES] & FEATURE_DC != 0
    for address in range(start, min(end, RAM_START)):
        if address >= DC_RECEIVE_TIME_PORT[0] and address < _DC_END and not clocked:
            continue
        if enabled and _is_locked(enabled, address):
            continue
        mask = np.int64(_MASKS[address])
        kept = np.int64(memory[slave, address]) & ~mask
        memory[slave, address] = kept | np.int64(source[at + address - start]) & mask
    for address in range(max(start, RAM_START), end):
        memory[slave, address] = source[at + address - start]
    if start < RAM_START:
        _registers_written(memory, opened, events, slave, start, end, enabled)
        if clocked and start < DC_UNIT_END and end > DC_RECEIVE_TIME_PORT[0]:
            _clock_written(memory, times, rates, events, slave, start, end, arrival, source, at)
    if touched:
        _advance(memory, opened, events, slave, touched, end, SM_DIRECTION_WRITE)
    return True


@jit
def _enabled(memory: UInt8Array, slave: int) -> int:
    """One bit for each sync manager that is enabled."""
    bits = 0
    for k in range(SM_COUNT):
        bits |= (int(memory[slave, SM + k * SM_SIZE + SM_ACTIVATE]) & SM_ACTIVATE_ENABLE) << k
    return bits


@jit
def _is_locked(enabled: int, address: int) -> bool:
    """Tell whether a register is start, length or control of a sync manager that is enabled."""
    place = address - SM
    return 0 <= place < SM_COUNT * SM_SIZE and place % SM_SIZE <= SM_CONTROL and enabled >> place // SM_SIZE & 1 != 0


@jit
def _registers_written(
    memory: UInt8Array, opened: UInt8Array, events: IntArray, slave: int, start: int, end: int, enabled: int
) -> None:
    if start < AL_CONTROL + 2 and end > AL_CONTROL:
        _raise(events, slave, EVENT_AL_CONTROL)
    if start < SII_CONTROL + 2 and end > SII_CONTROL:
        _raise(events, slave, EVENT_SII)
        if memory[slave, SII_CONTROL + 1] & 0x07:
            memory[slave, SII_CONTROL + 1] |= 0x80  # busy until the device has answered
    if start < COUNTERS_END and end > RX_ERROR_COUNTER:
        memory[slave, RX_ERROR_COUNTER:COUNTERS_END] = 0
    if start < WATCHDOG_PROCESS_DATA_COUNTER + 2 and end > WATCHDOG_PROCESS_DATA_COUNTER:
        memory[slave, WATCHDOG_PROCESS_DATA_COUNTER : WATCHDOG_PROCESS_DATA_COUNTER + 2] = 0
    if start < _SM_END and end > SM:
        changed = enabled ^ _enabled(memory, slave)
        for k in range(SM_COUNT):
            at = SM + k * SM_SIZE
            if changed >> k & 1:
                memory[slave, at + SM_STATUS] = 0
                opened[slave, k] = 0
            if start <= at + SM_ACTIVATE and end > at + SM_ACTIVATE:
                _raise(events, slave, EVENT_SM_CHANGED)


@jit
def _clock_written(
    memory: UInt8Array,
    times: IntArray,
    rates: FloatArray,
    events: IntArray,
    slave: int,
    start: int,
    end: int,
    arrival: IntArray,
    source: UInt8Array,
    at: int,
) -> None:
    if start < DC_RECEIVE_TIME_PORT[1] and end > DC_RECEIVE_TIME_PORT[0]:
        latch_unit(memory, times, rates, slave, arrival[AT_UNIT])
        for port in range(2):
            if arrival[AT_PORT_0 + port] == ANOTHER:
                events[slave] |= WAITING
            elif arrival[AT_PORT_0 + port] != NOT_THERE:
                latch_port(memory, times, rates, slave, port, arrival[AT_PORT_0 + port])
        _raise(events, slave, EVENT_CLOCK)
    if start <= DC_SYSTEM_TIME and end >= DC_SYSTEM_TIME + 4:
        received = 0
        for k in range(4):
            received |= int(np.int64(source[at + DC_SYSTEM_TIME - start + k])) << 8 * k
        compare(memory, times, rates, slave, arrival[AT_UNIT], received)
    if start < DC_SPEED_COUNTER_START + 2 and end > DC_SPEED_COUNTER_START:
        reset_control(memory, times, rates, slave, arrival[AT_UNIT])
    if start < DC_SPEED_COUNTER_START + 2 and end > DC_SYSTEM_TIME_OFFSET:
        _raise(events, slave, EVENT_CLOCK)
    if start < DC_UNIT_END and end > DC_CYCLIC_UNIT_CONTROL:
        _raise(events, slave, EVENT_DC_CHANGED)
