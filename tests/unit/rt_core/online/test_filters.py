"""The filter bank against exact derivatives, SciPy's frequency response, and its own symmetry."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy import signal

from rt_core.online.filters import filter_bank, low_pass

BANKS = [(10.0, 1000.0), (10.0, 250.0), (100.0, 5000.0), (4.0, 200.0), (30.0, 100.0)]


def gain(taps: np.ndarray, frequency: float, rate: float) -> float:
    return float(np.abs(signal.freqz(taps, worN=[frequency], fs=rate)[1][0]))


@pytest.mark.parametrize(("cutoff", "rate"), BANKS[:4])
@pytest.mark.parametrize("share", [0.02, 0.1, 0.3])
def test_derivatives_of_a_sine_in_the_pass_band(cutoff: float, rate: float, share: float) -> None:
    """Velocity belongs to the wide low-pass, acceleration to that at the cut-off; aligned to the sample."""
    bank = filter_bank(cutoff, rate)
    w = 2.0 * np.pi * share * cutoff
    t = np.arange(2 * bank.smooth.size) / rate
    position, velocity = np.sin(w * t + 0.4), w * np.cos(w * t + 0.4)
    L, centre = bank.smooth.size, t.size - 1 - bank.delay
    wide, narrow = gain(bank.smooth, share * cutoff, rate), gain(low_pass(cutoff, rate), share * cutoff, rate)
    assert wide == pytest.approx(1.0, abs=0.01)
    assert narrow == pytest.approx(1.0, abs=0.03)
    acceleration = -w * w * position[centre]
    assert bank.smooth @ position[-L:] == pytest.approx(wide * position[centre], abs=1e-9)
    assert bank.first @ position[-L:] == pytest.approx(wide * velocity[centre], abs=1e-4 * w)
    assert bank.second @ position[-L:] == pytest.approx(narrow * acceleration, abs=2e-4 * w * w)
    assert bank.slope @ velocity[-L:] == pytest.approx(narrow * acceleration, abs=2e-4 * w * w)


def test_polynomials_up_to_the_second_degree_pass_exactly() -> None:
    bank = filter_bank(10.0, 1000.0)
    t = (np.arange(bank.smooth.size) - bank.delay) / 1000.0
    line = 2.0 - 3.0 * t
    assert bank.smooth @ line == pytest.approx(2.0, abs=1e-10)
    assert bank.first @ line == pytest.approx(-3.0, abs=1e-9)
    assert bank.slope @ line == pytest.approx(-3.0, abs=1e-9)
    assert bank.second @ line == pytest.approx(0.0, abs=1e-6)
    assert bank.second @ (5.0 * t * t) == pytest.approx(10.0, abs=1e-6)


@pytest.mark.parametrize(("cutoff", "rate"), [(500.0, 1000.0), (0.0, 1000.0), (600.0, 1000.0), (-1.0, 1000.0)])
def test_a_cutoff_beyond_half_the_rate_is_refused(cutoff: float, rate: float) -> None:
    with pytest.raises(ValueError, match="cut-off"):
        filter_bank(cutoff, rate)


@pytest.mark.parametrize(("cutoff", "rate"), BANKS)
def test_the_low_pass_is_the_windowed_one_of_scipy(cutoff: float, rate: float) -> None:
    taps = low_pass(cutoff, rate)
    theirs = signal.firwin(taps.size, cutoff, fs=rate, window=("kaiser", 4.5))
    np.testing.assert_allclose(taps, theirs, rtol=1e-12, atol=1e-15)


def test_the_estimator_starts_without_what_is_slow_to_import() -> None:
    """A restart of the estimator loses frames for as long as it takes; these two would take a second of it."""
    code = (
        "import sys, service.estimator.process; print([m for m in ('scipy.signal', 'scipy.stats') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120.0)
    assert done.stdout == "[]\n"
