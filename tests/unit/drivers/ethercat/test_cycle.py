"""Deadlines and the account of cycles."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.ethercat.bus.cycle import CycleAccount, Histogram, next_cycle, sleep_until

CYCLE = 1_000_000


def test_sleep_is_never_short() -> None:
    for ahead_ns in (0, 100_000, 2_000_000):
        deadline = time.monotonic_ns() + ahead_ns
        sleep_until(deadline)
        assert time.monotonic_ns() >= deadline


def test_a_deadline_in_the_past_does_not_wait() -> None:
    sleep_until(1)  # would hang otherwise: the test has a time-out


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
    account = CycleAccount()
    now = -1
    frames, lost, overruns, seen = 0, 0, 0, set()
    silent = 0
    for event in events:
        if event is None:
            account.unanswered()
            now += 1
            silent += 1
            continue
        now += 1 + event
        assert account.answered(now)
        frames += 1
        seen.add(now)
        if silent:  # who waits for an answer is not late
            lost += silent + event
        else:
            overruns += event
        silent = 0
    assert account.frames == frames
    assert account.frames + account.lost + account.overruns == account.last + 1
    assert (account.lost, account.overruns) == (lost, overruns)
    assert account.last == max(seen, default=-1)


def test_an_index_seen_twice_is_no_frame() -> None:
    account = CycleAccount()
    assert [account.answered(k) for k in (0, 1, 1, 0, 3)] == [True, True, False, False, True]
    assert (account.frames, account.overruns, account.repeated) == (3, 1, 2)


@given(st.integers(0, 1 << 36))
def test_bins_hold_their_durations(duration: int) -> None:
    index = Histogram.bin_of(duration)
    low, high = Histogram.edges_ns(index)
    assert low <= duration
    if index < Histogram.bin_of(1 << 60):
        assert duration < high
        assert Histogram.edges_ns(index + 1)[0] == high
        assert high - low <= max(1, low / 31)


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


@pytest.mark.parametrize("value", [-5, 0])
def test_no_negative_durations(value: int) -> None:
    histogram = Histogram()
    histogram.add(value)
    assert histogram.counts[0] == 1
    assert histogram.quantile_ns(0.5) == 0
