"""Online estimator of one elastic joint: frames in, spring and friction with uncertainties out.

It uses the two rows of the last off-line stage (`rt_core.elastic`), of motor and torque sensor with a common spring, or
the motor's alone.  Lag and zero of the encoders are given by an off-line fit.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rt_core.elastic.fit import COLLINEAR
from rt_core.elastic.identify import CERTAIN_SHARE, UNITS, ElasticParameter
from rt_core.elastic.rows import CONSTANT_SHARE, MAX_LAG_S, MAX_ZERO, Drive
from rt_core.identification.status import RELATIVE_STD_LIMIT, TORQUE_EFFECT_LIMIT, ParameterStatus
from rt_core.online._initial_state import theoretical_inflation
from rt_core.online._state import padded
from rt_core.online.elastic import _layout as m
from rt_core.online.elastic._evidence import Evidence, evidence
from rt_core.online.elastic._filters import elastic_taps
from rt_core.online.elastic._interface import (
    MEASURED,
    Deflection,
    DeflectionErrors,
    ElasticEstimate,
    ElasticOnlineSettings,
)
from rt_core.online.elastic._saved_state import owner_of, saved, take_saved
from rt_core.online.elastic._stream import CHANNELS, restart, take_frames
from rt_core.online.filters import low_pass
from rt_core.online.rls import noise as v
from rt_core.online.rls.information_matrix import triangle_inverse
from rt_core.statistics import NORMAL_QUANTILE_95
from rt_core.types import BoolArray, FloatArray

#: Parameters in the order of the estimate.
NAMES = ("k1", "k2", "b_in", "b_inD", "b_out", "b_outC")
_NEEDED = {"k1", "b_in", "b_inD"}
_SENSOR = {"b_out", "b_outC"}
_SIGNIFICANT = 3.0
_RECENT_S = 0.3
_CHANGE_S = 30.0  # large innovations for longer than this are the new noise level
_CHANGED_S = 0.5  # large innovations for this long are a change ...
_FORGOTTEN = 3.0  # ... not included in the intervals until older data have lost 1 - e^-3 of their weight
_REJECT_S = 0.5  # longest run of rejected outliers, ...
_REJECT_FRAMES = 2.5  # ... or that of this many successive wrong frames; beyond it they are accepted
_RANGE_S = 300.0
_STEP_S = 10.0
_STEP_ERROR = 0.01  # largest relative error of the rate, which is that of all speeds
_FRAMES_PER_PERIOD = 20.0  # of the cut-off; with fewer, reversals between frames bias friction and stiffness
_FEW_OUTLIERS = 0.003  # of the rows; with more, some remain undetected
_RESTS_ON_START = 0.1  # of the initial variance: above it a small value is mostly the initial one
_UNEXPLAINED = 0.25  # mean squared relative error beyond which the model does not explain the torque
_TOGETHER = 0.9  # correlation above which parameters are named together


class ElasticJointEstimator:
    """Square-root recursive least squares with variable forgetting over spring and friction of a joint.

    Parameters
    ----------
    drive : Drive
        Gear ratio; with the rotor's inertia all motion counts, without it only constant speed.
    start : mapping of str to float
        Initial values from an off-line fit or a data sheet: `k1`, `b_in`, `b_inD`; with `k2` the spring is cubic, with
        `b_out` and `b_outC` there is a torque sensor.  Signs and units of `rt_core.elastic.problem`.
    rate_hz : float
        Nominal rate of the frames.
    settings : ElasticOnlineSettings
    deflection : Deflection
        Lag, zero and errors of the deflection from an off-line fit.

    Raises
    ------
    ValueError
        If names or values of the start, lag or zero, or the settings for this rate are impossible.
    """

    def __init__(
        self, drive: Drive, start: Mapping[str, float], rate_hz: float, settings: ElasticOnlineSettings | None = None,
        deflection: Deflection = MEASURED,
    ) -> None:  # fmt: skip
        self.errors = deflection.errors
        self.drive, self.rate_hz = drive, float(rate_hz)
        self.settings = settings = ElasticOnlineSettings() if settings is None else settings
        self.names = _names(start)
        self.sensor = set(self.names) >= _SENSOR
        if not 0.0 < rate_hz < math.inf:
            raise ValueError(f"the frame rate must be positive, not {rate_hz}")
        if not abs(deflection.lag_s) <= MAX_LAG_S:
            raise ValueError(f"lag {deflection.lag_s:g} s: at most {MAX_LAG_S:g} s, either way")
        if not abs(deflection.zero) <= MAX_ZERO:
            raise ValueError(f"zero {deflection.zero:g} rad: at most {MAX_ZERO:g} rad, either way")
        taps = elastic_taps(settings.cutoff_hz, rate_hz, deflection.lag_s)
        factor = max(1, round(rate_hz / settings.update_hz))
        low = low_pass(settings.cutoff_hz, rate_hz)
        p, rows, length, length2 = len(self.names), 2 if self.sensor else 1, taps.shape[1], low.size
        values = np.array([start[name] for name in self.names])
        width = padded(p)
        units = settings.start_spread * np.abs(values)
        self._joint = m.JointArrays(
            s=np.zeros(m.SCALARS), ints=np.zeros(m.INTEGERS, dtype=np.int64),
            kinds=np.array([NAMES.index(name) for name in self.names], dtype=np.int64), taps=taps, low=low,
            ring=np.zeros((CHANNELS, 2 * length)), signals=np.zeros((m.SIGNALS, 2 * length2)), last=np.zeros(CHANNELS),
            theta=np.zeros(p), R=np.zeros((p, width)), short=np.zeros((2, p, width)), level=np.zeros((rows, v.LEVELS)),
            power=np.zeros(p), D=np.zeros((rows + p, width)), scratch=np.zeros((3, width)), units=units,
            start=values / units,
        )  # fmt: skip
        self._s, self._ints, self._level = self._joint.s, self._joint.ints, self._joint.level
        self._owner = owner_of(drive, start, self.rate_hz, settings, deflection)
        updates_hz = rate_hz / factor
        self._ints[m.MAX_EXCESS] = max(1, round(_CHANGE_S * updates_hz))
        self._ints[m.CHANGE_ROWS] = max(1, round(_CHANGED_S * updates_hz))
        self._ints[[m.LENGTH, m.LENGTH2, m.FACTOR, m.ROWS]] = length, length2, factor, rows
        self._ints[m.WINDOW] = max(1, round(settings.excitation_s * rate_hz))
        self._ints[m.MAX_REJECTED] = math.ceil(
            max(_REJECT_S * updates_hz, _REJECT_FRAMES * (length + length2) / factor)
        )
        self._ints[m.BLOCK_ROWS] = max(2, round(v.BLOCK_S * updates_hz))
        self._ints[m.SETTLE_ROWS] = max(1, round(settings.settle_s * updates_hz))
        s = self._s
        s[m.STEP] = s[m.MEAN_STEP] = 1.0 / rate_hz
        s[m.RATIO], s[m.ZERO] = drive.gear_ratio, deflection.zero
        s[m.TOP_VELOCITY] = settings.top_velocity
        s[m.MAX_GAP] = max(settings.max_gap_s or 0.25 / settings.cutoff_hz, 1.5 / rate_hz)
        s[m.MIN_VELOCITY], s[m.SMOOTHING] = settings.min_velocity, settings.smoothing
        if drive.rotor_inertia is None:
            s[m.LIMIT] = CONSTANT_SHARE * settings.cutoff_hz
        else:
            s[m.INERTIA] = drive.rotor_inertia * drive.gear_ratio**2
        s[m.ALPHA], s[m.BETA], s[m.CONSTANT] = settings.alpha, settings.beta, settings.constant or 0.0
        s[m.A_SIGMA] = 1.0 - math.exp(-1.0 / (v.SIGMA_MEMORY_S * updates_hz))
        s[m.A_TORQUE] = 1.0 - math.exp(-1.0 / (v.TORQUE_MEMORY_S * updates_hz))
        s[m.A_RECENT] = 1.0 - math.exp(-1.0 / (_RECENT_S * updates_hz))
        s[m.A_POWER], s[m.A_BLOCK] = s[m.A_SIGMA], 1.0 / v.BLOCK_MEMORY
        s[m.A_RANGE] = 1.0 - math.exp(-1.0 / (_RANGE_S * updates_hz))
        s[m.A_STEP] = 1.0 - math.exp(-1.0 / (_STEP_S * rate_hz))
        s[m.INFLATION] = max(1.0, theoretical_inflation(low, factor))
        self.reset()

    # -- frames ---------------------------------------------------------------------------------

    def take(
        self, t: FloatArray, theta_in: FloatArray, theta_out: FloatArray, motor_torque: FloatArray,
        sensor_torque: FloatArray | None = None,
    ) -> int:  # fmt: skip
        """Process frames at `t` (N,) [s], or one frame; return the number of parameter updates.

        Parameters
        ----------
        theta_in, theta_out : (N,) float64
            Angles of motor, motor side, and link [rad].
        motor_torque : (N,) float64
            `Km*Ia`, on the motor side [N*m].
        sensor_torque : (N,) float64 or None
            Torque of the sensor behind the spring [N*m]; required where the start has its friction.

        A frame with a value that is not finite is left out, and bridged like a missing one.

        Raises
        ------
        ValueError
            If channels differ in length, or the sensor's is missing.
        """
        channels = [np.atleast_1d(np.asarray(c, dtype=np.float64)) for c in (t, theta_in, theta_out, motor_torque)]
        if self.sensor != (sensor_torque is not None):
            has = "has" if self.sensor else "has no"
            raise ValueError(f"this estimator {has} friction of a torque sensor's row: give its torque to match")
        channels.append(
            np.zeros_like(channels[0])
            if sensor_torque is None
            else np.atleast_1d(np.asarray(sensor_torque, dtype=np.float64))
        )
        if len({c.shape for c in channels}) > 1 or channels[0].ndim != 1:
            raise ValueError(f"channels of shapes {', '.join(str(c.shape) for c in channels)}: all must be (N,)")
        N = self.drive.gear_ratio
        x = np.column_stack((channels[1] / N, channels[2], N * channels[3], channels[4]))
        return int(take_frames(self._joint, channels[0], x))

    def restart_stream(self) -> None:
        """Restart the stream with a new clock: clear the filters, keep the parameters."""
        restart(self._joint)

    def reset(self) -> None:
        """Reset the estimate to its initial values, and the count of updates.

        For a joint that has changed; with a forgetting factor near 1, older data are not forgotten otherwise.
        """
        restart(self._joint)
        p, s = len(self.names), self._s
        self._joint.theta[:], self._joint.power[:] = self._joint.start, 0.0
        self._joint.R[:] = 0.0
        self._joint.R[np.arange(p), np.arange(p)] = 1.0
        self._level[:] = 0.0
        self._level[:, v.INFLATION_SUM] = v.BLOCK_PRIOR * s[m.INFLATION]
        self._level[:, v.INFLATION_COUNT] = v.BLOCK_PRIOR
        self._level[:, v.INNOVATION] = np.nan
        s[[m.ERROR2, m.MEAN_ERROR2, m.CHANGED, m.FORGOTTEN, m.LOW, m.HIGH, m.LEFT, m.OUTLIERS, m.TAKEN]] = 0.0
        s[m.TIME], s[m.LAM] = np.nan, self.settings.constant or 1.0
        self._ints[[m.UPDATES, m.REJECTED_RUN]] = 0

    # -- state ----------------------------------------------------------------------------------

    @property
    def _learned(self) -> dict[str, FloatArray]:
        joint = self._joint
        return {"theta": joint.theta, "R": joint.R, "power": joint.power, "level": joint.level}

    def state(self) -> dict[str, Any]:
        """Return the state to save: plain numbers, a text and arrays."""
        return saved(self._owner, self._learned, self._s, self._ints)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state; clear the filters and the excitation report.

        Raises
        ------
        ValueError
            If the state is of another start, drive or settings, or damaged; the estimator is then unchanged.
        """
        take_saved(state, self._owner, self._learned, self._s, self._ints)
        self.restart_stream()

    # -- results --------------------------------------------------------------------------------

    @property
    def theta(self) -> FloatArray:
        """(p,) the present estimate, determined or not, a copy."""
        return np.asarray(self._joint.theta * self._joint.units)

    @property
    def time_s(self) -> float:
        """Instant of the latest row [s]; NaN before the first."""
        return float(self._s[m.TIME])

    @property
    def std(self) -> FloatArray:
        """(p,) standard deviations of the present estimate by noise alone, the prior included."""
        return np.asarray(np.sqrt((triangle_inverse(self._root()) ** 2).sum(axis=1)) * self._joint.units)

    @property
    def information_root(self) -> FloatArray:
        """(p, p) upper triangle `R` with `R'R` the information, in units of the parameters' initial spread."""
        return self._root()

    @property
    def delay_s(self) -> float:
        """Group delay of an estimate [s]."""
        return float(self._ints[m.LENGTH] // 2 + self._ints[m.LENGTH2] // 2) / self.rate_hz

    @property
    def _changing(self) -> bool:
        return bool(self._s[m.CHANGED] > 0.0 and self._s[m.FORGOTTEN] < _FORGOTTEN)

    def _root(self) -> FloatArray:
        return np.triu(self._joint.R[:, : len(self.names)])

    def report(self) -> ElasticEstimate:
        """Return the present estimate with uncertainties."""
        inverse = triangle_inverse(self._root())
        leaning = (inverse**2).sum(axis=1)
        springs = 2 if "k2" in self.names else 1
        found = evidence(self._root(), self._joint.theta, self._joint.start, float(self._s[m.LEFT]), springs)
        parameters = tuple(self._parameter(k, found, leaning) for k in range(len(self.names)))
        reason = self._fault(parameters)
        if reason is not None or self._is_doubtful(found):
            parameters = tuple(p if p.value is None else replace(p, status="doubtful") for p in parameters)
        s, ints = self._s, self._ints
        return ElasticEstimate(
            t_s=float(s[m.TIME]), parameters=parameters, excited=tuple(self._excited().tolist()),
            valid=reason is None, changing=self._changing, reason=reason, lam=float(s[m.LAM]),
            relative_error=math.sqrt(s[m.ERROR2]), innovation=self._level[:, v.INNOVATION].copy(),
            sigma=np.sqrt(self._level[:, v.SIGMA2]), delay_s=self.delay_s, frames=int(ints[m.FRAMES]),
            masked=int(ints[m.MASKED]), repeated=int(ints[m.REPEATED]), gaps=int(ints[m.GAPS]),
            rejected=int(ints[m.REJECTED]), updates=int(ints[m.UPDATES]),
        )  # fmt: skip

    def _parameter(self, k: int, found: Evidence, leaning: FloatArray) -> ElasticParameter:
        """Return parameter `k` by the evidence of the rows; `leaning` (p,) are variances with the prior."""
        name, unit = self.names[k], float(self._joint.units[k])
        value = float(self._joint.theta[k]) * unit
        errors = DeflectionErrors() if self.errors is None else self.errors
        std = math.hypot(float(found.std[k]) * unit, errors.std.get(name, 0.0))
        reason = None
        if self._joint.power[k] == 0.0:
            reason = "no row has shown it yet"
        elif found.apart[k] < COLLINEAR:
            others = np.flatnonzero(np.abs(found.correlation[k]) > _TOGETHER)
            names = ", ".join(self.names[i] for i in others if i != k)
            reason = (
                f"cannot be separated from {names or 'the others'} by the data in memory: "
                f"{'loads' if name in ('k1', 'k2') else 'speeds'} that differ are needed"
            )
        status: ParameterStatus = "determined"
        if reason is None and not std <= RELATIVE_STD_LIMIT * abs(value):
            status = "weak"
            if not std / unit * math.sqrt(self._joint.power[k]) <= TORQUE_EFFECT_LIMIT:
                reason = "noise leaves it open: one standard deviation of it moves the torque by more than that"
            elif leaning[k] > _RESTS_ON_START:
                reason = "what is known of it is mostly the start's: more motion is needed, or a start that is larger"
        if reason is not None:
            return ElasticParameter(name, UNITS[name], None, None, None, None, "undetermined", reason)
        half = NORMAL_QUANTILE_95 * std
        spans = [0.0, float(found.pull[k]) * unit, float(found.inverse[k]) * unit, errors.shift.get(name, 0.0)]
        lower, upper = value + min(spans) - half, value + max(spans) + half
        return ElasticParameter(name, UNITS[name], value, std, lower, upper, status)

    def _is_doubtful(self, found: Evidence) -> bool:
        """Check whether the values may have errors beyond their intervals."""
        if self.rate_hz < _FRAMES_PER_PERIOD * self.settings.cutoff_hz:
            return True
        if self._s[m.OUTLIERS] > _FEW_OUTLIERS * self._s[m.TAKEN]:
            return True
        if self._changing or self.errors is None or self.errors.doubtful or found.share < CERTAIN_SHARE:
            return True
        k1 = abs(float(self._joint.theta[0] * self._joint.units[0]))
        return abs(self.errors.shift.get("k1", 0.0)) > (1.0 / CERTAIN_SHARE - 1.0) * k1

    def _excited(self) -> BoolArray:
        """Return (p,) which parameters the last few seconds alone would determine."""
        root = np.triu(self._joint.short[0, :, : len(self.names)])
        inverse = triangle_inverse(root)
        covariance = inverse @ inverse.T
        known = np.sqrt(np.diag(covariance)) <= RELATIVE_STD_LIMIT * np.abs(self._joint.theta)
        return np.asarray(known & (_apart(root, covariance) >= COLLINEAR))

    def _fault(self, parameters: Sequence[ElasticParameter]) -> str | None:
        """Return the reason why the estimate must not be used; None if it may be."""
        k1 = parameters[0]
        if self._ints[m.UPDATES] == 0:
            at = "" if self.drive.rotor_inertia is not None else " at constant speed"
            return f"no row yet: the joint has not moved{at} for as long as the filters are"
        if k1.value is None:
            return f"k1: {k1.reason}"
        if k1.value <= 0.0:
            return "the stiffness comes out negative: a sign is wrong (gear ratio, torque constant)"
        least, stretched = self._least_slope()
        if least <= 0.0:
            return (
                f"the estimated stiffness is {least:.3g} N*m/rad at a deflection of {stretched:.3g} rad, within the "
                "range seen: record more loads that differ, or start without k2"
            )
        s = self._s
        if abs(s[m.MEAN_STEP] - s[m.STEP]) > _STEP_ERROR * s[m.STEP]:
            return f"frames come every {s[m.MEAN_STEP]:.4g} s, not {s[m.STEP]:.4g}: all speeds are wrong by as much"
        for p in parameters:
            if (
                p.name.startswith("b_")
                and p.value is not None
                and p.std is not None
                and p.value < -_SIGNIFICANT * p.std
            ):
                return f"{p.name} comes out negative: a sign or the encoders' lag is wrong, or friction is another"
        if s[m.MEAN_ERROR2] > _UNEXPLAINED:
            return "the model leaves more than half of the torque: something has changed, or is not modelled"
        return None

    def _least_slope(self) -> tuple[float, float]:
        """Return the smallest stiffness over the observed deflections, and where it is [rad]."""
        if "k2" not in self.names:
            return float(self.theta[0]), 0.0
        k1, k2 = self.theta[:2].tolist()
        low, high = float(self._s[m.LOW]), float(self._s[m.HIGH])
        ends = (low, high, 0.0) if low < 0.0 < high else (low, high)
        return min((k1 + 3.0 * k2 * d**2, d) for d in ends)


def _names(start: Mapping[str, float]) -> tuple[str, ...]:
    """Return the names of the initial values, in order; raise `ValueError` if they are wrong."""
    known = set(start)
    if not known >= _NEEDED or known - set(NAMES) or len(known & _SENSOR) == 1:
        raise ValueError(
            f"the start has {', '.join(start) or 'nothing'}: it takes k1, b_in and b_inD, k2 for a cubic spring, b_out "
            "and b_outC for the row of a torque sensor"
        )
    for name, value in start.items():
        if not 0.0 < abs(value) < math.inf:
            raise ValueError(f"start of {name}: {value:g}; give a value of the size that is expected")
    return tuple(name for name in NAMES if name in known)


def _apart(root: FloatArray, covariance: FloatArray) -> FloatArray:
    """Return the share (p,) of each column (squared) that the others do not explain."""
    return np.asarray(1.0 / (np.diag(covariance) * (root**2).sum(axis=0)))
