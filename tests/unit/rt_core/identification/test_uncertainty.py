"""Stated uncertainties against simulation: noise that is correlated in time, data with holes."""

import numpy as np
import pytest
from scipy.signal import butter, lfilter, sosfiltfilt, welch

from rt_core.identification.least_squares import compress, solve
from rt_core.identification.rows import Rows
from rt_core.identification.spectrum import power_spectrum
from rt_core.identification.uncertainty import estimate_covariance

P = 5


def noise(rng: np.random.Generator, count: int, kind: str) -> np.ndarray:
    white = rng.standard_normal(count + 400)
    if kind == "ar":
        return np.asarray(lfilter([1.0], [1.0, -0.9], white))[400:]
    return 3.0 * np.asarray(sosfiltfilt(butter(4, 0.2, output="sos"), white))[200:-200]


def design(rng: np.random.Generator, count: int) -> np.ndarray:
    """(2, P, K): slow signals, a constant, and a sign, as friction has it."""
    t = np.arange(count) * 0.02
    slow = np.stack([np.sin(2 * np.pi * f * t + rng.uniform(0, 6)) for f in (0.3, 0.7, 1.1)])
    Y = np.zeros((2, P, count))
    Y[0] = np.vstack((slow, np.ones(count), np.sign(slow[0])))
    Y[1, 2:4] = np.vstack((slow[1], 0.5 * slow[0]))
    return Y


def rows_of(Y: np.ndarray, tau: np.ndarray, use: np.ndarray) -> Rows:
    count = tau.shape[0]
    piece = (np.arange(count) > count // 3).astype(np.int64)
    zeros = np.zeros_like(tau)
    return Rows(np.arange(count) * 0.02, Y, zeros, zeros, zeros, tau, use, piece, 50.0, 10.0)


@pytest.mark.parametrize("share", [0.6, -0.6])
def test_noise_that_two_rows_have_in_common_counts_twice(share: float) -> None:
    """Two sides see the same parameter through one error: the second tells less than it seems to."""
    rng, z, widened = np.random.default_rng(11), [], []
    for _ in range(20):
        x = np.sin(2 * np.pi * 0.3 * np.arange(1200) * 0.02 + rng.uniform(0, 6))
        Y = np.stack([x, x])[:, None, :]
        common, own = noise(rng, 1200, "ar"), noise(rng, 1200, "ar")
        e = np.stack([common, share * common + np.sqrt(1.0 - share**2) * own], axis=1)
        use = np.ones((1200, 2), dtype=bool)
        tau = x[:, None] + e
        rows = rows_of(Y, tau, use)
        solution = solve(compress(Y, tau, use), 1, "wls")
        plain, both = (estimate_covariance(rows, solution, cross=cross).std[0] for cross in (False, True))
        z.append((solution.theta[0] - 1.0) / both)
        widened.append(both / plain)
    assert np.mean(np.abs(z) < 1.96) > 0.85
    assert min(widened) >= 1.0
    if share > 0.0:
        assert np.mean(widened) == pytest.approx(np.sqrt(1.0 + share), rel=0.12)
    else:
        assert np.mean(widened) < 1.02


def test_white_noise_gives_the_textbook_covariance() -> None:
    rng = np.random.default_rng(3)
    Y = design(rng, 4000)
    use = np.ones((4000, 2), dtype=bool)
    tau = np.einsum("npk,p->kn", Y, np.ones(P)) + rng.standard_normal((4000, 2)) * [0.5, 2.0]
    rows = rows_of(Y, tau, use)
    solution = solve(compress(Y, tau, use), P, "wls")
    found = estimate_covariance(rows, solution)
    textbook = solution.inverse_root @ solution.inverse_root.T
    np.testing.assert_allclose(found.std, np.sqrt(np.diag(textbook)), rtol=0.15)
    np.testing.assert_allclose(found.inflation, 1.0, atol=0.25)
    np.testing.assert_allclose(found.covariance, found.covariance.T, rtol=1e-12)
    assert np.linalg.eigvalsh(found.covariance).min() > 0.0


def test_one_run_is_welch() -> None:
    x = np.random.default_rng(1).normal(size=3000) + 0.5
    frequency, density = power_spectrum(x, np.ones(3000, dtype=bool), np.zeros(3000, dtype=np.int64), 50.0)
    expected = welch(x, 50.0, "hann", 512, 256, detrend=False)
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
