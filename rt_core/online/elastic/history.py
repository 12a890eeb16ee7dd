"""History of the estimate of an elastic joint over a recording."""

import math
from dataclasses import dataclass

import numpy as np

from rt_core.online.elastic.estimator import ElasticJointEstimator
from rt_core.types import BoolArray, FloatArray


@dataclass(frozen=True)
class ElasticHistory:
    """Estimates at K instants.

    `t` (K,) time of the latest row [s]; `value`, `std` (K, p) of the parameters `names`; `determined` (K, p) whether
    they were, and not doubtful; `lam`, `relative_error` (K,) of the latest row; `lower`, `upper` (K, p) 95 %
    intervals, NaN where there are none.
    """

    names: tuple[str, ...]
    t: FloatArray
    value: FloatArray
    std: FloatArray
    determined: BoolArray
    lam: FloatArray
    relative_error: FloatArray
    lower: FloatArray
    upper: FloatArray


def follow(
    estimator: ElasticJointEstimator, t: FloatArray, theta_in: FloatArray, theta_out: FloatArray,
    motor_torque: FloatArray, sensor_torque: FloatArray | None = None, *, every_s: float = 0.1,
) -> ElasticHistory:  # fmt: skip
    """Feed a recording to the estimator and sample its report every `every_s` in which a row was finished.

    Channels (N,) are those of `ElasticJointEstimator.take`.
    """
    step = max(1, round(every_s * estimator.rate_hz))
    found = []
    for start in range(0, t.size, step):
        part = slice(start, start + step)
        sensor = None if sensor_torque is None else sensor_torque[part]
        if estimator.take(t[part], theta_in[part], theta_out[part], motor_torque[part], sensor) == 0:
            continue
        report = estimator.report()
        known = np.array([report.valid and p.status in ("determined", "weak") for p in report.parameters])
        lower, upper = (
            np.array([math.nan if end is None else end for end in ends])
            for ends in zip(*((p.lower, p.upper) for p in report.parameters), strict=True)
        )
        found.append(
            (report.t_s, estimator.theta, estimator.std, known, report.lam, report.relative_error, lower, upper)
        )
    nothing = np.empty((0, len(estimator.names)))
    empty = (np.empty(0), nothing, nothing, nothing > 0.0, np.empty(0), np.empty(0), nothing, nothing)
    return ElasticHistory(estimator.names, *(map(np.array, zip(*found, strict=True)) if found else empty))
