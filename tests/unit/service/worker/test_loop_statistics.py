"""Durations of a loop in bins, as by sorting, and memory that was free and goes back to the system."""

import ctypes
import itertools
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.acquisition.sources import pace_of
from service.config.load import ArmConfig
from service.worker import worker as process
from service.worker.loop_statistics import LATENCY_NS, Durations, LoopStatistics
from service.worker.worker import RELEASE_MEMORY_NS, Worker
from tests.lab.daemon.daemons import config, replayed


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


glibc = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="only glibc keeps free memory")
#: Blocks of which every hundredth is kept, so that the heap cannot simply be cut off at its end.
SCRIPT = """
import psutil
from service.worker.resources import release_memory
rss = lambda: psutil.Process().memory_info().rss / 1e6
empty = rss()
blocks = [bytes(2000) for _ in range(40_000)]
kept = blocks[::100]
del blocks
full = rss()
release_memory()
assert full > empty + 60.0, (empty, full)
assert rss() < empty + 15.0, (empty, full, rss())
assert all(block == bytes(2000) for block in kept)
"""


@glibc
def test_free_memory_is_given_back() -> None:
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(("role", "times"), [("recorder", 2), ("gateway", 2), ("acquisition", 0)])
def test_a_process_gives_back_once_a_minute_but_not_the_one_that_must_not_miss_a_cycle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str, times: int
) -> None:
    given: list[None] = []
    monkeypatch.setattr(process, "release_memory", lambda: given.append(None))
    arm = replayed(tmp_path / "none.mcap")
    (tmp_path / "config.json").write_text(config(tmp_path, arm).model_dump_json(), encoding="utf-8")
    worker = Worker(role, None if role == "gateway" else "axis", tmp_path)
    worker.socket.linger = 0  # nobody listens
    try:
        began_ns = time.monotonic_ns()
        for second in range(125):
            worker.heartbeat(began_ns + second * 1_000_000_000, {"state": "running"})
    finally:
        worker.close()
    assert RELEASE_MEMORY_NS == 60_000_000_000
    assert len(given) == times
