"""The online estimator with friction that follows temperature: it learns the slope, and stands still without one."""

from dataclasses import replace

import numpy as np
import pytest

from rt_core.model.base import base_parameters
from rt_core.model.friction import Friction
from rt_core.model.parameters import standard_parameters
from rt_core.online import OnlineEstimator, OnlineSettings
from sim_backend.arm.robot import SimulatedData
from tests.lab.arms.warm import simulated, sweep, warm_arm

RATE = 500.0
SETTINGS = OnlineSettings(update_hz=100.0, cutoff_hz=20.0, memory_s=60.0)
MODEL = warm_arm(Friction("coulomb_viscous", temperature="coulomb"))
BASE = base_parameters(MODEL)
TRUTH = BASE.theta(standard_parameters(MODEL, BASE.standard))
FRICTION = [k for k, name in enumerate(BASE.names) if name.startswith(("fc", "fv", "alpha"))]


@pytest.fixture(scope="module")
def data() -> SimulatedData:
    settings = sweep(-40.0, 60.0, 60.0).model_copy(update={"rate_hz": RATE, "torque_noise": 0.001})
    return simulated(MODEL, settings, 60.0)


def estimator() -> OnlineEstimator:
    return OnlineEstimator(MODEL, SETTINGS, RATE, has_dq=True, base=BASE)


def feed(online: OnlineEstimator, data: SimulatedData, start_s: float, stop_s: float, every: int = 100) -> None:
    q, dq, tau, T = (data.channels[name] for name in ("q", "dq", "tau", "temperature"))
    for k in range(round(start_s * RATE), round(stop_s * RATE)):
        told = T[k] if every and k % every == 0 else None
        online.step(round(data.t[k] * 1e9), k, q[k], tau[k], None, dq[k], told)


def test_the_slope_is_learned(data: SimulatedData) -> None:
    online = estimator()
    feed(online, data, 0.0, 50.0)
    left: dict[bool, list[float]] = {True: [], False: []}
    for at in np.arange(50.0, 60.0, 0.1):
        feed(online, data, at, at + 0.1)
        for follows, theta in ((True, TRUTH), (False, np.where(BASE.layout.follows_temperature, 0.0, TRUTH))):
            online.set_active(theta)
            torque = online.torque()
            left[follows].append(float(np.abs(torque[3]).mean()))
    assert np.median(left[True]) < np.median(left[False]) / 3.0
    report = online.report()
    for k, name in enumerate(BASE.names):
        if name.startswith("alpha"):
            assert report.status[k] == "estimated"
            assert report.theta[k] == pytest.approx(TRUTH[k], rel=0.03)
    seen = online.temperatures
    assert (seen.lower < -35.0).all()
    assert (seen.upper > 50.0).all()
    assert "alpha1" in online.meta["parameters"]


def test_without_a_temperature_nothing_is_estimated(data: SimulatedData) -> None:
    online = estimator()
    feed(online, data, 0.0, 20.0)
    before = online.report()
    assert "invalid" not in before.status
    feed(online, data, 20.0, 29.0, every=0)
    assert not online.lacks_temperature.any()
    assert online.report().updates > before.updates
    feed(online, data, 29.0, 32.0, every=0)
    assert online.lacks_temperature.all()
    after = online.report()
    assert {after.status[k] for k in FRICTION} == {"invalid"}
    assert np.isnan(np.asarray(online.temperature)).all()
    assert online.torque() is None
    assert after.masked > 0
    theta = after.theta
    feed(online, data, 32.0, 33.0, every=0)
    np.testing.assert_array_equal(online.report().theta, theta)
    k, told = round(33.0 * RATE), data.channels["temperature"][0].copy()
    told[1] = np.nan
    q, dq, tau = (data.channels[name][k] for name in ("q", "dq", "tau"))
    online.step(round(data.t[k] * 1e9), k, q, tau, None, dq, told)
    assert online.lacks_temperature.tolist() == [False, True, False]
    feed(online, data, 33.0 + 1.0 / RATE, 60.0)
    assert not online.lacks_temperature.any()
    assert {online.report().status[k] for k in FRICTION} == {"estimated"}


def test_a_state_goes_on_with_what_it_has_seen(data: SimulatedData) -> None:
    first, second = estimator(), estimator()
    feed(first, data, 0.0, 10.0)
    second.restore(first.state())
    assert np.isfinite(second.temperatures.lower).all()
    np.testing.assert_array_equal(second.temperatures.lower, first.temperatures.lower)
    np.testing.assert_array_equal(second.temperatures.upper, first.temperatures.upper)


def test_a_slope_is_estimated_where_its_temperature_changes_only() -> None:
    still = sweep(30.0, 32.0, 12.0).model_copy(
        update={"rate_hz": RATE, "torque_noise": 0.001, "temperature_rise_k": 0.0}
    )
    online = estimator()
    online.adopt(TRUTH, np.diag((1e-4 * np.abs(TRUTH)) ** 2))  # known, but not by what it has seen
    feed(online, simulated(MODEL, still, 12.0), 0.0, 12.0)
    status = dict(zip(BASE.names, online.report().status, strict=True))
    assert {status[f"alpha{i}"] for i in (1, 2, 3)} == {"unestimated"}
    assert "unestimated" not in {status[f"fc{i}"] for i in (1, 2, 3)}


def test_a_sudden_change_at_one_temperature_leaves_the_slope() -> None:
    warming = sweep(0.0, 40.0, 20.0).model_copy(update={"rate_hz": RATE, "torque_noise": 0.001})
    data = simulated(MODEL, warming, 45.0)
    data.channels["tau"][:, 0] += np.where(data.t > 30.0, np.sign(data.channels["dq"][:, 0]), 0.0)
    online = OnlineEstimator(MODEL, replace(SETTINGS, memory_s=10.0), RATE, has_dq=True, base=BASE)
    feed(online, data, 0.0, 45.0)
    theta = dict(zip(BASE.names, online.theta, strict=True))
    truth = dict(zip(BASE.names, TRUTH, strict=True))
    assert theta["alpha1"] == pytest.approx(truth["alpha1"], rel=0.05)
    assert theta["fc1"] == pytest.approx(truth["fc1"] + 1.0, rel=0.02)
