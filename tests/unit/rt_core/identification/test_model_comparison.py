"""Comparing two models' residuals: how often chance is taken for better, and whether better is found."""

import numpy as np
import pytest
from scipy.signal import lfilter

from rt_core.identification.model_comparison import MIN_BLOCKS, compare_residuals
from rt_core.types import FloatArray

RATE, JOINTS, TRIALS = 25.0, 6, 200
SCALE = np.array([40.0, 60.0, 25.0, 3.0, 2.0, 1.0])  # residuals of large joints are larger


def coloured(rng: np.random.Generator, seconds: float, memory_s: float) -> FloatArray:
    """Residuals of mean square 1 that are correlated over `memory_s`."""
    keep = np.exp(-1.0 / (memory_s * RATE))
    rows, before = round(seconds * RATE), 500
    noise = rng.normal(size=(rows + before, JOINTS)) * np.sqrt(1.0 - keep**2)
    return np.asarray(lfilter([1.0], [1.0, -keep], noise, axis=0)[before:], dtype=np.float64)


def clock(seconds: float) -> FloatArray:
    return np.arange(round(seconds * RATE)) / RATE


def every(residuals: FloatArray) -> np.ndarray:
    return np.ones(residuals.shape, dtype=np.bool_)


@pytest.mark.parametrize(("seconds", "memory_s"), [(8.0, 0.6), (20.0, 0.1), (20.0, 1.0)])
def test_equally_good_models_are_seldom_called_better(seconds: float, memory_s: float) -> None:
    t, better = clock(seconds), 0
    for seed in range(TRIALS):
        rng = np.random.default_rng(seed)
        both = coloured(rng, seconds, memory_s)  # most of it is the noise of the same recording
        one, other = (SCALE * (both + 0.5 * coloured(rng, seconds, memory_s)) for _ in range(2))
        better += compare_residuals(t, one, other, every(one)).better
    assert better <= TRIALS * 0.05 + 2.0 * np.sqrt(TRIALS * 0.05 * 0.95)


def test_ten_percent_on_twenty_seconds_are_found() -> None:
    t, found, gains = clock(20.0), 0, []
    for seed in range(50):
        rng = np.random.default_rng(seed)
        noise, error = coloured(rng, 20.0, 0.1), coloured(rng, 20.0, 0.1)
        # the present model adds an error of its own: rms 10 % larger than without it
        present = SCALE * (noise + np.sqrt(1.1**2 - 1.0) * error)
        paired = compare_residuals(t, SCALE * noise, present, every(noise))
        found += paired.better
        gains.append(paired.gain)
        back = compare_residuals(t, present, SCALE * noise, every(noise))
        assert not back.better
        assert back.gain < 0.0
    assert found >= 48
    assert np.mean(gains) == pytest.approx(1.0 - 1.0 / 1.21, abs=0.02)


def test_a_joint_that_gets_worse_is_a_veto() -> None:
    present = SCALE * coloured(np.random.default_rng(3), 20.0, 0.1)
    factor = np.array([0.5, 0.5, 0.5, 1.2, 0.5, 0.5])
    paired = compare_residuals(clock(20.0), factor * present, present, every(present))
    assert paired.gain > 0.0
    assert paired.z > 3.0
    assert not paired.better
    assert "worse at joint 4 (1.20 times)" in paired.reason
    assert paired.ratio == pytest.approx(factor)
    factor[3] = 1.05
    assert compare_residuals(clock(20.0), factor * present, present, every(present)).better


def test_gaps_and_rows_that_do_not_count() -> None:
    """A gap in time and rows left out change nothing but what there is to compare."""
    rng = np.random.default_rng(5)
    present = coloured(rng, 20.0, 0.1)
    candidate, t, use = 0.9 * present, clock(20.0), every(present)
    assert compare_residuals(t, candidate, present, use).gain == pytest.approx(0.19)
    later = np.where(t < 10.0, t, t + 3600.0)
    assert compare_residuals(later, candidate, present, use).gain == pytest.approx(0.19)
    some = use & (rng.random(use.shape) < 0.5)
    some[100:200] = False
    some[:, 2] = False
    spoilt = np.where(some, candidate, np.nan)
    paired = compare_residuals(t, spoilt, np.where(some, present, np.nan), some)
    assert paired.gain == pytest.approx(0.19)
    assert np.isnan(paired.ratio[2])
    assert paired.ratio[[0, 1, 3, 4, 5]] == pytest.approx(0.9)


@pytest.mark.parametrize("seconds", [0.0, 1.0, MIN_BLOCKS - 1.0])
def test_too_little_is_not_enough(seconds: float) -> None:
    present = coloured(np.random.default_rng(6), seconds, 0.1)
    paired = compare_residuals(clock(seconds), 0.1 * present, present, every(present))
    assert not paired.better
    assert np.isnan(paired.z)
    assert paired.reason == f"only {seconds:g} s of motion to compare on; at least 8 s are needed"
    halves = compare_residuals(clock(seconds), 0.1 * present, present, every(present), block_s=2.0)
    assert "at least 16 s are needed" in halves.reason
