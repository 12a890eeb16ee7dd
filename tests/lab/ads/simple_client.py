"""A plain ADS client without sockets, from the protocol's description: requests as bytes, answers taken apart."""

import struct
from dataclasses import dataclass, field

from sim_backend.plc._plc import SimulatedPlc

PLC, SYSTEM = 851, 10_000
CLIENT = bytes((10, 0, 0, 7, 1, 1))


@dataclass
class Answer:
    """An answer: error of the AMS header, data behind it."""

    error: int
    data: bytes

    @property
    def result(self) -> int:
        """ADS result, the first number of the data."""
        return int(struct.unpack_from("<I", self.data)[0])


@dataclass
class Stamp:
    """One time stamp of a notification: time, and data by handle."""

    time_100ns: int
    samples: dict[int, bytes] = field(default_factory=dict)


class PlainClient:
    """A client of a simulated PLC, at time 0 unless `now_ns` says otherwise."""

    def __init__(self, plc: SimulatedPlc, net_id: bytes | None = None, source: bytes = CLIENT, port: int = 40_001):
        self.plc, self.session = plc, plc.connect()
        self.net_id = plc.net_id if net_id is None else net_id
        self.source, self.port = source, port
        self.now_ns = 0
        self.stamps: list[Stamp] = []
        self.packets = 0  # of notifications
        self._invoke_id = 100
        self._received = bytearray()

    def request(self, command: int, data: bytes = b"", port: int = PLC) -> Answer | None:
        """Send a request; returns its answer, None if there is none."""
        self._invoke_id += 1
        self.session.receive(self.packet(command, data, port), self.now_ns)
        return self.collect()

    def packet(self, command: int, data: bytes = b"", port: int = PLC) -> bytes:
        """Bytes of a request, with the present invoke id."""
        head = self.net_id + struct.pack("<H", port) + self.source + struct.pack("<H", self.port)
        head += struct.pack("<HHIII", command, 0x0004, len(data), 0, self._invoke_id)
        return struct.pack("<HI", 0, len(head) + len(data)) + head + data

    def collect(self) -> Answer | None:
        """Take what the PLC has sent: notifications, and the answer to the last request."""
        self._received += b"".join(self.session.outlet.due(self.now_ns))
        answer = None
        while len(self._received) >= 6:
            reserved, length = struct.unpack_from("<HI", self._received)
            if len(self._received) < 6 + length:
                break
            packet = bytes(self._received[6 : 6 + length])
            del self._received[: 6 + length]
            assert reserved == 0
            command, flags, size, error, invoke_id = struct.unpack_from("<HHIII", packet, 16)
            assert packet[:8] == self.source + struct.pack("<H", self.port)
            assert packet[8:14] == self.net_id
            assert size == len(packet) - 32
            if command == 8:
                assert flags == 0x0004
                self._take_notification(packet[32:])
            else:
                assert (flags, invoke_id) == (0x0005, self._invoke_id)
                answer = Answer(error, packet[32:])
        return answer

    def _take_notification(self, data: bytes) -> None:
        self.packets += 1
        length, stamps = struct.unpack_from("<II", data)
        assert length == len(data) - 4
        place = 8
        for _ in range(stamps):
            time_100ns, samples = struct.unpack_from("<QI", data, place)
            place += 12
            stamp = Stamp(time_100ns)
            for _ in range(samples):
                handle, size = struct.unpack_from("<II", data, place)
                stamp.samples[handle] = data[place + 8 : place + 8 + size]
                place += 8 + size
            self.stamps.append(stamp)
        assert place == len(data)

    # The usual requests; each returns result and data.

    def read(self, group: int, offset: int, length: int) -> tuple[int, bytes]:
        """Read; the data are as long as their own length says."""
        return self._value(self.request(2, struct.pack("<III", group, offset, length)))

    def write(self, group: int, offset: int, data: bytes) -> int:
        answer = self.request(3, struct.pack("<III", group, offset, len(data)) + data)
        assert len(answer.data) == 4
        return answer.result

    def read_write(self, group: int, offset: int, length: int, data: bytes) -> tuple[int, bytes]:
        return self._value(self.request(9, struct.pack("<IIII", group, offset, length, len(data)) + data))

    def handle(self, name: str) -> int:
        result, data = self.read_write(0xF003, 0, 4, name.encode() + b"\0")
        assert result == 0, f"0x{result:X}"
        return int(struct.unpack("<I", data)[0])

    def value(self, name: str, length: int = 1 << 20) -> bytes:
        result, data = self.read(0xF005, self.handle(name), length)
        assert result == 0, f"0x{result:X}"
        return data

    def set(self, name: str, data: bytes) -> None:
        assert self.write(0xF005, self.handle(name), data) == 0

    def notify(self, group: int, offset: int, length: int, mode: int, delay_ms: float = 0, cycle_ms: float = 1) -> int:
        """Add a notification; returns its handle."""
        request = struct.pack("<IIIIII16x", group, offset, length, mode, int(delay_ms * 1e4), int(cycle_ms * 1e4))
        answer = self.request(6, request)
        assert answer.result == 0
        return int(struct.unpack_from("<I", answer.data, 4)[0])

    def advance(self, cycles: int) -> None:
        """Let so many cycles of the task go by, and take what comes."""
        for _ in range(cycles):
            self.now_ns = self.plc.due_ns()
            self.plc.advance(self.now_ns)
        self.collect()

    @staticmethod
    def _value(answer: Answer | None) -> tuple[int, bytes]:
        assert answer.error == 0
        result, length = struct.unpack_from("<II", answer.data)
        assert length == len(answer.data) - 8
        return result, answer.data[8:]
