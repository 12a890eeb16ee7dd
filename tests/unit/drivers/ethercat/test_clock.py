"""`BusClock`: lock to a drifting clock, with late frames and jumps."""

from __future__ import annotations

import numpy as np
import pytest

from drivers.ethercat.bus._clock import BusClock

CYCLE, SHIFT = 1_000_000, 500_000
DC_START = 848_000_000_000_000_123


class Bus:
    """A DC clock that runs `ppm` fast, seen by frames that take some time to it."""

    def __init__(self, ppm: float, seed: int = 1, late_fraction: float = 0.02) -> None:
        self.ppm = ppm
        self.rng = np.random.default_rng(seed)
        self.late_fraction = late_fraction
        self.jump_ns = 0

    def dc(self, host_ns: int) -> int:
        return DC_START + host_ns + round(host_ns * self.ppm * 1e-6) + self.jump_ns

    def transit_ns(self) -> int:
        late = self.rng.random() < self.late_fraction
        return int(self.rng.exponential(1_500_000)) if late else min(int(self.rng.exponential(15e3)), 100_000) + 20_000


def follow(clock: BusClock, bus: Bus, frames: int, host_ns: int = 0) -> tuple[list[int], int]:
    """Run a loop on the clock's deadlines; return the indices of its frames and the host time at the end."""
    indices = []
    for _ in range(frames):
        there_ns = bus.transit_ns()
        dc = clock.update(bus.dc(host_ns + there_ns), host_ns, there_ns + bus.transit_ns())
        if dc is None:  # rejected
            host_ns = clock.deadline_ns(clock.sample_index(clock.to_dc(host_ns)) + 1)
            continue
        indices.append(clock.sample_index(dc))
        due = clock.deadline_ns(indices[-1] + 1)
        host_ns = max(due, host_ns) + min(int(bus.rng.exponential(60_000)), 300_000)
    return indices, host_ns


@pytest.mark.parametrize("ppm", [-100.0, 200.0])
def test_learns_the_drift_and_keeps_the_phase(ppm: float) -> None:
    bus, clock = Bus(ppm), BusClock(CYCLE, SHIFT)
    _, host_ns = follow(clock, bus, 5000)
    assert clock.drift_ppm == pytest.approx(ppm, abs=10.0)
    due = clock.deadline_ns(clock.sample_index(bus.dc(host_ns)) + 3)
    phase = (bus.dc(due) + CYCLE // 2) % CYCLE - CYCLE // 2
    assert abs(phase) < 60_000  # frames pass the reference slave half a cycle from SYNC0
    assert clock.steps == 0


def test_a_late_first_frame_does_not_matter() -> None:
    bus, clock = Bus(20.0, late_fraction=0.0), BusClock(CYCLE, SHIFT)
    clock.update(bus.dc(7_000_000), 0)
    _, host_ns = follow(clock, bus, 60, host_ns=1_000_000)
    assert abs(clock.to_dc(host_ns) - bus.dc(host_ns)) < 100_000
    assert clock.steps == 0


def test_without_late_frames_every_sample_is_seen_once() -> None:
    bus, clock = Bus(50.0, late_fraction=0.0), BusClock(CYCLE, SHIFT)
    _, host_ns = follow(clock, bus, 500)
    indices, _ = follow(clock, bus, 5000, host_ns)
    assert np.all(np.diff(indices) == 1)


def test_index_and_time_of_a_sample_belong_together() -> None:
    clock = BusClock(CYCLE, SHIFT)
    for dc in (DC_START, DC_START + 499_876, DC_START + 500_000):
        index = clock.sample_index(dc)
        assert clock.sample_time_ns(index) <= dc < clock.sample_time_ns(index + 1)


def test_a_deadline_is_one_shift_before_the_next_sync0() -> None:
    clock = BusClock(CYCLE, SHIFT)
    clock.start(DC_START, 0)
    index = clock.sample_index(DC_START)
    assert clock.to_dc(clock.deadline_ns(index + 5)) == clock.sample_time_ns(index + 6) - SHIFT
    no_shift = BusClock(CYCLE, 0)
    no_shift.start(DC_START, 0)
    between = no_shift.to_dc(no_shift.deadline_ns(7)) - no_shift.sample_time_ns(7)
    assert between == CYCLE // 2


@pytest.mark.parametrize("jump_ns", [-3_000_250_000, 40_300_000])
def test_a_jump_of_the_clock_is_followed_and_the_count_goes_on(jump_ns: int) -> None:
    bus, clock = Bus(10.0, late_fraction=0.0), BusClock(CYCLE, SHIFT)
    before, host_ns = follow(clock, bus, 1000)
    bus.jump_ns = jump_ns
    after, host_ns = follow(clock, bus, 1000, host_ns)
    assert clock.steps == 1
    steps = np.diff([*before, *after])
    assert steps.min() >= 0
    assert steps.max() <= 4  # two frames were rejected
    # The phase against the slaves' own grid is kept.
    slave = clock.to_slave(clock.to_dc(host_ns))
    assert abs(slave - bus.dc(host_ns)) < 100_000
    assert (clock.to_dc(host_ns) - slave) % CYCLE == 0


def test_one_wild_time_is_no_jump() -> None:
    bus, clock = Bus(0.0, late_fraction=0.0), BusClock(CYCLE, SHIFT)
    _, host_ns = follow(clock, bus, 1000)
    assert clock.update(bus.dc(host_ns) + 10**12, host_ns) is None
    follow(clock, bus, 100, host_ns + CYCLE)
    assert clock.steps == 0
