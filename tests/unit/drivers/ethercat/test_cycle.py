"""Deadlines, counts of cycles, histograms, validity of inputs, and the lock to a clock that drifts and jumps."""

import socket
import time
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.ethercat.bus import exchange as exchange_module
from drivers.ethercat.bus._clock import BusClock
from drivers.ethercat.bus._sockets import FrameSockets, open_sockets
from drivers.ethercat.bus.al_status import INIT, OP, SAFEOP, AlStatus
from drivers.ethercat.bus.bus import Bus as PysoemBus
from drivers.ethercat.bus.exchange import CycleCounter, Exchange, next_cycle, valid_joints
from drivers.timing import Histogram, sleep_until
from tests.lab.ethercat.configs import make_config

CYCLE, SHIFT = 1_000_000, 500_000
DC_START = 848_000_000_000_000_123
UP, DOWN, SAFE = AlStatus(OP), AlStatus(INIT), AlStatus(SAFEOP, True, 0x1B)


def test_sleep_is_never_short() -> None:
    for ahead_ns in (-time.monotonic_ns() + 1, 0, 100_000, 2_000_000):  # also a deadline long past
        deadline = time.monotonic_ns() + ahead_ns
        sleep_until(deadline)
        assert time.monotonic_ns() >= deadline


@given(st.integers(0, 1000), st.integers(-5 * CYCLE, 50 * CYCLE))
def test_late_cycles_are_skipped_onto_the_grid(last: int, late_ns: int) -> None:
    deadline = 10**12
    index = next_cycle(last, deadline + late_ns, deadline, CYCLE)
    its_deadline = deadline + (index - last - 1) * CYCLE
    assert index > last
    if late_ns <= CYCLE // 2:
        assert index == last + 1
    else:  # the first one still to come
        assert its_deadline > deadline + late_ns
        assert its_deadline - (deadline + late_ns) <= CYCLE


@pytest.mark.parametrize("late_us", [None, 0, 300, 400, 700])
@pytest.mark.parametrize(
    ("shift_us", "least_ns"), [(500.0, 150_000), (0.0, 150_000), (700.0, 150_000), (100.0, 50_000)]
)
def test_no_frame_is_sent_shortly_before_sync0_and_none_waits_for_long(
    monkeypatch: pytest.MonkeyPatch, shift_us: float, least_ns: int, late_us: int | None
) -> None:
    """However late the process wakes, at random or always: it may pass the drives in this cycle or in the next."""
    rng, begun_ns, frames = np.random.default_rng(1), 10**12, 300
    now_ns = deadline_ns = begun_ns

    def oversleep(until_ns: int) -> None:
        nonlocal now_ns
        late_ns = int(rng.integers(0, 3 * CYCLE) * rng.integers(0, 2)) if late_us is None else 1000 * late_us
        now_ns = max(now_ns, until_ns) + (late_ns if until_ns == deadline_ns else 0)

    monkeypatch.setattr(exchange_module, "now_ns", lambda: now_ns)
    monkeypatch.setattr(exchange_module, "sleep_until", oversleep)
    made = Exchange(PysoemBus("none"), make_config(1, sync0_shift_us=shift_us))
    made.start(has_dc=True)
    made.clock.start(now_ns, now_ns)
    made.index = made.due
    for _ in range(frames):
        deadline_ns = made.deadline_ns()
        assert made.wait(10**18)
        assert (made.clock.shift_ns - now_ns) % CYCLE >= least_ns
        assert made.due > made.index  # each frame is for a cycle of its own
        made.index = made.due
    assert now_ns - begun_ns <= (2 if late_us else 1) * (frames + 1) * CYCLE or late_us is None


@given(st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=200))
def test_each_cycle_is_counted_once(events: list[int | None]) -> None:
    """None: an exchange without answer, which takes one cycle; a number: cycles skipped before an answer."""
    counter = CycleCounter()
    now = -1
    frames = lost = overruns = silent = 0
    for event in events:
        if event is None:
            counter.unanswered()
            now += 1
            silent += 1
            continue
        now += 1 + event
        assert counter.answered(now)
        frames += 1
        if silent:  # cycles passed while waiting are lost, not overrun
            lost += silent + event
        else:
            overruns += event
        silent = 0
    assert counter.frames == frames
    assert counter.frames + counter.lost + counter.overruns == counter.last + 1
    assert (counter.lost, counter.overruns) == (lost, overruns)


def test_a_side_of_a_ring_on_which_nothing_arrives_is_not_waited_for() -> None:
    sockets, pairs = FrameSockets(open_sockets()), [socket.socketpair(type=socket.SOCK_DGRAM) for _ in range(2)]
    sockets._sockets = [here for here, _ in pairs]

    def exchange(*sides: int, within_ns: int = 1_000_000) -> int:
        sockets.flush()
        for side in sides:
            pairs[side][1].send(b"frame")
        left_us = sockets.wait(time.monotonic_ns() + within_ns)
        for here, _ in pairs:
            with suppress(BlockingIOError):
                here.recv(100, socket.MSG_DONTWAIT)  # as SOEM reads it
        return left_us

    for sides in ((), (), (), (0,), (0,), (0,)):  # lost, and one-sided
        assert not sockets.one_sided
        assert exchange(*sides) == 0
    assert sockets.one_sided
    until_ns = time.monotonic_ns() + 10**10
    assert exchange(0, within_ns=10**10) == 0
    assert time.monotonic_ns() < until_ns
    assert exchange(0, 1, within_ns=10**10) > 0  # the cable is in again
    assert not sockets.one_sided
    for sides in ((0,),) * 3 + ((1,),) * 3:  # now the other one is out
        assert exchange(*sides) == 0
    assert sockets.one_sided
    until_ns = time.monotonic_ns() + 10**10
    assert exchange(1, within_ns=10**10) == 0
    assert time.monotonic_ns() < until_ns
    for one in (*pairs[0], *pairs[1]):
        one.close()


def test_an_index_seen_twice_is_no_frame() -> None:
    counter = CycleCounter()
    assert [counter.answered(k) for k in (0, 1, 1, 0, 3)] == [True, True, False, False, True]
    assert (counter.frames, counter.overruns, counter.repeated) == (3, 1, 2)


def test_quantiles_are_those_of_the_data() -> None:
    data = np.random.default_rng(1).lognormal(12.0, 1.0, 5000).astype(np.int64)
    histogram = Histogram()
    for value in data:
        histogram.add(int(value))
    for fraction in (0.5, 0.99, 0.999):
        true = np.quantile(data, fraction)
        assert histogram.quantile_ns(fraction) == pytest.approx(true, rel=0.02)
    summary = histogram.summary()
    assert summary["max_us"] == data.max() * 1e-3
    assert sum(summary["counts"]) == data.size
    edges = [*(1e3 * np.array(summary["bins_us"])), np.inf]
    for low, high, count in zip(edges[:-1], edges[1:], summary["counts"], strict=True):
        assert np.count_nonzero((data >= round(low)) & (data < high)) == count


@pytest.mark.parametrize(
    ("missing", "statuses", "valid"),
    [
        (3, [UP, UP, UP], None),  # no slave known to be missing
        (3, [UP, DOWN, UP], [True, False, True]),
        (6, [UP, None, None], [True, False, False]),
        (6, [UP, None, UP], None),  # one more is missing
        (1, [UP, None, UP], None),
        (2, [UP, SAFE, UP], [True, True, True]),  # sends inputs, accepts no outputs
        (5, [None, SAFE, UP], [False, True, True]),
    ],
)
def test_validity_of_three_drives(missing: int, statuses: list[AlStatus | None], valid: list[bool] | None) -> None:
    joints, known = valid_joints(missing, statuses, [(2, 1)] * 3, (0, 1, 2))
    assert known == (valid is not None)
    assert joints.tolist() == (valid or [False] * 3)


def test_validity_with_a_coupler_and_joints_out_of_order() -> None:
    # A coupler without process data at position 0; the joints are wired the other way round.
    joints, known = valid_joints(3, [UP, None, UP], [(0, 0), (2, 1), (2, 1)], (2, 1))
    assert known
    assert joints.tolist() == [True, False]


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
