"""The online estimate of an elastic joint over a recording, beside what was found off-line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rt_core.batch.elastic.fit import SpringFit
from rt_core.online.elastic import (
    DeflectionErrors,
    ElasticEstimate,
    ElasticHistory,
    ElasticJointEstimator,
    ElasticOnlineSettings,
    follow,
)
from rt_core.online.elastic.estimator import NAMES
from rt_core.types import FloatArray
from service.elastic_joint import ElasticIdentification, ElasticJointError

#: Share of the torque that a parameter moves at its start, where off-line has no value, and at the least.
_START_EFFECT, _LEAST_EFFECT = 0.1, 0.01
#: Frames whose mean step is further than this from their median step are no even sampling.
_EVEN = 0.01
#: A frame is wrong that moves so many times faster than this share of the frames.
_FASTER, _RIGHT_SHARE = 3.0, 0.999
_SLOWEST_TOP = 0.5
_TINY = float(np.finfo(np.float64).tiny)
#: Start values are this far off those found off-line, up and down in turn: what is shown is found, not copied.
START_ERROR = 0.3


@dataclass(frozen=True)
class OnlineResult:
    """How the online estimate went: `reference` are the off-line values, `start` those it began with."""

    history: ElasticHistory
    last: ElasticEstimate
    reference: Mapping[str, float]
    start: Mapping[str, float]
    settings: ElasticOnlineSettings

    def facts(self) -> list[tuple[str, str]]:
        """Tell what was done, as pairs of name and value for people."""
        last, settings = self.last, self.settings
        rule = f"variable, alpha {settings.alpha:g}, beta {settings.beta:g}"
        if settings.constant is not None:
            rule = f"{settings.constant:g}, constant"
        counts = f"{last.updates} updates, {last.masked} frames masked, {last.gaps} gaps, {last.rejected} rows rejected"
        facts = [("online: forgetting", rule), ("online: frames", f"{last.frames}: {counts}")]
        return facts

    @property
    def warning(self) -> str | None:
        """Why the estimate must not be used, if so, for people."""
        return None if self.last.valid else f"online: not valid: {self.last.reason}"

    def document(self) -> dict[str, Any]:
        """Plain form, for `--json`."""
        fields = ("value", "unit", "std", "lower", "upper", "status", "reason")
        last = self.last
        return {
            "start": dict(self.start),
            "parameters": {q.name: {k: getattr(q, k) for k in fields} for q in last.parameters},
            "excited": dict(zip(self.history.names, last.excited, strict=True)),
            "valid": last.valid,
            "changing": last.changing,
            "reason": last.reason,
            "updates": last.updates,
            "rejected": last.rejected,
            "delay_s": last.delay_s,
        }


def follow_online(result: ElasticIdentification, constant: float | None = None) -> OnlineResult:
    """Let the online estimator take the recording, started 30 % off the off-line values.

    `constant` is a constant forgetting factor in place of the variable one.

    Raises
    ------
    ElasticJointError
        If the stage left friction out, there is nothing to start from, or lag or zero of the encoders are open.
    """
    if result.found.stage != "viscous":
        raise ElasticJointError("the online estimate has all friction: it takes stage viscous", "stage")
    if not result.accepted:
        raise ElasticJointError(f"the online estimate starts off-line, and {result.summary()}")
    for parameter in result.answer.parameters:
        if parameter.name in ("lag", "zero") and parameter.value is None:
            raise ElasticJointError(
                f"the online estimate takes it from off-line, where it is undetermined ({parameter.reason}); give it",
                parameter.name,
            )
    signals, fit, recording = result.signals, result.answer.fit, result.signals.recording
    known = {q.name: q.value for q in result.answer.parameters if q.value is not None}
    start = _start(fit, known)
    given, chosen = fit.terms, result.document["settings"]
    settings = ElasticOnlineSettings(
        cutoff_hz=chosen["cutoff_hz"],
        constant=constant,
        min_velocity=chosen["min_velocity"],
        smoothing=chosen["smoothing"],
        top_velocity=_top_velocity(recording.t, signals.theta_in / signals.drive.gear_ratio, signals.theta_out),
    )
    try:
        estimator = ElasticJointEstimator(
            signals.drive,
            start,
            _rate(recording.t),
            settings,
            lag_s=fit.value("lag") if given.lag_s is None else given.lag_s,
            zero=fit.value("zero") if given.zero is None else given.zero,
            errors=deflection_errors(fit, doubtful=result.answer.verdict == "doubtful"),
        )
    except ValueError as error:
        raise ElasticJointError(f"no online estimate from this recording: {error}") from error
    torque = signals.motor_torque
    if recording.valid is not None:  # a frame with a value that is not finite is left out
        torque = np.where(recording.valid[:, signals.index], torque, np.nan)
    sensor = signals.sensor_torque if estimator.sensor else None
    history = follow(estimator, recording.t, signals.theta_in, signals.theta_out, torque, sensor)
    reference = {name: value for name, value in known.items() if name in start}
    return OnlineResult(history, estimator.report(), reference, start, settings)


def _start(fit: SpringFit, known: Mapping[str, float]) -> dict[str, float]:
    """Start values: off the `known` ones; where there is none, or next to none, by what it does to the torque.

    The start's spread is its size: one next to zero would hold its parameter there.
    """
    names = [name for name in NAMES if name in fit.names]
    torque = float(np.sqrt(np.mean(fit.measured**2)))
    start = {}
    for k, name in enumerate(names):
        column = fit.rows.Y[:, int(np.count_nonzero(fit.free[: fit.names.index(name)]))]
        size = torque / max(
            float(np.sqrt(np.mean(column**2))), _TINY
        )  # of the value that moves as much torque as there is
        value = (1.0 + START_ERROR * (-1.0) ** k) * known.get(name, _START_EFFECT * size)
        if name == "k2":  # a spring that softens could have no stiffness left where it is stretched most
            value = (1.0 - START_ERROR) * known.get(name, _START_EFFECT * size)
        start[name] = value if abs(value) >= _LEAST_EFFECT * size else float(np.copysign(_LEAST_EFFECT * size, value))
    return start


def _rate(t: FloatArray) -> float:
    """Rate of the frames at `t` (N,) [1/s].

    Raises
    ------
    ValueError
        If they are not evenly sampled, but for those that are missing.
    """
    steps = np.diff(t)
    steps = steps[steps > 0.0]
    step = float(np.median(steps))
    mean = float(np.mean(steps[steps < 1.5 * step]))
    if abs(mean - step) > _EVEN * step:
        raise ValueError(
            f"frames are {step:.4g} s apart in most cases but {mean:.4g} s in the mean: it takes evenly sampled frames"
        )
    return 1.0 / step


def _top_velocity(t: FloatArray, *angles: FloatArray) -> float:
    """Velocity [rad/s] that no frame of the recording has but those with a wrong angle."""
    step = np.diff(t)
    late = step > 0.0
    speeds = [np.abs(np.diff(angle)[late] / step[late]) for angle in angles]
    top = max(float(np.quantile(speed[np.isfinite(speed)], _RIGHT_SHARE)) for speed in speeds)
    return max(_FASTER * top, _SLOWEST_TOP)


def deflection_errors(fit: SpringFit, *, doubtful: bool) -> DeflectionErrors:
    """Return what errors of deflection, lag and zero may do to the online estimate: as much as they did off-line."""
    free = [name for name, is_free in zip(fit.names, fit.free, strict=True) if is_free]
    encoders = [k for k, name in enumerate(free) if name not in NAMES]
    own = [k for k, name in enumerate(free) if name in NAMES]
    covariance = fit.uncertainty.covariance
    variance = np.zeros(len(own))
    if encoders:
        crossed = covariance[np.ix_(own, encoders)]
        made = np.linalg.lstsq(covariance[np.ix_(encoders, encoders)], crossed.T, rcond=None)[0]
        variance = np.maximum((crossed * made.T).sum(axis=1), 0.0)
    inverse = np.where(np.isfinite(fit.inverse), fit.inverse - fit.values, 0.0)
    return DeflectionErrors(
        {name: float(inverse[fit.names.index(name)]) for name in fit.names if name in NAMES},
        {free[k]: float(np.sqrt(v)) for k, v in zip(own, variance, strict=True)},
        doubtful or not np.isfinite(fit.inverse[0]),
    )
