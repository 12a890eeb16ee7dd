"""Do stated 95 % intervals hold the truth? Simulated arms, many experiments, every estimator.

An experiment has a motion and a noise of its own.  The torque's noise is white noise of the sensor plus correlated
noise (first-order autoregressive, correlation time 30 ms) of twice its strength, as ripple and unmodelled effects
leave; positions are quantised; everything passes the same filters as a recording would.

On the arm with Stribeck friction the search does not know the velocity constants; the online estimator has them, as
from an earlier batch model.  A parameter that an estimator calls unknown (infinite standard deviation) is not counted.
"""

import os
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from multiprocessing import get_context
from typing import Any

import numpy as np
from scipy import signal

from drivers.files.robots.file import load_robot
from rt_core.identification.estimate import EstimatorOptions, estimate
from rt_core.identification.methods import Linear
from rt_core.identification.preprocess import SignalSettings, prepare
from rt_core.model.base import BaseParameters, base_parameters
from rt_core.model.parameters import friction_constants, standard_parameters, with_constants
from rt_core.model.robot import RobotModel
from rt_core.online import OnlineEstimator, OnlineSettings
from rt_core.statistics import NORMAL_QUANTILE_95
from rt_core.types import FloatArray
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import MotionSettings, SimSettings

TARGET = (0.90, 0.98)
_RATE_HZ = 1000.0
_CORRELATION_S = 0.03
_CORRELATED = 2.0  # strength of the correlated noise, in that of the white one

_LINEAR: tuple[Linear, ...] = ("ols", "wls", "iwls")
#: Robot, and the batch methods tried on it.
ARMS: dict[str, dict[str, EstimatorOptions]] = {
    "space6": {name: EstimatorOptions(method=name) for name in _LINEAR},
    "space6_stribeck": {"pso_lm": EstimatorOptions(method="pso_lm", formulation="separable")},
}


@lru_cache
def _arm(robot: str) -> tuple[RobotModel, BaseParameters, FloatArray]:
    model = load_robot(robot).model
    base = base_parameters(model)
    return model, base, base.theta(standard_parameters(model, base.standard))


def correlated_noise(rng: np.random.Generator, count: int, rate_hz: float, std: FloatArray) -> FloatArray:
    """(count, n) autoregressive noise of standard deviation `std` (n,)."""
    a = np.exp(-1.0 / (_CORRELATION_S * rate_hz))
    white = rng.standard_normal((count + round(10 * _CORRELATION_S * rate_hz), std.size))
    coloured = signal.lfilter([np.sqrt(1.0 - a * a)], [1.0, -a], white, axis=0)[-count:]
    return np.asarray(coloured * std)


def experiment(robot: str, seed: int, seconds: float) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Error and standard deviation of each method in one experiment, of all parameters (p,).

    Under "<method> constants" the two are 0 or 2, for a constant inside or outside its interval, and 1; infinite where
    it is called undetermined.
    """
    model, base, truth = _arm(robot)
    settings = SignalSettings(min_velocity=model.standstill_velocity)
    arm = SimulatedArm(model, SimSettings(seed=seed, rate_hz=_RATE_HZ), MotionSettings(seed=seed), seed=seed)
    data = arm.simulate(seconds)
    q, dq, tau = (data.channels[name] for name in ("q", "dq", "tau"))
    white = np.std(tau - data.tau, axis=0)
    tau = tau + correlated_noise(np.random.default_rng(seed + 10_000), tau.shape[0], _RATE_HZ, _CORRELATED * white)
    estimator = OnlineEstimator(model, OnlineSettings(), _RATE_HZ, has_dq=True, base=base)
    for k in range(data.t.size):
        estimator.step(round(data.t[k] * 1e9), k, q[k], tau[k], None, dq[k])
    report = estimator.report()
    found = {"online": (report.theta - truth, report.std)}
    signals = prepare(data.t, q, tau, settings, dq=dq)
    constants = friction_constants(model)
    unknown = with_constants(model, dict.fromkeys(constants, 0.0))
    start = base_parameters(unknown) if constants else base
    for method, options in ARMS[robot].items():
        fit = estimate(unknown, start, signals, settings, options)
        true_theta = fit.base.theta(standard_parameters(model, fit.base.standard))
        found[method] = (fit.theta - true_theta, fit.std)
        if fit.constants:
            outside, known = [], []
            for c in fit.constants:
                field, joint = constants[c.name]
                outside.append(not c.lower <= getattr(model.dynamics, field)[joint] <= c.upper)
                known.append(c.status in ("determined", "weak"))
            found[f"{method} constants"] = (2.0 * np.array(outside), np.where(known, 1.0, np.inf))
    return found


def summary(errors: FloatArray, std: FloatArray) -> dict[str, float]:
    """Coverage over experiments (E, p): pooled, of the worst parameter and experiment; and how wide intervals are.

    `width` is the median over parameters of the mean standard deviation over the root-mean-square error.
    """
    known = np.isfinite(std)
    inside = known & (np.abs(errors) <= NORMAL_QUANTILE_95 * std)
    per_parameter, per_experiment = (
        inside.sum(axis)[known.any(axis)] / known.sum(axis)[known.any(axis)] for axis in (0, 1)
    )
    whole = known.all(axis=0)
    width = np.nan
    if whole.any():
        spread = np.sqrt((errors[:, whole] ** 2).mean(axis=0))
        width = float(np.median(std[:, whole].mean(axis=0) / np.maximum(spread, 1e-300)))
    return {
        "coverage": float(inside.sum() / max(known.sum(), 1)),
        "known": float(known.mean()),
        "worst_parameter": float(per_parameter.min(initial=1.0)),
        "worst_experiment": float(per_experiment.min(initial=1.0)),
        "width": width,
    }


def pooled_coverage(experiments: int = 200, seconds: float = 40.0, *, quick: bool = False) -> dict[str, Any]:
    """Share of true parameters within their intervals, for every method on every arm; a tenth of it if `quick`."""
    if quick:
        experiments = max(experiments // 10, 1)
    jobs = [(robot, seed, seconds) for robot in ARMS for seed in range(experiments)]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        results = list(pool.map(experiment, *zip(*jobs, strict=True)))
    methods: dict[str, dict[str, dict[str, float]]] = {}
    for number, robot in enumerate(ARMS):
        own = results[number * experiments : (number + 1) * experiments]
        methods[robot] = {name: summary(*(np.array([r[name][k] for r in own]) for k in (0, 1))) for name in own[0]}
    return {
        "experiments": experiments,
        "seconds": seconds,
        "target": TARGET,
        "arms": methods,
        "missed": [
            f"{robot} {name}"
            for robot, found in methods.items()
            for name, values in found.items()
            if not name.endswith("constants") and not TARGET[0] <= values["coverage"] <= TARGET[1]
        ],
    }


def table(result: dict[str, Any]) -> list[str]:
    """Render lines to print."""
    low, high = result["target"]
    return [
        f"95 % intervals, {robot}, {result['experiments']} experiments of {result['seconds']:g} s: {name} holds "
        f"{100 * v['coverage']:.1f} % of the true values it states "
        f"(worst parameter {100 * v['worst_parameter']:.0f} %, worst experiment {100 * v['worst_experiment']:.0f} %, "
        f"{100 * v['known']:.0f} % stated, std/error {v['width']:.2f}; target {100 * low:g}-{100 * high:g} %)"
        for robot, found in result["arms"].items()
        for name, v in found.items()
    ]
