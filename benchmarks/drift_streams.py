"""Streams of estimates that do not drift, for the rate of false alarms of the detector of slow drift.

The errors of an estimate are Ornstein-Uhlenbeck processes with the estimator's memory as correlation time.  They are as
much larger than stated as the detector allows for, and all that differs would matter: then, and with a model that is
known much better than the estimate, its parameters alarm at the stated rate and not only less often.  Residuals come in
blocks of independent rows, ten a second.  A model is in use for an hour, or until it is said to have drifted.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np

from rt_core.jit import jit
from rt_core.model.friction import LAW_COULOMB
from rt_core.online.monitors import drift_kernels as drift
from rt_core.online.monitors.drift import DriftDetector, DriftSettings, Watched
from rt_core.types import FloatArray

MEMORY_S, UPDATE_S, MODEL_S = 120.0, 0.01, 3600.0
ROWS_HZ = 10.0  # independent rows of a residual
PARAMETERS, JOINTS = 58, 6
#: So that a difference of one standard deviation, as stated, moves the torque by five times its noise.
EFFECT = 5.0


def detector(stated_hours: float, look_s: float) -> DriftDetector:
    """The detector with its own settings, but for the rate."""
    names = tuple(f"fc{k + 1}" for k in range(PARAMETERS))
    joints = tuple(f"joint_{j + 1}" for j in range(JOINTS))
    layout = SimpleNamespace(law=np.full(PARAMETERS, LAW_COULOMB), source=np.arange(PARAMETERS) % JOINTS)
    settings = DriftSettings(false_alarm_hours=stated_hours)
    return DriftDetector(Watched(names, joints, layout), MEMORY_S, UPDATE_S, settings, look_s)  # type: ignore[arg-type]


@jit
def _alarms(
    rng: Any, looks: int, look_s: float, model_looks: int, block_looks: int, wider: float, model_std: float,
    limits: FloatArray, residual_limits: FloatArray, settled_s: float, shape: float, joints: int, parameters: int,
) -> tuple[int, int]:  # fmt: skip
    """Count what parameters and residuals alarm in `looks` looks; everything in stated standard deviations."""
    keep = np.exp(-look_s / MEMORY_S)
    fresh = np.sqrt(1.0 - keep * keep)
    error, estimate, compared = np.zeros(parameters), np.ones((5, parameters)), np.zeros((7, parameters))
    estimate[drift.SCALE], compared[drift.VARIANCE] = EFFECT, model_std * model_std
    residuals = np.zeros((5, joints))
    residuals[drift.LEVEL] = 1.0
    by_parameters = by_residuals = 0
    age = model_looks
    for k in range(looks):
        if age >= model_looks:
            age = 0
            for c in range(parameters):
                compared[drift.MODEL, c] = wider * model_std * rng.standard_normal()
                error[c] = wider * rng.standard_normal()
            compared[drift.EXCITED_S] = compared[drift.BEYOND_S] = compared[drift.DRIFTED] = 0.0
            residuals[: drift.LEVEL] = 0.0
        age += 1
        for c in range(parameters):
            error[c] = keep * error[c] + fresh * wider * rng.standard_normal()
            estimate[drift.THETA, c] = error[c]
        moved = drift.look(estimate, look_s, settled_s, limits, compared)
        risen = False
        if k % block_looks == 0:
            for j in range(joints):
                mean_square = rng.standard_gamma(shape) / shape
                risen = drift.take_block(residuals[:, j], mean_square, residual_limits) or risen
        by_parameters += moved
        by_residuals += risen and not moved
        if moved or risen:
            age = model_looks
    return by_parameters, by_residuals


def alarms(hours: float, stated_hours: float, model_std: float, look_s: float, seed: int) -> tuple[int, int]:
    """Alarms of parameters and of residuals in `hours` of estimates that do not drift.

    `model_std` is the model's standard deviation in those of the estimate.
    """
    watched = detector(stated_hours, look_s)
    s = watched.settings
    return _alarms(
        np.random.default_rng(seed), round(hours * 3600.0 / look_s), look_s, round(MODEL_S / look_s),
        round(s.block_s / look_s), s.narrow, model_std, watched.limits, watched.residual_limits, s.settled_s,
        0.5 * ROWS_HZ * s.block_s, JOINTS, PARAMETERS,
    )  # fmt: skip
