"""M-estimates against plain reweighting, their efficiency and intervals."""

import numpy as np
import pytest
from scipy.signal import lfilter

from rt_core.identification.least_squares import compress, solve
from rt_core.identification.robust import TUNING, Loss, solve_robust
from rt_core.identification.rows import Rows
from rt_core.identification.uncertainty import estimate_covariance

N, P = 2, 5
TRUTH = np.array([1.0, -2.0, 0.5, 3.0, 0.2])
SCALE = np.array([0.3, 2.0])


def problem(
    rng: np.random.Generator, count: int = 400, outliers: float = 0.05, correlation: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """`Y` (n, p, K), `tau` (K, n), rows in use, and which rows are spoilt."""
    Y = rng.normal(size=(N, P, count))
    Y[1, :2] = 0.0
    Y[:, 3] = 1.0  # correlated noise matters to an offset most
    use = rng.random((count, N)) < 0.9
    e = lfilter([np.sqrt(1.0 - correlation**2)], [1.0, -correlation], rng.normal(size=(count, N)), axis=0)
    spoilt = rng.random((count, N)) < outliers
    e = e + spoilt * rng.normal(size=(count, N)) * 30.0
    return Y, np.einsum("npk,p->kn", Y, TRUTH) + e * SCALE, use, spoilt


@pytest.mark.parametrize("loss", ["bisquare", "huber"])
def test_it_ends_where_reweighting_row_by_row_ends(loss: Loss) -> None:
    Y, tau, use, _ = problem(np.random.default_rng(1))
    found = solve_robust(Y, tau, use, loss)
    assert found.converged
    W = np.concatenate([Y[j][:, use[:, j]].T / found.solution.sigma[j] for j in range(N)])
    b = np.concatenate([tau[use[:, j], j] / found.solution.sigma[j] for j in range(N)])
    theta = found.solution.theta + 0.01
    c = TUNING[loss]
    for _ in range(300):
        u = np.abs(b - W @ theta)
        weights = np.where(u < c, (1 - (u / c) ** 2) ** 2, 0.0) if loss == "bisquare" else c / np.maximum(u, c)
        root = np.sqrt(weights)
        theta = np.linalg.lstsq(W * root[:, None], b * root, rcond=None)[0]
    np.testing.assert_allclose(found.solution.theta, theta, atol=1e-6)
    np.testing.assert_allclose(np.concatenate([found.weights[use[:, j], j] for j in range(N)]), weights, atol=1e-5)
    assert (found.weights[~use] == 0.0).all()


def test_outliers_hardly_move_it_and_are_named() -> None:
    Y, tau, use, spoilt = problem(np.random.default_rng(3), outliers=0.1)
    found = solve_robust(Y, tau, use)
    wls = solve(compress(Y, tau, use), P, "wls")
    assert np.linalg.norm(found.solution.theta - TRUTH) < 0.2 * np.linalg.norm(wls.theta - TRUTH)
    np.testing.assert_allclose(found.solution.sigma, SCALE, rtol=0.3)
    np.testing.assert_allclose(found.outlying, (spoilt & use).sum(axis=0) / use.sum(axis=0), atol=0.05)
    assert found.weights[use & ~spoilt].mean() > 0.8


@pytest.mark.parametrize("loss", ["bisquare", "huber"])
def test_without_outliers_it_costs_about_five_percent(loss: Loss) -> None:
    rng = np.random.default_rng(4)
    own, plain = [], []
    for _ in range(50):
        Y, tau, use, _ = problem(rng, 200, outliers=0.0)
        own.append(solve_robust(Y, tau, use, loss).solution.theta - TRUTH)
        plain.append(solve(compress(Y, tau, use), P, "iwls").theta - TRUTH)
    ratio = np.mean(np.square(own), axis=0) / np.mean(np.square(plain), axis=0)
    assert ratio.mean() < 1.12


def test_its_intervals_cover_as_often_as_they_say() -> None:
    rng = np.random.default_rng(5)
    z, count, zeros = [], 600, np.zeros((600, N))
    piece = np.zeros(count, dtype=np.int64)
    for _ in range(50):
        Y, tau, use, _ = problem(rng, count, outliers=0.05, correlation=0.8)
        found = solve_robust(Y, tau, use)
        rows = Rows(np.arange(count) * 0.02, Y, zeros, zeros, zeros, tau, use, piece, 50.0, 10.0)
        covariance = estimate_covariance(rows, found.solution, weights=found.weights)
        z.append((found.solution.theta - TRUTH) / covariance.std)
    assert 0.90 <= np.mean(np.abs(z) < 1.96) <= 0.98


def test_rows_not_in_use_may_hold_anything() -> None:
    Y, tau, use, _ = problem(np.random.default_rng(9))
    found = solve_robust(Y, tau, use)
    for j in range(N):
        Y[j][:, ~use[:, j]] = np.nan
    tau = np.where(use, tau, np.inf)
    np.testing.assert_array_equal(solve_robust(Y, tau, use).solution.theta, found.solution.theta)


def test_an_unknown_loss_is_refused() -> None:
    Y, tau, use, _ = problem(np.random.default_rng(8))
    with pytest.raises(ValueError, match="unknown loss 'cauchy'; known: bisquare, huber"):
        solve_robust(Y, tau, use, "cauchy")  # type: ignore[arg-type]
