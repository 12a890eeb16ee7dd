"""The small arm's motion seen through noisy encoders, for the estimators that are to be less biased by them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from rt_core.identification.least_squares import compress, solve
from rt_core.identification.preprocess import Signals, SignalSettings, prepare
from rt_core.identification.rows import Rows, build_rows
from rt_core.identification.total_least_squares import encoder_noise, noise_covariance
from rt_core.identification.uncertainty import estimate_covariance
from rt_core.model.base import BaseParameters, base_parameters
from rt_core.model.robot import RobotModel
from rt_core.types import BoolArray, FloatArray
from tests.lab.arms.batch import Motion, arm, motion, truth

ENCODER_STD = 2e-3
TORQUE_STD = 0.3
SEEDS = 8
# Far from standstill: noise that turns the sign of a velocity is no noise about a column.
SETTINGS = SignalSettings(min_velocity=np.full(3, 0.25))


@dataclass(frozen=True)
class Experiment:
    """Rows of one noisy recording, instruments from the set trajectory, and the noise in the regressor."""

    signals: Signals
    rows: Rows
    Z: FloatArray
    use: BoolArray
    noise: FloatArray


@lru_cache
def scene() -> tuple[RobotModel, BaseParameters, FloatArray, Motion]:
    model = arm()
    base = base_parameters(model)
    return model, base, truth(model, base), motion(model, 20.0, 500.0)


@lru_cache
def experiment(seed: int) -> Experiment:
    model, base, _, exact = scene()
    rng = np.random.default_rng(seed)
    q = exact.q + ENCODER_STD * rng.standard_normal(exact.q.shape)
    tau = exact.tau + TORQUE_STD * rng.standard_normal(exact.q.shape)
    signals = prepare(exact.t, q, tau, SETTINGS)
    rows = build_rows(model, base, signals, SETTINGS)
    instruments = build_rows(model, base, prepare(exact.t, exact.q, tau, SETTINGS), SETTINGS)
    again = q + encoder_noise(q, rng)
    everywhere = SignalSettings()
    pair = [build_rows(model, base, prepare(exact.t, x, tau, everywhere), everywhere).Y for x in (q, again)]
    coulomb = np.array([name.startswith("fc") for name in base.names])
    use = rows.use & instruments.use
    return Experiment(signals, rows, instruments.Y, use, noise_covariance(pair[0], pair[1], use, coulomb))


def wls_errors() -> Iterator[tuple[FloatArray, FloatArray]]:
    """Error and standard deviation (p,) of weighted least squares on each recording."""
    _, _, theta, _ = scene()
    for seed in range(SEEDS):
        e = experiment(seed)
        found = solve(compress(e.rows.Y, e.rows.tau, e.rows.use), theta.size, "wls")
        yield found.theta - theta, estimate_covariance(e.rows, found).std
