"""OLS, WLS and IWLS from triangles against NumPy and SciPy on the stacked rows."""

from typing import Any

import numpy as np
import pytest
from scipy.optimize import lsq_linear

from rt_core.identification import least_squares
from rt_core.identification.least_squares import Compressor, check_torque, compress, solve

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


@pytest.mark.parametrize(
    ("method", "limits", "solves", "rtol"),
    [("wls", {}, 2, 1e-6), ("iwls", {}, 60, 1e-6), ("iwls", {"tolerance": 0.0, "limit": 9}, 10, 1e-9)],
)
def test_weights_are_the_residuals_spread(method: Any, limits: dict[str, Any], solves: int, rtol: float) -> None:
    Y, tau, use, truth = problem(6)
    found = solve(compress(Y, tau, use), P, method, **limits)
    sigma = np.ones(N)
    for _ in range(solves):
        W, b = stacked(Y, tau, use, sigma)
        theta = np.linalg.lstsq(W, b, rcond=None)[0]
        used, sigma = sigma, spread(Y, tau, use, theta, hat(Y, use, sigma, W))
    np.testing.assert_allclose(found.theta, theta, rtol=rtol, atol=rtol * np.abs(theta).max())
    np.testing.assert_allclose(found.weighted_with, used, rtol=rtol)
    np.testing.assert_allclose(found.sigma, sigma, rtol=rtol)
    np.testing.assert_allclose(found.sigma, NOISE, rtol=0.1)
    assert found.iterations == solves or not limits
    ols = solve(compress(Y, tau, use), P, "ols")
    W, _ = stacked(Y, tau, use, NOISE)
    assert np.linalg.norm(W @ (found.theta - truth)) < np.linalg.norm(W @ (ols.theta - truth))


@pytest.mark.parametrize("method", least_squares.METHODS)
def test_directions_without_data_are_named_and_stay_at_zero(method: least_squares.Method) -> None:
    Y, tau, use, theta = problem(3)
    Y[:, 4] = 0.0  # never excited
    Y[:, 1] = 2.5 * Y[:, 0]  # only a sum is
    tau = np.einsum("npk,p->kn", Y, theta) + 1e-3 * np.random.default_rng(1).normal(size=(K, N))
    found = solve(compress(Y, tau, use), P, method)
    assert found.rank == P - 2
    np.testing.assert_array_equal(np.flatnonzero(~found.supported), [0, 1, 4])
    assert found.theta[4] == pytest.approx(0.0, abs=1e-9)
    assert found.theta[0] + 2.5 * found.theta[1] == pytest.approx(theta[0] + 2.5 * theta[1], rel=1e-3)
    free = [2, 3, 5, 6]
    np.testing.assert_allclose(found.theta[free], theta[free], atol=0.05)
    assert found.scaled_condition_number > 1e12


def test_a_perfect_fit_is_no_division_by_zero() -> None:
    Y, _, use, theta = problem(4)
    found = solve(compress(Y, np.einsum("npk,p->kn", Y, theta), use), P, "iwls")
    np.testing.assert_allclose(found.theta, theta, rtol=1e-6)
    assert (found.sigma > 0.0).all()


def test_a_poorly_conditioned_regressor_takes_the_slow_path_to_the_same_result() -> None:
    Y, _, use, theta = problem(7)
    Y[:, 2] = Y[:, 0] + 3e-8 * Y[:, 2]  # below what the quick triangular solve is trusted with, above the rank's limit
    tau = np.einsum("npk,p->kn", Y, theta) + NOISE * np.random.default_rng(2).normal(size=(K, N))
    found = solve(compress(Y, tau, use), P, "iwls", tolerance=0.0, limit=4)
    assert found.supported.all()
    sigma, sums = np.ones(N), np.array([0, 2])
    for _ in range(5):
        W, b = stacked(Y, tau, use, sigma)
        oracle = np.linalg.lstsq(W, b, rcond=1e-14)[0]
        sigma = spread(Y, tau, use, oracle, found.leverage)
    np.testing.assert_allclose(found.theta[sums].sum(), oracle[sums].sum(), rtol=1e-3)
    np.testing.assert_allclose(found.theta[3:], oracle[3:], rtol=1e-3, atol=1e-6)


def test_chunks_of_any_size_and_columns_that_come_late(monkeypatch: pytest.MonkeyPatch) -> None:
    Y, tau, use, _ = problem(8)
    Y[0, 2, :300] = 0.0
    Y[1, 5, :120] = 0.0
    whole = compress(Y, tau, use)
    compressor = Compressor(N, P)
    at = 0
    for size in (1, 119, 3, 0, 200, 177):
        part = slice(at, at + size)
        compressor.add(Y[:, :, part], tau[part], use[part])
        at += size
        if size == 3:
            compressor.triangles()  # looking does not disturb
    assert at == K
    monkeypatch.setattr(least_squares, "_CHUNK", 64)
    for found in (compressor.triangles(), compress(Y, tau, use)):
        for a, b in zip(found, whole, strict=True):
            np.testing.assert_array_equal(a.columns, b.columns)
            assert a.count == b.count
            np.testing.assert_allclose(a.R.T @ a.R, b.R.T @ b.R, rtol=1e-12, atol=1e-9)
            np.testing.assert_allclose(a.R.T @ a.z, b.R.T @ b.z, rtol=1e-10, atol=1e-9)
            assert a.rest == pytest.approx(b.rest)
    theta = np.arange(P) + 1.0
    direct = float(np.sum((tau[:, 1] - Y[1].T @ theta)[use[:, 1]] ** 2))
    assert whole[1].residual_sum(theta) == pytest.approx(direct)


@pytest.mark.parametrize(("where", "bad"), [("Y", np.nan), ("tau", np.inf)])
def test_a_row_that_is_not_finite_is_named_unless_it_is_not_in_use(where: str, bad: float) -> None:
    Y, tau, use, _ = problem(10)
    use[7, 1] = True
    {"Y": Y[1, 4], "tau": tau[:, 1]}[where][7] = bad
    with pytest.raises(ValueError, match="joint 2: a row in use holds NaN or infinity"):
        compress(Y, tau, use)
    use[7, 1] = False
    assert np.isfinite(solve(compress(Y, tau, use), P).theta).all()


def test_weights_of_rows_are_those_of_the_squares() -> None:
    Y, tau, use, _ = problem(13)
    weights = np.random.default_rng(3).uniform(0.0, 2.0, (K, N))
    root = np.sqrt(weights)
    found = solve(compress(Y, tau, use, weights), P, "ols")
    W, b = stacked(Y * root.T[:, None, :], tau * root, use, np.ones(N))
    np.testing.assert_allclose(found.theta, np.linalg.lstsq(W, b, rcond=None)[0], rtol=1e-9)


def test_degenerate_input_is_refused() -> None:
    Y, tau, use, _ = problem(11)
    with pytest.raises(ValueError, match="8 rows for 8 parameters"):
        solve(compress(Y[:1, :, :8], tau[:8, :1], np.ones((8, 1), dtype=bool)), P)
    with pytest.raises(ValueError, match="0 rows for 8 parameters"):
        solve(compress(Y, tau, np.zeros_like(use)), P)
    with pytest.raises(ValueError, match="unknown method 'ridge'"):
        solve(compress(Y, tau, use), P, "ridge")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="shapes disagree"):
        compress(Y, tau[:-1], use)
    check_torque(tau, use)
    tau[:, 2] = 1.25
    with pytest.raises(ValueError, match=r"joint 3: the torque stays at 1\.25 in all rows"):
        check_torque(tau, use)


def test_a_joint_without_rows_leaves_its_own_parameters_free() -> None:
    Y, tau, use, _ = problem(12)
    Y[0, 7] = Y[1, 7] = 0.0  # only joint 3 sees it
    use[:, 2] = False
    found = solve(compress(Y, tau, use), P, "iwls")
    np.testing.assert_array_equal(np.flatnonzero(~found.supported), [7])
    assert found.rank == P - 1
