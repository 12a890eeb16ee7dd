"""Deadlines, counts of cycles, histograms, and the validity of inputs."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.ethercat.bus.al_status import INIT, OP, SAFEOP, AlStatus
from drivers.ethercat.bus.cycle import CycleCounter, next_cycle
from drivers.ethercat.bus.exchange import valid_joints
from drivers.timing import Histogram, sleep_until

CYCLE = 1_000_000
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
