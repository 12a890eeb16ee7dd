"""A batch model as the prior of the online estimate, with what it knows."""

import numpy as np
import pytest

from rt_core.model.base import base_parameters
from rt_core.model.parameters import standard_parameters, with_constants
from rt_core.model.robot import RobotModel
from rt_core.online import OnlineEstimator, OnlineSettings
from sim_backend.arm.robot import SimulatedArm, SimulatedData
from sim_backend.arm.settings import MotionSettings, SimSettings
from tests.lab.arms.simulated import random_arm
from tests.unit.rt_core.online.test_constants import RATE as STRIBECK_RATE
from tests.unit.rt_core.online.test_constants import SETTINGS as STRIBECK_SETTINGS
from tests.unit.rt_core.online.test_constants import feed as feed_exact
from tests.unit.rt_core.online.test_constants import motion, stribeck_arm, torque

RATE = 200.0
SETTINGS = OnlineSettings(update_hz=50.0, memory_s=20.0, excitation_s=3.0)


@pytest.fixture(scope="module")
def moved() -> tuple[RobotModel, SimulatedData]:
    model = random_arm(3, 21)
    settings = SimSettings(rate_hz=RATE, seed=3, torque_noise=0.004)
    arm = SimulatedArm(model, settings, MotionSettings(seed=3, candidates=1, base_frequency_hz=0.2))
    return model, arm.simulate(45.0)


def feed(estimator: OnlineEstimator, data: SimulatedData, first: int, last: int) -> None:
    for k in range(first, last):
        estimator.step(round(data.t[k] * 1e9), k, data.channels["q"][k], data.channels["tau"][k])


def model_of(estimator: OnlineEstimator, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A model near the truth, all of its parameters known, correlated and of very different size."""
    rng = np.random.default_rng(seed)
    base = estimator.base
    theta = base.theta(standard_parameters(estimator.model, base.standard))
    spread = 10.0 ** rng.uniform(-3.0, -1.0, theta.size) * np.maximum(np.abs(theta), 0.01)
    mixing = rng.standard_normal((theta.size, theta.size)) + 2.0 * np.eye(theta.size)
    covariance = mixing @ mixing.T
    size = np.sqrt(np.diag(covariance))
    covariance *= np.outer(spread / size, spread / size)
    return theta + spread * rng.standard_normal(theta.size), covariance


def test_right_after_adoption_the_estimate_is_the_model(moved: tuple[RobotModel, SimulatedData]) -> None:
    model, data = moved
    for frames in (0, 5000):  # fresh, and in place of what was learned
        estimator = OnlineEstimator(model, SETTINGS, RATE)
        feed(estimator, data, 0, frames)
        before = estimator.report()
        theta, covariance = model_of(estimator)
        estimator.adopt(theta, covariance)
        after = estimator.report()
        np.testing.assert_array_equal(after.theta, theta)
        np.testing.assert_allclose(after.std, np.sqrt(np.diag(covariance)), rtol=1e-7)
        np.testing.assert_allclose(estimator.covariance, covariance, rtol=1e-5, atol=1e-7 * covariance.max())
        root = estimator.information_root
        np.testing.assert_allclose(root.T @ root @ covariance, np.eye(theta.size), atol=1e-5)
        for name in ("frames", "used", "masked", "lost", "resets", "updates"):
            assert getattr(after, name) == getattr(before, name)
        np.testing.assert_array_equal(after.sigma, before.sigma)


def test_what_the_model_does_not_know_starts_anew_and_is_not_called_estimated(
    moved: tuple[RobotModel, SimulatedData],
) -> None:
    model, data = moved
    estimator, fresh = (OnlineEstimator(model, SETTINGS, RATE) for _ in range(2))
    feed(estimator, data, 0, 6000)
    assert estimator.report().std[5] < 0.01 * fresh.report().std[5]
    theta, covariance = model_of(estimator)
    unknown = {2: 0.0, 5: np.inf, 7: np.nan, 8: 1e300}
    for k, variance in unknown.items():
        covariance[k] = covariance[:, k] = 0.0
        covariance[k, k] = variance
    estimator.adopt(theta, covariance)
    report = estimator.report()
    start = fresh.report().std
    known = np.delete(np.arange(theta.size), list(unknown))
    np.testing.assert_allclose(report.std[list(unknown)], start[list(unknown)], rtol=1e-9)
    np.testing.assert_allclose(report.std[known], np.sqrt(np.diag(covariance)[known]), rtol=1e-7)
    assert {report.status[k] for k in unknown} == {"unestimated"}
    assert np.linalg.eigvalsh(estimator.covariance / np.outer(report.std, report.std)).min() > 0.0
    feed(estimator, data, 6000, 9000)
    report = estimator.report()
    truth = estimator.base.theta(standard_parameters(model, estimator.base.standard))
    assert np.all(np.abs(report.theta - truth)[list(unknown)] < 5.0 * report.std[list(unknown)])
    assert report.std[5] < 0.01 * start[5], "learned again from the data"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c[:-1], "shape"),
        (lambda c: -c, "negative variance"),
        (lambda c: np.where(np.eye(len(c)) > 0, c, 10.0 * np.abs(c).max()), "semidefinite"),
        (lambda c: c + np.triu(np.sqrt(np.outer(np.diag(c), np.diag(c))), 1), "symmetric"),
        (lambda c: np.where(np.eye(len(c)) > 0, c, np.nan), "finite"),
    ],
)
def test_what_is_no_covariance_is_refused_and_changes_nothing(
    moved: tuple[RobotModel, SimulatedData],
    change,  # type: ignore[no-untyped-def]
    words: str,
) -> None:
    model, _ = moved
    estimator = OnlineEstimator(model, SETTINGS, RATE)
    theta, covariance = model_of(estimator)
    before = estimator.state()
    with pytest.raises(ValueError, match=words):
        estimator.adopt(theta, change(covariance))
    with pytest.raises(ValueError, match="theta of the active model"):
        estimator.adopt(np.append(theta[:-1], np.nan), covariance)
    np.testing.assert_array_equal(estimator.state()["floats"], before["floats"])


def test_the_residual_of_the_active_model_is_summed(moved: tuple[RobotModel, SimulatedData]) -> None:
    """Against the noise that was put in, for the true model; a wrong one leaves more."""
    model, data = moved
    estimator = OnlineEstimator(model, SETTINGS, RATE)
    feed(estimator, data, 0, 1000)
    assert not np.any(estimator.residual_power)
    truth = estimator.base.theta(standard_parameters(model, estimator.base.standard))
    estimator.set_active(truth)
    feed(estimator, data, 1000, 5000)
    squares, rows = estimator.residual_power
    assert np.all(rows > 200)
    white = np.var(data.channels["tau"] - data.tau, axis=0)
    filtered = white * np.sum(estimator.parallel**2)  # of white noise the low-pass leaves this share
    np.testing.assert_allclose(squares / rows, filtered, rtol=0.25)
    estimator.set_active(1.5 * truth)
    feed(estimator, data, 5000, 8000)
    later, more = estimator.residual_power
    assert np.all((later - squares) / (more - rows) > 3.0 * filtered)


def test_an_adoption_with_other_constants_leaves_nothing_of_the_wrong_model() -> None:
    """As an estimator that was made with these constants and adopted the model before its first frame."""
    truth = stribeck_arm()
    base = base_parameters(truth)
    theta, constants = base.theta(standard_parameters(truth, base.standard)), base.layout.shape[:, 0]
    covariance = np.diag((0.01 * np.maximum(np.abs(theta), 0.1)) ** 2)
    covariance[3, 3] = 0.0  # unknown to the model: known as at the start
    t, q, dq, ddq = motion(16.0)
    tau = torque(truth, q, dq, ddq, 0.05)
    fresh = OnlineEstimator(truth, STRIBECK_SETTINGS, STRIBECK_RATE, prior=theta)
    wrong = with_constants(truth, {"vb1": 0.0, "vb2": 0.9})
    changed = OnlineEstimator(wrong, STRIBECK_SETTINGS, STRIBECK_RATE)
    for k in range(4000):
        changed.step(round(t[k] * 1e9) - 10**12, k, q[k], tau[k])
    for estimator in (fresh, changed):
        estimator.adopt(theta, covariance, constants)
    again = OnlineEstimator(wrong, STRIBECK_SETTINGS, STRIBECK_RATE)
    again.restore(changed.state())
    np.testing.assert_array_equal(again._start, fresh._start)
    assert changed.meta["constants"] == constants.tolist()
    adopted = changed.report()
    assert (adopted.frames, adopted.resets) == (4000, 0)
    assert not adopted.excited.any()
    assert not adopted.sigma.any()  # that of the model before was its error as well
    changed.restart_stream()  # the clock of the other begins with the frames that follow
    for estimator in (fresh, changed, again):
        estimator.set_active(theta, constants)
        feed_exact(estimator, t, q, tau, 4000)
    one, *others = (estimator.report() for estimator in (fresh, changed, again))
    assert np.isfinite(one.std).all()
    for other in others:
        for name in ("theta", "std", "sigma", "scale", "lam", "excited"):
            np.testing.assert_allclose(getattr(other, name), getattr(one, name), rtol=1e-6, err_msg=name)
