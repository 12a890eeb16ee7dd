"""Laws through points of known friction: parameters and their deviations, and when a Stribeck law is supported."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.linalg as la
from scipy import optimize

from rt_core.commissioning.findings import CommissioningError
from rt_core.commissioning.friction_law import fit_friction
from tests.lab.arms.commissioning import second_try_only

SPEED = np.array([0.004, 0.008, 0.015, 0.03, 0.06, 0.12, 0.25, 0.5])
FC, FB, KV, VB = 5.0, 8.0, 6.0, 0.03


def stribeck(v: np.ndarray) -> np.ndarray:
    return np.asarray(FC + (FB - FC) * np.exp(-((v / VB) ** 2)) + KV * v)


def test_coulomb_and_viscous_friction_is_weighted_least_squares() -> None:
    rng = np.random.default_rng(1)
    std = np.array([0.3, 0.2, 0.1, 0.1, 0.05, 0.05, 0.05, 0.2])
    friction = FC + KV * SPEED + std * rng.normal(size=SPEED.size)
    fit = fit_friction(SPEED, friction, std)
    assert (fit.law, fit.names) == ("coulomb_viscous", ("fc", "fv"))
    wanted, covariance = optimize.curve_fit(lambda v, a, b: a + b * v, SPEED, friction, sigma=std, absolute_sigma=True)
    np.testing.assert_allclose(fit.values, wanted, rtol=1e-6)
    np.testing.assert_allclose(fit.std, fit.scatter * np.sqrt(np.diag(covariance)), rtol=1e-5)


def test_a_stribeck_law_is_found_where_it_shows() -> None:
    rng = np.random.default_rng(2)
    std = np.full(SPEED.size, 0.02)
    fit = fit_friction(SPEED, stribeck(SPEED) + std * rng.normal(size=SPEED.size), std)
    assert (fit.law, fit.names) == ("stribeck", ("fc", "fb", "kv1", "vb"))
    assert (np.abs(fit.values - [FC, FB, KV, VB]) < 4.0 * fit.std).all()
    wanted, _ = optimize.curve_fit(
        lambda v, a, b, c, d: a + (b - a) * np.exp(-((v / d) ** 2)) + c * v,
        SPEED,
        stribeck(SPEED),
        [4.0, 9.0, 5.0, 0.05],
    )
    np.testing.assert_allclose(fit_friction(SPEED, stribeck(SPEED), std).values, wanted, rtol=1e-3)


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_no_stribeck_friction(seed: int) -> None:
    rng = np.random.default_rng(seed)
    std = np.full(SPEED.size, 0.1)
    assert fit_friction(SPEED, FC + KV * SPEED + std * rng.normal(size=SPEED.size), std).law == "coulomb_viscous"


def test_a_fall_that_lies_below_all_speeds_is_not_claimed() -> None:
    fast = SPEED[SPEED > 0.1]
    more = np.concatenate((fast, 1.5 * fast, 2.0 * fast))
    assert fit_friction(more, stribeck(more), np.full(more.size, 0.02)).law == "coulomb_viscous"


def test_points_off_the_law_widen_the_deviations() -> None:
    rng = np.random.default_rng(7)
    std = np.full(SPEED.size, 1e-3)
    fit = fit_friction(SPEED, FC + KV * SPEED + 0.1 * rng.normal(size=SPEED.size), std)
    assert 30.0 < fit.scatter < 300.0
    assert (np.abs(fit.values[:2] - [FC, KV])[0] < 5.0 * fit.std[0]).all()


def test_the_curve_and_its_band() -> None:
    fit = fit_friction(SPEED, stribeck(SPEED), np.full(SPEED.size, 0.02))
    value, std = fit.at(SPEED)
    np.testing.assert_allclose(value, stribeck(SPEED), rtol=1e-4)
    step = 1e-6
    J = np.empty((SPEED.size, 4))
    for k in range(4):
        moved = fit.values.copy()
        moved[k] += step
        shifted = moved[0] + (moved[1] - moved[0]) * np.exp(-((SPEED / moved[3]) ** 2)) + moved[2] * SPEED
        J[:, k] = (shifted - value) / step
    np.testing.assert_allclose(std, np.sqrt(np.einsum("kp,pq,kq->k", J, fit.covariance, J)), rtol=1e-3)


def test_few_points() -> None:
    assert fit_friction(SPEED[:1], np.array([5.0]), np.array([0.1])).law == "coulomb"
    two = fit_friction(SPEED[[0, -1]], FC + KV * SPEED[[0, -1]], np.array([0.1, 0.1]))
    np.testing.assert_allclose(two.values, [FC, KV], rtol=1e-9)
    with pytest.raises(CommissioningError, match="speeds above 0"):
        fit_friction(np.zeros(3), np.ones(3), np.ones(3))


@pytest.mark.soak
def test_intervals_hold_where_six_points_scatter_beyond_their_deviations() -> None:
    rng = np.random.default_rng(0)
    speed = 2.5 * np.array([0.006, 0.012, 0.025, 0.05, 0.1, 0.2])
    within = []
    for _ in range(400):
        fit = fit_friction(speed, 5.0 + 4.0 * speed + 0.1 * rng.normal(size=6), np.full(6, 0.01))
        if fit.law == "coulomb_viscous":
            within.append(abs(fit.values[0] - 5.0) < fit.quantile_95 * fit.std[0])
    assert len(within) > 300
    assert 0.92 < np.mean(within) < 0.985


def test_it_does_not_depend_on_how_svd_converges(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise np.linalg.LinAlgError("SVD did not converge")

    friction, std = stribeck(SPEED), np.full(SPEED.size, 0.02)
    wanted = fit_friction(SPEED, friction, std)
    for name in ("svd", "lstsq"):
        monkeypatch.setattr(la, name, partial(second_try_only, getattr(la, name)))
    for name in ("svd", "lstsq", "pinv"):
        monkeypatch.setattr(np.linalg, name, never)
    found = fit_friction(SPEED, friction, std)
    np.testing.assert_allclose(found.values, wanted.values, rtol=1e-6)
    np.testing.assert_allclose(found.std, wanted.std, rtol=1e-4)
    for name in ("svd", "lstsq"):
        monkeypatch.setattr(la, name, never)
    with pytest.raises(CommissioningError, match="no law can be laid"):
        fit_friction(SPEED, friction, std)
