"""Friction whose constants come from a batch model: the online core carries the linear part on."""

from dataclasses import replace

import numpy as np
import pytest

from rt_core.model.base import base_parameters, link_torque
from rt_core.model.friction import Friction
from rt_core.model.parameters import standard_layout, standard_parameters, with_constants
from rt_core.model.regressor import regressor
from rt_core.model.robot import JointDynamics, RobotModel
from rt_core.online import OnlineEstimator, OnlineSettings
from tests.lab.arms.simulated import random_arm

RATE = 500.0
SETTINGS = OnlineSettings(update_hz=100.0, cutoff_hz=20.0, memory_s=20.0)


def stribeck_arm(load: bool = False) -> RobotModel:
    arm = random_arm(2, 3, prismatic=0.0)
    two = np.ones(2)
    dynamics = JointDynamics(
        0.3 * two, 2.0 * two, np.array([3.0, 2.0]), np.zeros(2), breakaway=np.array([5.0, 4.0]),
        stribeck_velocity=0.3 * two, quadratic_friction=0.2 * two, cubic_friction=0.1 * two, load_friction=0.05 * two,
    )  # fmt: skip
    return replace(arm, friction=Friction("stribeck", load=load), dynamics=dynamics)


def motion(seconds: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    t = np.arange(round(seconds * RATE)) / RATE
    w = 2 * np.pi * np.array([[0.31, 0.83], [0.43, 0.67]])
    a = np.array([[0.7, 0.15], [0.6, 0.2]])
    phase = w[None] * t[:, None, None]
    return (
        t,
        (a * np.sin(phase)).sum(axis=2),
        (a * w * np.cos(phase)).sum(axis=2),
        (-a * w**2 * np.sin(phase)).sum(axis=2),
    )


def torque(model: RobotModel, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray, noise: float) -> np.ndarray:
    layout = standard_layout(model)
    phi = standard_parameters(model, layout)
    base = base_parameters(model)
    load = link_torque(model, base, base.theta(np.where(layout.is_link, phi, 0.0)), q, dq, ddq)
    tau = np.einsum("knp,p->kn", regressor(model, layout, q, dq, ddq, load=load), phi)
    return tau + noise * np.random.default_rng(0).standard_normal(tau.shape)


def feed(estimator: OnlineEstimator, t: np.ndarray, q: np.ndarray, tau: np.ndarray, start: int = 0) -> None:
    for k in range(start, t.size):
        estimator.step(round(t[k] * 1e9), k, q[k], tau[k])


def test_unknown_constants_leave_the_term_unestimated_until_a_batch_model_brings_them() -> None:
    truth = stribeck_arm()
    unknown = with_constants(truth, {"vb1": 0.0, "vb2": 0.0})
    estimator = OnlineEstimator(unknown, SETTINGS, RATE)
    names = estimator.base.names
    t, q, dq, ddq = motion(60.0)
    tau = torque(truth, q, dq, ddq, 0.05)
    half = t.size // 2
    feed(estimator, t[:half], q[:half], tau[:half])
    before = estimator.report()
    friction = [k for k, name in enumerate(names) if name.startswith(("kv", "fc", "fb"))]
    assert len(friction) == 10
    assert {before.status[k] for k in friction} == {"unestimated"}, "fc and kv would take up the Stribeck effect"
    assert np.isnan(before.validated[friction]).all()
    assert "estimated" in {status for k, status in enumerate(before.status) if k not in friction}
    assert np.abs(estimator.torque()[3]).max() < 3.0, "a prediction may use them all the same"
    first_hash, first_state = estimator.meta["hash"], estimator.state_hash

    base = base_parameters(truth)
    estimator.set_active(base.theta(standard_parameters(truth, base.standard)), base.layout.shape[:, 0])
    assert estimator.meta["hash"] != first_hash, "subscribers must learn of other constants"
    assert estimator.state_hash == first_state
    assert estimator.meta["constants"] == base.layout.shape[:, 0].tolist()
    feed(estimator, t, q, tau, half)
    after = estimator.report()
    expected = base.theta(standard_parameters(truth, base.standard))
    for name in ("fb1", "fb2", "fc1", "fc2", "kv1_1", "kv1_2"):
        k = names.index(name)
        assert after.status[k] in ("estimated", "stale"), name
        assert abs(after.theta[k] - expected[k]) < 4.0 * after.std[k] + 0.02 * abs(expected[k]), name

    other = OnlineEstimator(unknown, SETTINGS, RATE)
    other.restore(estimator.state())
    assert other.meta == estimator.meta, "a saved state brings its constants along"
    np.testing.assert_array_equal(other.theta, estimator.theta)


def test_load_dependent_friction_takes_its_load_from_the_batch_model() -> None:
    truth = stribeck_arm(load=True)
    base = base_parameters(truth)
    expected = base.theta(standard_parameters(truth, base.standard))
    estimator = OnlineEstimator(truth, SETTINGS, RATE)
    estimator.set_active(expected, base.layout.shape[:, 0])
    t, q, dq, ddq = motion(60.0)
    feed(estimator, t, q, torque(truth, q, dq, ddq, 0.05))
    report = estimator.report()
    for name in ("k1_1", "k1_2"):
        k = base.names.index(name)
        assert abs(report.theta[k] - 0.05) < 4.0 * report.std[k]
        assert report.std[k] < 0.02
    assert np.abs(estimator.torque()[3]).max() < 0.2, "the prediction uses the same load"


def test_bad_constants_are_refused_and_change_nothing() -> None:
    estimator = OnlineEstimator(stribeck_arm(), SETTINGS, RATE)
    p, before = len(estimator.base), estimator.state()
    for constants, message in (
        (np.zeros(p - 1), "constants of the active model must be"),
        (np.full(p, np.nan), "finite"),
        (np.full(p, 1e100), "values below 1e"),  # whose squares' squares are none
        (np.full(p, -1.0), "not be negative"),
    ):
        with pytest.raises(ValueError, match=message):
            estimator.set_active(np.zeros(p), constants)
    with pytest.raises(ValueError, match="too small"):
        estimator.adopt(np.zeros(p), 5e-324 * np.eye(p))
    after = estimator.state()
    np.testing.assert_array_equal(before["floats"], after["floats"])


def test_a_model_activated_after_a_state_was_restored_brings_its_own_constants() -> None:
    """As the service does at its start: the state goes on, unless the active model has other constants."""
    truth = stribeck_arm()
    other = with_constants(truth, {"vb1": 0.5, "vb2": 0.6})
    base, constants = base_parameters(truth), base_parameters(truth).layout.shape[:, 0]
    theta = base.theta(standard_parameters(truth, base.standard))
    saved = OnlineEstimator(other, SETTINGS, RATE)
    t, q, dq, ddq = motion(4.0)
    feed(saved, t, q, torque(truth, q, dq, ddq, 0.05))
    estimator = OnlineEstimator(truth, SETTINGS, RATE)
    estimator.restore(saved.state())
    assert estimator.meta["constants"] != constants.tolist()
    estimator.set_active(theta, constants)
    assert estimator.meta["constants"] == constants.tolist()
    assert estimator.report().resets == 1
    np.testing.assert_array_equal(estimator.theta, theta)


@pytest.mark.parametrize("load", [False, True])
def test_another_load_starts_load_dependent_friction_anew(load: bool) -> None:
    truth = stribeck_arm(load)
    base = base_parameters(truth)
    theta = base.theta(standard_parameters(truth, base.standard))
    estimator = OnlineEstimator(truth, SETTINGS, RATE, prior=theta)
    t, q, dq, ddq = motion(4.0)
    feed(estimator, t, q, torque(truth, q, dq, ddq, 0.05))
    learned = estimator.theta
    estimator.set_active(theta * (1.0 + 1e-13))
    assert estimator.report().resets == 0, "the same model but for rounding"
    np.testing.assert_array_equal(estimator.theta, learned)
    estimator.set_active(1.1 * theta)
    assert estimator.report().resets == int(load)
    np.testing.assert_array_equal(estimator.theta, 1.1 * theta if load else learned)
    estimator.reset()
    np.testing.assert_array_equal(estimator.theta, 1.1 * theta)
