"""Total least squares against its normal equations, its bias under encoder noise, and poor data."""

import numpy as np
import pytest
from scipy.signal import butter, sosfiltfilt

from rt_core.identification.least_squares import compress, solve
from rt_core.identification.total_least_squares import encoder_noise, noise_covariance, quantum, solve_total
from rt_core.identification.uncertainty import estimate_covariance
from tests.lab.arms.noisy_encoder import SEEDS, experiment, scene, wls_errors

N, P, K = 2, 4, 4000
TRUTH = np.array([2.0, -1.0, 0.5, 3.0])
NOISY = np.array([0.3, 0.1, 0.2, 0.0])  # the offset is exact
TORQUE = np.array([0.2, 1.0])


def problem(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Regressor with noise (n, p, K), torque (K, n), rows in use, and the noise's covariance (n, p, p)."""
    rng = np.random.default_rng(seed)
    exact = rng.normal(size=(N, P, K))
    exact[:, 3] = 1.0
    tau = np.einsum("npk,p->kn", exact, TRUTH) + TORQUE * rng.normal(size=(K, N))
    noisy = exact + NOISY[None, :, None] * rng.normal(size=exact.shape)
    return noisy, tau, np.ones((K, N), dtype=bool), np.repeat(np.diag(NOISY**2)[None], N, axis=0)


def test_the_noise_is_subtracted_from_the_normal_equations() -> None:
    Y, tau, use, noise = problem(2)
    found = solve_total(Y, tau, use, noise)
    s = found.weighted_with
    normal = sum((Y[j] @ Y[j].T - K * noise[j]) / s[j] ** 2 for j in range(N))
    np.testing.assert_allclose(
        found.theta, np.linalg.solve(normal, sum(Y[j] @ tau[:, j] / s[j] ** 2 for j in range(N)))
    )
    np.testing.assert_allclose(found.inverse_root @ found.inverse_root.T, np.linalg.inv(normal), rtol=1e-8)


def test_the_error_goes_to_zero_where_least_squares_keeps_a_bias() -> None:
    errors, plain = [], []
    for seed in range(20):
        Y, tau, use, noise = problem(10 + seed)
        errors.append(solve_total(Y, tau, use, noise).theta - TRUTH)
        plain.append(solve(compress(Y, tau, use), P).theta - TRUTH)
    assert np.linalg.norm(np.mean(errors, axis=0)) < 0.1 * np.linalg.norm(np.mean(plain, axis=0))


def test_directions_made_of_noise_stay_at_zero_and_are_named() -> None:
    Y, tau, use, noise = problem(5)
    Y[:, 1] = 0.1 * np.random.default_rng(6).normal(size=(N, K))  # nothing but its noise
    found = solve_total(Y, tau, use, noise)
    np.testing.assert_array_equal(np.flatnonzero(~found.supported), [1])
    assert found.theta[1] == pytest.approx(0.0, abs=0.05)
    assert found.rank == P - 1
    Y[:, 2] = Y[:, 0]
    np.testing.assert_array_equal(np.flatnonzero(~solve_total(Y, tau, use, noise).supported), [0, 1, 2])
    Y[:, 0] = 0.0
    found = solve_total(Y, tau, use, np.zeros_like(noise))
    np.testing.assert_array_equal(np.flatnonzero(~found.supported), [0])
    with pytest.raises(ValueError, match="noise explains every direction"):
        solve_total(Y, tau, use, 100.0 * np.repeat(np.eye(P)[None], N, axis=0))


def test_encoder_noise_biases_it_less_than_least_squares() -> None:
    _, _, theta, _ = scene()
    errors, z = [], []
    for seed in range(SEEDS):
        e = experiment(seed)
        found = solve_total(e.rows.Y, e.rows.tau, e.use, e.noise)
        assert found.supported.all()
        errors.append(found.theta - theta)
        z.append(errors[-1] / estimate_covariance(e.rows, found).std)
    plain = [error for error, _ in wls_errors()]
    assert np.linalg.norm(np.mean(errors, axis=0)) < 0.6 * np.linalg.norm(np.mean(plain, axis=0))
    assert np.sqrt(np.mean(np.square(errors))) < 0.7 * np.sqrt(np.mean(np.square(plain)))
    assert np.mean(np.abs(z) < 1.96) >= 0.90


def test_the_error_of_counting_is_drawn_with_its_own_spectrum() -> None:
    _, _, _, exact = scene()
    step = 2.0 * np.pi / 2**12
    counted = step * np.round(exact.q / step)
    assert quantum(counted[:, 0]) == pytest.approx(step)
    assert quantum(exact.q[:, 0]) == 0.0
    drawn = encoder_noise(counted, np.random.default_rng(3))
    low_pass = butter(4, 10.0, fs=500.0, output="sos")
    power = [np.std(sosfiltfilt(low_pass, e, axis=0)[500:-500]) for e in (drawn, counted - exact.q)]
    assert power[0] == pytest.approx(power[1], rel=0.3)
    assert np.std(drawn) == pytest.approx(step / np.sqrt(12.0), rel=0.05)
    noisy = exact.q + 1e-3 * np.random.default_rng(4).standard_normal(exact.q.shape)
    assert np.std(encoder_noise(noisy, np.random.default_rng(5))) == pytest.approx(1e-3, rel=0.05)
    assert (encoder_noise(np.ones((100, 2)), np.random.default_rng(6)) == 0.0).all()


def test_degenerate_input_is_refused() -> None:
    Y, tau, use, noise = problem(9)
    with pytest.raises(ValueError, match=r"noise covariance of shape \(2, 3, 3\)"):
        solve_total(Y, tau, use, noise[:, :3, :3])
    with pytest.raises(ValueError, match="noise covariance"):
        solve_total(Y, tau, use, np.nan * noise)
    with pytest.raises(ValueError, match="shapes disagree"):
        noise_covariance(Y, Y[:, :, 1:], use)
