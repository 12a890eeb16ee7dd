"""Building and parsing of EtherCAT frames, as a master does."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from sim_backend.ethercat import wire

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
    if command in (wire.APRD, wire.APWR, wire.APRW, wire.ARMW):
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
        flags = len(datagram.data) | wire.CIRCULATING * datagram.circulating | wire.MORE * (k + 1 < len(chain))
        body += _DATAGRAM.pack(datagram.command, datagram.index, datagram.address, flags, datagram.interrupt)
        body += datagram.data + struct.pack("<H", datagram.working_counter)
    if wire.FRAME_HEADER + len(body) > wire.FRAME_MAX:
        raise FrameError(f"the datagrams take {len(body)} bytes, a frame holds {wire.FRAME_MAX - wire.FRAME_HEADER}")
    header = (
        BROADCAST + source + struct.pack(">H", wire.ETHERTYPE) + struct.pack("<H", len(body) | wire.TYPE_COMMANDS << 12)
    )
    return (header + bytes(body)).ljust(wire.FRAME_MIN, b"\0")


def parse_frame(frame: bytes) -> list[Datagram]:
    """Return the datagrams of a frame; `FrameError` without EtherCAT commands, or for one longer than the frame."""
    if len(frame) < wire.FRAME_HEADER or frame[12:14] != wire.ETHERTYPE.to_bytes(2, "big"):
        raise FrameError("no EtherCAT frame")
    (header,) = struct.unpack_from("<H", frame, wire.ETHERNET_HEADER)
    if header >> 12 != wire.TYPE_COMMANDS:
        raise FrameError(f"EtherCAT type {header >> 12}, expected {wire.TYPE_COMMANDS} (commands)")
    at, end = wire.FRAME_HEADER, wire.FRAME_HEADER + (header & wire.LENGTH_MASK)
    if end > len(frame):
        raise FrameError(f"the header tells of {end} bytes, the frame has {len(frame)}")
    found: list[Datagram] = []
    more = True
    while more:
        if at + wire.DATAGRAM_HEADER + wire.WORKING_COUNTER > end:
            raise FrameError(f"datagram {len(found)} at byte {at} is cut off")
        command, index, address, flags, interrupt = _DATAGRAM.unpack_from(frame, at)
        start, at = (
            at + wire.DATAGRAM_HEADER,
            at + wire.DATAGRAM_HEADER + (flags & wire.LENGTH_MASK) + wire.WORKING_COUNTER,
        )
        if at > end:
            raise FrameError(f"datagram {len(found)} at byte {start - wire.DATAGRAM_HEADER} is longer than its frame")
        data, (counter,) = frame[start : at - 2], struct.unpack_from("<H", frame, at - 2)
        found.append(Datagram(command, address, data, index, counter, interrupt, bool(flags & wire.CIRCULATING)))
        more = bool(flags & wire.MORE)
    return found
