"""Do stated 95 % intervals hold the truth? Simulated arm, many seeds of motion and noise, online and in batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from drivers.robot_file import load_robot
from rt_core.batch.identify import identify
from rt_core.batch.preprocess import SignalSettings, prepare
from rt_core.model.base import base_parameters
from rt_core.model.parameters import standard_parameters
from rt_core.online import OnlineEstimator, OnlineSettings
from sim_backend.robot import SimulatedArm
from sim_backend.settings import MotionSettings, SimSettings

QUANTILE_95 = 1.959964
TARGET = 0.90


def pooled_coverage(robot: str = "space6", seeds: int = 20, seconds: float = 40.0) -> dict[str, Any]:
    """Share of true base and friction parameters within their intervals, pooled over seeds."""
    model = load_robot(robot).model
    base = base_parameters(model)
    truth = base.theta(standard_parameters(model, base.standard))
    settings = SignalSettings(min_velocity=model.standstill_velocity)
    inside: dict[str, list[np.ndarray]] = {"online": [], "batch": []}
    for seed in range(seeds):
        data = SimulatedArm(model, SimSettings(seed=seed), MotionSettings(seed=seed), seed=seed).simulate(seconds)
        q, dq, tau = (data.channels[name] for name in ("q", "dq", "tau"))
        estimator = OnlineEstimator(model, OnlineSettings(), 1000.0, has_dq=True, base=base)
        for k in range(data.t.size):
            estimator.step(round(data.t[k] * 1e9), k, q[k], tau[k], None, dq[k])
        report = estimator.report()
        batch = identify(model, base, prepare(data.t, q, tau, settings, dq=dq), settings)
        for name, theta, std in (("online", report.theta, report.std), ("batch", batch.theta, batch.std)):
            inside[name].append(np.abs(theta - truth) <= QUANTILE_95 * std)
    return {
        "robot": robot,
        "seeds": seeds,
        "seconds": seconds,
        "parameters": len(base),
        "target": TARGET,
        **{name: float(np.mean(hits)) for name, hits in inside.items()},
        "worst_seed": {name: float(np.min(np.mean(hits, axis=1))) for name, hits in inside.items()},
    }
