"""Set positions that come late, seldom, early or not at all."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from tests.lab.ethercat.drive_bench import Bench


def test_missed_set_positions_are_extrapolated_then_held() -> None:
    bench = Bench(extrapolated=3)
    bench.enable()
    position = bench.get(0x6064)
    for _ in range(20):
        position += 50
        bench.set(0x607A, position)
        bench.run()
    targets = []
    for _ in range(5):
        bench.run(fresh=False)
        targets.append(round(bench.demand.target) - position)
    assert targets == [50, 100, 150, 150, 150]
    bench.set(0x607A, position + 200)
    bench.run()
    assert round(bench.demand.target) - position == 200


@pytest.mark.parametrize("every", [2, 5])
def test_sparse_set_positions_are_joined_smoothly(every: int) -> None:
    bench = Bench()
    bench.enable()
    start = bench.get(0x6064)
    targets = []
    for cycle in range(20 * every):
        fresh = cycle % every == 0
        if fresh:
            bench.set(0x607A, start + 50 * cycle)
        bench.run(fresh=fresh)
        targets.append(bench.demand.target)
    steps = [after - before for before, after in pairwise(targets[3 * every :])]
    assert steps == pytest.approx([50.0] * len(steps), abs=1e-6)


@pytest.mark.parametrize("spaced", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_set_positions_that_come_a_step_early_or_late_are_joined_smoothly(seed: int, spaced: bool) -> None:
    """The master's set positions are evenly spaced, or those of the time at which they come."""
    rng = random.Random(seed)
    bench = Bench()
    bench.set(0x60C2, 4, 1)  # 4 ms
    bench.enable()
    start, targets = bench.get(0x607A), []
    comes = {4 * k + rng.choice([-1, 0, 1]): 4 * k for k in range(1, 200)}
    for cycle in range(800):
        if cycle in comes:
            bench.set(0x607A, start + 50 * (comes[cycle] if spaced else cycle))
        bench.run(fresh=cycle in comes)
        targets.append(bench.demand.target)
    steps = [after - before for before, after in pairwise(targets[12:])]
    assert max(steps) < 1.5 * 50.0 + 1e-6  # where one comes late and the next one early
    assert min(steps) > 0.25 * 50.0
    assert sum(steps) == pytest.approx(50.0 * len(steps), abs=400.0)
