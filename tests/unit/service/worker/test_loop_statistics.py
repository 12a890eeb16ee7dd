"""Durations in bins: the same counts as by sorting, and what is told of a loop."""

from __future__ import annotations

import itertools
import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.acquisition.process import pace_of
from service.config.load import ArmConfig
from service.worker.loop_statistics import LATENCY_NS, Durations, LoopStatistics


@given(st.lists(st.one_of(st.integers(0, 2 * LATENCY_NS[-1]), st.sampled_from(LATENCY_NS)), max_size=50))
def test_counts_are_those_of_numpy(found: list[int]) -> None:
    durations = Durations(LATENCY_NS)
    for duration in found:
        durations.add(duration)
    report = durations.report()
    values = np.array(found, np.int64)
    edges = np.array([-1, *LATENCY_NS, 1 << 62])
    expected = [int(((values > low) & (values <= high)).sum()) for low, high in itertools.pairwise(edges)]
    assert report["counts"] == expected
    assert report["sum_us"] == sum(found) * 1e-3
    assert report["max_us"] == max(found, default=0) * 1e-3


def test_a_loop_that_was_late_once_and_long_once() -> None:
    loop = LoopStatistics(1000.0)
    began = 5_000_000_000
    for turn in range(100):
        if turn == 40:
            began += 3_000_000  # late by three periods
        loop.add(began, began + (1_500_000 if turn == 70 else 100_000))
        began += 1_000_000
    report = loop.report()
    bounds, counts = report["period"]["bounds_us"], report["period"]["counts"]
    assert (report["nominal_us"], report["overruns"]) == (1000.0, 1)
    assert sum(counts) == 99
    assert counts[bounds.index(1050.0)] == 98
    assert counts[bounds.index(4200.0)] == 1
    assert report["period"]["max_us"] == 4000.0
    assert sum(report["execution"]["counts"]) == 100
    assert report["execution"]["sum_us"] == 99 * 100.0 + 1500.0


def test_the_nominal_period_is_that_of_the_pace() -> None:
    def arm(driver: dict[str, object]) -> ArmConfig:
        return ArmConfig.model_validate_json(json.dumps({"name": "a", "robot": "r", "driver": driver}))

    assert pace_of(arm({"kind": "sim"})) == 1.0
    assert pace_of(arm({"kind": "sim", "pace": 0.5})) == 0.5
    assert pace_of(arm({"kind": "sim", "pace": "max"})) == 1.0
    assert pace_of(arm({"kind": "replay", "recording": "r.mcap", "speed": 2.0})) == 2.0
