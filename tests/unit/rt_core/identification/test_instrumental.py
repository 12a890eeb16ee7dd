"""Instrumental variables against the textbook formula, and their bias and intervals under encoder noise."""

import numpy as np
import pytest

from rt_core.identification.instrumental import smoothed, solve_instrumental
from rt_core.identification.least_squares import compress, solve
from rt_core.identification.rows import build_rows
from rt_core.identification.uncertainty import estimate_covariance
from tests.lab.arms.noisy_encoder import SEEDS, SETTINGS, experiment, scene, wls_errors

N, P, K = 2, 4, 3000
TRUTH = np.array([2.0, -1.0, 0.5, 3.0])
SIGMA = np.array([0.2, 1.0])


def problem(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Regressor with noise (n, p, K), torque, rows in use, and the regressor without noise."""
    rng = np.random.default_rng(seed)
    exact = rng.normal(size=(N, P, K))
    exact[1, 0] = 0.0
    exact[:, 3] = 1.0
    tau = np.einsum("npk,p->kn", exact, TRUTH) + SIGMA * rng.normal(size=(K, N))
    noisy = exact + 0.3 * rng.normal(size=exact.shape) * (exact != 0.0)
    noisy[:, 3] = 1.0
    return noisy, tau, rng.random((K, N)) < 0.9, exact


def textbook(
    Y: np.ndarray, tau: np.ndarray, use: np.ndarray, Z: np.ndarray, sigma: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """`(Z'WY)^-1 Z'W tau`, and its covariance for white residuals with standard deviations `sigma`."""
    A, b, middle = np.zeros((P, P)), np.zeros(P), np.zeros((P, P))
    for j in range(N):
        z, y = Z[j][:, use[:, j]], Y[j][:, use[:, j]]
        A += z @ y.T / sigma[j] ** 2
        b += z @ tau[use[:, j], j] / sigma[j] ** 2
        middle += z @ z.T / sigma[j] ** 2
    inverse = np.linalg.inv(A)
    return inverse @ b, inverse @ middle @ inverse.T


def test_it_is_the_textbook_formula() -> None:
    Y, tau, use, Z = problem()
    Z = Z * np.array([1.0, 1e3, 1e-3, 5.0])[None, :, None]  # the scale of instruments does not matter
    found = solve_instrumental(Y, tau, use, Z)
    theta, covariance = textbook(Y, tau, use, Z, found.solution.weighted_with)
    np.testing.assert_allclose(found.solution.theta, theta, rtol=1e-9)
    root = found.solution.inverse_root
    np.testing.assert_allclose(root @ root.T, covariance, rtol=1e-8)
    np.testing.assert_allclose(found.solution.sigma, found.solution.weighted_with, rtol=1e-3)
    assert found.solution.supported.all()
    assert found.solution.leverage.sum() == pytest.approx(P)
    np.testing.assert_allclose(theta, TRUTH, atol=0.1)
    assert np.abs(solve(compress(Y, tau, use), P).theta - TRUTH).max() > 0.15


def test_instruments_without_relation_to_the_motion_are_refused() -> None:
    Y, tau, use, _ = problem(2)
    Y[:, 3] = np.random.default_rng(3).normal(size=(N, K))
    with pytest.raises(ValueError, match="the instruments do not correlate with the regressor"):
        solve_instrumental(Y, tau, use, np.random.default_rng(4).normal(size=Y.shape))
    with pytest.raises(ValueError, match="the instruments do not correlate"):
        solve_instrumental(Y, tau, use, np.zeros_like(Y))


def test_a_parameter_whose_instrument_is_weak_has_no_value() -> None:
    Y, tau, use, Z = problem(5)
    Z[:, 1] = np.random.default_rng(6).normal(size=(N, K))
    found = solve_instrumental(Y, tau, use, Z)
    np.testing.assert_array_equal(np.flatnonzero(~found.solution.supported), [1])
    assert found.solution.theta[1] == pytest.approx(0.0, abs=0.5)
    assert found.correlation[-1] < 0.1


def test_encoder_noise_biases_it_less_than_least_squares_and_intervals_hold() -> None:
    _, _, theta, _ = scene()
    errors, z = [], []
    for seed in range(SEEDS):
        e = experiment(seed)
        found = solve_instrumental(e.rows.Y, e.rows.tau, e.use, e.Z)
        assert found.solution.supported.all()
        errors.append(found.solution.theta - theta)
        std = estimate_covariance(e.rows, found.solution, design=found.design(e.Z)).std
        z.append(errors[-1] / std)
    plain = [error for error, _ in wls_errors()]
    covered = np.mean([np.abs(error) < 1.96 * std for error, std in wls_errors()])
    assert np.linalg.norm(np.mean(errors, axis=0)) < 0.5 * np.linalg.norm(np.mean(plain, axis=0))
    assert np.sqrt(np.mean(np.square(errors))) < 0.7 * np.sqrt(np.mean(np.square(plain)))
    assert covered < 0.85
    assert np.mean(np.abs(z) < 1.96) >= 0.92


def test_narrowly_filtered_states_serve_where_there_is_no_set_point() -> None:
    model, base, theta, _ = scene()
    errors = []
    for seed in range(SEEDS):
        e = experiment(seed)
        Z = build_rows(model, base, smoothed(e.signals, 3.0, SETTINGS), SETTINGS)
        errors.append(solve_instrumental(e.rows.Y, e.rows.tau, e.rows.use & Z.use, Z.Y).solution.theta - theta)
    plain = [error for error, _ in wls_errors()]
    assert np.linalg.norm(np.mean(errors, axis=0)) < 0.5 * np.linalg.norm(np.mean(plain, axis=0))
    with pytest.raises(ValueError, match="instruments at 10 Hz from signals at 10 Hz"):
        smoothed(experiment(0).signals, 10.0, SETTINGS)


def test_instruments_of_another_shape_are_refused() -> None:
    Y, tau, use, Z = problem(7)
    with pytest.raises(ValueError, match=r"instruments of shape \(2, 3, 3000\)"):
        solve_instrumental(Y, tau, use, Z[:, :3])
