"""How many messages pass, and which."""

from __future__ import annotations

import pytest

from service.bridge._decimation import Decimation

SECONDS = 4


def passed(rate_hz: float, times_ns: list[int], epoch: int = 1) -> list[int]:
    decimation = Decimation(rate_hz)
    found = [t_ns for t_ns in times_ns if decimation.passes("frame", epoch, t_ns)]
    assert decimation.left_out == len(times_ns) - len(found)
    return found


@pytest.mark.parametrize(
    ("source_hz", "rate_hz", "wanted_hz"),
    [(1000.0, 50.0, 50.0), (50.0, 50.0, 50.0), (60.0, 50.0, 50.0), (10.0, 50.0, 10.0), (1000.0, 300.0, 300.0)],
)
@pytest.mark.parametrize("jitter_ns", [0, 300_000])
def test_the_rate_is_kept_and_used(source_hz: float, rate_hz: float, wanted_hz: float, jitter_ns: int) -> None:
    """Also of times that are rounded, or early and late by turns."""
    count = round(source_hz * SECONDS)
    times = [round(1e9 * k / source_hz) + (jitter_ns if k % 2 else 0) for k in range(count)]
    found = passed(rate_hz, times)
    assert len(found) <= wanted_hz * SECONDS + 1
    assert len(found) >= 0.95 * wanted_hz * SECONDS
    every = round(source_hz / wanted_hz)
    if source_hz % wanted_hz == 0.0 and not jitter_ns:
        assert found == times[::every]


def test_after_a_gap_it_goes_on_at_once_and_makes_up_for_nothing() -> None:
    times = [k * 1_000_000 for k in (*range(100), *range(1000, 1100))]
    assert passed(50.0, times) == [k * 1_000_000 for k in (0, 20, 40, 60, 80, 1000, 1020, 1040, 1060, 1080)]


def test_a_start_or_a_step_back_begins_anew() -> None:
    decimation = Decimation(50.0)
    assert decimation.passes("frame", 1, 10**9)
    assert not decimation.passes("frame", 1, 10**9 + 1_000_000)
    assert decimation.passes("frame", 2, 10**9 + 2_000_000)
    assert decimation.passes("frame", 2, 0)
    assert not decimation.passes("frame", 2, 1_000_000)
    assert decimation.passes("torque", 2, 1_000_000)
