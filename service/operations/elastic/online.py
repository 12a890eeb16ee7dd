"""Online estimate of an elastic joint over a recording, beside its off-line fit."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rt_core.online.elastic import (
    Deflection,
    ElasticEstimate,
    ElasticHistory,
    ElasticJointEstimator,
    ElasticOnlineSettings,
    follow,
)
from rt_core.types import FloatArray
from service.operations.elastic._prior import NoStartError, OnlineStart, check_start, start_values
from service.operations.elastic.joint import ElasticIdentification, ElasticJointError

#: Frames are not evenly sampled if mean and median step differ by more than this share.
_EVEN = 0.01
#: Start values are this far off the off-line ones, up and down in turn: results are found, not copied.
START_ERROR = 0.3


@dataclass(frozen=True)
class OnlineResult:
    """Course of the online estimate: `reference` are the off-line values, `start` its own start values."""

    history: ElasticHistory
    last: ElasticEstimate
    reference: Mapping[str, float]
    start: Mapping[str, float]
    settings: ElasticOnlineSettings

    def facts(self) -> list[tuple[str, str]]:
        """Return what was done, as pairs of name and value."""
        last, settings = self.last, self.settings
        rule = f"variable, alpha {settings.alpha:g}, beta {settings.beta:g}"
        if settings.constant is not None:
            rule = f"{settings.constant:g}, constant"
        counts = f"{last.updates} updates, {last.masked} frames masked, {last.gaps} gaps, {last.rejected} rows rejected"
        return [("online: forgetting", rule), ("online: frames", f"{last.frames}: {counts}")]

    @property
    def warning(self) -> str | None:
        """Return why the estimate must not be used, if so."""
        return None if self.last.valid else f"online: not valid: {self.last.reason}"

    def document(self) -> dict[str, Any]:
        """Return the result as plain data, for `--json`."""
        return {"start": dict(self.start), **estimate_document(self.last)}


def estimate_document(estimate: ElasticEstimate) -> dict[str, Any]:
    """Return an estimate as plain data; unknown values are null."""
    fields = ("value", "unit", "std", "lower", "upper", "status", "reason")
    sides = ("motor", "sensor")[: estimate.innovation.size]

    def by_side(values: FloatArray) -> dict[str, float | None]:
        known = zip(sides, values.tolist(), strict=True)
        return {side: value if math.isfinite(value) else None for side, value in known}

    return {
        "parameters": {q.name: {k: getattr(q, k) for k in fields} for q in estimate.parameters},
        "excited": {q.name: flag for q, flag in zip(estimate.parameters, estimate.excited, strict=True)},
        "valid": estimate.valid, "changing": estimate.changing, "reason": estimate.reason, "lam": estimate.lam,
        "relative_error": estimate.relative_error, "innovation": by_side(estimate.innovation),
        "sigma": by_side(estimate.sigma), "delay_s": estimate.delay_s,
        **{name: getattr(estimate, name) for name in ("frames", "masked", "gaps", "rejected", "updates")},
    }  # fmt: skip


def follow_online(result: ElasticIdentification, constant: float | None = None) -> OnlineResult:
    """Run the online estimator over the recording, started 30 % off the off-line values.

    `constant` is a constant forgetting factor in place of the variable one. Raises `ElasticJointError` if the stage
    left friction out, there is nothing to start from, or lag or zero of the encoders are open.
    """
    try:
        check_start(result.found)
    except NoStartError as error:
        raise ElasticJointError(error.message, error.parameter) from error
    begin = OnlineStart(**result.document["online_start"])
    signals, fit, recording = result.signals, result.answer.fit, result.signals.recording
    known = {q.name: q.value for q in result.answer.parameters if q.value is not None}
    start = start_values(fit, known, START_ERROR)
    settings = begin.settings(constant)
    try:
        deflection = Deflection(begin.lag_s, begin.zero, begin.errors)
        estimator = ElasticJointEstimator(signals.drive, start, _rate(recording.t), settings, deflection)
    except ValueError as error:
        raise ElasticJointError(f"no online estimate from this recording: {error}") from error
    torque = signals.motor_torque
    if recording.valid is not None:  # a frame with a value that is not finite is left out
        torque = np.where(recording.valid[:, signals.index], torque, np.nan)
    sensor = signals.sensor_torque if estimator.sensor else None
    history = follow(estimator, recording.t, signals.theta_in, signals.theta_out, torque, sensor)
    reference = {name: value for name, value in known.items() if name in start}
    return OnlineResult(history, estimator.report(), reference, start, settings)


def _rate(t: FloatArray) -> float:
    """Return the rate of frames at `t` (N,) [1/s]; `ValueError` if uneven, but for missing ones."""
    steps = np.diff(t)
    steps = steps[steps > 0.0]
    step = float(np.median(steps))
    mean = float(np.mean(steps[steps < 1.5 * step]))
    if abs(mean - step) > _EVEN * step:
        raise ValueError(
            f"frames are {step:.4g} s apart in most cases but {mean:.4g} s in the mean: it takes evenly sampled frames"
        )
    return 1.0 / step
