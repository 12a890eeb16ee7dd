"""Detect drift of an arm from its model, by the online estimate and by the model's residual.

For each parameter known to both, `z = (theta - theta_ref)/sqrt(P + C)`, with the variances `P` of the estimate and `C`
of the model.  A change is reported when |z| exceeds a limit at every look for `sustained_s` and the difference matters.
Without a change the error of an estimate that forgets over a memory T is an Ornstein-Uhlenbeck process of correlation
time T.  The limit `narrow*u` is the one at which all parameters together raise a false alarm every `false_alarm_hours`,
if stated standard deviations are `narrow` times too small and every difference matters
(`rt_core.online.monitors._drift_limits`).  False alarms are rarer if standard deviations are right, differences too
small to matter, parameters correlated (Bonferroni's bound), or part of the error is the constant one of the model.

The model and the estimate share data: an adopted model is the start of the estimate, otherwise both are based on the
same frames.  Their errors are then positively correlated and z is too small, so that false alarms become rarer; the
shared part fades with the memory.  Data from before the model was made can be of another arm: a parameter takes part
only after it was excited for `settled_s` since an adoption, or for a whole memory if the model was not adopted.

For each joint the mean square of the model's residual over blocks of motion, relative to its level in the first
`reference_s`, enters a one-sided CUSUM (Page 1954).  Blocks are taken as gamma-distributed with the spread in the
reference; Lundberg's exponent r of such a walk gives the height `log(blocks until a false alarm)/r`.  This is a bound,
with an allowance for the error of the reference: at most `_RESIDUAL_SHARE` of the false alarms are from the residual.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from rt_core.model.friction import LAW_LINK
from rt_core.model.parameters import ParameterLayout
from rt_core.online._saved_state import saved_arrays
from rt_core.online.monitors import drift_kernels as k
from rt_core.online.monitors._drift_limits import cusum_limit, run_limit
from rt_core.online.report import EstimateReport
from rt_core.types import BoolArray, FloatArray, IntArray

DriftState = Literal["off", "steady", "drifted"]
ChangeKind = Literal["drift", "drift_cleared", "invalid", "valid_again"]

# A doubted estimate has left what it was: that is what drift looks for.
_BELIEVED = ("estimated", "stale", "frozen", "doubted")
#: Rows of the parameters in a report.
_SHOWN = [k.MODEL, k.VALUE, k.STD]
_RESIDUAL_SHARE = 0.05  # of the false alarms that the CUSUMs of residuals may cause
_INVALID_S = 2.0  # of motion, before a failed validity check is reported ...
_VALID_S = 10.0  # ... and before it is withdrawn


@dataclass(frozen=True)
class DriftSettings:
    """Settings of the drift detector.

    Attributes
    ----------
    false_alarm_hours : float
        Minimum mean time of motion between two false alarms of an arm [h].
    narrow : float
        Factor by which stated standard deviations may be too small.
    relative, effect, least_effect : float
        A change matters if it is this share of the value and moves the torque by `least_effect` of the noise, or if it
        moves the torque by `effect` of the noise.
    sustained_s, settled_s : float
        Minimum duration of a change, and of the excitation of a parameter before [s of motion].
    excess : float
        Tolerated relative rise of a joint's mean squared residual.
    reference_s, block_s : float
        Motion from which the usual mean square is learned, and length of a block [s].
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
    """Parameter that differs from the model; `std` is the stated one of the difference."""

    name: str
    joint: str
    old: float
    new: float
    std: float


@dataclass(frozen=True)
class DriftReport:
    """State of the drift detector.

    Attributes
    ----------
    state : "off", "steady" or "drifted"
        "off" without a model.
    since_ns : int or None
        Time of the estimate at the detection.
    joints : mapping of str to str
        "steady" or "drifted" by joint.
    parameters : tuple of DriftedParameter
        Drifted parameters with their present values.
    levels : mapping of str to float
        Mean squared residual of joints where it has risen, over the reference.
    text : str
        Reason, for people; empty without drift.
    """

    state: DriftState
    since_ns: int | None
    joints: dict[str, str]
    parameters: tuple[DriftedParameter, ...]
    levels: dict[str, float]
    text: str


@dataclass(frozen=True)
class Change:
    """Change of the state, with the joints and parameters concerned."""

    kind: ChangeKind
    text: str
    joints: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()


def joints_of(layout: ParameterLayout) -> tuple[IntArray, BoolArray]:
    """Return the joint (p,) of each parameter, that of its link or motor, and whether it is the motor's (p,)."""
    link = layout.law == LAW_LINK
    return np.where(link, layout.source // 10, layout.source), ~link


class Watched(NamedTuple):
    """Names of the p parameters and n joints that a detector watches, and the layout of the parameters."""

    names: tuple[str, ...]
    joints: tuple[str, ...]
    layout: ParameterLayout


class DriftDetector:
    """Compare the reports of an online estimator with a model.

    Parameters
    ----------
    watched : Watched
    memory_s, update_s : float
        The estimator's memory, and the time between two updates [s].
    settings : DriftSettings, optional
    look_s : float
        Time of motion between two calls of `observe` [s].
    """

    def __init__(
        self, watched: Watched, memory_s: float, update_s: float, settings: DriftSettings | None = None,
        look_s: float = 1.0,
    ) -> None:  # fmt: skip
        self.settings = s = DriftSettings() if settings is None else settings
        names, joints, layout = watched
        self.names, self.joints = names, joints
        self.joint, self._motor = joints_of(layout)
        self.memory_s, self.update_s = memory_s, update_s
        seconds = s.false_alarm_hours * 3600.0
        rate_hz = (1.0 - _RESIDUAL_SHARE) / seconds
        looks = max(2, math.ceil(s.sustained_s / look_s - 1e-6))
        #: Limit of |z|.
        self.limit = s.narrow * run_limit(rate_hz, memory_s, len(names), look_s, looks)
        #: Limits for `rt_core.online.monitors.drift_kernels.look`.
        self.limits = np.array([self.limit, s.relative, s.effect, s.least_effect, s.sustained_s])
        blocks = len(joints) * seconds / (_RESIDUAL_SHARE * s.block_s)
        learn = float(max(8, round(s.reference_s / s.block_s)))
        #: Limits for `rt_core.online.monitors.drift_kernels.take_block`; the height in units of the blocks' spread.
        self.residual_limits = np.array([learn, s.excess, s.narrow**2, cusum_limit(1.0, s.excess, blocks)])
        self._block_rows = s.block_s / update_s
        self._invalid_s = 0.0
        self._invalid = False
        self._updates: int | None = None
        self._resets = 0
        # compiled now, not at the first look
        k.look(np.ones((5, 1)), 0.0, 0.0, self.limits, np.ones((7, 1)))
        k.take_block(np.ones((5, len(joints)))[:, 0], 1.0, self.residual_limits)
        self._start(None, None, adopted=False)

    def _start(self, theta: FloatArray | None, covariance: FloatArray | None, *, adopted: bool) -> None:
        p, n = len(self.names), len(self.joints)
        self._has_model = theta is not None
        self._parameters = np.zeros((7, p))
        self._parameters[[k.VALUE, k.STD, k.VARIANCE]] = np.nan
        self._parameters[k.MODEL] = np.nan if theta is None else theta
        if covariance is not None:
            variance = np.diag(np.asarray(covariance, dtype=np.float64))
            self._parameters[k.VARIANCE] = np.where(np.isfinite(variance) & (variance > 0.0), variance, np.nan)
        self._needed_s = self.settings.settled_s if adopted else self.memory_s
        self._since_ns: int | None = None
        self._residual_power: tuple[FloatArray, FloatArray] | None = None
        self._block = np.zeros((2, n))  # squared residuals and rows of the present block
        self._residuals = np.zeros((5, n))
        self._residuals[k.LEVEL] = 1.0
        self._risen = np.zeros(n, dtype=np.bool_)

    # -- the model ------------------------------------------------------------------------------

    def set_model(
        self, theta: FloatArray | None, covariance: FloatArray | None = None, *, adopted: bool = False
    ) -> tuple[Change, ...]:
        """Set the model to compare with; None for none.

        Without a `covariance` (p, p) only the residual is watched; a parameter whose variance is zero or not finite is
        unknown to the model.  `adopted`: the estimate was started from the model.
        """
        cleared = self._since_ns is not None
        self._start(theta, covariance, adopted=adopted)
        return (Change("drift_cleared", "compared with another model from now on"),) if cleared else ()

    # -- observations ---------------------------------------------------------------------------

    def observe(self, report: EstimateReport, residual_power: tuple[FloatArray, FloatArray]) -> tuple[Change, ...]:
        """Process a report, about once a second, and `OnlineEstimator.residual_power`; return the changes.

        Time is that of motion, counted in updates.
        """
        elapsed = self._elapsed(report)
        changes = list(self._check_validity(report, elapsed))
        if not self._has_model:
            return tuple(changes)
        if elapsed > 0.0:
            self._compare(report, elapsed)
        self._watch_residual(residual_power)
        if self._since_ns is None and (self._parameters[k.DRIFTED].any() or self._risen.any()):
            self._since_ns = report.t_ns
            found = self.report()
            joints = tuple(name for name, state in found.joints.items() if state == "drifted")
            changes.append(Change("drift", found.text, joints, tuple(p.name for p in found.parameters)))
        return tuple(changes)

    def skip(self, report: EstimateReport, *, spoiled: bool) -> tuple[Change, ...]:
        """Process only time and validity, while a known other cause makes the arm differ from the model.

        `spoiled`: the cause enters the estimate, which is compared again after a whole memory without it.
        """
        elapsed = self._elapsed(report)
        self._residual_power = None
        if spoiled:
            self._needed_s = self.memory_s
            self._parameters[[k.EXCITED_S, k.BEYOND_S]] = 0.0
        return self._check_validity(report, elapsed)

    def _elapsed(self, report: EstimateReport) -> float:
        """Return the time of motion since the last look [s]; zero after a reset, which restarts all times."""
        before = self._updates
        restarted = report.resets != self._resets or before is None or report.updates < before
        self._updates, self._resets = report.updates, report.resets
        if restarted or before is None:
            self._parameters[[k.EXCITED_S, k.BEYOND_S]] = 0.0
            self._residual_power = None
            return 0.0
        return (report.updates - before) * self.update_s

    def _compare(self, report: EstimateReport, elapsed: float) -> None:
        believed = [status in _BELIEVED for status in report.status]
        estimate = np.array((report.theta, report.std, report.scale, report.excited, believed), dtype=np.float64)
        k.look(estimate, elapsed, self._needed_s, self.limits, self._parameters)

    def _watch_residual(self, residual_power: tuple[FloatArray, FloatArray]) -> None:
        before, self._residual_power = self._residual_power, residual_power
        if before is None:
            return
        self._block += np.array(residual_power) - np.array(before)
        for j in np.flatnonzero(self._block[1] >= self._block_rows):
            mean_square = float(self._block[0, j] / self._block[1, j])
            self._risen[j] |= k.take_block(self._residuals[:, j], mean_square, self.residual_limits)
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
        """Whether a failed validity check was reported and not withdrawn."""
        return self._invalid

    def report(self) -> DriftReport:
        """Return the present state."""
        if not self._has_model:
            return DriftReport("off", None, dict.fromkeys(self.joints, "steady"), (), {}, "")
        parameters = tuple(
            DriftedParameter(self.names[c], self.joints[self.joint[c]], *self._parameters[_SHOWN, c].tolist())
            for c in np.flatnonzero(self._parameters[k.DRIFTED])
        )
        levels = {self.joints[j]: float(self._residuals[k.LEVEL, j]) for j in np.flatnonzero(self._risen)}
        moved = {p.joint for p in parameters} | set(levels)
        reasons = [_describe(p) for p in parameters]
        reasons += [f"mean squared residual of {joint} {level:.1f} times as large" for joint, level in levels.items()]
        return DriftReport(
            "drifted" if self._since_ns is not None else "steady", self._since_ns,
            {joint: "drifted" if joint in moved else "steady" for joint in self.joints}, parameters, levels,
            "; ".join(reasons),
        )  # fmt: skip

    # -- state ----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return the state to save, the model included, as arrays."""
        power = np.full((2, len(self.joints)), np.nan) if self._residual_power is None else self._residual_power
        per_joint = (*self._block, *self._residuals, self._risen, *power)
        since_ns = -1 if self._since_ns is None else self._since_ns
        updates = -1 if self._updates is None else self._updates
        return {
            "parameters": self._parameters.copy(),
            "joints": np.array(per_joint, dtype=np.float64),
            "since": np.array([since_ns, self._invalid, updates, self._resets], dtype=np.int64),
            "times": np.array([self._needed_s, self._invalid_s]),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned; raise `ValueError`, without a change, if it is another arm's.

        Times go on if the estimator was restored to the same instant: no fewer updates, and no reset since.
        """
        arrays = saved_arrays(state, self.state(), " of drift")
        self._parameters = arrays["parameters"]
        self._has_model = not np.isnan(self._parameters[k.MODEL]).all()
        self._block, self._residuals = arrays["joints"][:2], arrays["joints"][2:7]
        self._risen = arrays["joints"][7] > 0.0
        squares, rows = arrays["joints"][8:]
        self._residual_power = None if np.isnan(rows).any() else (squares, rows)
        since_ns, invalid, updates, self._resets = arrays["since"].tolist()
        self._since_ns, self._invalid = None if since_ns < 0 else since_ns, bool(invalid)
        self._updates = None if updates < 0 else updates
        self._needed_s, self._invalid_s = arrays["times"].tolist()


def _describe(parameter: DriftedParameter) -> str:
    change = parameter.new - parameter.old
    relative = f" ({change / abs(parameter.old):+.0%})" if parameter.old else ""
    stds = abs(change) / parameter.std
    return f"{parameter.name} {parameter.old:.4g} -> {parameter.new:.4g}{relative}, {stds:.0f} standard deviations"
