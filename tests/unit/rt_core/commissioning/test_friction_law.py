"""Laws through points of known friction: parameters and their deviations, and when a Stribeck law is supported."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

from rt_core.commissioning.findings import CommissioningError
from rt_core.commissioning.friction_law import fit_friction

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


def test_noise_is_no_stribeck_friction() -> None:
    std = np.full(SPEED.size, 0.1)
    for seed in range(20):
        noise = std * np.random.default_rng(seed).normal(size=SPEED.size)
        assert fit_friction(SPEED, FC + KV * SPEED + noise, std).law == "coulomb_viscous", seed


def test_a_fall_that_lies_below_all_speeds_is_not_claimed() -> None:
    fast = SPEED[SPEED > 0.1]
    more = np.concatenate((fast, 1.5 * fast, 2.0 * fast))
    assert fit_friction(more, stribeck(more), np.full(more.size, 0.02)).law == "coulomb_viscous"


def test_few_points() -> None:
    assert fit_friction(SPEED[:1], np.array([5.0]), np.array([0.1])).law == "coulomb"
    two = fit_friction(SPEED[[0, -1]], FC + KV * SPEED[[0, -1]], np.array([0.1, 0.1]))
    np.testing.assert_allclose(two.values, [FC, KV], rtol=1e-9)
    with pytest.raises(CommissioningError, match="speeds above 0"):
        fit_friction(np.zeros(3), np.ones(3), np.ones(3))
