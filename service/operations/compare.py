"""Comparison of all estimators on the same simulated truth: noise, outliers, bad starts, many seeds.

Every seed makes one exciting motion to learn from and an independent one for the evaluation. Predictions are compared
with the torque of the second motion without noise, so that the figure is the method's own error. The evaluation follows
Jing et al. 2025 (Actuators 14, 497) and Zhang et al. 2025 (J. Mechanical Transmission 06): torque error, parameter
error, time and success.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from rt_core.identification.estimate import EstimatorOptions, disturb, estimate
from rt_core.identification.methods import COMPARABLE, NETWORKS, ONLINE, Method
from rt_core.identification.preprocess import DataError, Signals, SignalSettings, prepare
from rt_core.identification.rows import Rows, build_rows
from rt_core.model.base import BaseParameters, base_parameters, link_torque
from rt_core.model.parameters import friction_constants, standard_parameters, with_constants
from rt_core.model.regressor import regressor_columns
from rt_core.model.robot import RobotModel
from rt_core.online import OnlineEstimator, OnlineSettings
from rt_core.types import BoolArray, FloatArray
from service.operations import comparators
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import MotionSettings, PieceSettings, SimSettings

BURST = 30  # samples of one burst of outliers
OUTLIER_SIZE = 10.0  # standard deviations of the noise
_RATE_HZ = 1000.0
_VALIDATION_SEED = 1000
_NETWORK_ROWS = 4000
_SLOW_AMPLITUDE = 0.1  # of the slow motion, in its joints' ranges
_NO_ADAPTATION = 1e-12  # forgetting that never quickens: plain RLS


@dataclass(frozen=True)
class Conditions:
    """Input of all methods."""

    seconds: float = 40.0  # length of the motion to identify from [s]
    validation_s: float = 20.0  # length of the motion to validate on [s]
    slow_s: float = 0.0  # length of a slow continuation of the first, with many passes through low speeds [s]
    noise: FloatArray | None = None  # (n,) standard deviation, of torque [N*m]; None: the simulated sensors' own
    outliers: float = 0.0  # share of each joint's training torques in bursts of ten standard deviations


@dataclass(frozen=True)
class Trial:
    """One method on one seed.

    `torque_error` (n,) is the rms of the error against the noise-free torque [N*m], `rmse` and `R` (n,) compare with
    the noisy torque; `parameter_error` is relative, in units of torque, None for a network; `success`: the torque error
    of every joint is below the noise. `constants` has for each friction constant whether it was called determined and
    whether its interval holds the truth. `failure` is the reason why there is no result.
    """

    method: str
    seed: int
    torque_error: FloatArray
    rmse: FloatArray
    R: FloatArray
    parameter_error: float | None
    seconds: float
    success: bool
    constants: dict[str, dict[str, Any]]
    failure: str = ""


class Scene:
    """The two motions of one seed."""

    def __init__(self, model: RobotModel, base: BaseParameters, conditions: Conditions, seed: int) -> None:
        self.truth, self.base, self.conditions, self.seed = model, base, conditions, seed
        self.phi = standard_parameters(model, base.standard)
        self.theta = base.theta(self.phi)
        noise = conditions.noise
        sensors = SimSettings(seed=seed) if noise is None else SimSettings(seed=seed, torque_noise=tuple(noise))
        training, validation = (
            SimulatedArm(model, sensors, motion, seed=motion.seed).simulate(duration)
            for motion, duration in (
                (_exciting(conditions, seed), conditions.seconds + conditions.slow_s),
                (MotionSettings(seed=seed + _VALIDATION_SEED), conditions.validation_s),
            )
        )
        self.noise = np.std(training.channels["tau"] - training.tau, axis=0)
        self.t = training.t
        self.q, self.dq = training.channels["q"], training.channels["dq"]
        rng = np.random.default_rng([seed, 1])
        self.tau = training.channels["tau"] + bursts(rng, training.tau.shape, conditions.outliers) * self.noise
        self.settings = SignalSettings(min_velocity=model.standstill_velocity)
        self.moving: BoolArray = np.abs(validation.dq) > model.standstill_velocity
        self.states = (validation.q, validation.dq, validation.ddq)
        self.exact, self.noisy = validation.tau, validation.channels["tau"]

    @cached_property
    def signals(self) -> Signals:
        """Filtered signals of the training motion."""
        return prepare(self.t, self.q, self.tau, self.settings, dq=self.dq)

    @cached_property
    def disturbed(self) -> Signals:
        """Signals with as much noise again on position and velocity."""
        q, dq = disturb(self.q, self.seed), disturb(self.dq, self.seed + 1)
        return prepare(self.t, q, self.tau, self.settings, dq=dq)

    @property
    def start_model(self) -> RobotModel:
        """Prior knowledge of a method: the arm without its friction constants."""
        names = friction_constants(self.truth)
        return with_constants(self.truth, dict.fromkeys(names, 0.0)) if names else self.truth

    def predict(self, model: RobotModel, base: BaseParameters, theta: FloatArray) -> FloatArray:
        """Return the torque (N, n) of a model along the validation motion."""
        load = link_torque(model, base, theta, *self.states) if base.layout.has_load else None
        Y = regressor_columns(model, base.layout, *self.states, load=load)
        return np.asarray(np.einsum("npk,p->kn", Y, theta))

    def parameter_error(self, theta: FloatArray) -> float:
        """Return the relative error of base parameters, weighed by the torque they move along the validation motion."""
        load = link_torque(self.truth, self.base, self.theta, *self.states) if self.base.layout.has_load else None
        Y = regressor_columns(self.truth, self.base.layout, *self.states, load=load)
        effect = np.sqrt((Y**2).sum(axis=(0, 2)))
        return float(np.linalg.norm(effect * (theta - self.theta)) / np.linalg.norm(effect * self.theta))


def _exciting(conditions: Conditions, seed: int) -> MotionSettings:
    if conditions.slow_s == 0.0:
        return MotionSettings(seed=seed)
    slow = PieceSettings(duration_s=conditions.slow_s, amplitude=_SLOW_AMPLITUDE)
    segments = (PieceSettings(duration_s=conditions.seconds), slow)
    return MotionSettings(kind="schedule", seed=seed, segments=segments)


def bursts(rng: np.random.Generator, shape: tuple[int, ...], share: float) -> FloatArray:
    """Return outliers (N, n) in units of the noise: bursts of one sign at random places, `share` of each column."""
    out = np.zeros(shape)
    count = round(share * shape[0] / BURST)
    for j in range(shape[1]):
        starts = rng.choice(shape[0] // BURST, count, replace=False) * BURST
        for start, sign in zip(starts, rng.choice((-1.0, 1.0), count), strict=True):
            out[start : start + BURST, j] = OUTLIER_SIZE * sign
    return out


def run_trial(scene: Scene, method: str) -> Trial:
    """Fit one method to a scene's training motion and evaluate it on the other; a refusal is a result, too."""
    n = scene.truth.n
    try:
        predicted, theta, seconds, constants = _fit(scene, method)
    except (DataError, comparators.ComparatorError, FloatingPointError) as refusal:
        empty = np.full(n, np.nan)
        return Trial(method, scene.seed, empty, empty, empty, None, np.nan, False, {}, str(refusal))
    use = scene.moving
    count = use.sum(axis=0)
    error = np.sqrt(((predicted - scene.exact) ** 2 * use).sum(axis=0) / count)
    rmse = np.sqrt(((predicted - scene.noisy) ** 2 * use).sum(axis=0) / count)
    R = np.array([np.corrcoef(predicted[use[:, j], j], scene.noisy[use[:, j], j])[0, 1] for j in range(n)])
    parameter = None if theta is None else scene.parameter_error(theta)
    success = bool((error < scene.noise).all())
    return Trial(method, scene.seed, error, rmse, R, parameter, seconds, success, constants)


Fitted = tuple[FloatArray, FloatArray | None, float, dict[str, dict[str, Any]]]


def _fit(scene: Scene, method: str) -> Fitted:
    if method in ONLINE:
        return _online(scene, method)
    if method in NETWORKS:
        return _network(scene, method)
    full = method.startswith("full:")
    options = EstimatorOptions(
        method=cast(Method, method.removeprefix("full:")), formulation="full" if full else "separable", seed=scene.seed,
    )  # fmt: skip
    signals = replace(scene.signals, disturbed=scene.disturbed if method == "tls" else None)
    began = time.perf_counter()
    found = estimate(scene.start_model, scene.base, signals, scene.settings, options)
    seconds = time.perf_counter() - began
    truth = friction_constants(scene.truth)
    constants = {}
    for c in found.constants:
        source, joint = truth[c.name]
        true = float(getattr(scene.truth.dynamics, source)[joint])
        constants[c.name] = {
            "truth": true, "value": c.value, "status": c.status, "inside": bool(c.lower <= true <= c.upper),
        }  # fmt: skip
    predicted = scene.predict(found.model, found.base, found.theta)
    return predicted, found.theta, seconds, constants


def _online(scene: Scene, method: str) -> Fitted:
    """Return the online estimate at the end of the motion, given the true friction constants."""
    settings = (
        OnlineSettings(alpha=_NO_ADAPTATION, excess_on=1.0 / _NO_ADAPTATION) if method == "rls" else OnlineSettings()
    )
    estimator = OnlineEstimator(scene.truth, settings, _RATE_HZ, has_dq=True, base=scene.base)
    estimator.warm_up()
    began = time.perf_counter()
    for k in range(scene.t.size):
        estimator.step(round(scene.t[k] * 1e9), k, scene.q[k], scene.tau[k], None, scene.dq[k])
    seconds = time.perf_counter() - began
    theta = estimator.theta
    return scene.predict(scene.truth, scene.base, theta), theta, seconds, {}


def _network(scene: Scene, method: str) -> Fitted:
    rows: Rows = build_rows(scene.start_model, scene.base, scene.signals, scene.settings)
    pick = np.unique(np.linspace(0, rows.t.size - 1, min(rows.t.size, _NETWORK_ROWS)).astype(np.int64))
    pick = pick[rows.use[pick].all(axis=1)]
    x = np.hstack((rows.q, rows.dq, rows.ddq))[pick]
    began = time.perf_counter()
    network = comparators.fit(method, x, rows.tau[pick], seed=scene.seed)
    seconds = time.perf_counter() - began
    return network.predict(np.hstack(scene.states)), None, seconds, {}


@dataclass(frozen=True)
class Comparison:
    """All trials, and their statistics."""

    model: RobotModel
    conditions: Conditions
    noise: FloatArray
    trials: tuple[Trial, ...]

    def of(self, method: str) -> tuple[Trial, ...]:
        """Return the trials of one method."""
        return tuple(t for t in self.trials if t.method == method)

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods in the order of the request."""
        return tuple(dict.fromkeys(t.method for t in self.trials))

    def total_error(self, trial: Trial) -> float:
        """Return the torque error over all joints, each in units of its noise."""
        return float(np.sqrt(np.mean((trial.torque_error / self.noise) ** 2)))

    def summary(self, method: str) -> dict[str, Any]:
        """Return medians over the seeds of one method; None where it never gave a result."""
        trials = self.of(method)
        done = [t for t in trials if not t.failure]
        out: dict[str, Any] = {
            "method": method, "seeds": len(trials), "failed": len(trials) - len(done),
            "success_rate": sum(t.success for t in trials) / len(trials),
            "failure": next((t.failure for t in trials if t.failure), None),
        }  # fmt: skip
        if not done:
            return out | dict.fromkeys(
                ("error_in_noise", "torque_error", "rmse", "R", "least_R", "parameter_error", "seconds")
            )
        parameter = [t.parameter_error for t in done if t.parameter_error is not None]
        constants = [c for t in done for c in t.constants.values()]
        determined = [c for c in constants if c["status"] == "determined"]
        return out | {
            "error_in_noise": float(np.median([self.total_error(t) for t in done])),
            "torque_error": np.median([t.torque_error for t in done], axis=0),
            "rmse": np.median([t.rmse for t in done], axis=0), "R": np.median([t.R for t in done], axis=0),
            "least_R": float(min(t.R.min() for t in done)),
            "parameter_error": float(np.median(parameter)) if parameter else None,
            "seconds": float(np.median([t.seconds for t in done])), "constants": len(constants),
            "constants_determined": len(determined), "constants_inside": sum(c["inside"] for c in determined),
        }  # fmt: skip


def check_methods(methods: Sequence[str]) -> None:
    """Raise `DataError` for an unknown method, `ComparatorUnavailableError` for a network that is not installed."""
    for name in methods:
        if name not in COMPARABLE:
            raise DataError(f"unknown method {name!r}; known: {', '.join(COMPARABLE)}")
        reason = comparators.available(name) if name in NETWORKS else None
        if reason is not None:
            raise comparators.ComparatorUnavailableError(reason)


def check_conditions(model: RobotModel, methods: Sequence[str], conditions: Conditions) -> None:
    """Raise `DataError` for conditions without a comparison, `ComparatorUnavailableError` as `check_methods` does."""
    check_methods(methods)
    if not 0.0 <= conditions.outliers < 0.5:
        raise DataError(f"the share of outliers must be at least 0 and below 0.5, not {conditions.outliers}")
    if conditions.noise is not None and conditions.noise.shape != (model.n,):
        raise DataError(f"the noise has {conditions.noise.size} values, robot {model.name} has {model.n} joints")
    if conditions.noise is not None and not (np.isfinite(conditions.noise) & (conditions.noise > 0.0)).all():
        raise DataError("the noise must be finite and above zero at every joint: errors are stated in units of it")
    if model.inertial is None:
        raise DataError(f"robot {model.name} has no link parameters: a simulated truth needs them in its description")


@dataclass(frozen=True)
class SeedTrials:
    """All methods on the scene of one seed; `noise` (n,) is that of its torque [N*m]."""

    seed: int
    noise: FloatArray
    trials: tuple[Trial, ...]


def compare_seed(
    model: RobotModel, methods: Sequence[str], seed: int, conditions: Conditions,
    progress: Callable[[int, str], None] | None = None,
) -> SeedTrials:  # fmt: skip
    """Run all `methods` on one scene; `progress(done, method)` is called before each. Errors as `check_conditions`."""
    check_conditions(model, methods, conditions)
    if progress is not None:
        progress(0, "motions")
    model = model.at_reference_temperature  # all methods have the same friction
    scene = Scene(model, base_parameters(model), conditions, seed)
    trials: list[Trial] = []
    for method in methods:
        if progress is not None:
            progress(len(trials), method)
        trials.append(run_trial(scene, method))
    return SeedTrials(seed, scene.noise, tuple(trials))


def gather(model: RobotModel, conditions: Conditions, seeds: Sequence[SeedTrials]) -> Comparison:
    """Combine seeds that were compared separately."""
    noise = np.zeros(model.n)
    for part in seeds:
        noise = noise + part.noise / len(seeds)
    return Comparison(model, conditions, noise, tuple(trial for part in seeds for trial in part.trials))


def compare(
    model: RobotModel, methods: Sequence[str], seeds: int, conditions: Conditions,
    progress: Callable[[int, int, str], None] | None = None,
) -> Comparison:  # fmt: skip
    """Run all `methods` on the scenes of seeds 1 to `seeds`; `progress(done, of, what)` is called before each trial.

    Errors as `check_conditions`; also `DataError` without a seed.
    """
    if seeds < 1:
        raise DataError(f"at least one seed is needed, not {seeds}")
    parts = []
    for seed in range(1, seeds + 1):

        def report(done: int, what: str, seed: int = seed) -> None:
            if progress is not None:
                progress((seed - 1) * len(methods) + done, seeds * len(methods), f"seed {seed}: {what}")

        parts.append(compare_seed(model, methods, seed, conditions, report))
    return gather(model, conditions, parts)


def comparison_document(result: Comparison) -> dict[str, Any]:
    """Return the comparison as plain data."""
    return {
        "robot": result.model.name,
        "joints": [joint.name for joint in result.model.joints],
        "conditions": {
            "seconds": result.conditions.seconds, "validation_s": result.conditions.validation_s, "noise": result.noise,
            "outliers": result.conditions.outliers,
        },
        "methods": [result.summary(name) for name in result.methods],
        "trials": list(result.trials),
    }  # fmt: skip
