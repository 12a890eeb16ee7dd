"""The CUSUM on residuals: its parts against SciPy and simulation, and the rate of its false alarms."""

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from benchmarks.detector import false_alarms
from rt_core.online.monitors.residual_cusum import (
    COUNT,
    DELAY,
    MEAN,
    RUN,
    SHARE,
    ResidualCusum,
    cusum_height,
    normal_deviate,
    run_length,
)


def test_run_lengths_are_those_of_a_simulation() -> None:
    rng = np.random.default_rng(3)
    count, kappa, height = 4000, 1.0, 1.0
    walk, length, running = np.zeros(count), np.zeros(count), np.ones(count, bool)
    while running.any():
        step = np.minimum(rng.standard_normal(count) - kappa, SHARE * height)
        walk = np.maximum(0.0, walk + step)
        length += running
        running &= walk < height
    # run lengths are nearly exponential: their mean has this relative standard error
    assert run_length(kappa, height) == pytest.approx(length.mean(), rel=4.0 / np.sqrt(count))


def test_heights_are_reached_as_seldom_as_asked() -> None:
    for blocks in (1e4, 1e6, 1e9):
        assert run_length(1.25, cusum_height(1.25, blocks)) == pytest.approx(blocks, rel=1e-2)
    assert run_length(2.5, cusum_height(2.5, 100.0)) > 100.0  # three blocks in sequence are needed anyway
    with pytest.raises(ValueError, match="cannot be worked out"):
        cusum_height(1.0, 1e15)


@pytest.mark.parametrize("dof", [19.0, 59.0, 1199.0])
def test_the_deviate_has_the_probability_of_student(dof: float) -> None:
    for x in (-4.0, -0.5, 0.0, 1.0, 3.0, 7.0, 12.0):
        expected = -norm.ppf(student.sf(x, dof)) if x > 0 else norm.ppf(student.cdf(x, dof))
        assert normal_deviate(x, dof) == pytest.approx(expected, abs=1e-4)
    assert 10.0 < normal_deviate(1e6, dof) < 1e3


@pytest.mark.parametrize("stated_hours", [0.25, pytest.param(2.0, marks=pytest.mark.soak)])
def test_false_alarms_come_at_the_stated_rate(stated_hours: float) -> None:
    """Correlated noise, an arm whose levels are learned as it moves."""
    found = false_alarms(200.0 * stated_hours, stated_hours, excess=0.0, seed=7)
    assert 0.7 * found["expected"] < found["alarms"] < 1.3 * found["expected"]


def test_a_rise_that_is_tolerated_is_not_told() -> None:
    told = [false_alarms(40.0, 0.25, excess, seed=8)["alarms"] for excess in (0.0, 3.0)]
    assert told[1] < 0.5 * told[0]


def blocks(rng: np.random.Generator, count: int, level: float = 1.0) -> np.ndarray:
    return level * rng.chisquare(10, (count, 3)) / 10.0


def test_a_rise_is_seen_after_three_blocks_and_its_beginning_is_known() -> None:
    rng = np.random.default_rng(1)
    watch = ResidualCusum(3, 1e8, 60, 1200, 0.5)
    for block in blocks(rng, 60 + DELAY):
        watch.take(block * [1.0, 1.0, np.nan])
    assert watch.rows[:, COUNT].tolist() == [60.0, 60.0, 0.0]  # the third joint rests
    assert watch.learned.tolist() == [True, True, False]
    for block in blocks(rng, 300):
        assert not watch.take(block).any()
    usual = watch.rows[:, MEAN].copy()
    loud = blocks(rng, 20) * [1.0, 30.0, 1.0]
    alarms = [watch.take(block).tolist() for block in loud[:3]]
    assert alarms == [[False] * 3, [False] * 3, [False, True, False]]
    assert 3 <= watch.rows[1, RUN] <= 5
    assert watch.rows[1, MEAN] == pytest.approx(usual[1], rel=0.01)  # nothing was learned from the rise


def test_one_loud_block_is_no_change() -> None:
    rng = np.random.default_rng(2)
    watch = ResidualCusum(3, 1e8, 60, 1200, 0.5)
    for k, block in enumerate(blocks(rng, 400)):
        assert not watch.take(1e3 * block if k in (200, 300) else block).any()
