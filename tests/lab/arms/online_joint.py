"""Online estimators of the harmonic-drive joint, and recordings for them."""

from collections.abc import Mapping
from typing import Any

from rt_core.elastic.rows import Drive
from rt_core.online.elastic import (
    Deflection,
    DeflectionErrors,
    ElasticEstimate,
    ElasticJointEstimator,
    ElasticOnlineSettings,
)
from rt_core.types import IntArray
from tests.lab.arms.harmonic_drive import J_IN, RATE, TRUTH, N, Recorded, measured, one_after_the_other, record

#: Initial values that are wrong by 30 %.
WRONG = {name: (0.7 if k % 2 else 1.3) * value for k, (name, value) in enumerate(TRUTH.items())}


def make(
    start: Mapping[str, float] = WRONG,
    rate_hz: float = RATE,
    settings: ElasticOnlineSettings | None = None,
    *,
    errors: DeflectionErrors | None = DeflectionErrors(),  # noqa: B008
    **more: Any,
) -> ElasticJointEstimator:
    return ElasticJointEstimator(Drive(N, J_IN), start, rate_hz, settings, Deflection(errors=errors, **more))


def take(estimator: ElasticJointEstimator, r: Recorded, part: slice | IntArray = slice(None)) -> int:
    sensor = r.sensor_torque[part] if estimator.sensor else None
    return estimator.take(r.t[part], r.theta_in[part], r.theta_out[part], r.motor_torque[part], sensor)


def report(estimator: ElasticJointEstimator, r: Recorded, part: slice | IntArray = slice(None)) -> ElasticEstimate:
    """Report after a recording."""
    take(estimator, r, part)
    return estimator.report()


def twice(seed: int, **experiment: Any) -> Recorded:
    """The motion of `record`, twice in sequence, with noise."""
    clean = record(None, **experiment)
    return measured(one_after_the_other(clean, clean), seed)
