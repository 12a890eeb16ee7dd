"""A master by frames, without an interface: brings the slaves of a segment up and exchanges process data."""

import struct

from sim_backend.ethercat import registers as reg
from sim_backend.ethercat import wire
from sim_backend.ethercat._controller import SlaveController
from sim_backend.ethercat._profile import ImageProfile, PdoProfile
from sim_backend.ethercat._segment import Segment
from tests.lab.ethercat.frames import Datagram, build_frame, logical, parse_frame, physical

PREOP, SAFEOP, OP = reg.AL_PREOP, reg.AL_SAFEOP, reg.AL_OP
MS = 1_000_000


def _bytes(image: ImageProfile, pdos: tuple[PdoProfile, ...]) -> int:
    return (sum(pdo.bits for pdo in pdos if pdo.index in image.assigned) + 7) // 8


def _manager(start: int, length: int, control: int) -> bytes:
    return struct.pack("<HHBBBB", start, length, control, 0, 1, 0)


def _fmmu(outer: int, length: int, inner: int, kind: int) -> bytes:
    return struct.pack("<IHBBHBBB3x", outer, length, 0, 7, inner, 0, kind, 1)


class FrameMaster:
    """Slaves of a segment by their place; process data as delivered, outputs and inputs of a slave side by side.

    `exchange` sends `outputs` at the host time `now` [ns]; `inputs` is what it heard last.
    """

    def __init__(self, bus: Segment, now: int = 0, port: int = 0) -> None:
        self.bus, self.now, self._port = bus, now, port
        controllers = [each for each in bus.controllers if isinstance(each, SlaveController)]
        assert len(controllers) == len(bus)
        self.profiles = [each.profile for each in controllers]
        self.outputs = [bytes(_bytes(each.outputs, each.rx_pdos)) for each in self.profiles]
        self.inputs = [bytes(_bytes(each.inputs, each.tx_pdos)) for each in self.profiles]
        self._counter = 0

    def ask(self, *chain: Datagram) -> list[Datagram]:
        """Send a frame; its datagrams as they come back, none if it is lost."""
        answers = self.bus.exchange(build_frame(chain), self._port, self.now)
        return parse_frame(answers[0][1]) if answers else []

    def write(self, slave: int, register: int, data: bytes) -> int:
        """Write to a slave; the working counter."""
        return self.ask(physical(wire.APWR, slave, register, data))[0].working_counter

    def read(self, slave: int, register: int, count: int) -> bytes:
        """Read from a slave."""
        return self.ask(physical(wire.APRD, slave, register, bytes(count)))[0].data

    def run(self, ms: int) -> None:
        """Let time pass, with process data in each millisecond."""
        for _ in range(ms):
            self.now += MS
            self.exchange()

    def sync0(self, slave: int, cycle_ns: int, lead_ns: int = 0) -> None:
        """Start SYNC0 so many nanoseconds from now, or stop it with a cycle of 0."""
        now = struct.unpack("<Q", self.read(slave, reg.DC_SYSTEM_TIME, 8))[0]
        self.write(slave, reg.DC_ACTIVATION, b"\0")
        self.write(slave, reg.DC_SYNC0_START, struct.pack("<QI4xI", now + lead_ns, 0, cycle_ns))
        self.write(slave, reg.DC_ACTIVATION, b"\3" if cycle_ns else b"\0")

    def configure(self, slave: int) -> None:
        """Set sync managers and FMMUs as the device wants them."""
        profile, out, back = self.profiles[slave], len(self.outputs[slave]), len(self.inputs[slave])
        box = profile.mailbox
        self.write(slave, reg.SM, bytes(4 * reg.SM_SIZE))
        managers = _manager(box.receive_start, box.receive_bytes, 0x26)
        managers += _manager(box.send_start, box.send_bytes, 0x22)
        managers += _manager(profile.outputs.start, out, 0x64) + _manager(profile.inputs.start, back, 0x20)
        self.write(slave, reg.SM, managers)
        begin = sum(map(len, self.outputs[:slave])) + sum(map(len, self.inputs[:slave]))
        units = _fmmu(begin, out, profile.outputs.start, reg.FMMU_TYPE_WRITE)
        units += _fmmu(begin + out, back, profile.inputs.start, reg.FMMU_TYPE_READ)
        self.write(slave, reg.FMMU, units)

    def request(self, state: int) -> list[tuple[int, int]]:
        """Ask all for an AL state, with errors acknowledged; what they say 5 ms later, with the code."""
        self.ask(physical(wire.BWR, 0, reg.AL_CONTROL, struct.pack("<H", state | reg.AL_ERROR)))
        self.run(5)
        return [self.status(slave) for slave in range(len(self.bus))]

    def status(self, slave: int) -> tuple[int, int]:
        """AL status and code of a slave."""
        status, code = struct.unpack("<H2xH", self.read(slave, reg.AL_STATUS, 6))
        return status, code

    def bring_up(self, *, cycle_ns: int = 0) -> None:
        """Lead all slaves from any state to OP."""
        count = len(self.bus)
        assert [state for state, _ in self.request(reg.AL_INIT)] == [reg.AL_INIT] * count
        for slave in range(count):
            self.configure(slave)
            self.sync0(slave, cycle_ns)
        for state in (PREOP, SAFEOP, OP):
            assert self.request(state) == [(state, 0)] * count

    def exchange(self) -> int | None:
        """Exchange process data by one LRW; the working counter, None if the frame is lost."""
        data = b"".join(out + bytes(len(back)) for out, back in zip(self.outputs, self.inputs, strict=True))
        answer = self.ask(logical(wire.LRW, 0, data))
        if not answer:
            return None
        at = 0
        for slave, (out, back) in enumerate(zip(self.outputs, self.inputs, strict=True)):
            at += len(out)
            self.inputs[slave] = answer[0].data[at : at + len(back)]
            at += len(back)
        return answer[0].working_counter

    def message(self, coe: bytes) -> bytes:
        """Mailbox message with the next counter around a CoE message."""
        self._counter = self._counter % 7 + 1
        return struct.pack("<HHBB", len(coe), 0, 0, 3 | self._counter << 4) + coe

    def post(self, slave: int, message: bytes) -> int:
        """Write a message into a slave's mailbox; the working counter."""
        box = self.profiles[slave].mailbox
        return self.write(slave, box.receive_start, message.ljust(box.receive_bytes, b"\0"))

    def fetch(self, slave: int) -> bytes | None:
        """Read a slave's mailbox; the CoE message, None if there is none or the frame is lost."""
        box = self.profiles[slave].mailbox
        answer = self.ask(physical(wire.APRD, slave, box.send_start, bytes(box.send_bytes)))
        if not answer or not answer[0].working_counter:
            return None
        (length,) = struct.unpack_from("<H", answer[0].data)
        return answer[0].data[6 : 6 + length]
