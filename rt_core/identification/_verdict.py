"""Verdict on a fit, with reasons in sentences.

A cause is named only if a test supports it and it leaves little of the residual; otherwise the joints and times of the
largest residuals are all that is said.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from rt_core.channels import clipped_samples, dropped_samples
from rt_core.identification._plausibility import SIGNIFICANT, Plausibility
from rt_core.identification.diagnostics.alternatives import STANDARD_GRAVITY
from rt_core.identification.diagnostics.diagnosis import (
    ALTERNATIVE_LEFT,
    CERTAIN,
    NEAR_NOISE,
    WELL_EXPLAINED,
    Diagnosis,
    Finding,
)
from rt_core.identification.diagnostics.forms import FORMS
from rt_core.identification.estimate import Estimate
from rt_core.identification.preprocess import Signals
from rt_core.identification.status import ParameterStatus
from rt_core.identification.temperature import narrow_reasons, temperatures_of
from rt_core.model.robot import RobotModel
from rt_core.robust_loss import OUTLYING_WEIGHT
from rt_core.types import FloatArray
from rt_core.validation import Metrics

Verdict = Literal["ok", "weak_excitation", "doubtful", "not_explained"]

#: Condition number of the weighted regressor with unit columns above which excitation is called weak.
CONDITION_LIMIT = 50.0
#: A joint counts as explained when the model accounts for this share of its torque's variance ...
EXPLAINED_LIMIT = 0.3
#: ... and the whole arm when the relative torque error is at most this.
RELATIVE_ERROR_LIMIT = 0.3
#: Above this relative torque error the parameters are called doubtful: something is not modelled.
DOUBTFUL_ERROR = 0.15
#: A consistent fit may leave this many times the residual of free parameters.
CONSISTENT_LIMIT = 3.0
#: Share of a joint's rows that may count as outliers.
OUTLYING_LIMIT = 0.2
_NAMED = 8  # parameters listed in a reason
_NO_SIGNAL = 0.05
_AGAINST = -0.3  # cosine of torques that point against each other
_NO_GRAVITY = 0.05  # a gravity vector below this share of standard gravity is none
#: Gravity so near the robot file's counts as along it [deg], its size as that of a clock which is off by this share.
_SAME_DEG, _OTHER_SIZE = 2.0, 0.05


@dataclass(frozen=True)
class Evidence:
    """What the verdict rests on.

    `metrics` are those of the fit `found`, `free` those of a fit without the constraints of a consistent one, which
    shows whether the torque belongs to this arm at all.
    """

    found: Estimate
    signals: Signals
    status: tuple[ParameterStatus, ...]
    metrics: Metrics
    free: Metrics
    diagnosis: Diagnosis
    plausibility: Plausibility


def judge(evidence: Evidence) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict on a fit, with reasons."""
    rejected = _rejections(evidence)
    open_ = [n for n, s in zip(evidence.found.base.names, evidence.status, strict=True) if s == "undetermined"]
    if rejected:
        if open_:
            shown = ", ".join(open_[:_NAMED]) + (" and others" if len(open_) > _NAMED else "")
            rejected.append(
                f"{len(open_)} of {len(evidence.status)} parameters are not determined by these data: {shown}"
            )
        return "not_explained", tuple(rejected)
    doubts = _doubts(evidence)
    limits = _limits(evidence, len(open_))
    return ("doubtful" if doubts else "weak_excitation" if limits else "ok"), (*doubts, *limits)


def _rejections(evidence: Evidence) -> list[str]:
    """Return why the torque does not belong to this arm."""
    model, rows = evidence.found.model, evidence.found.rows
    free, metrics, named = evidence.free, evidence.metrics, evidence.diagnosis.named
    reasons: list[str] = []
    bad: list[str] = []
    resting: list[str] = []
    for j, joint in enumerate(model.joints):
        used = rows.tau[rows.use[:, j], j]
        raw = np.concatenate([piece.tau[:, j] for piece in evidence.signals.pieces])
        if used.size == 0:
            resting.append(joint.name)
        elif np.ptp(raw) <= 1e-9 * max(1.0, float(np.abs(raw).max())):
            reasons.append(f"joint {joint.name}: the torque channel carries no signal, it stays at {raw[0]:.4g}")
        elif not free.explained[j] >= EXPLAINED_LIMIT:
            bad.append(
                f"joint {joint.name}: the model explains {100 * max(free.explained[j], 0.0):.0f} % of the torque's "
                f"variance (residual {free.rmse[j]:.3g}, torque {np.std(used):.3g} rms)"
                + (": no signal of this motion" if free.explained[j] < _NO_SIGNAL else "")
            )
    if resting:
        reasons.insert(
            0,
            f"joint{'s' if len(resting) > 1 else ''} {', '.join(resting)} never move{'' if len(resting) > 1 else 's'} "
            "faster than min_velocity: no rows",
        )
    if not metrics.relative_error <= RELATIVE_ERROR_LIMIT:
        bad.append(f"the relative torque error is {100 * metrics.relative_error:.1f} %")
    bad.extend(_impossible(evidence))
    if bad and evidence.plausibility.mass_z < -SIGNIFICANT:
        bad.append(_indefinite(evidence))
    if named is not None and named.kind in ("gravity", "torque_channels", "positions"):
        return [*reasons, finding_text(named, model), *bad]
    if bad and named is not None:
        bad.append(finding_text(named, model))
    elif bad and evidence.diagnosis.gravity_against_links >= _AGAINST:
        bad.append(
            "cause not found: no order or sign of channels, gravity vector, delay, joint zero or gain explains it; "
            + _peaks_text(evidence.diagnosis, model)
        )
    return [*reasons, *bad]


def _impossible(evidence: Evidence) -> list[str]:
    """Return what no arm has."""
    reasons = [
        f"joint {evidence.found.model.joints[j].name}: the Coulomb friction comes out negative, which no joint has: "
        "check the sign and the column of its torque and of its position"
        for j in evidence.plausibility.negative_coulomb
    ]
    return reasons + [_against_links(evidence.diagnosis)] * (evidence.diagnosis.gravity_against_links < _AGAINST)


def faults(evidence: Evidence) -> tuple[str, ...]:
    """Return what speaks against the data or the robot file, rather than against the motion or the sensors' noise."""
    found, metrics, free, diagnosis = evidence.found, evidence.metrics, evidence.free, evidence.diagnosis
    model, named, hidden = found.model, diagnosis.named, diagnosis.unexplained
    reasons = [] if named is None else [finding_text(named, model)]
    if hidden is not None:
        reasons.append(
            f"something is wrong that explains little by itself ({hidden.z:.0f} standard deviations, the residual is "
            f"noise otherwise): {finding_text(hidden, model)}"
        )
    elif named is None:
        # far beyond the noise and no small part of the torque: between merged channels the fit still looks good
        loud = (free.explained < WELL_EXPLAINED) & (diagnosis.sigma > NEAR_NOISE * diagnosis.noise)
        reasons.extend(
            f"joint {model.joints[j].name}: {100 * (1.0 - free.explained[j]):.0f} % of its torque's variance is left, "
            f"{diagnosis.sigma[j] / diagnosis.noise[j]:.0f} times its noise: cause not found"
            for j in np.flatnonzero(loud & (metrics.count > 0))
        )
    return (*reasons, *_broken_torque(evidence), *_impossible(evidence))


def _doubts(evidence: Evidence) -> list[str]:
    """Return why the values may be wrong although the torque is explained."""
    found, metrics, free, plausibility = evidence.found, evidence.metrics, evidence.free, evidence.plausibility
    model, rows, search = found.model, found.rows, found.search
    reasons = list(faults(evidence))
    reasons.extend(
        f"joint {joint.name}: possible links explain {100 * max(metrics.explained[j], 0.0):.0f} % of the torque's "
        f"variance, free parameters {100 * free.explained[j]:.0f} %"
        for j, joint in enumerate(model.joints)
        if metrics.count[j] and not metrics.explained[j] >= EXPLAINED_LIMIT and weighs(metrics, j)
    )
    reasons.extend(
        f"joint {joint.name}: possible links leave {metrics.rmse[j] / free.rmse[j]:.1f} times the residual of free "
        "parameters: the torque does not belong to this arm, or friction is not that of the model"
        for j, joint in enumerate(model.joints)
        if metrics.count[j] and metrics.rmse[j] > CONSISTENT_LIMIT * free.rmse[j]
    )
    if found.weights is not None:
        left_out = 1.0 - (rows.use & (found.weights >= OUTLYING_WEIGHT)).sum(axis=0) / np.maximum(
            rows.use.sum(axis=0), 1
        )
        reasons.extend(
            f"joint {joint.name}: {100 * left_out[j]:.0f} % of its rows count as outliers and are left out"
            for j, joint in enumerate(model.joints)
            if left_out[j] > OUTLYING_LIMIT
        )
    if metrics.relative_error > DOUBTFUL_ERROR:
        reasons.append(
            f"the relative torque error is {100 * metrics.relative_error:.1f} %: something is not modelled; "
            + _peaks_text(evidence.diagnosis, model)
        )
    if plausibility.mass_z < -SIGNIFICANT:
        poor = found.solution.scaled_condition_number > CONDITION_LIMIT
        reasons.append(
            _indefinite(evidence)
            + (
                ": the motion is too poor for free parameters; the method physical keeps the links possible"
                if poor
                else ""
            )
        )
    reasons.extend(
        f"joint {model.joints[j].name}: the viscous friction comes out negative: the friction law does not fit"
        for j in plausibility.negative_viscous
    )
    if search is not None and not search.converged:
        reasons.append(
            f"the search ended ({search.stopped}) short of a minimum: {search.excess:.3g} of its weighted sum of "
            f"squares of {search.cost:.3g} are above the nearest one; allow it more iterations, or take the separable "
            "formulation"
        )
    if search is not None and search.at_bound:
        reasons.append(
            f"{', '.join(search.at_bound)}: the bounds of the search exclude a significantly better value; widen them"
        )
    if not found.settled:
        reasons.append(
            "the estimate did not settle: the residuals have no clear bulk for the weights of iwls, or the "
            "load-dependent friction explains little; take wls, or leave the load out"
        )
    return reasons


def _against_links(diagnosis: Diagnosis) -> str:
    gravity = diagnosis.gravity
    free = ""
    if gravity is not None:
        free = f"; fitted freely, gravity along ({_vector(gravity.vector)}) m/s^2 leaves {100 * gravity.left:.0f} %"
    return (
        "the gravity torque comes out against that of the robot file's links (cosine "
        f"{diagnosis.gravity_against_links:.2f}): the mounting direction is turned over, or all torques have the wrong "
        f"sign; slow motion fits either way, with first moments of the wrong sign{free}"
    )


def _vector(x: FloatArray) -> str:
    return ", ".join(f"{round(float(v), 2) + 0.0:.2f}" for v in x)  # no negative zero


def _indefinite(evidence: Evidence) -> str:
    return (
        "the mass matrix of the fit is not positive definite along the motion "
        f"({-evidence.plausibility.mass_z:.0f} standard deviations)"
    )


def _broken_torque(evidence: Evidence) -> list[str]:
    """Return which torque channels are saturated, or fall to zero."""
    model, pieces = evidence.found.model, evidence.signals.pieces
    total = sum(piece.t.size for piece in pieces)
    reasons: list[str] = []
    for j, joint in enumerate(model.joints):
        moving = [np.abs(piece.dq[:, j]) > model.standstill_velocity[j] for piece in pieces]
        for samples, when, what in (
            (clipped_samples, "while it moves", "is saturated, and what is beyond is missing"),
            (dropped_samples, "between others far from it", "drops out"),
        ):
            found = [
                (piece.t[k], piece.tau[k, j])
                for piece, moves in zip(pieces, moving, strict=True)
                for k in samples(piece.tau[:, j], moves)
            ]
            if found:
                value = 0.0 if samples is dropped_samples else found[0][1]
                reasons.append(
                    f"joint {joint.name}: its torque stays at {value:.4g} in {len(found)} samples "
                    f"({100 * len(found) / total:.2g} %) {when}, first at {found[0][0]:.6g} s: the channel {what}"
                )
    return reasons


def _limits(evidence: Evidence, open_: int) -> list[str]:
    """Return what the motion does not show."""
    found, status, diagnosis = evidence.found, evidence.status, evidence.diagnosis
    model, solution = found.model, found.solution
    reasons = [
        f"{c.name} is not determined by these data: slower and faster motion through the region of falling friction "
        "would show it"
        for c in found.constants
        if c.status == "undetermined"
    ]
    reasons.extend(narrow_reasons(model, found.base.layout, temperatures_of(model, found.rows)))
    if solution.scaled_condition_number > CONDITION_LIMIT:
        reasons.append(
            f"the condition number of the scaled regressor is {solution.scaled_condition_number:.0f} "
            f"(above {CONDITION_LIMIT:.0f}): the motion does not excite all parameters; the model predicts torque "
            "for motions like this one only"
        )
    if diagnosis.gravity_acts and diagnosis.gravity_tells and not diagnosis.gravity_seen:
        reasons.append(
            "gravity should show in the torque of this arm, yet any mounting direction fits these data equally well: "
            "the motion is too small or of the wrong unit, or the mounting direction cannot be verified by it"
        )
    given = status.count("prior")
    if given:
        reasons.append(f"{given} of {len(status)} parameters come from the prior rather than from these data")
    if open_:
        reasons.append(f"{open_} of {len(status)} parameters are not determined by these data")
    return reasons


def weighs(metrics: Metrics, joint: int) -> bool:
    """Return whether a joint has at least half an equal share of the arm's squared torque error."""
    squares = np.where(metrics.count > 0, metrics.count * np.nan_to_num(metrics.rmse) ** 2, 0.0)
    return bool(squares[joint] >= 0.5 * squares.sum() / max(np.count_nonzero(metrics.count), 1))


def finding_text(finding: Finding, model: RobotModel) -> str:
    """Return what a finding means, with its estimate and what it leaves, in one sentence."""
    left = f"with it {100 * finding.left:.0f} % of the residual is left"
    name = "" if finding.joint is None else f"joint {model.joints[finding.joint].name}: "
    if finding.gravity is not None:
        return _gravity_text(finding.gravity, finding, model, left) + finding.text
    if finding.text:
        does = "explain the torque"
        if finding.left > ALTERNATIVE_LEFT and finding.z > CERTAIN:  # named for its likelihood alone
            does = f"fit better by {finding.z:.0f} standard deviations"
        return f"{finding.text} {does}: {left}; check the mapping"
    if finding.kind in FORMS:
        form = {
            "friction": "friction has another form than the model's", "yielding": "gear seems to yield",
            "reversal": f"friction turns {'before' if finding.estimate[0] > 0.0 else 'after'} its velocity does",
        }[finding.kind]  # fmt: skip
        return f"{name}its {form}; {left}: the intervals allow for it"
    value, std = float(finding.estimate[0]), float(finding.std[0])
    if finding.kind == "zero":
        factor, unit = (180.0 / np.pi, "deg") if finding.unit == "rad" else (1e3, "mm")
        return (
            f"{name}its zero seems to be off by {-factor * value:.3g} +- {factor * std:.2g} {unit} (or that of a joint "
            f"beside it); {left}: check q.offset of the mapping and the robot file"
        )
    if finding.kind == "position_scale":
        size = "small" if value > 0.0 else "large"
        return (
            f"{name}its position seems to be {100 * abs(value):.2g} +- {100 * std:.2g} % too {size}; {left}: check its "
            "gear ratio and unit"
        )
    if finding.kind == "clock":
        rate = "fast" if value > 0.0 else "slow"
        return (
            f"the time stamps seem to run {100 * abs(value):.2g} +- {100 * std:.2g} % too {rate}, by the torque of "
            f"acceleration against that of gravity; {left}: check the clock, the rate and the unit of time"
        )
    if finding.kind == "torque_scale":
        size = "large" if value > 0.0 else "small"
        return (
            f"{name}its torque seems to be {100 * abs(value):.2g} +- {100 * std:.2g} % too {size} against the other "
            f"joints'; {left}: check its torque constant and gear ratio"
        )
    late = "late" if value > 0.0 else "early"
    if finding.kind == "velocity_late":
        return (
            f"{name}the measured velocity seems to be about {1e3 * abs(value):.2g} ms {late} against the position "
            f"({1e3 * abs(value):.3g} +- {1e3 * std:.2g} ms); {left}: leave dq out of the mapping"
        )
    return (
        f"{name}the torque seems to be about {1e3 * abs(value):.1g} ms {late} against the motion "
        f"({1e3 * abs(value):.3g} +- {1e3 * std:.2g} ms); {left}: align the channels"
    )


def _gravity_text(gravity: FloatArray, finding: Finding, model: RobotModel, left: str) -> str:
    size = float(np.linalg.norm(gravity))
    if size < _NO_GRAVITY * STANDARD_GRAVITY:
        return (
            f"gravity along (0.00, 0.00, 0.00) m/s^2 explains the torque better: {left}; the torque is without "
            "gravity, as the external or commanded torque of a controller that compensates it, or the arm is weightless"
        )
    shown = _vector(gravity)
    given = np.asarray(model.gravity)
    angle = ""
    if np.any(given):
        turned = np.degrees(np.arccos(np.clip(gravity @ given / (size * np.linalg.norm(given)), -1.0, 1.0)))
        spread = f" +- {np.degrees(float(np.max(finding.std))):.2g}" if finding.std.size else ""
        angle = f", {turned:.3g}{spread} deg from that of the robot file"
        clock = float(np.sqrt(np.linalg.norm(given) / size)) - 1.0
        if turned < _SAME_DEG and abs(clock) > _OTHER_SIZE:  # all that is not gravity has changed by one factor
            rate = "fast" if clock > 0.0 else "slow"
            return (
                f"the time stamps seem to run {100 * abs(clock):.0f} % too {rate}, or gravity acts as {size:.3g} "
                f"m/s^2: {left}; check the clock, the rate and the unit of time, or whether the torque lacks part of "
                "gravity's"
            )
    return (
        f"gravity along ({shown}) m/s^2 in the base frame{angle}, explains the torque better: {left}; the mounting "
        "direction in the robot file does not fit this recording"
    )


def _peaks_text(diagnosis: Diagnosis, model: RobotModel) -> str:
    shown = "; ".join(f"{model.joints[p.joint].name} {p.size:+.3g} at {p.t:.2f} s" for p in diagnosis.peaks)
    return f"the largest residuals are {shown}"
