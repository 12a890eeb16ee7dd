"""Stated uncertainties against simulation: noise that is correlated in time, data with holes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import signal
from scipy.signal import butter, lfilter, sosfiltfilt

from benchmarks.coverage import summary
from rt_core.identification.estimate import EstimatorOptions, estimate
from rt_core.identification.least_squares import compress, solve
from rt_core.identification.preprocess import SignalSettings, prepare
from rt_core.identification.rows import Rows
from rt_core.identification.spectrum import power_spectrum, runs
from rt_core.identification.uncertainty import autocovariance, autoregressive_covariance, estimate_covariance
from rt_core.model.base import base_parameters
from rt_core.model.parameters import standard_parameters
from rt_core.model.robot import RobotModel
from rt_core.online import OnlineEstimator, OnlineSettings
from sim_backend.arm.robot import SimulatedArm, SimulatedData
from sim_backend.arm.settings import MotionSettings, SimSettings
from tests.lab.arms.simulated import random_arm

P = 5
SOAK = pytest.mark.soak


def noise(rng: np.random.Generator, count: int, kind: str) -> np.ndarray:
    white = rng.standard_normal(count + 400)
    if kind == "white":
        return white[400:]
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


@pytest.mark.parametrize("kind", [pytest.param("white", marks=SOAK), "ar", pytest.param("filtered", marks=SOAK)])
def test_intervals_cover_as_often_as_they_say(kind: str) -> None:
    rng = np.random.default_rng(7)
    truth = np.array([1.0, -2.0, 0.5, 3.0, 0.2])
    z = []
    for _ in range(200):
        Y = design(rng, 1200)
        use = np.ones((1200, 2), dtype=bool)
        use[:, 0] = np.abs(Y[0, 0]) > 0.1
        scale = np.array([0.3, 2.0])
        e = np.stack([noise(rng, 1200, kind) for _ in range(2)], axis=1) * scale
        tau = np.einsum("npk,p->kn", Y, truth) + e
        rows = rows_of(Y, tau, use)
        solution = solve(compress(Y, tau, use), P, "wls")
        z.append((solution.theta - truth) / estimate_covariance(rows, solution).std)
    cover = np.mean(np.abs(z) < 1.96, axis=0)
    assert 0.90 <= cover.mean() <= 0.98
    assert (cover > 0.87).all()


@pytest.mark.parametrize("share", [1.0, 0.6, -0.6])
def test_noise_that_two_rows_have_in_common_counts_twice(share: float) -> None:
    """Two sides see the same parameter through one error: the second tells less than it seems to."""
    rng, z, widened = np.random.default_rng(11), [], []
    for _ in range(40):
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


@pytest.mark.parametrize("pole", [0.8, 0.98])
def test_slow_noise_that_two_rows_have_in_common_counts_twice(pole: float) -> None:
    """However long it lasts: errors that are the same on both sides are one observation."""
    rng, widened, alone = np.random.default_rng(13), [], []
    for _ in range(8):
        Y = np.stack([np.ones((1, 3000)), np.full((1, 3000), 2.0)])
        common, own = (np.asarray(lfilter([1.0], [1.0, -pole], rng.standard_normal(4000)))[1000:] for _ in range(2))
        for other, ratios in ((common, widened), (own, alone)):
            tau, use = np.stack([1.0 + common, 2.0 + 2.0 * other], axis=1), np.ones((3000, 2), dtype=bool)
            rows = rows_of(Y, tau, use)
            solution = solve(compress(Y, tau, use), 1, "wls")
            plain, both = (estimate_covariance(rows, solution, cross=cross).std[0] for cross in (False, True))
            ratios.append(both / plain)
    np.testing.assert_allclose(widened, np.sqrt(2.0), rtol=0.05)
    assert np.mean(alone) < 1.15


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


def test_autocovariance_with_holes_and_pieces_is_the_plain_sum() -> None:
    rng = np.random.default_rng(5)
    x, use = rng.normal(size=60), rng.random(60) < 0.7
    piece = np.repeat([0, 1, 2], 20)
    found = autocovariance(x, use, piece, 6)
    for lag in range(7):
        total = sum(x[k] * x[k - lag] for k in range(lag, 60) if use[k] and use[k - lag] and piece[k] == piece[k - lag])
        assert found[lag] == pytest.approx(total / use.sum())


def test_the_autocovariance_of_an_autoregression_goes_on_as_it_should() -> None:
    gamma = 0.8 ** np.arange(31)
    found = autoregressive_covariance(gamma, 5000, 200)
    np.testing.assert_allclose(found, 0.8 ** np.arange(found.size), atol=1e-6)
    assert 25 < found.size < 40  # until it has died out
    np.testing.assert_array_equal(autoregressive_covariance(np.zeros(5), 100, 10), [0.0])


RATE_HZ = 200.0
RUNS = 16


@pytest.fixture(scope="module")
def experiment() -> tuple[RobotModel, SimulatedData]:
    model = random_arm(2, 33, prismatic=0.0)
    model = replace(model, offset=True)
    arm = SimulatedArm(model, SimSettings(rate_hz=RATE_HZ, seed=1), MotionSettings(seed=4, candidates=8))
    return model, arm.simulate(30.0)


def coloured_noise(data: SimulatedData, seed: int) -> np.ndarray:
    """White and, twice as strong, autoregressive noise with a correlation time of 30 ms."""
    rng = np.random.default_rng(seed)
    a = np.exp(-1.0 / (0.03 * RATE_HZ))
    white, other = rng.standard_normal((2, data.t.size + 200, data.tau.shape[1]))
    slow = signal.lfilter([np.sqrt(1.0 - a * a)], [1.0, -a], other, axis=0)
    return np.asarray(0.5 * (white + 2.0 * slow)[200:])


@pytest.mark.soak
def test_batch_and_online_intervals_hold_the_truth(experiment: tuple[RobotModel, SimulatedData]) -> None:
    """Some combinations are poorly excited here: what holds on to them online must not pass for information."""
    model, data = experiment
    base = base_parameters(model)
    truth = base.theta(standard_parameters(model, base.standard))
    settings = SignalSettings(min_velocity=model.standstill_velocity)
    q = data.channels["q"]
    found: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {name: [] for name in ("wls", "online")}
    for seed in range(RUNS):
        tau = data.tau + coloured_noise(data, seed)
        fit = estimate(model, base, prepare(data.t, q, tau, settings), settings, EstimatorOptions(method="wls"))
        found["wls"].append((fit.theta - truth, fit.std))
        estimator = OnlineEstimator(model, OnlineSettings(update_hz=50.0, memory_s=60.0), RATE_HZ, base=base)
        for k, t in enumerate(data.t):
            estimator.step(round(t * 1e9), k, q[k], tau[k])
        report = estimator.report()
        found["online"].append((report.theta - truth, report.std))
    for name, each in found.items():
        errors, std = (np.array([run[k] for run in each]) for k in (0, 1))
        held = summary(errors, std)
        assert held["known"] == 1.0
        assert 0.88 <= held["coverage"] <= 0.995, name  # 17 parameters, strongly correlated, 16 times
        assert held["worst_parameter"] > 0.7, name
        assert 0.7 < held["width"] < 1.5, name


def test_the_summary_counts_what_is_stated() -> None:
    errors = np.array([[0.1, 3.0, 1.0], [1.9, 0.0, 2.0]])
    std = np.array([[1.0, 1.0, np.inf], [1.0, 1.0, 1.0]])
    got = summary(errors, std)
    assert got["coverage"] == pytest.approx(3 / 5)
    assert got["known"] == pytest.approx(5 / 6)
    assert (got["worst_parameter"], got["worst_experiment"]) == (0.0, 0.5)


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
