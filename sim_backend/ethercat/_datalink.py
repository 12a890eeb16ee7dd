"""The data link of a segment: one compiled kernel takes a frame through the slave controllers.

Per datagram and slave the slave controller finds out whether it is meant (by position, station address or alias,
broadcast, or an FMMU for the logical address), reads or writes its memory, and adds to the working counter: 1 for a
read, 1 for a write; in commands that do both, 1 for the read and 2 for the write.  What a slave does to a datagram
does not depend on other datagrams that the frame still carries, so datagrams are taken one after the other.

FMMUs map bits.  A write that covers a byte in part keeps its other bits, where a slave controller promises that for
digital outputs only.

Source: Beckhoff EtherCAT slave controller data sheet, sections I and II; ETG.1000.4.
"""

from __future__ import annotations

import numpy as np

from rt_core.jit import jit
from rt_core.types import FloatArray, IntArray
from sim_backend.ethercat._access import ANOTHER, ARRIVAL, AT_PORT_0, AT_PORT_1, AT_UNIT, NOT_THERE, read, write
from sim_backend.ethercat._clock import get16, get32
from sim_backend.ethercat.registers import (
    DL_CONTROL_ALIAS,
    DL_CONTROL_ALIAS_ENABLE,
    FMMU,
    FMMU_ACTIVATE,
    FMMU_COUNT,
    FMMU_LENGTH,
    FMMU_LOGICAL_START,
    FMMU_LOGICAL_START_BIT,
    FMMU_LOGICAL_STOP_BIT,
    FMMU_PHYSICAL_START,
    FMMU_PHYSICAL_START_BIT,
    FMMU_SIZE,
    FMMU_TYPE,
    FMMU_TYPE_READ,
    FMMU_TYPE_WRITE,
    MEMORY_SIZE,
    PROCESSING_ERROR_COUNTER,
    STATION_ADDRESS,
    STATION_ALIAS,
    UInt8Array,
)
from sim_backend.ethercat.wire import (
    APRD,
    APRW,
    APWR,
    ARMW,
    BRD,
    BRW,
    BWR,
    CIRCULATING,
    DATAGRAM_HEADER,
    ETHERNET_HEADER,
    FPRD,
    FPWR,
    FRAME_HEADER,
    FRMW,
    LENGTH_MASK,
    LRD,
    LRW,
    LWR,
    MORE,
    PROCESSED,
    TYPE_COMMANDS,
    WORKING_COUNTER,
)

#: How a frame takes its way: out through port 1 and back (LINE), on to the other end (RING), or in through port 1 to
#: the slave behind a cut and back from there (TAIL).
LINE, RING, TAIL = 0, 1, 2
#: Rows of the scratch (SCRATCH_ROWS, SCRATCH_SIZE): data as they arrived; bytes that a mapping covers in part.
ARRIVED, COVERED = 0, 1
SCRATCH_ROWS, SCRATCH_SIZE = 2, 2048


@jit
def _word(frame: UInt8Array, at: int) -> int:
    return int(np.int64(frame[at]) | np.int64(frame[at + 1]) << 8)


@jit
def _put_word(frame: UInt8Array, at: int, value: int) -> None:
    frame[at] = value & 0xFF
    frame[at + 1] = value >> 8 & 0xFF


@jit
def _arrive(way: int, first_ns: int, hop_ns: int, place: int, count: int, arrival: IntArray) -> None:
    """Set when a frame comes to slave `place`, if the first of `count` slaves processes it at `first_ns`."""
    arrival[AT_UNIT] = first_ns + place * hop_ns
    arrival[AT_PORT_0] = arrival[AT_UNIT]
    if way == RING:
        arrival[AT_PORT_1] = ANOTHER
    elif way == TAIL:
        arrival[AT_PORT_1] = first_ns - place * hop_ns
        if place == 0:
            arrival[AT_PORT_0] = NOT_THERE
    else:
        back = first_ns + (2 * (count - 1) - place) * hop_ns
        arrival[AT_PORT_1] = back if place + 1 < count else NOT_THERE


@jit
def _is_station(memory: UInt8Array, slave: int, address: int) -> bool:
    if get16(memory, slave, STATION_ADDRESS) == address:
        return True
    aliased = memory[slave, DL_CONTROL_ALIAS] & DL_CONTROL_ALIAS_ENABLE != 0
    return bool(aliased and get16(memory, slave, STATION_ALIAS) == address)


@jit
def _directions(command: int, meant: bool) -> int:
    """Bit 0: the slave reads its memory into the datagram; bit 1: it writes the datagram to its memory."""
    if command in (ARMW, FRMW):
        return 1 if meant else 2
    if not meant:
        return 0
    if command in (APRD, FPRD, BRD, LRD):
        return 1
    if command in (APWR, FPWR, BWR, LWR):
        return 2
    return 3


@jit
def _read_bits(
    memory: UInt8Array,
    opened: UInt8Array,
    times: IntArray,
    rates: FloatArray,
    events: IntArray,
    slave: int,
    bit: int,
    bits: int,
    arrival: IntArray,
    frame: UInt8Array,
    to_bit: int,
    covered: UInt8Array,
) -> bool:
    """Read `bits` bits from bit address `bit` of a slave into the frame from bit `to_bit` on."""
    start = bit >> 3
    count = (bit + bits - 1 >> 3) - start + 1
    if not read(memory, opened, times, rates, events, slave, start, count, arrival, covered, 0, False):
        return False
    for k in range(bits):
        source, target = bit + k - 8 * start, to_bit + k
        one = np.int64(covered[source >> 3]) >> (source & 7) & 1
        frame[target >> 3] = np.int64(frame[target >> 3]) & ~(1 << (target & 7)) | one << (target & 7)
    return True


@jit
def _write_bits(
    memory: UInt8Array,
    opened: UInt8Array,
    times: IntArray,
    rates: FloatArray,
    events: IntArray,
    slave: int,
    bit: int,
    bits: int,
    arrival: IntArray,
    arrived: UInt8Array,
    from_bit: int,
    covered: UInt8Array,
) -> bool:
    """Write `bits` bits that arrived, from bit `from_bit` on, to bit address `bit` of a slave."""
    start = bit >> 3
    count = (bit + bits - 1 >> 3) - start + 1
    if start + count > MEMORY_SIZE:
        return False
    for k in range(count):
        covered[k] = memory[slave, start + k]
    for k in range(bits):
        source, target = from_bit + k, bit + k - 8 * start
        one = np.int64(arrived[source >> 3]) >> (source & 7) & 1
        covered[target >> 3] = np.int64(covered[target >> 3]) & ~(1 << (target & 7)) | one << (target & 7)
    return bool(write(memory, opened, times, rates, events, slave, start, count, arrival, covered, 0))


@jit
def _map(
    memory: UInt8Array,
    opened: UInt8Array,
    times: IntArray,
    rates: FloatArray,
    events: IntArray,
    slave: int,
    kind: int,
    address: int,
    length: int,
    arrival: IntArray,
    frame: UInt8Array,
    at: int,
    scratch: UInt8Array,
) -> bool:
    """Take logical data through the FMMUs of `kind` (read or write); True if one was meant and acknowledged.

    The data to read into begin at `frame[at]`, those to write are in row `ARRIVED` of the scratch.
    """
    done = False
    for k in range(FMMU_COUNT):
        unit = FMMU + k * FMMU_SIZE
        if not memory[slave, unit + FMMU_ACTIVATE] & 1 or not memory[slave, unit + FMMU_TYPE] & kind:
            continue
        mapped = get16(memory, slave, unit + FMMU_LENGTH)
        if mapped == 0:
            continue
        first_byte = get32(memory, slave, unit + FMMU_LOGICAL_START)
        if first_byte >= address + length or first_byte + mapped <= address:
            continue
        start_bit = int(np.int64(memory[slave, unit + FMMU_LOGICAL_START_BIT])) & 7
        stop_bit = int(np.int64(memory[slave, unit + FMMU_LOGICAL_STOP_BIT])) & 7
        inner_bit = int(np.int64(memory[slave, unit + FMMU_PHYSICAL_START_BIT])) & 7
        inner = get16(memory, slave, unit + FMMU_PHYSICAL_START)
        if start_bit == 0 and stop_bit == 7 and inner_bit == 0:
            low, high = max(first_byte, address), min(first_byte + mapped, address + length)
            start, count, offset = inner + low - first_byte, high - low, low - address
            if kind == FMMU_TYPE_READ:
                done |= read(
                    memory, opened, times, rates, events, slave, start, count, arrival, frame, at + offset, False
                )
            else:
                done |= write(
                    memory, opened, times, rates, events, slave, start, count, arrival, scratch[ARRIVED], offset
                )
            continue
        first = first_byte * 8 + start_bit
        end = (first_byte + mapped - 1) * 8 + stop_bit + 1
        low, high = max(first, address * 8), min(end, (address + length) * 8)
        if low >= high:
            continue
        bit, bits, outer = inner * 8 + inner_bit + low - first, high - low, low - address * 8
        covered = scratch[COVERED]
        if kind == FMMU_TYPE_READ:
            done |= _read_bits(
                memory, opened, times, rates, events, slave, bit, bits, arrival, frame, at * 8 + outer, covered
            )
        else:
            arrived = scratch[ARRIVED]
            done |= _write_bits(
                memory, opened, times, rates, events, slave, bit, bits, arrival, arrived, outer, covered
            )
    return done


@jit
def _process_datagram(
    memory: UInt8Array,
    opened: UInt8Array,
    times: IntArray,
    rates: FloatArray,
    events: IntArray,
    slave: int,
    arrival: IntArray,
    frame: UInt8Array,
    at: int,
    length: int,
    scratch: UInt8Array,
) -> int:
    """Take the datagram at `frame[at]` through one slave; returns what that adds to the working counter."""
    command = int(np.int64(frame[at]))
    device, register = _word(frame, at + 2), _word(frame, at + 4)
    data = at + DATAGRAM_HEADER
    if command in (APRD, APWR, APRW, ARMW):
        meant = device == 0
        _put_word(frame, at + 2, device + 1)
    elif command in (BRD, BWR, BRW):
        meant = True
        _put_word(frame, at + 2, device + 1)
    elif command in (LRD, LWR, LRW):
        meant = True
    else:
        meant = _is_station(memory, slave, device)
    directions = _directions(command, meant)
    if directions == 0:
        return 0
    if directions & 2:
        for k in range(length):
            scratch[ARRIVED, k] = frame[data + k]
    fetched = stored = False
    if command in (LRD, LWR, LRW):
        address = device | register << 16
        if directions & 1:
            fetched = _map(
                memory,
                opened,
                times,
                rates,
                events,
                slave,
                FMMU_TYPE_READ,
                address,
                length,
                arrival,
                frame,
                data,
                scratch,
            )
        if directions & 2:
            stored = _map(
                memory,
                opened,
                times,
                rates,
                events,
                slave,
                FMMU_TYPE_WRITE,
                address,
                length,
                arrival,
                frame,
                data,
                scratch,
            )
    else:
        if directions & 1:
            either = command in (BRD, BRW)
            fetched = read(memory, opened, times, rates, events, slave, register, length, arrival, frame, data, either)
        if directions & 2:
            stored = write(memory, opened, times, rates, events, slave, register, length, arrival, scratch[ARRIVED], 0)
    return (1 if fetched else 0) + ((2 if directions == 3 else 1) if stored else 0)


@jit
def process_frame(
    frame: UInt8Array,
    size: int,
    slaves: IntArray,
    live: UInt8Array,
    memory: UInt8Array,
    opened: UInt8Array,
    times: IntArray,
    rates: FloatArray,
    events: IntArray,
    scratch: UInt8Array,
    arrival: IntArray,
    way: int,
    first_ns: int,
    hop_ns: int,
) -> None:
    """Take a frame through slaves.

    Parameters
    ----------
    frame : (>= size,) uint8
        Ethernet frame with EtherCAT type, changed in place; `size` is its length.
    slaves : (m,) int64
        Numbers of the slaves, in the order in which they process the frame.
    live : (N,) uint8
        0: the slave passes the frame on without processing it.
    memory, opened, times, rates : (N, MEMORY_SIZE) and (N, SM_COUNT) uint8, (N, CLOCK_TIMES) int64, (N, CLOCK_RATES)
        Memory, mailboxes that have been accessed in part, and clocks.
    events : (N,) int64
        Takes up one bit for each kind of event.
    scratch, arrival : (SCRATCH_ROWS, SCRATCH_SIZE) uint8, (ARRIVAL,) int64
    way : int
        LINE, RING or TAIL.
    first_ns, hop_ns : int
        Host time at which the frame is at the first slave's processing unit; delay from one slave to the next.
    """
    if slaves.shape[0] == 0 or size < FRAME_HEADER:
        return
    frame[6] |= PROCESSED
    header = _word(frame, ETHERNET_HEADER)
    if header >> 12 != TYPE_COMMANDS:
        return
    at, end = FRAME_HEADER, min(FRAME_HEADER + (header & LENGTH_MASK), size)
    more = True
    while more:
        flags = _word(frame, at + 6) if at + DATAGRAM_HEADER + WORKING_COUNTER <= end else 0
        length = flags & LENGTH_MASK
        counter_at = at + DATAGRAM_HEADER + length
        if at + DATAGRAM_HEADER + WORKING_COUNTER > end or counter_at + WORKING_COUNTER > end:
            for place in range(slaves.shape[0]):
                errors = int(np.int64(memory[slaves[place], PROCESSING_ERROR_COUNTER]))
                memory[slaves[place], PROCESSING_ERROR_COUNTER] = min(errors + 1, 255)
            return
        if way == TAIL:
            _put_word(frame, at + 6, flags | CIRCULATING)
        if frame[at] >= APRD and frame[at] <= FRMW:
            counter = _word(frame, counter_at)
            for place in range(slaves.shape[0]):
                slave = slaves[place]
                if not live[slave]:
                    continue
                _arrive(way, first_ns, hop_ns, place, slaves.shape[0], arrival)
                counter += _process_datagram(
                    memory, opened, times, rates, events, slave, arrival, frame, at, length, scratch
                )
            _put_word(frame, counter_at, counter)
        more = flags & MORE != 0
        at = counter_at + WORKING_COUNTER


def work_arrays() -> tuple[UInt8Array, IntArray]:
    """Return what `process_frame` works in: scratch and arrival."""
    return np.zeros((SCRATCH_ROWS, SCRATCH_SIZE), np.uint8), np.zeros(ARRIVAL, np.int64)
