"""Stated intervals hold the truth, also when the residual is far from white."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import signal

from rt_core.batch.least_squares import compress, solve
from rt_core.batch.rows import Rows
from rt_core.batch.uncertainty import autocovariance, autoregressive_covariance, estimate_covariance

COUNT, P, N = 800, 10, 2


def experiment(seed, pole):
    rng = np.random.default_rng(seed)
    t = np.arange(COUNT) / 50.0
    Y = np.zeros((N, P, COUNT))
    for j in range(N):
        for c in range(P):
            Y[j, c] = np.sin(2 * np.pi * rng.uniform(0.05, 1.0) * t + rng.uniform(0, 6))
    theta = rng.normal(size=P)
    noise = signal.lfilter([1.0], [1.0, -pole], rng.normal(size=(COUNT + 200, N)), axis=0)[200:]
    tau = np.einsum("npk,p->kn", Y, theta) + noise * np.array([0.5, 2.0])
    zeros = np.zeros((COUNT, N))
    rows = Rows(t, Y, zeros, zeros, zeros, tau, np.ones((COUNT, N), bool), np.zeros(COUNT, np.int64), 50.0, 10.0)
    return rows, theta


@pytest.mark.parametrize("pole", [0.0, 0.6, 0.9])
def test_intervals_cover_the_truth(pole):
    inside = []
    for seed in range(120):
        rows, theta = experiment(seed, pole)
        solution = solve(compress(rows.Y, rows.tau, rows.use), P, "wls")
        std = estimate_covariance(rows, solution).std
        inside.append(np.abs(solution.theta - theta) <= 1.96 * std)
    assert 0.90 <= np.mean(inside) <= 0.98


def test_textbook_covariance_would_not_cover():
    inside = []
    for seed in range(60):
        rows, theta = experiment(seed, 0.9)
        solution = solve(compress(rows.Y, rows.tau, rows.use), P, "wls")
        std = np.sqrt((solution.inverse_root**2).sum(axis=1))
        inside.append(np.abs(solution.theta - theta) <= 1.96 * std)
    assert np.mean(inside) < 0.75


def test_inflation_is_the_ratio_of_long_run_to_plain_variance():
    found = []
    for seed in range(20):
        rows, _ = experiment(seed, 0.8)
        found.append(estimate_covariance(rows, solve(compress(rows.Y, rows.tau, rows.use), P, "wls")).inflation)
    # (1 + a)/(1 - a) = 9, a little less because the fit takes up slow noise
    assert np.median(found) == pytest.approx(9.0, rel=0.35)


def test_autocovariance_skips_holes_and_piece_borders():
    x = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    use = np.array([True, True, False, True, True, True])
    piece = np.array([0, 0, 0, 0, 1, 1])
    gamma = autocovariance(x, use, piece, 1)
    assert gamma[0] == pytest.approx((1 + 4 + 16 + 25 + 36) / 5)
    assert gamma[1] == pytest.approx((1 * 2 + 5 * 6) / 5)


def test_autoregressive_covariance_of_white_noise_is_short():
    rng = np.random.default_rng(0)
    x = rng.normal(size=4000)
    gamma = autocovariance(x, np.ones(4000, bool), np.zeros(4000, np.int64), 30)
    tail = autoregressive_covariance(gamma, 4000, 2000)
    assert (tail[0] + 2 * tail[1:].sum()) / tail[0] == pytest.approx(1.0, abs=0.2)
    assert autoregressive_covariance(np.zeros(5), 100, 50).tolist() == [0.0]
