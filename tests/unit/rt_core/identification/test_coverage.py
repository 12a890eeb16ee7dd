"""Stated intervals hold the truth as often as they say: noise correlated in time, filtered, on a fixed motion."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import signal

from benchmarks.coverage import summary
from rt_core.identification.estimate import EstimatorOptions, estimate
from rt_core.identification.preprocess import SignalSettings, prepare
from rt_core.model.base import base_parameters
from rt_core.model.parameters import standard_parameters
from rt_core.model.robot import RobotModel
from rt_core.online import OnlineEstimator, OnlineSettings
from sim_backend.arm.robot import SimulatedArm, SimulatedData
from sim_backend.arm.settings import MotionSettings, SimSettings
from tests.lab.arms.simulated import random_arm

RATE = 200.0
RUNS = 16


@pytest.fixture(scope="module")
def experiment() -> tuple[RobotModel, SimulatedData]:
    model = random_arm(2, 33, prismatic=0.0)
    model = replace(model, offset=True)
    arm = SimulatedArm(model, SimSettings(rate_hz=RATE, seed=1), MotionSettings(seed=4, candidates=8))
    return model, arm.simulate(30.0)


def noise(data: SimulatedData, seed: int) -> np.ndarray:
    """White and, twice as strong, autoregressive noise with a correlation time of 30 ms."""
    rng = np.random.default_rng(seed)
    a = np.exp(-1.0 / (0.03 * RATE))
    white, other = rng.standard_normal((2, data.t.size + 200, data.tau.shape[1]))
    slow = signal.lfilter([np.sqrt(1.0 - a * a)], [1.0, -a], other, axis=0)
    return np.asarray(0.5 * (white + 2.0 * slow)[200:])


@pytest.mark.soak
def test_batch_and_online_intervals_hold_the_truth(experiment: tuple[RobotModel, SimulatedData]) -> None:
    """Some combinations are poorly excited here: what holds on to them online must not pass for information."""
    model, data = experiment
    base = base_parameters(model)
    truth = base.theta(standard_parameters(model, base.standard))
    settings = SignalSettings(min_velocity=model.standstill_velocity)
    q = data.channels["q"]
    found: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {name: [] for name in ("wls", "online")}
    for seed in range(RUNS):
        tau = data.tau + noise(data, seed)
        fit = estimate(model, base, prepare(data.t, q, tau, settings), settings, EstimatorOptions(method="wls"))
        found["wls"].append((fit.theta - truth, fit.std))
        estimator = OnlineEstimator(model, OnlineSettings(update_hz=50.0, memory_s=60.0), RATE, base=base)
        for k, t in enumerate(data.t):
            estimator.step(round(t * 1e9), k, q[k], tau[k])
        report = estimator.report()
        found["online"].append((report.theta - truth, report.std))
    for name, runs in found.items():
        errors, std = (np.array([run[k] for run in runs]) for k in (0, 1))
        held = summary(errors, std)
        assert held["known"] == 1.0
        assert 0.88 <= held["coverage"] <= 0.995, name  # 17 parameters, strongly correlated, 16 times
        assert held["worst_parameter"] > 0.7, name
        assert 0.7 < held["width"] < 1.5, name


def test_the_summary_counts_what_is_stated() -> None:
    errors = np.array([[0.1, 3.0, 1.0], [1.9, 0.0, 2.0]])
    std = np.array([[1.0, 1.0, np.inf], [1.0, 1.0, 1.0]])
    got = summary(errors, std)
    assert got["coverage"] == pytest.approx(3 / 5)
    assert got["known"] == pytest.approx(5 / 6)
    assert (got["worst_parameter"], got["worst_experiment"]) == (0.0, 0.5)
