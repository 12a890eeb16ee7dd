"""AMS packets on TCP: headers, and splitting of a byte stream into packets.

A TCP packet has kind (2 bytes), length (4 bytes) and payload.  Kind 0 is an AMS packet: target, source, command, flags,
length, error code, invoke id, data.  Other kinds are requests to the router, such as for a client port.
"""

import struct
from dataclasses import dataclass

TCP_HEADER = struct.Struct("<HI")
AMS_HEADER = struct.Struct("<6sH6sHHHIII")
#: Kinds of TCP packets.
AMS, PORT_CLOSE, PORT_CONNECT, LOCAL_NET_ID = 0x0000, 0x0001, 0x1000, 0x1002
RESPONSE, ADS = 0x0001, 0x0004
MAX = 16 * 1024 * 1024


class AmsError(ValueError):
    """Invalid bytes, after which a connection cannot continue."""


@dataclass(frozen=True, slots=True)
class Address:
    """AMS address: six bytes of net id, and a port."""

    net_id: bytes
    port: int


def net_id(text: str) -> bytes:
    """Return the six bytes of `"5.80.201.11.1.1"`; raises `ValueError`."""
    parts = text.split(".")
    if len(parts) != 6 or not all(part.isdecimal() and int(part) < 256 for part in parts):
        raise ValueError(f"{text!r} is not an AMS net id: six numbers from 0 to 255, joined by dots")
    return bytes(map(int, parts))


@dataclass(frozen=True, slots=True)
class Packet:
    target: Address
    source: Address
    command: int
    flags: int
    error: int
    invoke_id: int
    data: bytes

    @property
    def is_request(self) -> bool:
        return not self.flags & RESPONSE

    def answer(self, data: bytes = b"", error: int = 0) -> bytes:
        """Return the bytes of the answer, TCP header included."""
        return encode(self.source, self.target, self.command, RESPONSE | ADS, error, self.invoke_id, data)


def encode(
    target: Address, source: Address, command: int, flags: int, error: int, invoke_id: int, data: bytes
) -> bytes:
    """Return the bytes of an AMS packet, TCP header included."""
    header = AMS_HEADER.pack(
        target.net_id, target.port, source.net_id, source.port, command, flags, len(data), error, invoke_id
    )
    return b"".join((TCP_HEADER.pack(AMS, len(header) + len(data)), header, data))


def decode(payload: bytes) -> Packet:
    """Return the packet after a TCP header; raises `AmsError`."""
    if len(payload) < AMS_HEADER.size:
        raise AmsError(f"an AMS packet of {len(payload)} bytes, but its header has {AMS_HEADER.size}")
    target, target_port, source, source_port, command, flags, length, error, invoke_id = AMS_HEADER.unpack_from(payload)
    if length != len(payload) - AMS_HEADER.size:
        raise AmsError(
            f"an AMS packet with {len(payload) - AMS_HEADER.size} bytes of data, but its header says {length}"
        )
    ends = Address(target, target_port), Address(source, source_port)
    return Packet(*ends, command, flags, error, invoke_id, payload[AMS_HEADER.size :])


class Splitter:
    """Splits a stream of bytes into TCP packets."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return kind and payload of each complete packet; raises `AmsError` for an impossible length."""
        buffer = self._buffer
        buffer += data
        packets, place = [], 0
        while len(buffer) - place >= TCP_HEADER.size:
            kind, length = TCP_HEADER.unpack_from(buffer, place)
            if length > MAX:
                raise AmsError(f"a packet of {length} bytes, the longest has {MAX}")
            end = place + TCP_HEADER.size + length
            if len(buffer) < end:
                break
            packets.append((kind, bytes(buffer[place + TCP_HEADER.size : end])))
            place = end
        del buffer[:place]
        return packets
