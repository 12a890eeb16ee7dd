"""OLS, WLS and IWLS from triangles against NumPy and SciPy on the stacked rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import lsq_linear

from rt_core.batch import least_squares
from rt_core.batch.least_squares import compress, compress_joint, solve

N, P, K = 3, 8, 500
NOISE = np.array([0.05, 1.0, 8.0])


def problem(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """`Y` (n, p, K) with structural zeros, `tau` (K, n) with unequal noise, the rows in use, the truth."""
    rng = np.random.default_rng(seed)
    Y = rng.normal(size=(N, P, K)) * np.array([1.0, 10.0, 0.1, 1.0, 5.0, 1.0, 1.0, 0.01])[None, :, None]
    Y[1, :3] = 0.0
    Y[2, :6] = 0.0
    theta = rng.normal(size=P)
    tau = np.einsum("npk,p->kn", Y, theta) + NOISE * rng.normal(size=(K, N))
    use = rng.random((K, N)) < 0.8
    return Y, tau, use, theta


def stacked(Y: np.ndarray, tau: np.ndarray, use: np.ndarray, sigma: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    W = np.concatenate([Y[j][:, use[:, j]].T / sigma[j] for j in range(N)])
    return W, np.concatenate([tau[use[:, j], j] / sigma[j] for j in range(N)])


def spread(Y: np.ndarray, tau: np.ndarray, use: np.ndarray, theta: np.ndarray, leverage: np.ndarray) -> np.ndarray:
    out = np.empty(N)
    for j in range(N):
        e = tau[use[:, j], j] - Y[j][:, use[:, j]].T @ theta
        out[j] = np.sqrt(e @ e / (e.size - leverage[j]))
    return out


def hat(Y: np.ndarray, use: np.ndarray, sigma: np.ndarray, W: np.ndarray) -> np.ndarray:
    """Trace of the projection onto the model that falls to each joint's rows."""
    inverse = np.linalg.inv(W.T @ W)
    return np.array([np.trace(Y[j][:, use[:, j]].T @ inverse @ Y[j][:, use[:, j]]) / sigma[j] ** 2 for j in range(N)])


def test_ols_equals_numpy() -> None:
    Y, tau, use, _ = problem()
    found = solve(compress(Y, tau, use), P, "ols")
    W, b = stacked(Y, tau, use, np.ones(N))
    theta = np.linalg.lstsq(W, b, rcond=None)[0]
    np.testing.assert_allclose(found.theta, theta, rtol=1e-9)
    np.testing.assert_allclose(found.theta, lsq_linear(W, b, tol=1e-14).x, rtol=1e-8)
    leverage = hat(Y, use, np.ones(N), W)
    np.testing.assert_allclose(found.leverage, leverage, rtol=1e-9)
    assert leverage.sum() == pytest.approx(P)
    np.testing.assert_allclose(found.sigma, spread(Y, tau, use, theta, leverage), rtol=1e-9)
    assert found.condition_number == pytest.approx(np.linalg.cond(W), rel=1e-9)
    scaled = W / np.linalg.norm(W, axis=0)
    assert found.scaled_condition_number == pytest.approx(np.linalg.cond(scaled), rel=1e-9)
    np.testing.assert_allclose(found.inverse_root @ found.inverse_root.T, np.linalg.inv(W.T @ W), rtol=1e-8)


@pytest.mark.parametrize("method", ["wls", "iwls"])
def test_weights_are_the_residuals_spread(method: least_squares.Method) -> None:
    Y, tau, use, truth = problem(1)
    found = solve(compress(Y, tau, use), P, method)
    sigma = np.ones(N)
    theta = np.zeros(P)
    for _ in range(2 if method == "wls" else 60):
        W, b = stacked(Y, tau, use, sigma)
        theta = np.linalg.lstsq(W, b, rcond=None)[0]
        used, sigma = sigma, spread(Y, tau, use, theta, hat(Y, use, sigma, W))
    np.testing.assert_allclose(found.theta, theta, rtol=1e-6)
    np.testing.assert_allclose(found.weighted_with, used, rtol=1e-6)
    np.testing.assert_allclose(found.sigma, NOISE, rtol=0.1)
    ols = solve(compress(Y, tau, use), P, "ols")
    W, _ = stacked(Y, tau, use, NOISE)
    assert np.linalg.norm(W @ (found.theta - truth)) < np.linalg.norm(W @ (ols.theta - truth))


@pytest.mark.parametrize("chunk", [7, 64, 499, 10_000])
def test_chunks_give_the_same_triangle(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    Y, tau, _, _ = problem(2)
    whole = compress_joint(Y[1], tau[:, 1])
    monkeypatch.setattr(least_squares, "_CHUNK", chunk)
    parts = compress_joint(Y[1], tau[:, 1])
    np.testing.assert_array_equal(parts.columns, [3, 4, 5, 6, 7])
    np.testing.assert_allclose(parts.R.T @ parts.R, whole.R.T @ whole.R, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(parts.R.T @ parts.z, whole.R.T @ whole.z, rtol=1e-10, atol=1e-9)
    assert parts.rest == pytest.approx(whole.rest)
    assert parts.count == whole.count == K
    theta = np.random.default_rng(0).normal(size=P)
    direct = float(np.sum((tau[:, 1] - Y[1].T @ theta) ** 2))
    assert parts.residual_sum(theta) == pytest.approx(direct)


@pytest.mark.parametrize("method", least_squares.METHODS)
def test_directions_without_data_are_named_and_stay_at_the_prior(method: least_squares.Method) -> None:
    Y, tau, use, theta = problem(3)
    Y[:, 4] = 0.0  # never excited
    Y[:, 1] = 2.5 * Y[:, 0]  # only a sum is
    tau = np.einsum("npk,p->kn", Y, theta) + 1e-3 * np.random.default_rng(1).normal(size=(K, N))
    prior = np.arange(1.0, P + 1.0)
    found = solve(compress(Y, tau, use), P, method, prior)
    assert found.rank == P - 2
    np.testing.assert_array_equal(np.flatnonzero(~found.supported), [0, 1, 4])
    assert found.theta[4] == pytest.approx(prior[4])
    assert found.theta[0] + 2.5 * found.theta[1] == pytest.approx(theta[0] + 2.5 * theta[1], rel=1e-3)
    free = [2, 3, 5, 6]
    np.testing.assert_allclose(found.theta[free], theta[free], atol=0.05)
    assert found.scaled_condition_number > 1e12


def test_a_perfect_fit_is_no_division_by_zero() -> None:
    Y, _, use, theta = problem(4)
    found = solve(compress(Y, np.einsum("npk,p->kn", Y, theta), use), P, "iwls")
    np.testing.assert_allclose(found.theta, theta, rtol=1e-6)
    assert (found.sigma > 0.0).all()


def test_too_few_rows_and_unknown_methods_are_refused() -> None:
    Y, tau, use, _ = problem(5)
    with pytest.raises(ValueError, match="8 rows for 8 parameters"):
        solve(compress(Y[:1, :, :8], tau[:8, :1], np.ones((8, 1), dtype=bool)), P)
    with pytest.raises(ValueError, match=r"unknown method 'ridge'; known: ols, wls, iwls"):
        solve(compress(Y, tau, use), P, "ridge")  # type: ignore[arg-type]
