"""Payloads in simulation: intervals hold the truth, the result is a real body, and what is open is said."""

from dataclasses import replace

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.identification.payload import Estimated, Payload, payload_from_change, payload_from_rows
from rt_core.identification.physical.prior import ConsistencyError
from rt_core.model.base import base_parameters, payload_columns
from rt_core.model.dynamics import inverse_dynamics
from rt_core.model.inertia import is_physical, mass_com_inertia
from rt_core.model.regressor import regressor
from tests.lab.arms.physical import Fitted, fit_simulated
from tests.lab.recordings.fixtures import LOAD, loaded


def by_rows(before: Fitted, after: Fitted, **options: bool) -> Payload:
    without, sigma = (
        Estimated(before.solution.theta, before.covariance),
        after.solution.sigma * np.sqrt(after.inflation),
    )
    return payload_from_rows(before.base, before.model, without, after.triangles, sigma, **options)


def by_change(before: Fitted, after: Fitted) -> Payload:
    without, loaded = (Estimated(found.solution.theta, found.covariance) for found in (before, after))
    return payload_from_change(before.base, before.model, without, loaded)


def test_columns_against_inverse_dynamics() -> None:
    model = load_robot("arm7").model
    base = base_parameters(model)
    q, dq, ddq = np.random.default_rng(1).uniform(-2.0, 2.0, (3, 20, model.n))
    change = np.zeros((20, model.n))
    for arm, sign in ((loaded(model), 1.0), (model, -1.0)):
        change += sign * inverse_dynamics(arm.geometry, arm.gravity, arm.inertial, q, dq, ddq)
    found = np.array(regressor(model, base.layout, q, dq, ddq)) @ (payload_columns(base, model) @ LOAD)
    np.testing.assert_allclose(found, change, atol=1e-10)


def test_intervals_hold_the_truth() -> None:
    model = load_robot("space6").model
    base = base_parameters(model)
    inside: list[np.ndarray] = []
    for seed in range(1, 3):
        before, after = fit_simulated(model, seed, base), fit_simulated(loaded(model), 50 + seed, base)
        for found in (by_rows(before, after), by_rows(before, after, refit_effects=True), by_change(before, after)):
            inside.append(np.abs(found.estimate - LOAD) < 1.96 * found.std)
            assert found.present
            assert found.status[:4] == ("determined",) * 4
            assert is_physical(found.phi)
            mass, com, inertia = mass_com_inertia(found.phi)
            assert mass == pytest.approx(2.5, rel=0.01)
            np.testing.assert_allclose(com, [0.01, -0.02, 0.08], atol=0.003)
            assert (np.linalg.eigvalsh(inertia) > 0.0).all()
    assert np.mean(inside) >= 0.8


def test_without_payload_none_is_found() -> None:
    model = load_robot("arm7").model
    base = base_parameters(model)
    found = by_rows(fit_simulated(model, 1, base), fit_simulated(model, 51, base))
    assert not found.present
    assert found.phi is None
    assert set(found.status) == {"undetermined"}


def test_a_poor_motion_gives_a_real_body_and_says_what_is_open() -> None:
    """Slow small motion shows mass and centre, hardly the inertia; the unconstrained estimate need not be a body."""
    model = load_robot("arm7").model
    base = base_parameters(model)
    before = fit_simulated(model, 3, base)
    after = fit_simulated(loaded(model), 53, base, amplitude=0.1, harmonics=1, candidates=1)
    found = by_rows(before, after)
    assert found.status[0] == "determined"
    assert "undetermined" in found.status[4:]
    assert is_physical(found.phi)
    z = (found.phi - LOAD) / np.sqrt(np.diag(found.phi_covariance))
    assert np.abs(z).max() < 4.0


def test_bad_input_is_refused() -> None:
    model = load_robot("arm7").model
    base = base_parameters(model)
    one = fit_simulated(model, 1, base)
    theta, hole = one.solution.theta, one.covariance.copy()
    without = Estimated(theta, one.covariance)
    hole[3] = hole[:, 3] = 0.0
    for before, covariance, after, message in (
        (theta, hole, theta, base.names[3]), (theta[:-1], one.covariance, theta, "base parameters"),
        (theta * np.nan, one.covariance, theta, "NaN"), (theta, one.covariance, theta * np.nan, "NaN"),
        (theta, one.covariance, theta[:-1], "with payload needs"),
    ):  # fmt: skip
        with pytest.raises(ConsistencyError, match=message):
            payload_from_change(base, model, Estimated(before, covariance), Estimated(after, one.covariance))
    with pytest.raises(ConsistencyError, match="positive and finite"):
        payload_from_rows(base, model, without, one.triangles, np.nan * one.solution.sigma)
    empty = tuple(replace(t, count=0) for t in one.triangles)
    with pytest.raises(ConsistencyError, match="no rows"):
        payload_from_rows(base, model, without, empty, one.solution.sigma)
