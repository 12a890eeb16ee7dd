"""Essential parameters: what drops, what never does, and what it costs in prediction."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from scipy import stats
from scipy.signal import lfilter

from rt_core.identification.essential import EssentialFit, essential_parameters
from rt_core.identification.estimate import EstimatorOptions
from rt_core.identification.identify import Identification, Verdict, identify
from rt_core.identification.least_squares import Solution, compress, solve
from rt_core.identification.preprocess import Signals, SignalSettings, prepare
from rt_core.identification.rows import Rows
from rt_core.identification.uncertainty import Uncertainty, estimate_covariance
from rt_core.model.base import base_parameters
from tests.lab.arms.batch import arm, motion

N, P, K = 2, 8, 1500
TRUTH = np.array([2.0, -1.0, 0.0, 3.0, 0.0, 0.5, 0.0, 1.0])
TINY = [2, 4, 6]
SCALE = np.array([0.5, 1.5])


def problem(seed: int, correlation: float = 0.0) -> Rows:
    rng = np.random.default_rng(seed)
    Y = rng.normal(size=(N, P, K)) * np.geomspace(1.0, 30.0, P)[::-1, None]
    Y[1, :2] = 0.0
    Y[:, 7] = 1.0
    Y[:, 6] = Y[:, 5] * 0.3 + np.sign(Y[:, 6])
    e = lfilter([np.sqrt(1.0 - correlation**2)], [1.0, -correlation], rng.normal(size=(K, N)), axis=0) * SCALE
    tau = np.einsum("npk,p->kn", Y, TRUTH) + e
    zeros, piece = np.zeros_like(tau), np.zeros(K, dtype=np.int64)
    return Rows(np.arange(K) * 0.02, Y, zeros, zeros, zeros, tau, np.ones((K, N), dtype=bool), piece, 50.0, 10.0)


def fitted(rows: Rows) -> tuple[EssentialFit, Solution, Uncertainty]:
    triangles = compress(rows.Y, rows.tau, rows.use)
    full = solve(triangles, rows.Y.shape[1], "wls")
    uncertainty = estimate_covariance(rows, full)
    return essential_parameters(triangles, full, uncertainty), full, uncertainty


def test_exactly_the_tiny_parameters_drop_and_the_rest_is_the_restricted_fit() -> None:
    rows = problem(2)
    found, full, uncertainty = fitted(rows)
    assert sorted(found.dropped) == TINY
    np.testing.assert_array_equal(np.flatnonzero(~found.kept), TINY)
    assert (found.solution.theta[TINY] == 0.0).all()
    assert found.p_value > 0.05
    W = np.concatenate([rows.Y[j].T / full.weighted_with[j] for j in range(N)])
    b = np.concatenate([rows.tau[:, j] / full.weighted_with[j] for j in range(N)])
    left = found.kept
    np.testing.assert_allclose(found.solution.theta[left], np.linalg.lstsq(W[:, left], b, rcond=None)[0], rtol=1e-9)
    np.testing.assert_array_equal(found.solution.supported, left)
    assert found.solution.leverage.sum() == pytest.approx(P - 3)
    # Residuals are white here: the joint test is the F test of nested models, up to the estimated noise.
    d = full.theta[TINY]
    inverse = np.linalg.inv(W.T @ W)[np.ix_(TINY, TINY)]
    plain = stats.f.sf(d @ np.linalg.solve(inverse, d) / 3, 3, N * K - P)
    assert found.p_value == pytest.approx(plain, abs=0.1)
    std = uncertainty.std
    assert (np.sqrt(np.diag(found.covariance))[left] <= 1.02 * std[left]).all()
    assert (found.covariance[TINY] == 0.0).all()


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_nothing_real_is_lost_and_nearly_all_that_is_nothing_goes(correlation: float) -> None:
    dropped, lost, z = 0, 0, []
    for seed in range(20):
        found, full, uncertainty = fitted(problem(seed, correlation))
        significant = np.abs(full.theta) > 2.0 * uncertainty.std
        assert found.kept[significant].all()
        dropped += int((~found.kept[TINY]).sum())
        lost += int((~found.kept).sum() - (~found.kept[TINY]).sum())
        z.append(((found.solution.theta - TRUTH)[found.kept]) / np.sqrt(np.diag(found.covariance))[found.kept])
    assert lost == 0
    assert dropped >= 0.88 * 20 * len(TINY)
    assert np.mean(np.abs(np.concatenate(z)) < 1.96) >= 0.90


def test_collinear_columns_and_columns_without_data_go_first() -> None:
    rows = problem(4)
    rows.Y[:, 3] = 0.0
    rows.Y[:, 1] = 2.0 * rows.Y[:, 0]
    tau = np.einsum("npk,p->kn", rows.Y, TRUTH) + np.random.default_rng(1).normal(size=(K, N))
    found, full, _ = fitted(replace(rows, tau=tau))
    assert not full.supported[[0, 1, 3]].any()
    assert 3 in found.dropped[:2]
    assert set(found.dropped[:2]) & {0, 1}
    assert found.solution.supported[found.kept].all()
    assert found.solution.rank == found.kept.sum()
    np.testing.assert_allclose(found.solution.theta[0] + 2 * found.solution.theta[1], 0.0, atol=0.05)


def test_a_covariance_that_rounding_left_indefinite_has_a_p_value() -> None:
    rng = np.random.default_rng(6)
    columns, noise = np.split(np.linalg.qr(rng.normal(size=(200, 4)))[0].T * np.sqrt(200.0), [3])
    tau = (columns.T @ np.array([1.0, 1e-5, 1e-5]) + noise[0])[:, None]
    triangles = compress(columns[None], tau, np.ones((200, 1), dtype=bool))
    full = solve(triangles, 3, "wls")
    covariance = 0.01 * np.eye(3)
    covariance[1, 2] = covariance[2, 1] = -0.01 * (1.0 + 1e-6)
    found = essential_parameters(triangles, full, Uncertainty(covariance, np.ones(1)))
    assert sorted(found.dropped) == [1, 2]
    assert found.p_value == 1.0


def test_degenerate_input_is_refused() -> None:
    rows = problem(5)
    triangles = compress(rows.Y, rows.tau, rows.use)
    full = solve(triangles, P)
    uncertainty = estimate_covariance(rows, full)
    with pytest.raises(ValueError, match="the fit or its covariance is not finite"):
        essential_parameters(triangles, full, replace(uncertainty, covariance=np.full((P, P), np.nan)))
    dead = replace(rows, tau=np.full((K, N), 2.5))  # the offset explains it
    with pytest.raises(ValueError, match="joint 1: the fit leaves no residual to judge parameters by"):
        fitted(dead)
    nothing = compress(np.zeros_like(rows.Y), rows.tau, rows.use)
    with pytest.raises(ValueError, match="no parameter has data"):
        essential_parameters(nothing, replace(full, theta=np.zeros(P)), uncertainty)


MODEL = arm()
SETTINGS = SignalSettings(10.0, min_velocity=MODEL.standstill_velocity)
SEVERITY: tuple[Verdict, ...] = get_args(Verdict)


def recorded(seconds: float, noise: float, seed: int, *, turned: int | None = None, spring: float = 0.0) -> Signals:
    """Position and torque of a motion, with noise, and with something wrong where it is asked for."""
    made = motion(MODEL, seconds, 250.0, seed)
    tau = made.tau + noise * np.random.default_rng(seed).normal(size=made.tau.shape)
    tau[:, 2] += spring * np.sin(3.0 * made.q[:, 2])
    if turned is not None:
        tau[:, turned] *= -1.0
    return prepare(made.t, made.q, tau, SETTINGS)


def both(signals: Signals, method: str) -> tuple[Identification, Identification]:
    """All parameters, and the essential ones."""
    options = (EstimatorOptions(method=method, essential=essential) for essential in (False, True))  # type: ignore[arg-type]
    base = base_parameters(MODEL)
    whole, essential = (identify(MODEL, base, signals, SETTINGS, given) for given in options)
    return whole, essential


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "recording", "expected"),
    [
        ("wls", {"seconds": 30.0, "noise": 0.3, "seed": 0}, {"ok"}),
        ("ols", {"seconds": 10.0, "noise": 7.5, "seed": 1}, {"ok", "weak_excitation"}),
        ("iwls", {"seconds": 6.0, "noise": 7.5, "seed": 5}, {"ok", "weak_excitation"}),
        ("wls", {"seconds": 6.0, "noise": 25.0, "seed": 2}, {"doubtful", "not_explained"}),
        ("ols", {"seconds": 20.0, "noise": 1.0, "seed": 0, "turned": 0}, {"not_explained"}),
        ("iwls", {"seconds": 20.0, "noise": 1.0, "seed": 3, "spring": 60.0}, {"doubtful", "not_explained"}),
    ],
    ids=["rich", "poor", "short", "noisy", "base turned", "spring"],
)
def test_the_verdict_is_never_better(method: str, recording: dict[str, float], expected: set[str]) -> None:
    whole, essential = both(recorded(**recording), method)  # type: ignore[arg-type]
    assert whole.verdict in expected
    assert SEVERITY.index(essential.verdict) >= SEVERITY.index(whole.verdict)
    assert "dropped" not in whole.status
    open_ = [k for k, status in enumerate(whole.status) if status == "undetermined"]
    assert {essential.status[k] for k in open_} <= {"undetermined"}
    assert bool(essential.reasons) == (essential.verdict != "ok")


def test_parameters_do_drop_where_the_verdict_stays() -> None:
    """What is compared differs: a short noisy recording leaves one parameter open, and others are dropped."""
    whole, essential = both(recorded(6.0, 7.5, 0), "ols")
    assert whole.verdict == essential.verdict == "weak_excitation"
    assert essential.status.count("dropped") >= 5
    assert not np.array_equal(whole.theta, essential.theta)
