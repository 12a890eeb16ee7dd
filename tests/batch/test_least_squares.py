"""Compressed least squares against NumPy on the full rows."""

from __future__ import annotations

import numpy as np
import pytest

from rt_core.batch import least_squares
from rt_core.batch.least_squares import compress, compress_joint, solve


def problem(seed=0, n=3, p=12, count=400, sigma=(0.1, 1.0, 10.0)):
    rng = np.random.default_rng(seed)
    Y = rng.normal(size=(n, p, count)) * rng.uniform(0.1, 10.0, p)[:, None]
    Y[1, :3] = 0.0
    Y[2, :7] = 0.0
    theta = rng.normal(size=p)
    tau = np.einsum("npk,p->kn", Y, theta) + rng.normal(size=(count, n)) * np.array(sigma)
    use = rng.random((count, n)) > 0.2
    return Y, tau, use, theta


def stacked(Y, tau, use, weight):
    A = np.concatenate([Y[j][:, use[:, j]].T / weight[j] for j in range(Y.shape[0])])
    b = np.concatenate([tau[use[:, j], j] / weight[j] for j in range(Y.shape[0])])
    return A, b


def test_ols_equals_numpy():
    Y, tau, use, _ = problem()
    solution = solve(compress(Y, tau, use), 12, "ols")
    A, b = stacked(Y, tau, use, np.ones(3))
    np.testing.assert_allclose(solution.theta, np.linalg.lstsq(A, b)[0], rtol=1e-10, atol=1e-12)
    assert solution.condition_number == pytest.approx(np.linalg.cond(A), rel=1e-8)
    assert solution.scaled_condition_number == pytest.approx(np.linalg.cond(A / np.linalg.norm(A, axis=0)), rel=1e-8)
    assert solution.rank == 12
    assert solution.leverage.sum() == pytest.approx(12.0)


def test_wls_weighs_each_joint_by_its_residual():
    Y, tau, use, theta = problem()
    triangles = compress(Y, tau, use)
    first = solve(triangles, 12, "ols")
    solution = solve(triangles, 12, "wls")
    A, b = stacked(Y, tau, use, first.sigma)
    np.testing.assert_allclose(solution.theta, np.linalg.lstsq(A, b)[0], rtol=1e-9)
    np.testing.assert_array_equal(solution.weighted_with, first.sigma)
    assert np.linalg.norm(solution.theta - theta) < np.linalg.norm(first.theta - theta)
    inverse = solution.inverse_root @ solution.inverse_root.T
    np.testing.assert_allclose(inverse, np.linalg.inv(A.T @ A), rtol=1e-8)


def test_iwls_is_a_fixed_point():
    Y, tau, use, _ = problem()
    triangles = compress(Y, tau, use)
    solution = solve(triangles, 12, "iwls")
    A, b = stacked(Y, tau, use, solution.sigma)
    np.testing.assert_allclose(solution.theta, np.linalg.lstsq(A, b)[0], rtol=1e-6)
    assert solution.iterations > 2
    np.testing.assert_allclose(solution.sigma, [0.1, 1.0, 10.0], rtol=0.15)


def test_sigma_is_corrected_for_the_parameters_fitted():
    spread = [solve(compress(*problem(seed, count=60)[:3]), 12, "iwls").sigma for seed in range(30)]
    np.testing.assert_allclose(np.sqrt(np.mean(np.square(spread), axis=0)), [0.1, 1.0, 10.0], rtol=0.1)


def test_compressing_in_chunks_changes_nothing(monkeypatch):
    Y, tau, _, theta = problem(count=1000)
    whole = compress_joint(Y[0], tau[:, 0])
    monkeypatch.setattr(least_squares, "_CHUNK", 64)
    parts = compress_joint(Y[0], tau[:, 0])
    np.testing.assert_allclose(parts.R.T @ parts.R, whole.R.T @ whole.R, rtol=1e-10, atol=1e-9)
    assert parts.residual_sum(theta) == pytest.approx(whole.residual_sum(theta), rel=1e-9)
    exact = float(((tau[:, 0] - Y[0].T @ theta) ** 2).sum())
    assert whole.residual_sum(theta) == pytest.approx(exact, rel=1e-9)


def test_fewer_rows_than_columns_in_one_joint():
    Y, tau, use, theta = problem()
    use[:, 2] = False
    use[:3, 2] = True
    solution = solve(compress(Y, tau, use), 12, "wls")
    assert np.isfinite(solution.theta).all()
    assert np.linalg.norm(solution.theta - theta) < 0.2 * np.linalg.norm(theta)


def test_parameters_without_data_are_named_and_keep_the_prior():
    Y, tau, use, _ = problem()
    Y[:, 4] = 0.0  # no data at all
    Y[:, 6] = -2.0 * Y[:, 5]  # only a combination
    prior = np.arange(12.0)
    solution = solve(compress(Y, tau, use), 12, "ols", prior=prior)
    assert list(np.flatnonzero(~solution.supported)) == [4, 5, 6]
    assert solution.rank == 10
    assert solution.theta[4] == pytest.approx(prior[4])
    assert solution.condition_number > 1e12


def test_too_few_rows_and_unknown_method_are_refused():
    Y, tau, use, _ = problem(count=4)
    with pytest.raises(ValueError, match="rows for 12 parameters"):
        solve(compress(Y, tau, use), 12)
    with pytest.raises(ValueError, match="unknown method 'magic'"):
        solve(compress(*problem()[:3]), 12, "magic")
