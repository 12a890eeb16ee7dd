"""The short way through a drive's cycle is the long one, to the last bit, whatever happens in between."""

import numpy as np
import pytest

from sim_backend.drive.drive import Cia402Drive
from sim_backend.drive.modes import CSP, CSV
from sim_backend.drive.motion import Demand, Feedback
from tests.lab.ethercat.drive_bench import PERIOD_S, Bench

CYCLES = 4000


class LongWay(Cia402Drive):
    """A drive without the short way."""

    def _cruise(self, feedback: Feedback, period_s: float, fresh: bool) -> Demand | None:
        return None


def disturb(benches: tuple[Bench, Bench], rng: np.random.Generator) -> None:
    """Let the same thing happen to both drives; mostly back to what is usual."""
    what = rng.integers(14)
    word = int(rng.choice([0x06, 0x07, 0x0F, 0x0F, 0x1F, 0x8F, 0x02, 0x0B, 0x00]))
    value = int(rng.integers(-3, 4))
    rare = value == 3
    objects = {
        0: (0x6040, word), 1: (0x6060, CSV if rare else CSP), 2: (0x6065, [0xFFFFFFFF, 2000, 50][abs(value) % 3]),
        3: (0x60C2, 1 + abs(value), 1), 4: (0x6080, 3000 if value else 1), 5: (0x60B2, 10 * value),
    }  # fmt: skip
    attributes = {
        6: ("temperature", 25.0 + 30.0 * abs(value)), 7: ("limited", value > 1), 8: ("online", not rare),
        9: ("blocked", rare), 10: ("false_speed", 1e12 if rare else None),
    }  # fmt: skip
    for bench in benches:
        if what in objects:
            bench.set(*objects[what])
        elif what in attributes:
            setattr(bench, *attributes[what])
        elif what == 11:
            bench.drive.safe_torque_off = rare
        elif what == 12:
            bench.drive.mains = not rare
        elif rare:
            bench.drive.fault(0x2310)


def recover(benches: tuple[Bench, Bench], cycle: int) -> None:
    """What a master does to drives that have dropped out."""
    for bench in benches:
        bench.set(0x6040, (0x80, 0x06, 0x07, 0x0F)[cycle // 60 % 4])
        bench.set(0x6060, CSP)
        bench.drive.safe_torque_off, bench.drive.mains, bench.online = False, True, True
        bench.temperature, bench.blocked, bench.false_speed = 25.0, False, None
        bench.set(0x6065, 0xFFFFFFFF)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("limits", [None, (-4000, 4000)])
def test_both_ways_are_the_same(seed: int, limits: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    short, long = Bench(limits), Bench(limits)
    long.drive.__class__ = LongWay
    taken = 0
    way = Cia402Drive._cruise

    def counted(drive: Cia402Drive, feedback: Feedback, period_s: float, fresh: bool) -> Demand | None:
        nonlocal taken
        demand = way(drive, feedback, period_s, fresh)
        taken += demand is not None
        return demand

    monkeypatch.setattr(Cia402Drive, "_cruise", counted)
    benches, recovering = (short, long), 240
    for cycle in range(CYCLES):
        if recovering:
            recovering -= 1
            recover(benches, cycle)
        elif rng.random() < 0.01:
            disturb(benches, rng)
        elif rng.random() < 0.02:
            recovering = 240
        fresh = bool(rng.random() < 0.95)
        target = round(5000.0 * np.sin(2.0 * np.pi * cycle * PERIOD_S)) if rng.random() < 0.99 else 0
        for bench in benches:
            bench.set(0x607A, target)
            bench.run(1, fresh)
        assert short.demand == long.demand
        assert short.drive.state is long.drive.state
        assert [entry.value for entry in short.dictionary] == [entry.value for entry in long.dictionary]
    assert short.emergencies == long.emergencies
    assert taken > CYCLES // 20
