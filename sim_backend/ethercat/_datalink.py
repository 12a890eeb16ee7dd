"""Data link of a segment: one compiled kernel takes a frame through the slave controllers.

For each datagram a slave controller checks whether it is addressed (by position, station address or alias, broadcast,
or an FMMU for the logical address), reads or writes its memory, and increments the working counter: by 1 for a read, by
1 for a write; in commands that do both, by 1 for the read and 2 for the write.  Datagrams of a frame are independent
and are processed one after the other. FMMUs map bits.  A write that covers part of a byte keeps the other bits; real
controllers guarantee that for digital outputs only.  Source: Beckhoff EtherCAT slave controller data sheet, sections I
and II; ETG.1000.4.
"""

import numpy as np

from rt_core.jit import jit
from rt_core.types import IntArray
from sim_backend.ethercat import _access as access
from sim_backend.ethercat import registers as reg
from sim_backend.ethercat import wire
from sim_backend.ethercat._access import SlaveArrays
from sim_backend.ethercat._clock import get16, get32
from sim_backend.ethercat.registers import UInt8Array

#: Path of a frame: out through port 1 and back (LINE), on to the other end (RING), or in through port 1 to the slave
#: behind a cut and back (TAIL).
LINE, RING, TAIL = 0, 1, 2


@jit
def _word(frame: UInt8Array, at: int) -> int:
    return int(np.int64(frame[at]) | np.int64(frame[at + 1]) << 8)


@jit
def _put_word(frame: UInt8Array, at: int, value: int) -> None:
    frame[at] = value & 0xFF
    frame[at + 1] = value >> 8 & 0xFF


@jit
def _arrive(way: int, first_ns: int, hop_ns: int, place: int, count: int, arrival: IntArray) -> None:
    """Set the arrival times at slave `place`, if the first of `count` slaves processes the frame at `first_ns`."""
    arrival[access.AT_UNIT] = first_ns + place * hop_ns
    arrival[access.AT_PORT_0] = arrival[access.AT_UNIT]
    if way == RING:
        arrival[access.AT_PORT_1] = access.ANOTHER
    elif way == TAIL:
        arrival[access.AT_PORT_1] = first_ns - place * hop_ns
        if place == 0:
            arrival[access.AT_PORT_0] = access.NOT_THERE
    else:
        back = first_ns + (2 * (count - 1) - place) * hop_ns
        arrival[access.AT_PORT_1] = back if place + 1 < count else access.NOT_THERE


@jit
def _is_station(memory: UInt8Array, slave: int, address: int) -> bool:
    if get16(memory, slave, reg.STATION_ADDRESS) == address:
        return True
    aliased = memory[slave, reg.DL_CONTROL_ALIAS] & reg.DL_CONTROL_ALIAS_ENABLE != 0
    return bool(aliased and get16(memory, slave, reg.STATION_ALIAS) == address)


@jit
def _directions(command: int, meant: bool) -> int:
    """Return bit 0: read memory into the datagram; bit 1: write the datagram to memory."""
    if command in (wire.ARMW, wire.FRMW):
        return 1 if meant else 2
    if not meant:
        return 0
    if command in (wire.APRD, wire.FPRD, wire.BRD, wire.LRD):
        return 1
    if command in (wire.APWR, wire.FPWR, wire.BWR, wire.LWR):
        return 2
    return 3


@jit
def _read_bits(arrays: SlaveArrays, slave: int, bit: int, bits: int, data: UInt8Array, to_bit: int) -> bool:
    """Read `bits` bits from bit address `bit` of a slave into `data` from bit `to_bit` on."""
    start = bit >> 3
    covered = arrays.covered[: (bit + bits - 1 >> 3) - start + 1]
    if not access.read(arrays, slave, start, covered, False):
        return False
    for k in range(bits):
        source, target = bit + k - 8 * start, to_bit + k
        one = np.int64(covered[source >> 3]) >> (source & 7) & 1
        data[target >> 3] = np.int64(data[target >> 3]) & ~(1 << (target & 7)) | one << (target & 7)
    return True


@jit
def _write_bits(arrays: SlaveArrays, slave: int, bit: int, bits: int, from_bit: int) -> bool:
    """Write `bits` bits that arrived, from bit `from_bit` on, to bit address `bit` of a slave."""
    start = bit >> 3
    count = (bit + bits - 1 >> 3) - start + 1
    if start + count > reg.MEMORY_SIZE:
        return False
    arrived, covered = arrays.arrived, arrays.covered[:count]
    for k in range(count):
        covered[k] = arrays.memory[slave, start + k]
    for k in range(bits):
        source, target = from_bit + k, bit + k - 8 * start
        one = np.int64(arrived[source >> 3]) >> (source & 7) & 1
        covered[target >> 3] = np.int64(covered[target >> 3]) & ~(1 << (target & 7)) | one << (target & 7)
    return bool(access.write(arrays, slave, start, covered))


@jit
def _map(arrays: SlaveArrays, slave: int, kind: int, address: int, data: UInt8Array) -> bool:
    """Pass logical data through the FMMUs of `kind` (read or write); True if one acknowledged.

    It reads into `data`, and writes what has `arrived` of them.
    """
    memory, length, done = arrays.memory, data.shape[0], False
    for k in range(reg.FMMU_COUNT):
        unit = reg.FMMU + k * reg.FMMU_SIZE
        if not memory[slave, unit + reg.FMMU_ACTIVATE] & 1 or not memory[slave, unit + reg.FMMU_TYPE] & kind:
            continue
        mapped = get16(memory, slave, unit + reg.FMMU_LENGTH)
        if mapped == 0:
            continue
        first_byte = get32(memory, slave, unit + reg.FMMU_LOGICAL_START)
        if first_byte >= address + length or first_byte + mapped <= address:
            continue
        start_bit = int(np.int64(memory[slave, unit + reg.FMMU_LOGICAL_START_BIT])) & 7
        stop_bit = int(np.int64(memory[slave, unit + reg.FMMU_LOGICAL_STOP_BIT])) & 7
        inner_bit = int(np.int64(memory[slave, unit + reg.FMMU_PHYSICAL_START_BIT])) & 7
        inner = get16(memory, slave, unit + reg.FMMU_PHYSICAL_START)
        if start_bit == 0 and stop_bit == 7 and inner_bit == 0:
            low, high = max(first_byte, address), min(first_byte + mapped, address + length)
            start, part = inner + low - first_byte, slice(low - address, high - address)
            if kind == reg.FMMU_TYPE_READ:
                done |= access.read(arrays, slave, start, data[part], False)
            else:
                done |= access.write(arrays, slave, start, arrays.arrived[part])
            continue
        first = first_byte * 8 + start_bit
        end = (first_byte + mapped - 1) * 8 + stop_bit + 1
        low, high = max(first, address * 8), min(end, (address + length) * 8)
        if low >= high:
            continue
        bit, bits, outer = inner * 8 + inner_bit + low - first, high - low, low - address * 8
        if kind == reg.FMMU_TYPE_READ:
            done |= _read_bits(arrays, slave, bit, bits, data, outer)
        else:
            done |= _write_bits(arrays, slave, bit, bits, outer)
    return done


@jit
def _process_datagram(arrays: SlaveArrays, slave: int, datagram: UInt8Array) -> int:
    """Process a datagram, without its working counter, in one slave; return the increment of the counter."""
    command = int(np.int64(datagram[0]))
    device, register = _word(datagram, 2), _word(datagram, 4)
    data = datagram[wire.DATAGRAM_HEADER :]
    arrived = arrays.arrived[: data.shape[0]]
    if command in (wire.APRD, wire.APWR, wire.APRW, wire.ARMW):
        meant = device == 0
        _put_word(datagram, 2, device + 1)
    elif command in (wire.BRD, wire.BWR, wire.BRW):
        meant = True
        _put_word(datagram, 2, device + 1)
    elif command in (wire.LRD, wire.LWR, wire.LRW):
        meant = True
    else:
        meant = _is_station(arrays.memory, slave, device)
    directions = _directions(command, meant)
    if directions == 0:
        return 0
    if directions & 2:
        for k in range(data.shape[0]):
            arrived[k] = data[k]
    fetched = stored = False
    if command in (wire.LRD, wire.LWR, wire.LRW):
        address = device | register << 16
        if directions & 1:
            fetched = _map(arrays, slave, reg.FMMU_TYPE_READ, address, data)
        if directions & 2:
            stored = _map(arrays, slave, reg.FMMU_TYPE_WRITE, address, data)
    else:
        if directions & 1:
            either = command in (wire.BRD, wire.BRW)
            fetched = access.read(arrays, slave, register, data, either)
        if directions & 2:
            stored = access.write(arrays, slave, register, arrived)
    return (1 if fetched else 0) + ((2 if directions == 3 else 1) if stored else 0)


@jit
def process_frame(
    frame: UInt8Array, slaves: IntArray, arrays: SlaveArrays, way: int, first_ns: int, hop_ns: int
) -> None:
    """Take an Ethernet frame with EtherCAT type, changed in place, through slaves.

    `slaves` (m,) are in the order in which they process the frame; `way` is LINE, RING or TAIL.  The frame is at the
    first slave's processing unit at host time `first_ns`, and `hop_ns` later at the next.
    """
    size = frame.shape[0]
    if slaves.shape[0] == 0 or size < wire.FRAME_HEADER:
        return
    frame[6] |= wire.PROCESSED
    header = _word(frame, wire.ETHERNET_HEADER)
    if header >> 12 != wire.TYPE_COMMANDS:
        return
    at, end = wire.FRAME_HEADER, min(wire.FRAME_HEADER + (header & wire.LENGTH_MASK), size)
    more = True
    while more:
        flags = _word(frame, at + 6) if at + wire.DATAGRAM_HEADER + wire.WORKING_COUNTER <= end else 0
        length = flags & wire.LENGTH_MASK
        counter_at = at + wire.DATAGRAM_HEADER + length
        if at + wire.DATAGRAM_HEADER + wire.WORKING_COUNTER > end or counter_at + wire.WORKING_COUNTER > end:
            memory = arrays.memory
            for place in range(slaves.shape[0]):
                errors = int(np.int64(memory[slaves[place], reg.PROCESSING_ERROR_COUNTER]))
                memory[slaves[place], reg.PROCESSING_ERROR_COUNTER] = min(errors + 1, 255)
            return
        if way == TAIL:
            _put_word(frame, at + 6, flags | wire.CIRCULATING)
        if frame[at] >= wire.APRD and frame[at] <= wire.FRMW:
            counter = _word(frame, counter_at)
            for place in range(slaves.shape[0]):
                slave = slaves[place]
                if not arrays.live[slave]:
                    continue
                _arrive(way, first_ns, hop_ns, place, slaves.shape[0], arrays.arrival)
                counter += _process_datagram(arrays, slave, frame[at:counter_at])
            _put_word(frame, counter_at, counter)
        more = flags & wire.MORE != 0
        at = counter_at + wire.WORKING_COUNTER
