"""`PlcClock` and `Timeline`: times and numbers of samples over set clocks and restarts."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.ads.ring._timeline import Timeline
from drivers.ads.ring.clock import PlcClock, dc_to_ns, filetime_to_ns

MS = 1_000_000


def test_epochs() -> None:
    moment = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
    seconds = round((moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(seconds=1))
    filetime = round((moment - datetime(1601, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1)) * 10 + 3
    assert filetime_to_ns(filetime) == seconds * 10**9 + 300
    dc = round((moment - datetime(2000, 1, 1, tzinfo=UTC)) / timedelta(seconds=1)) * 10**9 + 1
    assert dc_to_ns(np.array([dc]))[0] == seconds * 10**9 + 1


@pytest.mark.parametrize("ppm", [-80.0, 35.0])
def test_drift_and_mapping(ppm: float) -> None:
    rng = np.random.default_rng(1)
    clock = PlcClock()
    assert clock.drift_ppm is None
    for k in range(60_000):
        host = k * MS
        plc = 10**18 + round(host * (1.0 + ppm * 1e-6))
        clock.add(plc - int(rng.integers(0, MS)), host + 50_000 + int(rng.exponential(200_000.0)))
    assert clock.drift_ppm == pytest.approx(ppm, abs=1.0)
    assert clock.to_host(10**18 + round(70e9 * (1.0 + ppm * 1e-6))) == pytest.approx(70e9, abs=0.2 * MS)
    assert clock.steps == 0


def test_a_set_clock_is_a_step_and_a_late_reply_none() -> None:
    clock = PlcClock()
    for k in range(3000):
        clock.add(10**18 + k * MS, k * MS + (500 * MS if k % 100 == 7 else 0))
    assert clock.steps == 0
    for k in range(3000, 6000):
        clock.add(2 * 10**18 + k * MS, k * MS)
    assert clock.steps == 1
    assert clock.to_host(2 * 10**18) == pytest.approx(0, abs=MS)


def place(line: Timeline, counter: int, time_ns: int, host_ns: int = 0) -> tuple[int, int]:
    assert line.fresh(counter)
    return line.place(counter, time_ns, host_ns)


def test_restart_continues_with_the_time_that_passed() -> None:
    line = Timeline(MS)
    place(line, 10**6, 10**18, host_ns=0)
    line.restart()
    assert place(line, 0, 10**18 + 350 * MS, host_ns=352 * MS) == (350, 10**18 + 350 * MS)
    assert place(line, 1, 10**18 + 351 * MS, host_ns=353 * MS)[0] == 351
    assert (line.lost, line.steps) == (349, 0)


def test_restart_with_another_clock_continues_with_the_host_time() -> None:
    line = Timeline(MS)
    place(line, 5, 10**18, host_ns=0)
    line.restart()
    assert place(line, 0, 10**17, host_ns=200 * MS) == (200, 10**18 + 200 * MS)
    assert place(line, 1, 10**17 + MS, host_ns=201 * MS) == (201, 10**18 + 201 * MS)
    assert line.steps == 1


def test_a_clock_that_is_set_moves_no_sample() -> None:
    line = Timeline(MS)
    place(line, 0, 10**18)
    assert place(line, 1, 10**18 - 10 * MS) == (1, 10**18 + MS)
    assert place(line, 2, 10**18 - 9 * MS) == (2, 10**18 + 2 * MS)
    assert place(line, 3, 3 * 10**18) == (3, 10**18 + 3 * MS)
    assert not line.fresh(3)
    assert (line.steps, line.lost) == (2, 0)


def test_cycles_left_out_by_the_task_are_lost() -> None:
    """By the time that passed on the host, also where a block comes later than others."""
    line = Timeline(MS)
    for k in range(20):
        place(line, k, 10**18 + k * MS, k * MS + 3 * MS * (k % 5))
    assert place(line, 20, 10**18 + 27 * MS, 27 * MS) == (27, 10**18 + 27 * MS)
    assert place(line, 21, 10**18 + 28 * MS, 28 * MS) == (28, 10**18 + 28 * MS)
    assert (line.lost, line.steps) == (7, 0)


@pytest.mark.parametrize("step", [MS, 50 * MS, 900 * MS])
def test_a_clock_that_is_set_forward_loses_no_cycle(step: int) -> None:
    line = Timeline(MS)
    for k in range(20):
        place(line, k, 10**18 + k * MS, k * MS)
    for k in range(20, 40):
        assert place(line, k, 10**18 + step + k * MS, k * MS) == (k, 10**18 + k * MS)
    assert (line.lost, line.steps) == (0, 1)


@given(st.lists(st.integers(-700_000, 700_000), min_size=2, max_size=50))
def test_a_time_that_is_read_late_is_no_gap(jitter: list[int]) -> None:
    line = Timeline(MS)
    half = [j // 4 for j in jitter]
    assert [place(line, k, 10**18 + k * MS + late)[0] for k, late in enumerate(half)] == list(range(len(half)))


@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.integers(-(10**10), 10**10), st.booleans(), st.integers(0, 10**9)), max_size=50
    )
)
def test_never_a_step_back(steps: list[tuple[int, int, bool, int]]) -> None:
    line = Timeline(MS)
    counter, time_ns, host_ns = 0, 10**18, 0
    last = (-1, 0)
    for ahead, jump, restart, waited in steps:
        counter, time_ns, host_ns = counter + ahead, time_ns + ahead * MS + jump, host_ns + waited
        if restart:
            line.restart()
            counter = ahead
        placed = place(line, counter, time_ns, host_ns)
        assert placed[0] > last[0]
        assert placed[1] > last[1]
        last = placed
    assert line.lost + len(steps) == line.seq + 1
