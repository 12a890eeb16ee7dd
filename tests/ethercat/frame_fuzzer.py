"""Random and spoilt frames for a segment; as a program, a long run.

python -m tests.ethercat.frame_fuzzer [FRAMES [SEED]]
"""

from __future__ import annotations

import random
import sys

from sim_backend.ethercat.segment import Segment
from sim_backend.ethercat.wire import Datagram, build_frame

REGISTERS = [*range(0, 0x140, 8), *range(0x400, 0x450, 4), *range(0x500, 0x510), *range(0x600, 0x680, 3)]
REGISTERS += [*range(0x800, 0x840), *range(0x900, 0x9D0, 2), *range(0xFF0, 0x1010), 0x1100, 0x2FF0, 0x2FFF, 0xFFFF]


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
    bus.mend()
    for slave in range(len(bus)):
        bus.power_off(slave)
        bus.power_on(slave)
    return answers, now


if __name__ == "__main__":
    from tests.ethercat.segment_process import make_segment

    count, seed = map(int, (*sys.argv[1:], *("1000000", "1")[len(sys.argv) - 1 :]))
    segment = make_segment(6, ring=True)
    print(fuzz(segment, count, seed)[0], "answers", segment.steps, "steps", segment.skipped, "skipped")
