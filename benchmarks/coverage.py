"""Do stated 95 % intervals hold the truth? Simulated arm, many experiments, every estimator.

An experiment has a motion and a noise of its own.  The torque's noise is white noise of the sensor plus correlated
noise (first-order autoregressive, correlation time 30 ms) of twice its strength, as ripple and unmodelled effects
leave; positions are quantised; everything passes the same filters as a recording would.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from multiprocessing import get_context
from typing import Any

import numpy as np
from scipy import signal

from drivers.robot_file import load_robot
from rt_core.batch.identify import identify
from rt_core.batch.preprocess import SignalSettings, prepare
from rt_core.model.base import BaseParameters, base_parameters
from rt_core.model.parameters import standard_parameters
from rt_core.model.robot import RobotModel
from rt_core.online import OnlineEstimator, OnlineSettings
from sim_backend.robot import SimulatedArm
from sim_backend.settings import MotionSettings, SimSettings

QUANTILE_95 = 1.959964
TARGET = (0.90, 0.98)
_CORRELATION_S = 0.03
_CORRELATED = 2.0  # strength of the correlated noise, in that of the white one
BATCH = ("ols", "wls", "iwls")


@lru_cache
def _arm(robot: str) -> tuple[RobotModel, BaseParameters, np.ndarray]:
    model = load_robot(robot).model
    base = base_parameters(model)
    return model, base, base.theta(standard_parameters(model, base.standard))


def correlated_noise(rng: np.random.Generator, count: int, rate_hz: float, std: np.ndarray) -> np.ndarray:
    """(count, n) autoregressive noise of standard deviation `std` (n,)."""
    a = np.exp(-1.0 / (_CORRELATION_S * rate_hz))
    white = rng.standard_normal((count + round(10 * _CORRELATION_S * rate_hz), std.size))
    coloured = signal.lfilter([np.sqrt(1.0 - a * a)], [1.0, -a], white, axis=0)[-count:]
    return np.asarray(coloured * std)


def experiment(robot: str, seed: int, seconds: float) -> dict[str, np.ndarray]:
    """Which parameters (p,) each method's intervals hold, in one experiment."""
    model, base, truth = _arm(robot)
    settings = SignalSettings(min_velocity=model.standstill_velocity)
    data = SimulatedArm(model, SimSettings(seed=seed), MotionSettings(seed=seed), seed=seed).simulate(seconds)
    q, dq, tau = (data.channels[name] for name in ("q", "dq", "tau"))
    white = np.std(tau - data.tau, axis=0)
    tau = tau + correlated_noise(np.random.default_rng(seed + 10_000), tau.shape[0], 1000.0, _CORRELATED * white)
    estimator = OnlineEstimator(model, OnlineSettings(), 1000.0, has_dq=True, base=base)
    for k in range(data.t.size):
        estimator.step(round(data.t[k] * 1e9), k, q[k], tau[k], None, dq[k])
    report = estimator.report()
    hits = {"online": np.abs(report.theta - truth) <= QUANTILE_95 * report.std}
    signals = prepare(data.t, q, tau, settings, dq=dq)
    for method in BATCH:
        fit = identify(model, base, signals, settings, method=method)
        hits[method] = np.abs(fit.theta - truth) <= QUANTILE_95 * fit.std
    return hits


def pooled_coverage(robot: str = "space6", experiments: int = 200, seconds: float = 40.0) -> dict[str, Any]:
    """Share of true base and friction parameters within their intervals, pooled over experiments."""
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        results = list(pool.map(experiment, *zip(*((robot, seed, seconds) for seed in range(experiments)), strict=True)))
    methods = tuple(results[0])
    inside = {name: np.array([r[name] for r in results]) for name in methods}
    return {
        "robot": robot,
        "experiments": experiments,
        "seconds": seconds,
        "parameters": int(inside[methods[0]].shape[1]),
        "target": TARGET,
        "coverage": {name: float(np.mean(hits)) for name, hits in inside.items()},
        "worst_experiment": {name: float(np.min(np.mean(hits, axis=1))) for name, hits in inside.items()},
        "worst_parameter": {name: float(np.min(np.mean(hits, axis=0))) for name, hits in inside.items()},
    }
