"""Power spectrum of signals with holes, against SciPy and against what the signal is made of."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import signal

from rt_core.identification.spectrum import power_spectrum, runs


def test_one_run_is_welch() -> None:
    x = np.random.default_rng(1).normal(size=3000) + 0.5
    frequency, density = power_spectrum(x, np.ones(3000, dtype=bool), np.zeros(3000, dtype=np.int64), 50.0)
    expected = signal.welch(x, 50.0, "hann", 512, 256, detrend=False)
    np.testing.assert_allclose(frequency, expected[0][1:])
    np.testing.assert_allclose(density, expected[1][1:])


def test_level_of_noise_and_place_of_a_tone_with_holes() -> None:
    rng = np.random.default_rng(2)
    count, rate = 20_000, 100.0
    t = np.arange(count) / rate
    use = np.ones(count, dtype=bool)
    for start in range(300, count, 700):
        use[start : start + 40] = False
    piece = (np.arange(count) > 9000).astype(np.int64)
    x = 0.7 * rng.normal(size=count) + 0.5 * np.sin(2 * np.pi * 12.5 * t)
    x[~use] = 1e6  # what is not in use must not matter
    frequency, density = power_spectrum(x, use, piece, rate)
    assert frequency[np.argmax(density)] == pytest.approx(12.5, abs=0.5 * rate / 512)
    away = np.abs(frequency - 12.5) > 2.0
    assert np.median(density[away]) == pytest.approx(2.0 * 0.7**2 / rate, rel=0.05)
    assert np.trapezoid(density, frequency) == pytest.approx(0.7**2 + 0.5 * 0.5**2, rel=0.05)


def test_runs_break_at_gaps_and_pieces() -> None:
    use = np.array([1, 1, 0, 1, 1, 1, 1, 0], dtype=bool)
    piece = np.array([0, 0, 0, 0, 0, 1, 1, 1])
    assert [(s.start, s.stop) for s in runs(use, piece)] == [(0, 2), (3, 5), (5, 7)]
    assert runs(np.zeros(4, dtype=bool), np.zeros(4, dtype=np.int64)) == []


def test_windows_shorten_with_the_runs_down_to_none() -> None:
    x = np.random.default_rng(3).normal(size=4000)
    piece = np.zeros(4000, dtype=np.int64)
    index = np.arange(4000)
    frequency, _ = power_spectrum(x, index % 100 != 0, piece, 50.0)
    assert frequency.size == 32
    for use in (index % 10 != 0, np.zeros(4000, dtype=bool)):
        frequency, density = power_spectrum(x, use, piece, 50.0)
        assert frequency.size == density.size == 0
