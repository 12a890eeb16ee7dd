"""Random and spoilt frames for a segment, after power-on and while drives run."""

import random
import struct
from collections import Counter

from sim_backend.drive._cia402 import State
from sim_backend.ethercat import registers as reg
from sim_backend.ethercat._segment import Segment
from tests.lab.ethercat.frame_master import FrameMaster
from tests.lab.ethercat.frames import Datagram, build_frame

REGISTERS = [*range(0, 0x140, 8), *range(0x400, 0x450, 4), *range(0x500, 0x510), *range(0x600, 0x680, 3)]
REGISTERS += [*range(0x800, 0x840), *range(0x900, 0x9D0, 2), *range(0xFF0, 0x1010), 0x1100, 0x2FF0, 0x2FFF, 0xFFFF]
#: Objects that a generic servo has.
INDEXES = [0x1000, 0x1001, 0x1008, 0x1018, 0x1600, 0x1A00, 0x1C12, 0x1C13, 0x1C32, 0x6007, 0x603F, 0x6040, 0x6041]
INDEXES += [0x605A, 0x605B, 0x605C, 0x605E, 0x6060, 0x6065, 0x6066, 0x6072, 0x6075, 0x6076, 0x607A, 0x6080, 0x6084]
INDEXES += [0x6085, 0x60B1, 0x60B2, 0x60C2, 0x60F4, 0x60FF]


def random_chain(rng: random.Random) -> list[Datagram]:
    """Datagrams at registers that do something, with data that may be anything."""
    chain = []
    for _ in range(rng.randrange(1, 8)):
        device = rng.choice([0, 0xFFFF, 0xFFFE, 0x1001, rng.randrange(65536)])
        address = device | rng.choice(REGISTERS) << 16 if rng.random() < 0.8 else rng.randrange(2**32)
        data = rng.randbytes(rng.choice([0, 1, 2, 4, 8, rng.randrange(180)]))
        chain.append(Datagram(rng.randrange(16), address, data, 0, rng.randrange(65536)))
    return chain


def spoil(rng: random.Random, frame: bytes) -> bytes:
    """Leave a frame as it is, cut it short, lengthen it, or change bytes."""
    kind = rng.randrange(5)
    if kind == 0:
        return frame
    if kind == 1:
        return frame[: rng.randrange(len(frame))]
    if kind == 2:
        return frame + rng.randbytes(rng.randrange(1500))
    spoilt = bytearray(frame)
    for _ in range(rng.randrange(1, 4)):
        spoilt[rng.randrange(12 if kind == 3 else 14, len(spoilt))] = rng.randrange(256)
    return bytes(spoilt)


def fuzz(bus: Segment, frames: int, seed: int) -> tuple[int, int]:
    """Send `frames` frames into both ends of a ring that is cut here and there; returns the answers and the time."""
    rng = random.Random(seed)
    now = answers = 0
    for k in range(frames):
        now += rng.randrange(300_000)
        if k % 500 == 0:
            bus.mend()
            bus.cut(rng.randrange(len(bus) + 1))
        frame = spoil(rng, build_frame(random_chain(rng)))
        for port, answer in bus.exchange(frame, rng.randrange(2), now):
            answers += 1
            assert port in (0, 1)
            assert len(answer) == len(frame)
    _power_cycle(bus)
    return answers, now


def _power_cycle(bus: Segment) -> None:
    bus.mend()
    for slave in range(len(bus)):
        bus.power_off(slave)
        bus.power_on(slave)


def random_coe(rng: random.Random) -> bytes:
    """Return a CoE message that may be right: SDO requests of all kinds, SDO information, noise."""
    index = rng.choice([*INDEXES, rng.randrange(65536)])
    subindex, kind = rng.choice([0, 0, 1, 2, rng.randrange(256)]), rng.randrange(8)
    if kind == 0:
        return rng.randbytes(rng.randrange(120))
    if kind == 1:  # SDO information: lists, object, entry
        payload = struct.pack("<HBB", rng.choice([index, rng.randrange(6)]), subindex, rng.randrange(256))
        return b"\x00\x80" + struct.pack("<BBH", rng.choice([1, 3, 5, rng.randrange(256)]), 0, 0) + payload
    if kind == 2:  # a further segment
        return b"\x00\x20" + bytes([rng.choice([0x60, 0x70, rng.randrange(32)])]) + rng.randbytes(rng.randrange(7, 90))
    if kind in (3, 4):
        return b"\x00\x20" + struct.pack("<BHBI", rng.choice([0x40, 0x50]), index, subindex, 0)
    size = rng.choice([1, 2, 4])
    command = rng.choice([0x23 | 4 - size << 2, 0x21, 0x31, 0x33, rng.randrange(256)])
    value = rng.choice([rng.randbytes(4), rng.randrange(256).to_bytes(4, "little")])
    return (
        b"\x00\x20" + struct.pack("<BHB", command, index, subindex) + value + rng.randbytes(rng.choice([0, 0, 8, 60]))
    )


def random_outputs(rng: random.Random, inputs: bytes) -> bytes:
    """Outputs of a generic servo: those of a master that enables it and moves it a little, or anything."""
    if rng.random() < 0.02:
        return rng.randbytes(16)
    status, position = struct.unpack_from("<Hi", inputs)
    controlword = {0x40: 0x06, 0x01: 0x07, 0x08: rng.choice([0, 0x80])}.get(status & 0x4F, 0x0F)
    position = max(-(2**31), min(position + rng.randrange(-2000, 2001), 2**31 - 1))
    speed, torque, offset = rng.randrange(-50_000, 50_000), rng.randrange(-50, 50), rng.randrange(-5, 5)
    mode = rng.choice([8] * 20 + [9, 10])
    return struct.pack("<HiihhBx", controlword, position, speed, torque, offset, mode)


def fuzz_operational(bus: Segment, frames: int, seed: int) -> Counter[str]:
    """Send `frames` frames to generic servos that are in OP; when all have fallen, start them again.

    It returns how often what happened: bring-ups, mailbox requests and replies; drives in OP and enabled, each frame.
    """
    rng = random.Random(seed)
    happened: Counter[str] = Counter()
    master = FrameMaster(bus)
    machine = bus.machine
    for _ in range(frames):
        operational = sum(device.al_state == reg.AL_OP for device in bus.controllers)
        if not operational:
            _power_cycle(bus)
            master.bring_up()
            happened["bring-ups"] += 1
        happened["in OP"] += operational
        happened["enabled"] += sum(drive.state is State.ENABLED for drive in machine.drives)
        master.now += rng.randrange(300_000)
        slave, kind = rng.randrange(len(bus)), rng.random()
        if kind < 0.6:
            master.outputs = [random_outputs(rng, inputs) for inputs in master.inputs]
            master.exchange()
        elif kind < 0.8:
            coe = random_coe(rng)
            message = bytearray(master.message(coe))
            if rng.random() < 0.1:
                message[rng.randrange(len(message))] = rng.randrange(256)
            happened["mailbox requests"] += master.post(slave, bytes(message))
        elif kind < 0.99:
            happened["mailbox replies"] += master.fetch(slave) is not None
        else:
            bus.exchange(spoil(rng, build_frame(random_chain(rng))), 0, master.now)
    _power_cycle(bus)
    return happened
