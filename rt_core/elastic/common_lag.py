"""Common lag of the link encoders of an arm, from all of its joints.

A lag appears in the difference of the encoders as `lag*speed`, so that difference is regressed on the torque (the
spring's compliance), the speed of the link, its sign, and a zero for each recording.  This also determines the lag of a
joint whose stiffness is undetermined.  The result is an apparent lag: the joint's viscous friction adds `-N^2*b_in/k`,
of one sign in all joints, so that the encoders' own lag is larger than their mean.  The mean is the random-effects mean
of DerSimonian and Laird (1986) with the interval of Hartung and Knapp (2001), from the scatter of the joints.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from rt_core.elastic.fit import COLLINEAR
from rt_core.elastic.rows import ElasticRows, check_records
from rt_core.identification.least_squares import compress, solve
from rt_core.identification.preprocess import DataError
from rt_core.identification.rows import Rows
from rt_core.identification.uncertainty import estimate_covariance
from rt_core.linear_algebra import lstsq
from rt_core.types import FloatArray, IntArray

_QUANTILE = 0.975
#: Least standard deviation of a lag, as a share of the largest and in seconds, so that weights stay finite.
_SHARPEST, _MIN_S = 1e-6, 1e-15


@dataclass(frozen=True)
class Lag:
    """Apparent lag of a joint's link encoder [s], friction of the joint included, and its standard deviation."""

    value: float
    std: float


@dataclass(frozen=True)
class CommonLag:
    """Mean of the joints' apparent lags [s] with its 95 % interval, and the standard deviation between joints."""

    value: float
    std: float
    lower: float
    upper: float
    between: float


def deflection_lag(records: Sequence[ElasticRows], *, cubic: bool) -> Lag:
    """Estimate the apparent lag of one joint by regression of its deflection on the motor's torque.

    Raises `DataError` if the recordings do not belong together, or do not determine a lag.
    """
    check_records(records)
    Y, shown, t = [], [], []
    piece: list[IntArray] = []
    for k, record in enumerate(records):
        for one in record.pieces:
            zero = [np.full(one.t.size, float(k == i)) for i in range(len(records))]
            torque = [one.motor_torque, one.motor_torque**3] if cubic else [one.motor_torque]
            Y.append(np.stack([one.link_speed(one.t), one.sign, *torque, *zero]))
            shown.append(one.motor - one.link(one.t))
            step = 1.5 / record.rate_hz
            number = 0 if not piece else int(piece[-1][-1]) + 1
            piece.append(number + np.concatenate(([0], np.cumsum(np.diff(one.t) > step))))
            t.append(one.t)
    columns, target = np.concatenate(Y, axis=1), np.concatenate(shown)
    scale = np.linalg.norm(columns, axis=1)
    size = float(np.linalg.norm(target))
    if not (scale > 0.0).all() or not size > 0.0:
        raise DataError("the encoders show no deflection, or the torque is zero")
    unit, count = (columns / scale[:, None])[None], target.size
    flat = np.zeros((count, 1))
    rows = Rows(
        np.concatenate(t), unit, flat, flat, flat, (target / size)[:, None], np.ones((count, 1), dtype=bool),
        np.concatenate(piece), records[0].rate_hz, records[0].band_hz,
    )  # fmt: skip
    solution = solve(compress(unit, rows.tau, rows.use), len(scale), "ols")
    others = unit[0, 1:].T
    left = unit[0, 0] - others @ lstsq(others, unit[0, 0], rcond=1e-9)
    if not solution.supported[0] or float(left @ left) < COLLINEAR:
        raise DataError("speed and torque go together: these data do not tell a lag")
    std = float(estimate_covariance(rows, solution).std[0])
    unscaled = size / float(scale[0])
    return Lag(float(solution.theta[0]) * unscaled, std * unscaled)


def common_lag(lags: Sequence[Lag]) -> CommonLag | None:
    """Pool the lags of the joints; None for fewer than two."""
    k = len(lags)
    if k < 2:
        return None
    value, variance = np.array([lag.value for lag in lags]), np.array([lag.std**2 for lag in lags])
    variance = np.maximum(variance, max(_SHARPEST * float(np.abs(value).max()), _MIN_S) ** 2)
    fixed = 1.0 / variance
    q = float(fixed @ (value - _mean(value, fixed)) ** 2)
    between = max(0.0, (q - (k - 1)) / float(fixed.sum() - (fixed @ fixed) / fixed.sum()))
    weight = 1.0 / (variance + between)
    mean = _mean(value, weight)
    seen = float(weight @ (value - mean) ** 2) / ((k - 1) * float(weight.sum()))
    std = float(np.sqrt(max(seen, 1.0 / float(weight.sum()))))
    half = float(stdtrit(k - 1, _QUANTILE)) * std
    return CommonLag(mean, std, mean - half, mean + half, float(np.sqrt(between)))


def _mean(value: FloatArray, weight: FloatArray) -> float:
    return float(weight @ value / weight.sum())
