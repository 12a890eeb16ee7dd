"""Has the arm changed since its model was made?  The online estimate and the model's residual against that model.

Per parameter known to both, `z = (theta - theta_ref)/sqrt(P + C)`, with the variances `P` of the estimate and `C` of
the model.  A change is told when |z| has been beyond a limit at every look for `sustained_s`, and matters.  Without a
change the errors of an estimate that forgets over a memory T are an Ornstein-Uhlenbeck process with T as its
correlation time.  The limit `narrow*u` is where all parameters together are beyond it for so long at the stated rate,
`false_alarm_hours` apart, if stated standard deviations are `narrow` times too small, and all that differs matters
(`rt_core.online.monitors._drift_limits`).  It is at most that rate where standard deviations are right, where what
differs is too small to matter, where parameters are correlated (Bonferroni's bound), and where part of the error is
the model's, which does not change as long as the model is in use.

The model and the estimate share data: after an adoption the estimate starts from the model itself, without one both
have seen the same frames.  Their errors are then correlated positively and z is too small, never too large: false
alarms do not get more, and the shared part fades with the memory.  What the estimate still holds from before the
model was made is another matter; a parameter therefore takes part only when it has been excited for `settled_s`
since an adoption, and for a memory where the model was not adopted.

Per joint the mean square of the model's residual over blocks of motion, against its level in the first `reference_s`,
goes through a one-sided CUSUM (Page 1954).  Its blocks are taken as gamma-distributed with the spread that they had
in the reference; Lundberg's exponent r of such a walk gives the height `log(blocks until a false alarm)/r`.  That is a
bound, and what the reference may be wrong by is allowed for: `_RESIDUAL_SHARE` of the false alarms is the most that it
adds, and in fact next to none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rt_core.model.friction import LAW_LINK
from rt_core.model.parameters import ParameterLayout
from rt_core.online.monitors._drift_limits import cusum_limit, run_limit
from rt_core.online.monitors.drift_kernels import look, take_block
from rt_core.online.report import EstimateReport
from rt_core.types import BoolArray, FloatArray, IntArray

DriftState = Literal["off", "steady", "drifted"]
ChangeKind = Literal["drift", "drift_cleared", "invalid", "valid_again"]

_BELIEVED = ("estimated", "stale", "frozen")
_RESIDUAL_SHARE = 0.05  # of false alarms, that the CUSUMs of residuals may add to those of parameters
_INVALID_S = 2.0  # of motion, before a failed validity check is told ...
_VALID_S = 10.0  # ... and before it is taken back


@dataclass(frozen=True)
class DriftSettings:
    """When a change counts.

    Attributes
    ----------
    false_alarm_hours : float
        Mean time of motion between two false alarms of an arm [h], at least; reached where stated standard deviations
        are too small by `narrow`.
    narrow : float
        Stated standard deviations may be too small by this factor.
    relative, effect, least_effect : float
        A change matters from this share of the parameter's value on, if it moves the torque by `least_effect` of the
        noise, or where it moves the torque by `effect` of the noise.
    sustained_s, settled_s : float
        How long a change has to last, and how long a parameter is to be excited first [s of motion].
    excess : float
        Relative rise of a joint's mean squared residual that is tolerated.
    reference_s, block_s : float
        Motion from which the level of that is learned, and over which it is averaged each time [s].
    """

    false_alarm_hours: float = 10_000.0
    narrow: float = 1.25
    relative: float = 0.1
    effect: float = 2.0
    least_effect: float = 0.2
    sustained_s: float = 5.0
    settled_s: float = 10.0
    excess: float = 1.0
    reference_s: float = 60.0
    block_s: float = 2.0


@dataclass(frozen=True)
class DriftedParameter:
    """A parameter that is no longer what the model says; `std` of the difference, as stated."""

    name: str
    joint: str
    old: float
    new: float
    std: float


@dataclass(frozen=True)
class DriftReport:
    """What has drifted.

    Attributes
    ----------
    state : "off", "steady" or "drifted"
        Off without a model to compare with.
    since_ns : int or None
        Time of the estimate with which it was noticed.
    joints : mapping of str to str
        "steady" or "drifted" by joint.
    parameters : tuple of DriftedParameter
        With their present values.
    levels : mapping of str to float
        Of joints whose residual has risen: its present mean square in units of the reference.
    text : str
        The reason, for people; empty if nothing has drifted.
    """

    state: DriftState
    since_ns: int | None
    joints: dict[str, str]
    parameters: tuple[DriftedParameter, ...]
    levels: dict[str, float]
    text: str


@dataclass(frozen=True)
class Change:
    """Something that is different from before, told once; with the joints and parameters concerned."""

    kind: ChangeKind
    text: str
    joints: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()


def joints_of(layout: ParameterLayout) -> tuple[IntArray, BoolArray]:
    """(p,) the joint that each parameter belongs to, that of its link or motor; (p,) whether it is the motor's."""
    link = layout.law == LAW_LINK
    return np.where(link, layout.source // 10, layout.source), ~link


class DriftDetector:
    """Compares what an online estimator reports with a model.

    Parameters
    ----------
    names, joints : tuple of str
        Of the p parameters and n joints.
    layout : ParameterLayout
        Of the parameters.
    memory_s, update_s : float
        The estimator's memory, and the time between two updates [s].
    settings : DriftSettings, optional
    look_s : float
        Time of motion between two calls of `observe` [s].
    """

    def __init__(
        self,
        names: tuple[str, ...],
        joints: tuple[str, ...],
        layout: ParameterLayout,
        memory_s: float,
        update_s: float,
        settings: DriftSettings | None = None,
        look_s: float = 1.0,
    ) -> None:
        self.settings = s = DriftSettings() if settings is None else settings
        self.names, self.joints = names, joints
        self.joint, self._motor = joints_of(layout)
        self.memory_s, self.update_s = memory_s, update_s
        seconds = s.false_alarm_hours * 3600.0
        rate_hz = (1.0 - _RESIDUAL_SHARE) / seconds
        looks = max(2, math.ceil(s.sustained_s / look_s - 1e-6))
        #: |z| from which a difference that lasts is more than chance.
        self.limit = s.narrow * run_limit(rate_hz, memory_s, len(names), look_s, looks)
        #: What `rt_core.online.monitors.drift_kernels.look` compares with.
        self.limits = np.array([self.limit, s.relative, s.effect, s.least_effect, s.sustained_s])
        blocks = len(joints) * seconds / (_RESIDUAL_SHARE * s.block_s)
        learn = float(max(8, round(s.reference_s / s.block_s)))
        #: What `rt_core.online.monitors.drift_kernels.take_block` compares with; the height in units of the blocks'
        #: spread.
        self.residual_limits = np.array([learn, s.excess, s.narrow**2, cusum_limit(1.0, s.excess, blocks)])
        self._block_rows = s.block_s / update_s
        self._invalid_s = 0.0
        self._invalid = False
        self._updates: int | None = None
        self._resets = 0
        self._theta: FloatArray | None = None
        _compile(self.limits, self.residual_limits)
        self._start(None, None, adopted=False)

    def _start(self, theta: FloatArray | None, covariance: FloatArray | None, *, adopted: bool) -> None:
        p, n = len(self.names), len(self.joints)
        self._theta = None if theta is None else np.array(theta, dtype=np.float64)
        self._variance = np.full(p, np.nan)
        if covariance is not None:
            variance = np.diag(np.asarray(covariance, dtype=np.float64))
            self._variance[:] = np.where(np.isfinite(variance) & (variance > 0.0), variance, np.nan)
        self._needed_s = self.settings.settled_s if adopted else self.memory_s
        self._excited_s = np.zeros(p)
        self._beyond_s = np.zeros(p)
        self._drifted = np.zeros(p, dtype=np.bool_)
        self._values = np.full((2, p), np.nan)  # present value and standard deviation of the difference
        self._since_ns: int | None = None
        self._residual_power: tuple[FloatArray, FloatArray] | None = None
        self._block = np.zeros((2, n))  # squared residuals and rows of the present block
        self._reference = np.zeros((3, n))  # blocks, their sum, and the sum of their squares
        self._cusum = np.zeros(n)
        self._level = np.ones(n)
        self._risen = np.zeros(n, dtype=np.bool_)

    # -- the model ------------------------------------------------------------------------------

    def refer(
        self, theta: FloatArray | None, covariance: FloatArray | None = None, *, adopted: bool = False
    ) -> tuple[Change, ...]:
        """Compare with another model from now on; None for none.

        Without a `covariance` (p, p) only the residual is watched; a variance of zero or one that is not finite says
        that the model does not know the parameter.  `adopted`: the estimate has been started from the model.
        """
        cleared = self._since_ns is not None
        self._start(theta, covariance, adopted=adopted)
        return (Change("drift_cleared", "compared with another model from now on"),) if cleared else ()

    # -- observations ---------------------------------------------------------------------------

    def observe(self, report: EstimateReport, residual_power: tuple[FloatArray, FloatArray]) -> tuple[Change, ...]:
        """Take what the estimator says now, about once a second; returns what has changed.

        `residual_power` is `OnlineEstimator.residual_power`.  Time is that of motion: of updates made.
        """
        elapsed = self._elapsed(report)
        changes = list(self._check_validity(report, elapsed))
        if self._theta is None:
            return tuple(changes)
        if elapsed > 0.0:
            self._compare(report, elapsed)
        self._watch_residual(residual_power)
        if self._since_ns is None and (self._drifted.any() or self._risen.any()):
            self._since_ns = report.t_ns
            found = self.report()
            joints = tuple(name for name, state in found.joints.items() if state == "drifted")
            changes.append(Change("drift", found.text, joints, tuple(p.name for p in found.parameters)))
        return tuple(changes)

    def skip(self, report: EstimateReport, *, spoiled: bool) -> tuple[Change, ...]:
        """Take note of the time only, and of validity: what differs from the model now is known to be something else.

        `spoiled`: the estimate takes it in, and is not compared again before a whole memory has passed without it.
        """
        elapsed = self._elapsed(report)
        self._residual_power = None
        if spoiled:
            self._needed_s = self.memory_s
            self._excited_s[:] = self._beyond_s[:] = 0.0
        return self._check_validity(report, elapsed)

    def _elapsed(self, report: EstimateReport) -> float:
        """Time of motion since the last look [s]; zero after a reset, when all times begin anew."""
        before = self._updates
        restarted = report.resets != self._resets or before is None or report.updates < before
        self._updates, self._resets = report.updates, report.resets
        if restarted or before is None:
            self._excited_s[:] = self._beyond_s[:] = 0.0
            self._residual_power = None
            return 0.0
        return (report.updates - before) * self.update_s

    def _compare(self, report: EstimateReport, elapsed: float) -> None:
        assert self._theta is not None
        believed = np.array([status in _BELIEVED for status in report.status])
        look(
            report.theta, report.std, report.scale, report.excited, believed, self._theta, self._variance, elapsed,
            self._needed_s, self.limits, self._excited_s, self._beyond_s, self._drifted, self._values,
        )  # fmt: skip

    def _watch_residual(self, residual_power: tuple[FloatArray, FloatArray]) -> None:
        before, self._residual_power = self._residual_power, residual_power
        if before is None:
            return
        self._block += np.array(residual_power) - np.array(before)
        for j in np.flatnonzero(self._block[1] >= self._block_rows):
            mean_square = float(self._block[0, j] / self._block[1, j])
            self._risen[j] |= take_block(
                int(j), mean_square, self.residual_limits, self._reference, self._cusum, self._level
            )
            self._block[:, j] = 0.0

    def _check_validity(self, report: EstimateReport, elapsed: float) -> tuple[Change, ...]:
        invalid = np.array([status == "invalid" for status in report.status])
        differs = bool(invalid.any()) != self._invalid
        seen_before = self._invalid_s > 0.0
        self._invalid_s = self._invalid_s + elapsed if differs else 0.0
        if not (differs and seen_before) or self._invalid_s < (_VALID_S if self._invalid else _INVALID_S):
            return ()
        self._invalid, self._invalid_s = not self._invalid, 0.0
        if not self._invalid:
            return (Change("valid_again", "the model of the arm explains the torque of every joint again"),)
        own = invalid & self._motor
        joints = tuple(self.joints[j] for j in sorted(set(self.joint[own if own.any() else invalid].tolist())))
        names = tuple(name for name, bad in zip(self.names, invalid.tolist(), strict=True) if bad)
        return (Change("invalid", f"the torque of {', '.join(joints)} is not explained", joints, names),)

    # -- results --------------------------------------------------------------------------------

    @property
    def invalid(self) -> bool:
        """Whether it has been told, and not taken back, that the torque of some joint is not explained."""
        return self._invalid

    def report(self) -> DriftReport:
        """Return what is known now."""
        if self._theta is None:
            return DriftReport("off", None, dict.fromkeys(self.joints, "steady"), (), {}, "")
        parameters = tuple(
            DriftedParameter(self.names[k], self.joints[self.joint[k]], float(self._theta[k]), *map(float, values))
            for k in np.flatnonzero(self._drifted)
            for values in [self._values[:, k]]
        )
        levels = {self.joints[j]: float(self._level[j]) for j in np.flatnonzero(self._risen)}
        moved = {p.joint for p in parameters} | set(levels)
        reasons = [_describe(p) for p in parameters]
        reasons += [f"mean squared residual of {joint} {level:.1f} times as large" for joint, level in levels.items()]
        return DriftReport(
            "drifted" if self._since_ns is not None else "steady",
            self._since_ns,
            {joint: "drifted" if joint in moved else "steady" for joint in self.joints},
            parameters,
            levels,
            "; ".join(reasons),
        )

    # -- state ----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything needed to go on after a restart, the model included: arrays of numbers."""
        p = len(self.names)
        theta = np.full(p, np.nan) if self._theta is None else self._theta
        per_parameter = (theta, self._variance, self._excited_s, self._beyond_s, self._drifted, *self._values)
        residual_power = (
            np.full((2, len(self.joints)), np.nan) if self._residual_power is None else self._residual_power
        )
        per_joint = (*self._block, *self._reference, self._cusum, self._level, self._risen, *residual_power)
        since_ns = -1 if self._since_ns is None else self._since_ns
        updates = -1 if self._updates is None else self._updates
        return {
            "parameters": np.array(per_parameter, dtype=np.float64),
            "joints": np.array(per_joint, dtype=np.float64),
            "since": np.array([since_ns, self._invalid, updates, self._resets], dtype=np.int64),
            "times": np.array([self._needed_s, self._invalid_s]),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned; `ValueError`, and nothing has changed, if it is another arm's.

        Times go on as well where the estimator has been restored to the same moment: where it has, since, made no
        fewer updates and not been reset.
        """
        fresh = self.state()
        missing = [name for name in fresh if name not in state]
        if missing:
            raise ValueError(f"the saved state of drift lacks {', '.join(missing)}")
        arrays = {name: np.array(state[name], dtype=value.dtype) for name, value in fresh.items()}
        if any(arrays[name].shape != value.shape for name, value in fresh.items()):
            raise ValueError("the saved state of drift has another size")
        theta, self._variance, self._excited_s, self._beyond_s, drifted = arrays["parameters"][:5]
        self._theta = None if np.isnan(theta).all() else theta
        self._drifted, self._values = drifted > 0.0, arrays["parameters"][5:]
        self._block, self._reference = arrays["joints"][:2], arrays["joints"][2:5]
        self._cusum, self._level = arrays["joints"][5:7]
        self._risen = arrays["joints"][7] > 0.0
        squares, rows = arrays["joints"][8:]
        self._residual_power = None if np.isnan(rows).any() else (squares, rows)
        since_ns, invalid, updates, self._resets = arrays["since"].tolist()
        self._since_ns, self._invalid = None if since_ns < 0 else since_ns, bool(invalid)
        self._updates = None if updates < 0 else updates
        self._needed_s, self._invalid_s = arrays["times"].tolist()


def _compile(limits: FloatArray, residual_limits: FloatArray) -> None:
    """Let the kernels be compiled now, and not at the first look."""
    one, yes = np.ones(1), np.ones(1, dtype=np.bool_)
    look(one, one, one, yes, yes, one, one, 0.0, 0.0, limits, one.copy(), one.copy(), yes.copy(), np.ones((2, 1)))
    take_block(0, 1.0, residual_limits, np.ones((3, 1)), np.ones(1), np.ones(1))


def _describe(parameter: DriftedParameter) -> str:
    change = parameter.new - parameter.old
    relative = f" ({change / abs(parameter.old):+.0%})" if parameter.old else ""
    stds = abs(change) / parameter.std
    return f"{parameter.name} {parameter.old:.4g} -> {parameter.new:.4g}{relative}, {stds:.0f} standard deviations"
