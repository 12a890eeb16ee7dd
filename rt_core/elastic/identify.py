"""Identification of an elastic joint in stages, with a verdict on each parameter.

Stages of Sun et al., each by least squares: `stiffness` (a) is the spring alone, from each row by itself and from
the mean of both; `coulomb` (b) adds Coulomb friction; `viscous` (c) has Coulomb and viscous friction, both rows
together; `full` adds friction that falls with speed on the motor's side (eq. 15, delta = 1) and cyclic friction on the
link's (eq. 18).  Where only the motor's torque is known, every stage is a fit of the motor's row.

A stage without all friction has a stiffness that is biased by that friction, projected on the spring's columns, and an
apparent lag that includes viscous friction.  It serves for comparison and is at best doubtful.

An undetermined parameter has no value:

- A column in the span of the others (up to `COLLINEAR` of its square) is not identifiable: viscous and Coulomb friction
  at one speed, `k1` and `k2` at one load, viscous friction and the lag of the encoders if the spring is linear.
- A parameter is lost in noise if one standard deviation changes the torque by more than the residual.
- A velocity constant of friction is undetermined if the fit is as good at one end of its range as anywhere, or if its
  term is insignificant; so is the torque that it shapes (`rt_core.elastic.constants`).
- Errors of the deflection (of encoders or gear) bias the stiffness towards zero.  The inverse regression bounds this
  bias (`rt_core.elastic._inverse`), and all intervals span both regressions.  All parameters are doubtful where both
  differ by more than 5 %, or where the spring is less than the share `CERTAIN_SHARE` of its sum with the errors, and
  undetermined where it is less than `EXPLAINED_LIMIT`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from rt_core.elastic.fit import COLLINEAR, SpringFit, fit_spring
from rt_core.elastic.problem import APPARENT_LAG, NO_DEFLECTION, SHAPED, FrictionTerms, RowChoice, Terms
from rt_core.elastic.rows import MAX_LAG_S, MAX_ZERO, ElasticRows, check_records
from rt_core.identification.identify import EXPLAINED_LIMIT
from rt_core.identification.preprocess import DataError
from rt_core.identification.status import ParameterStatus, Quantity, parameter_status
from rt_core.statistics import NORMAL_QUANTILE_95
from rt_core.types import FloatArray
from rt_core.validation import Metrics, torque_metrics

Stage = Literal["stiffness", "coulomb", "viscous", "full"]
STAGES: tuple[Stage, ...] = get_args(Stage)
ElasticVerdict = Literal["ok", "partly_determined", "doubtful", "not_determined"]

UNITS = {
    "k1": "N*m/rad", "k2": "N*m/rad^3", "b_in": "N*m*s/rad", "b_inD": "N*m", "b_out": "N*m*s/rad", "b_outC": "N*m",
    "C1": "N*m", "C2": "N*m*s/rad", "A1": "N*m", "A2": "N*m", "omega1": "rad/s", "omega_s": "rad/s", "lag": "s",
    APPARENT_LAG: "s", "zero": "rad",
}  # fmt: skip
_FRICTION: Mapping[Stage, FrictionTerms] = {
    "stiffness": "none", "coulomb": "coulomb", "viscous": "viscous", "full": "full",
}  # fmt: skip
#: Dissipative friction, which cannot be negative.
_DISSIPATES = ("b_in", "b_inD", "b_out", "b_outC")
#: Range of given velocity constants, motor side [rad/s].
CONSTANTS = (1e-6, 1e6)
#: Fits of each stage where there is a torque sensor.
_WITH_SENSOR: Mapping[Stage, tuple[RowChoice, ...]] = {
    "stiffness": ("motor", "sensor", "coupled"), "coulomb": ("motor", "sensor", "both"), "viscous": ("both",),
    "full": ("both",),
}  # fmt: skip
#: Share of the spring below which all is doubtful: an error of the deflection could change `k1` by more than 5 %.  With
#: a cubic term it can change it by more, so the difference of `k1` between both regressions counts as well.
CERTAIN_SHARE = 0.95
_SIGNIFICANT = 3.0
_SMALL_ANGLE = 1.5  # [rad] range below which a reason on cyclic friction mentions the angle
_ONE = 0.05  # a spread below this share of the mean counts as a single speed or load


class ElasticParameter(Quantity):
    """A parameter, or the reason why it is undetermined.

    `value` and `std` are those of the direct regression; `lower` lies 1.96 `std` below the lower of its value and that
    of the inverse one, `upper` as much above the higher.  Where velocity constants of friction are fitted, both include
    all constants that the data allow; those of the constants themselves are not symmetric.
    """


@dataclass(frozen=True)
class ElasticFit:
    """One fit of a stage."""

    rows: RowChoice  # rows that were fitted
    parameters: tuple[ElasticParameter, ...]
    # in this order: all parameters are determined, only some, the stiffness only within wide bounds, or not even that
    verdict: ElasticVerdict
    reasons: tuple[str, ...]
    metrics: Metrics  # torque error, one "joint" for each of the rows
    fit: SpringFit

    def __getitem__(self, name: str) -> ElasticParameter:
        """Return the parameter `name`."""
        return next(p for p in self.parameters if p.name == name)


@dataclass(frozen=True)
class ElasticJoint:
    """All fits of a stage; the last one is the stage's answer."""

    stage: Stage
    fits: tuple[ElasticFit, ...]

    @property
    def answer(self) -> ElasticFit:
        """Fit of all rows."""
        return self.fits[-1]


def identify_elastic_joint(
    records: Sequence[ElasticRows], stage: Stage = "viscous", *, cubic: bool = True, lag_s: float | None = None,
    zero: float | None = None, omega1: float | None = None, omega_s: float | None = None,
) -> ElasticJoint:  # fmt: skip
    """Identify spring and friction of a joint from one or more recordings of it.

    Parameters
    ----------
    records : sequence of ElasticRows
    stage : {"stiffness", "coulomb", "viscous", "full"}
    cubic : bool
        The spring has `k2`.
    lag_s : float or None
        Lag of the link encoder's channel [s]; None to estimate it.
    zero : float or None
        Offset that is added to the measured deflection [rad]; None to estimate it, for each recording.
    omega1, omega_s : float or None
        Velocity constants of stage `full`, motor side [rad/s]; None to estimate them.

    Raises
    ------
    DataError
        If the recordings do not belong together, there are too few rows, lag or zero are given and larger than 20 ms
        or 1e4 rad, or a velocity constant is given and not from 1e-6 to 1e6 rad/s, or to another stage.
    ValueError
        If the stage is unknown.
    """
    if stage not in STAGES:
        raise ValueError(f"unknown stage {stage!r}; known: {', '.join(STAGES)}")
    if lag_s is not None and not abs(lag_s) <= MAX_LAG_S:
        raise DataError(f"lag {lag_s:g} s: at most {MAX_LAG_S:g} s, either way")
    if zero is not None and not abs(zero) <= MAX_ZERO:
        raise DataError(f"zero {zero:g} rad: at most {MAX_ZERO:g} rad, either way")
    for name, omega in (("omega1", omega1), ("omega_s", omega_s)):
        if omega is not None and stage != "full":
            raise DataError(f"{name} is of stage full")
        if omega is not None and not CONSTANTS[0] <= omega <= CONSTANTS[1]:
            raise DataError(f"{name} {omega:g} rad/s: from {CONSTANTS[0]:g} to {CONSTANTS[1]:g}, on the motor's side")
    check_records(records)
    choices = _WITH_SENSOR[stage] if records[0].has_sensor else ("motor",)
    friction = _FRICTION[stage]
    fits = [fit_spring(records, Terms(rows, friction, cubic, lag_s, zero, omega1, omega_s)) for rows in choices]
    return ElasticJoint(stage, tuple(judge(fit, records) for fit in fits))


def judge(fit: SpringFit, records: Sequence[ElasticRows]) -> ElasticFit:
    """Judge a fit: find which parameters are determined, and whether they are reliable."""
    why = _open_reasons(fit, records)
    reasons: list[str] = []
    if why["k1"] is None:
        reasons += _left_out(fit)
        apart = abs(_inverse(fit)[0] - fit.values[0])
        if fit.share < CERTAIN_SHARE or apart > (1.0 / CERTAIN_SHARE - 1.0) * abs(fit.values[0]):
            reasons.append(
                f"the spring is {100.0 * fit.share:.0f} % of what it and the errors make together: if these are errors "
                f"of the deflection, k1 is {_inverse(fit)[0]:.3g} N*m/rad rather than {fit.value('k1'):.3g}"
            )
        if not np.isfinite(fit.inverse).all():
            reasons.append(
                "the regression of the deflection on the torque does not come to an end: what errors of the deflection "
                "would make of k1 is not known, and its interval is of errors of the torque alone"
            )
        reasons += [
            f"{name} comes out negative: a sign is wrong (gear ratio, torque constant, sensor), or friction is not "
            "that of the model"
            for k, name in enumerate(fit.names)
            if name in _DISSIPATES and why[name] is None and fit.values[k] < -_SIGNIFICANT * fit.std[k]
        ]
    doubtful = bool(reasons)
    reasons += [f"{name}: {reason}" for name, reason in why.items() if reason is not None]
    verdict: ElasticVerdict = "ok"
    if why["k1"] is not None:
        verdict = "not_determined"
    elif doubtful:
        verdict = "doubtful"
    elif any(reason is not None for reason in why.values()):
        verdict = "partly_determined"
    return ElasticFit(
        fit.terms.rows, _parameters(fit, why, doubtful), verdict, tuple(reasons),
        torque_metrics(fit.measured, fit.predicted), fit,
    )  # fmt: skip


def _parameters(fit: SpringFit, why: Mapping[str, str | None], doubtful: bool) -> tuple[ElasticParameter, ...]:
    """Return values and intervals of the determined parameters; the intervals span both regressions."""
    half = NORMAL_QUANTILE_95 * fit.std
    inverse = _inverse(fit)
    lower, upper = np.minimum(fit.values, inverse) - half, np.maximum(fit.values, inverse) + half
    if fit.profile is not None:
        lower, upper = np.fmin(lower, fit.profile.lower), np.fmax(upper, fit.profile.upper)
        own = [k for k, name in enumerate(fit.names) if name in fit.terms.constants]
        lower[own], upper[own] = fit.profile.lower[own], fit.profile.upper[own]
    by_noise = _by_noise(fit)
    out = []
    for k, name in enumerate(fit.names):
        unit = next(unit for start, unit in UNITS.items() if name == start or name.startswith(f"{start}_"))
        reason = why[name]
        if reason is not None:
            out.append(ElasticParameter(name, unit, None, None, None, None, "undetermined", reason))
            continue
        status: ParameterStatus = "doubtful" if doubtful else by_noise[k]
        value, std, low, high = (float(x[k]) for x in (fit.values, fit.std, lower, upper))
        out.append(ElasticParameter(name, unit, value, std, low, high, status))
    return tuple(out)


def _left_out(fit: SpringFit) -> list[str]:
    """Return the reasons why a fit without all friction is for comparison only."""
    if fit.terms.friction in ("viscous", "full"):
        return []
    what = "friction" if fit.terms.friction == "none" else "viscous friction"
    reasons = [
        f"{what} is left out, and is in the other parameters by an amount that the intervals do not tell: a fit for "
        "comparison only; stage viscous has all friction"
    ]
    if fit.terms.lags:
        reasons.append(
            f"{' and '.join(fit.terms.lags)}: the encoders' lag and viscous friction in one; the encoders' own only "
            "where viscous friction is negligible"
        )
    return reasons


def _open_reasons(fit: SpringFit, records: Sequence[ElasticRows]) -> dict[str, str | None]:
    """Return why each parameter is undetermined; None for those that are not."""
    still, stiffness = _no_deflection(fit), _stiffness_fault(fit)
    by_noise = _by_noise(fit)
    why: dict[str, str | None] = {}
    for k, name in enumerate(fit.names):
        reason = still or _open_constant(fit, name) or _collinear(fit, k, records) or stiffness
        if reason is None and not fit.settled:
            reason = "the fit did not settle: lag and zero of the deflection have no clear optimum"
        if reason is None and name in fit.terms.lags and abs(fit.values[k]) > 0.99 * MAX_LAG_S:
            reason = f"it runs to the end of the search at {1e3 * MAX_LAG_S:g} ms: the encoders do not belong together"
        if reason is None and by_noise[k] == "undetermined":
            reason = "noise leaves it open: one standard deviation of it moves the torque by more than the residual"
            reason += _little_angle(fit, name)
        why[name] = reason
    if why["k1"] is not None:
        why = {name: reason or "k1 is undetermined, and this rests on it" for name, reason in why.items()}
    return why


def _open_constant(fit: SpringFit, name: str) -> str | None:
    """Return why a velocity constant, or the torque that it shapes, is undetermined; None if it is not."""
    for constant in () if fit.profile is None else fit.terms.constants:
        reason = None if fit.profile is None else fit.profile.why.get(constant)
        if reason is not None and name == constant:
            return reason
        if reason is not None and name == SHAPED[constant]:
            return f"{constant} is undetermined, and this rests on it; give {constant}, or record other speeds"
    return None


def _little_angle(fit: SpringFit, name: str) -> str:
    """Return an addition to the reason of cyclic friction where the link hardly turns."""
    turned = float(np.ptp(fit.link))
    return f"; the link turns through {turned:.3g} rad only" if name in ("A1", "A2") and turned < _SMALL_ANGLE else ""


def _inverse(fit: SpringFit) -> FloatArray:
    """Return the parameters (p,) of the inverse regression, or of the direct one where there is none."""
    return np.where(np.isfinite(fit.inverse), fit.inverse, fit.values)


def _by_noise(fit: SpringFit) -> tuple[ParameterStatus, ...]:
    """Return the status of each parameter by its standard deviation; one that was held fixed is undetermined."""
    out: list[ParameterStatus] = ["undetermined"] * len(fit.names)
    found = parameter_status(fit.rows, fit.solution, fit.std[fit.free])
    for k, status in zip(np.flatnonzero(fit.free), found, strict=True):
        # a constant with a finite interval is not undetermined by noise
        out[k] = "weak" if fit.names[k] in fit.terms.constants and status != "determined" else status
    return tuple(out)


def _rms_deflection(fit: SpringFit) -> float:
    x = fit.deflection - fit.deflection.mean() if fit.terms.zero is None else fit.deflection
    return float(np.sqrt(np.mean(x**2)))


def _no_deflection(fit: SpringFit) -> str | None:
    if _rms_deflection(fit) > NO_DEFLECTION:
        return None
    return "the encoders show no deflection: the link's angle is computed from the motor's, or the joint is rigid"


def _stiffness_fault(fit: SpringFit) -> str | None:
    """Return why the stiffness is undetermined, None if it is not."""
    rms = _rms_deflection(fit)
    if fit.share < EXPLAINED_LIMIT:
        return (
            f"the deflection ({rms:.2g} rad rms) does not follow the torque: the spring is {100.0 * fit.share:.1f} % "
            "of what it and the errors make together; record larger changes of load"
        )
    if fit.value("k1") + fit.value("k2") * rms**2 <= 0.0:
        return (
            "the stiffness comes out negative: a sign is wrong (gear ratio, torque constant), or torque that is not "
            "modelled hides it"
        )
    least, at = _least_slope(fit)
    if least <= 0.0:
        return (
            f"the estimated stiffness is {least:.3g} N*m/rad at a deflection of {at:.3g} rad, within the range seen: "
            "record more loads that differ, or fit without the cubic term"
        )
    return None


def _least_slope(fit: SpringFit) -> tuple[float, float]:
    """Return the least stiffness over the observed deflections, and where [rad]; it is monotonic in their square."""
    low, high = float(fit.deflection.min()), float(fit.deflection.max())
    ends = (low, high, 0.0) if low < 0.0 < high else (low, high)
    return min((fit.value("k1") + 3.0 * fit.value("k2") * d**2, d) for d in ends)


def _collinear(fit: SpringFit, k: int, records: Sequence[ElasticRows]) -> str | None:
    """Return why parameter `k` is collinear with others, None if it is not."""
    name, others = fit.names[k], fit.partners[k]
    if fit.apart[k] >= COLLINEAR or name in fit.terms.constants:
        return None
    if name in ("A1", "A2"):
        others = (*(other for other in others if other not in ("A1", "A2")), "an offset of the torque")
        return f"cyclic friction cannot be separated from {', '.join(others)}{_little_angle(fit, name)}"
    text = f"cannot be separated from {', '.join(others)}" if others else "nothing in the data depends on it"
    involved = {name, *others}
    if involved & {"b_in", "b_inD", "b_out", "b_outC"}:
        speed = np.abs(np.concatenate([piece.speed for record in records for piece in record.pieces]))
        if float(np.std(speed)) <= _ONE * float(np.mean(speed)):
            text += f": all samples have nearly the same speed ({np.mean(speed):.3g} rad/s); several speeds are needed"
    if involved & {"C1", "C2"}:
        text += f"; the motor's speeds are {fit.speeds[0]:.3g} to {fit.speeds[1]:.3g} rad/s"
    if name in fit.terms.spring:
        size = np.abs(fit.deflection)
        same = float(np.std(size)) <= _ONE * float(np.mean(size))
        text += f": the deflection is nearly always {np.mean(size):.3g} rad" if same else ""
        text += "; several loads that differ are needed"
    elif "lag" in involved and involved & {"b_in", "b_out"}:
        text += ": where the stiffness is the same at all loads, a lag acts as viscous friction does; give the lag"
    return text
