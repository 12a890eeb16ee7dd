"""EtherCAT frames: commands, datagrams, building and parsing (ETG.1000.4, section 5).

A frame is an Ethernet header with type 0x88A4, a header of two bytes (11 bits length, 4 bits type) and datagrams:
command, index, address (4 bytes), length and flags, interrupt, data, working counter.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

ETHERTYPE = 0x88A4
ETHERNET_HEADER = 14
#: Offset of the datagrams.
FRAME_HEADER = 16
DATAGRAM_HEADER = 10
WORKING_COUNTER = 2
#: Longest and shortest frame, without checksum.
FRAME_MAX, FRAME_MIN = 1514, 60
TYPE_COMMANDS = 1

NOP, APRD, APWR, APRW, FPRD, FPWR, FPRW, BRD, BWR, BRW, LRD, LWR, LRW, ARMW, FRMW = range(15)

LENGTH_MASK = 0x07FF
CIRCULATING = 0x4000
MORE = 0x8000
#: Bit of the first byte of the source address, set by slaves that processed a frame (locally administered).
PROCESSED = 0x02

BROADCAST = b"\xff" * 6
MASTER = b"\x02\x00\x00\x00\x00\x01"

_DATAGRAM = struct.Struct("<BBIHH")


class FrameError(ValueError):
    """An invalid frame; names the place."""


@dataclass(slots=True)
class Datagram:
    """One datagram."""

    command: int  # code
    address: int  # 32 bits: the logical address, or position or station (low word) and register (high word)
    data: bytes
    index: int = 0  # by which the master matches its reply
    working_counter: int = 0
    interrupt: int = 0
    circulating: bool = False  # marked by a slave that had no link at port 0

    @property
    def device(self) -> int:
        """Position (as a 16-bit count up) or station address."""
        return self.address & 0xFFFF

    @property
    def register(self) -> int:
        """Physical address in the slave."""
        return self.address >> 16


def physical(command: int, device: int, register: int, data: bytes, index: int = 0) -> Datagram:
    """Return a datagram for a slave's memory.

    `device`: position (from 0; sent as its negative), station address, or any value for a broadcast.
    """
    if command in (APRD, APWR, APRW, ARMW):
        device = -device
    return Datagram(command, (device & 0xFFFF) | register << 16, data, index)


def logical(command: int, address: int, data: bytes, index: int = 0) -> Datagram:
    """Return a datagram for the logical address space."""
    return Datagram(command, address, data, index)


def build_frame(datagrams: Iterable[Datagram], source: bytes = MASTER) -> bytes:
    """Return the Ethernet frame, padded to the shortest length; `FrameError` without a datagram, or for too many."""
    chain = list(datagrams)
    if not chain:
        raise FrameError("a frame needs at least one datagram")
    body = bytearray()
    for k, datagram in enumerate(chain):
        flags = len(datagram.data) | CIRCULATING * datagram.circulating | MORE * (k + 1 < len(chain))
        body += _DATAGRAM.pack(datagram.command, datagram.index, datagram.address, flags, datagram.interrupt)
        body += datagram.data + struct.pack("<H", datagram.working_counter)
    if FRAME_HEADER + len(body) > FRAME_MAX:
        raise FrameError(f"the datagrams take {len(body)} bytes, a frame holds {FRAME_MAX - FRAME_HEADER}")
    header = BROADCAST + source + struct.pack(">H", ETHERTYPE) + struct.pack("<H", len(body) | TYPE_COMMANDS << 12)
    return (header + bytes(body)).ljust(FRAME_MIN, b"\0")


def parse_frame(frame: bytes) -> list[Datagram]:
    """Return the datagrams of a frame; `FrameError` without EtherCAT commands, or for one longer than the frame."""
    if len(frame) < FRAME_HEADER or frame[12:14] != ETHERTYPE.to_bytes(2, "big"):
        raise FrameError("no EtherCAT frame")
    (header,) = struct.unpack_from("<H", frame, ETHERNET_HEADER)
    if header >> 12 != TYPE_COMMANDS:
        raise FrameError(f"EtherCAT type {header >> 12}, expected {TYPE_COMMANDS} (commands)")
    at, end = FRAME_HEADER, FRAME_HEADER + (header & LENGTH_MASK)
    if end > len(frame):
        raise FrameError(f"the header states {end} bytes, the frame has {len(frame)}")
    found: list[Datagram] = []
    more = True
    while more:
        if at + DATAGRAM_HEADER + WORKING_COUNTER > end:
            raise FrameError(f"datagram {len(found)} at byte {at} is cut off")
        command, index, address, flags, interrupt = _DATAGRAM.unpack_from(frame, at)
        start, at = at + DATAGRAM_HEADER, at + DATAGRAM_HEADER + (flags & LENGTH_MASK) + WORKING_COUNTER
        if at > end:
            raise FrameError(f"datagram {len(found)} at byte {start - DATAGRAM_HEADER} is longer than its frame")
        data, (counter,) = frame[start : at - 2], struct.unpack_from("<H", frame, at - 2)
        found.append(Datagram(command, address, data, index, counter, interrupt, bool(flags & CIRCULATING)))
        more = bool(flags & MORE)
    return found
