"""One slave on the bench: a master that accesses its memory as the data link layer would, without frames."""

import struct

import numpy as np

from sim_backend.ethercat import registers as reg
from sim_backend.ethercat._communication import build_dictionary
from sim_backend.ethercat._controller import SlaveController
from sim_backend.ethercat._profile import load_profile

INIT, PREOP, BOOT, SAFEOP, OP = 1, 2, 3, 4, 8
MS = 1_000_000


class Bench:
    """A slave, its memory, and a time that goes on when told."""

    def __init__(self, device: str = "generic_servo", *, alias: int = 0, serial: int = 0) -> None:
        self.memory = np.zeros(reg.MEMORY_SIZE, np.uint8)
        self.profile = load_profile(device)
        self.dictionary = build_dictionary(self.profile, serial)
        self.slave = SlaveController(self.memory, self.profile, self.dictionary, alias=alias, serial=serial)
        self.now = 1_000 * MS
        self.counter = 0
        self.due = self.slave.tick(self.now)

    # Registers and time

    def write(self, address: int, data: bytes, *events: int) -> None:
        self.memory[address : address + len(data)] = list(data)
        for event in events:
            self.slave.on_event(event, self.now)
        self.due = self.slave.tick(self.now)

    def read(self, address: int, size: int) -> bytes:
        return self.memory[address : address + size].tobytes()

    def word(self, address: int) -> int:
        return int(struct.unpack("<H", self.read(address, 2))[0])

    def run(self, ms: float) -> None:
        """Let time go on, from one due time to the next."""
        end = self.now + int(ms * MS)
        while self.due <= end:
            self.now = max(self.due, self.now)
            self.due = self.slave.tick(self.now)
        self.now = end
        self.due = self.slave.tick(end)

    # States

    def status(self) -> tuple[int, int]:
        return self.word(reg.AL_STATUS), self.word(reg.AL_STATUS_CODE)

    def request(self, state: int, ms: float = 5.0) -> tuple[int, int]:
        """Ask for an AL state, wait, and return AL status and code."""
        self.write(reg.AL_CONTROL, struct.pack("<H", state), reg.EVENT_AL_CONTROL)
        self.run(ms)
        return self.status()

    def sync_manager(self, number: int, start: int, length: int, control: int, activate: int = 1) -> None:
        data = struct.pack("<HHBBB", start, length, control, 0, activate)  # the last byte is the device's
        self.write(reg.SM + number * reg.SM_SIZE, data, reg.EVENT_SM_CHANGED)

    def mailboxes(self) -> None:
        box = self.profile.mailbox
        self.sync_manager(0, box.receive_start, box.receive_bytes, 0x26)
        self.sync_manager(1, box.send_start, box.send_bytes, 0x22)

    def images(self) -> tuple[int, int]:
        """Set the sync managers of process data to what the dictionary says; return their lengths."""
        lengths = []
        for assign, number, start, control in (
            (0x1C12, 2, self.profile.outputs.start, 0x64),
            (0x1C13, 3, self.profile.inputs.start, 0x20),
        ):
            bits = 0
            for k in range(1, int(self.dictionary.entry(assign).value) + 1):
                pdo = int(self.dictionary.entry(assign, k).value)
                count = int(self.dictionary.entry(pdo).value)
                bits += sum(int(self.dictionary.entry(pdo, i).value) & 0xFF for i in range(1, count + 1))
            lengths.append((bits + 7) // 8)
            self.sync_manager(number, start, lengths[-1], control)
        return lengths[0], lengths[1]

    def to_preop(self) -> None:
        self.mailboxes()
        assert self.request(PREOP) == (PREOP, 0)

    def to_safeop(self) -> None:
        self.to_preop()
        self.images()
        assert self.request(SAFEOP) == (SAFEOP, 0)

    def outputs(self, data: bytes) -> None:
        self.write(self.profile.outputs.start, data, reg.EVENT_OUTPUTS)

    def to_op(self) -> None:
        self.to_safeop()
        self.outputs(bytes(self.word(reg.SM + 2 * reg.SM_SIZE + reg.SM_LENGTH)))
        assert self.request(OP) == (OP, 0)

    # Mailbox

    def full(self, number: int) -> bool:
        return bool(self.memory[reg.SM + number * reg.SM_SIZE + reg.SM_STATUS] & reg.SM_STATUS_FULL)

    def send(self, data: bytes) -> None:
        """Write a message, which must not be longer than the mailbox."""
        assert not self.full(0)
        box = self.profile.mailbox
        self.memory[reg.SM + reg.SM_STATUS] |= reg.SM_STATUS_FULL
        self.write(box.receive_start, data.ljust(box.receive_bytes, b"\0"), reg.EVENT_MAILBOX_IN)

    def send_coe(self, data: bytes) -> None:
        self.counter = self.counter % 7 + 1
        self.send(struct.pack("<HHBB", len(data), 0, 0, 3 | self.counter << 4) + data)

    def receive(self) -> bytes | None:
        """Read the slave's message, header included; None if there is none."""
        if not self.full(1):
            return None
        box = self.profile.mailbox
        data = self.read(box.send_start, box.send_bytes)
        self.memory[reg.SM + reg.SM_SIZE + reg.SM_STATUS] &= 0xFF ^ reg.SM_STATUS_FULL
        self.write(0, b"", reg.EVENT_MAILBOX_OUT)
        (length,) = struct.unpack_from("<H", data)
        assert 6 + length <= box.send_bytes
        return data[: 6 + length]

    def coe(self, data: bytes) -> bytes:
        """Exchange a CoE message; returns the reply from its CoE header on."""
        self.send_coe(data)
        reply = self.receive()
        assert reply[5] & 0x0F == 3
        return reply[6:]
