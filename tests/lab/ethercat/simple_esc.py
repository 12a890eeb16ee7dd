"""A slave controller in plain Python, bit by bit: what the compiled data link is compared with.

A frame goes from slave to slave, and each takes all datagrams, as on the cable.  Clocks are exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sim_backend.ethercat.wire import Datagram

READS = {1, 3, 4, 6, 7, 9, 10, 12}
WRITES = {2, 3, 5, 6, 8, 9, 11, 12}
READ_ONLY = (
    *(range(0x0000, 0x0010), range(0x0012, 0x0014), range(0x0110, 0x0112), range(0x0130, 0x0136)),
    *(range(0x0140, 0x0160), range(0x0210, 0x0224), range(0x0300, 0x0314), range(0x0440, 0x0444), [0x0501]),
    *(range(0x0805, 0x0840, 8), range(0x0807, 0x0840, 8), range(0x0900, 0x0920), range(0x092C, 0x0930)),
    *(range(0x0932, 0x0934), range(0x0984, 0x0990), range(0x09AE, 0x09D0), range(0x0E00, 0x0F00)),
)
FORBIDDEN = {address for group in READ_ONLY for address in group}


@dataclass
class PlainSlave:
    """Memory and behaviour of one slave; `now` is the time at which the frame arrives."""

    memory: bytearray
    opened: set[int] = field(default_factory=set)
    events: set[str] = field(default_factory=set)
    now: int = 0

    def number(self, address: int, count: int) -> int:
        return int.from_bytes(self.memory[address : address + count], "little")

    def store(self, address: int, value: int, count: int) -> None:
        self.memory[address : address + count] = (value % 2 ** (8 * count)).to_bytes(count, "little")

    def managers(self, touched: set[int]) -> list[tuple[int, list[int], int]]:
        found = []
        for k in range(8):
            at = 0x800 + 8 * k
            start, length, control = self.number(at, 2), self.number(at + 2, 2), self.memory[at + 4]
            area = list(range(start, start + length))
            if self.memory[at + 6] & 1 and touched & set(area):
                found.append((k, area, control))
        return found

    def access(self, start: int, data: bytes | None, count: int) -> bytes | None:
        """Read `count` bytes, or write `data`; None if refused."""
        touched = set(range(start, start + count))
        if not count or start + count > 0x3000:
            return None
        guards = self.managers(touched) if max(touched) >= 0x1000 else []
        for k, area, control in guards:
            if self.memory[0x807 + 8 * k] & 1:  # deactivated by the device: locked
                return None
            if (control & 0x0C == 0x04) != (data is not None) or control & 0x08:
                return None
            if control & 0x03 == 0x02:
                full = bool(self.memory[0x805 + 8 * k] & 0x08)
                if full == (data is not None) or (area[0] not in touched and k not in self.opened):
                    return None
        if data is None:
            if touched & set(range(0x910, 0x918)):
                self.store(0x910, self.now + self.number(0x920, 8) - self.number(0x928, 4), 8)
            result = bytes(self.memory[start : start + count])
        else:
            result = b""
            self.write(start, data)
        for k, area, control in guards:
            if area[-1] in touched:
                self.hand_over(k, control, data is not None)
            else:
                self.opened.add(k)
        return result

    def hand_over(self, k: int, control: int, written: bool) -> None:
        self.opened.discard(k)
        status = self.memory[0x805 + 8 * k]
        status = status & ~2 | 1 if written else status & ~1 | 2
        if control & 0x03 == 0x02:
            status = status | 8 if written else status & ~8
            self.events.add("mailbox in" if written else "mailbox out")
        elif written:
            self.events.add("outputs")
        self.memory[0x805 + 8 * k] = status

    def write(self, start: int, data: bytes) -> None:
        enabled = [self.memory[0x806 + 8 * k] & 1 for k in range(8)]
        for k, byte in enumerate(data):
            address = start + k
            if address in (0x502, 0x503):
                mask = 1 if address == 0x502 else 7
                self.memory[address] = self.memory[address] & ~mask | byte & mask
                self.events.add("sii")
            elif 0x800 <= address < 0x840 and address % 8 < 5 and enabled[(address - 0x800) // 8]:
                pass  # the settings of a sync manager that is enabled stay
            elif address not in FORBIDDEN:
                self.memory[address] = byte
            if address in (0x120, 0x121):
                self.events.add("al control")
            if 0x800 <= address < 0x840 and address % 8 == 6:
                self.events.add("sm changed")
            if 0x300 <= address < 0x314:
                self.memory[0x300:0x314] = bytes(0x14)
            if 0x442 <= address < 0x444:
                self.memory[0x442:0x444] = bytes(2)
        if start <= 0x503 and start + len(data) > 0x502 and self.memory[0x503] & 7:
            self.memory[0x503] |= 0x80
        for k in range(8):
            if self.memory[0x806 + 8 * k] & 1 != enabled[k]:
                self.memory[0x805 + 8 * k] = 0
                self.opened.discard(k)

    def logical(self, datagram: Datagram, incoming: bytes, writing: bool) -> bool:
        """Take a logical datagram through the FMMUs, by single bits."""
        done = False
        for k in range(8):
            at = 0x600 + 16 * k
            first, length = self.number(at, 4), self.number(at + 4, 2)
            if not self.memory[at + 12] & 1 or not self.memory[at + 11] & (2 if writing else 1) or not length:
                continue
            begin = first * 8 + (self.memory[at + 6] & 7)
            end = (first + length - 1) * 8 + (self.memory[at + 7] & 7)
            inner = self.number(at + 8, 2) * 8 + (self.memory[at + 10] & 7)
            window = range(datagram.address * 8, (datagram.address + len(incoming)) * 8)
            pairs = [(bit, inner + bit - begin) for bit in range(begin, end + 1) if bit in window]
            if pairs:
                done |= self.map_bits(datagram, incoming, pairs, writing)
        return done

    def map_bits(self, datagram: Datagram, incoming: bytes, pairs: list[tuple[int, int]], writing: bool) -> bool:
        origin = datagram.address * 8
        start, last = pairs[0][1] // 8, pairs[-1][1] // 8
        if last >= 0x3000:
            return False
        if writing:
            bits = int.from_bytes(self.memory[start : last + 1], "little")
            for outer, inner in pairs:
                one = incoming[(outer - origin) // 8] >> (outer - origin) % 8 & 1
                bits = bits & ~(1 << inner - 8 * start) | one << inner - 8 * start
            return self.access(start, bits.to_bytes(last + 1 - start, "little"), last + 1 - start) is not None
        answer = self.access(start, None, last + 1 - start)
        if answer is None:
            return False
        data = int.from_bytes(datagram.data, "little")
        for outer, inner in pairs:
            one = answer[inner // 8 - start] >> inner % 8 & 1
            data = data & ~(1 << outer - origin) | one << outer - origin
        datagram.data = data.to_bytes(len(datagram.data), "little")
        return True

    def take(self, datagram: Datagram) -> None:
        command, incoming = datagram.command, datagram.data
        device = datagram.device
        if command in (1, 2, 3, 13, 7, 8, 9):
            datagram.address = datagram.address & 0xFFFF0000 | device + 1 & 0xFFFF
        stations = {self.number(0x10, 2)} | ({self.number(0x12, 2)} if self.memory[0x103] & 1 else set())
        if command in (1, 2, 3, 13):
            meant = device == 0
        elif command in (4, 5, 6, 14):
            meant = device in stations
        else:
            meant = command != 0
        reads = meant if command in (13, 14) else meant and command in READS
        writes = not meant if command in (13, 14) else meant and command in WRITES
        counted = 0
        if command in (10, 11, 12):
            counted += self.logical(datagram, incoming, False) if reads else 0
            counted += (1 + reads) * self.logical(datagram, incoming, True) if writes else 0
        else:
            if reads and (answer := self.access(datagram.register, None, len(incoming))) is not None:
                counted += 1
                wired = command in (7, 9)
                datagram.data = bytes(a | b for a, b in zip(answer, incoming, strict=True)) if wired else answer
            if writes and self.access(datagram.register, incoming, len(incoming)) is not None:
                counted += 1 + reads
        datagram.working_counter = datagram.working_counter + counted & 0xFFFF
