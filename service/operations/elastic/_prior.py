"""Start of an online estimate of an elastic joint: computed from the off-line fit, kept in `elastic.json`."""

import math
from collections.abc import Mapping

import numpy as np

from drivers.files.table import Finite, NonNegative, Positive, StrictTable
from rt_core.elastic.fit import SpringFit
from rt_core.elastic.identify import ElasticJoint
from rt_core.online.elastic import DeflectionErrors, ElasticOnlineSettings
from rt_core.online.elastic.estimator import NAMES
from rt_core.types import FloatArray

#: Shares of the torque that a parameter moves at its start: without an off-line value, and at least.
_START_EFFECT, _MIN_EFFECT = 0.1, 0.01
#: A frame is wrong that moves so many times faster than this share of the frames.
_FASTER, _RIGHT_SHARE = 3.0, 0.999
_SLOWEST_TOP = 0.5
_TINY = float(np.finfo(np.float64).tiny)


class NoStartError(ValueError):
    """An off-line fit that no online estimate can start from; `parameter` is the cause, if it is a parameter."""

    def __init__(self, message: str, parameter: str = "") -> None:
        super().__init__(f"{parameter}: {message}" if parameter else message)
        self.parameter, self.message = parameter, message


class OnlineStart(StrictTable):
    """The part `online_start` of `elastic.json`.

    `values` are the off-line ones; an undetermined or tiny one is set by its effect on the torque. `shift`, `std` and
    `doubtful` are of `rt_core.online.elastic.DeflectionErrors`, `lag_s` and `zero` of the encoders. `motor_offset` is
    the motor's angle where the joint's is zero, which is subtracted [rad]. The others are settings of the estimator;
    `top_velocity` is three times that of 99.9 % of the recording's frames.
    """

    values: dict[str, Finite]
    shift: dict[str, Finite]
    std: dict[str, NonNegative]
    doubtful: bool
    lag_s: Finite
    zero: Finite
    motor_offset: Finite
    cutoff_hz: Positive
    min_velocity: NonNegative
    smoothing: NonNegative
    top_velocity: Positive

    @property
    def errors(self) -> DeflectionErrors:
        """Return the possible effects of deflection errors on the off-line fit."""
        return DeflectionErrors(self.shift, self.std, self.doubtful)

    def settings(self, constant: float | None) -> ElasticOnlineSettings:
        """Return the estimator's settings; `constant` is a constant forgetting factor in place of the variable one."""
        return ElasticOnlineSettings(
            cutoff_hz=self.cutoff_hz, constant=constant, min_velocity=self.min_velocity, smoothing=self.smoothing,
            top_velocity=self.top_velocity,
        )  # fmt: skip


def check_start(found: ElasticJoint) -> None:
    """Raise `NoStartError` if an online estimate cannot start from these fits of a stage."""
    answer = found.answer
    if found.stage != "viscous":
        raise NoStartError("the online estimate has Coulomb and viscous friction: it takes stage viscous", "stage")
    if answer.verdict == "not_determined":
        raise NoStartError(f"the online estimate starts off-line, and k1 is undetermined there: {answer['k1'].reason}")
    for parameter in answer.parameters:
        if parameter.name in ("lag", "zero") and parameter.value is None:
            raise NoStartError(
                f"the online estimate takes it from off-line, where it is undetermined ({parameter.reason}); give it",
                parameter.name,
            )
    if not np.isfinite(answer.fit.uncertainty.covariance).all():
        raise NoStartError("the data leave a combination of the parameters free: what is known of each cannot be said")


def online_start(
    found: ElasticJoint, *, motor_offset: float, cutoff_hz: float, min_velocity: float, smoothing: float,
    top_velocity: float,
) -> OnlineStart:  # fmt: skip
    """Return the start of an online estimate; raises what `check_start` raises."""
    check_start(found)
    answer, fit = found.answer, found.answer.fit
    errors = deflection_errors(fit, doubtful=answer.verdict == "doubtful")
    values = start_values(fit, {q.name: q.value for q in answer.parameters if q.value is not None})
    unseen = [name for name, value in values.items() if not math.isfinite(value)]
    if unseen:
        raise NoStartError(f"nothing in the data depends on {', '.join(unseen)}")
    return OnlineStart(
        values=values, shift=dict(errors.shift), std=dict(errors.std), doubtful=errors.doubtful,
        lag_s=fit.value("lag") if fit.terms.lag_s is None else fit.terms.lag_s,
        zero=fit.value("zero") if fit.terms.zero is None else fit.terms.zero, motor_offset=motor_offset,
        cutoff_hz=cutoff_hz, min_velocity=min_velocity, smoothing=smoothing, top_velocity=top_velocity,
    )  # fmt: skip


def start_values(fit: SpringFit, known: Mapping[str, float], error: float = 0.0) -> dict[str, float]:
    """Return start values `error` off the `known` ones, up and down in turn; unknown or tiny ones by their size.

    The size moves as much torque as there is: a tiny value would hold its parameter by a tiny spread.
    """
    torque = float(np.sqrt(np.mean(fit.measured**2)))
    start = {}
    for k, name in enumerate(name for name in NAMES if name in fit.names):
        column = fit.rows.Y[:, int(np.count_nonzero(fit.free[: fit.names.index(name)]))]
        size = torque / max(float(np.sqrt(np.mean(column**2))), _TINY)
        # a softening spring could have no stiffness left where it is stretched most
        off = -error if name == "k2" else error * (-1.0) ** k
        value = (1.0 + off) * known.get(name, _START_EFFECT * size)
        start[name] = value if abs(value) >= _MIN_EFFECT * size else float(np.copysign(_MIN_EFFECT * size, value))
    return start


def top_velocity(t: FloatArray, *angles: FloatArray) -> float:
    """Return the velocity [rad/s] that only frames with a wrong angle exceed."""
    step = np.diff(t)
    late = step > 0.0
    with np.errstate(invalid="ignore", over="ignore"):  # frames that are not finite
        speeds = [np.abs(np.diff(angle)[late] / step[late]) for angle in angles]
    known = [speed[np.isfinite(speed)] for speed in speeds]
    top = max((float(np.quantile(speed, _RIGHT_SHARE)) for speed in known if speed.size), default=0.0)
    return max(_FASTER * top, _SLOWEST_TOP)


def deflection_errors(fit: SpringFit, *, doubtful: bool) -> DeflectionErrors:
    """Return the possible effects of deflection, lag and zero on the online estimate: as large as off-line."""
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
