"""Whole arms with encoders on motors and links: elasticity of the joints, torque model, spring of each joint."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from drivers.files.recordings.recording import Recording, Span
from drivers.files.robots.file import RobotFile
from rt_core.elastic import separability
from rt_core.elastic.arm import ArmFit, ArmRows, Comparison, in_step, sides
from rt_core.elastic.identify import ElasticFit
from rt_core.identification.identify import (
    DOUBTFUL_ERROR,
    EXPLAINED_LIMIT,
    RELATIVE_ERROR_LIMIT,
    Identification,
    Verdict,
)
from rt_core.identification.preprocess import DataError, Signals, SignalSettings, prepare
from rt_core.identification.status import ParameterStatus
from rt_core.identification.temperature import narrow_reasons, temperatures_of, unseen
from rt_core.identification.total_least_squares import encoder_noise
from rt_core.model.robot import RobotModel
from rt_core.model.temperature import TemperatureRange
from rt_core.types import FloatArray
from rt_core.validation import Metrics
from service.models.document import parameter_table
from service.operations.elastic.joint import ElasticJointError, identify_joint
from service.operations.elastic.parameters import read_elastic_joint
from service.operations.errors import OperationError
from service.operations.identify import band_text, check_recording, nominal_rate_of, span_bounds, span_text

FORMAT = "thetad-elastic-arm/1"
_APART = {"open": "cannot be separated", "doubtful": "are separated with doubt"}
_FIELDS = ("value", "status", "reason")
_NO_INTERVAL = "no interval is stated: those of the joint alone were too narrow in simulated arms"


class ElasticArmError(ValueError):
    """An arm that cannot be identified with elastic joints from this recording; the message has the reason."""


@dataclass(frozen=True)
class Stiffness:
    """Stiffness of one joint from a recording; without a value `reason` is set.

    A value is never better than doubtful: intervals of one joint's fit hold the truth too seldom in whole arms
    (docs/elastic-joint.md).
    """

    joint: str
    value: float | None
    status: ParameterStatus
    reason: str
    cubic: float | None = None
    late: str = ""  # note on two encoders that are read at different times

    def text(self, unit: str) -> str:
        """Return the stiffness in words."""
        if self.value is None:
            return f"undetermined: {self.reason}"
        return f"{self.value:.4g} {unit}, {self.status}: {self.reason}"


@dataclass(frozen=True)
class ElasticArm:
    """An arm identified with elastic joints; verdict and reasons as those of a rigid model."""

    robot: RobotFile
    recording: Recording
    settings: SignalSettings
    span: Span | None
    fit: ArmFit  # torque at the motions of motors and links
    comparison: Comparison | None  # beside the rigid models; None where the recording is too short to compare
    stiffness: tuple[Stiffness, ...]  # of each joint
    verdict: Verdict
    reasons: tuple[str, ...]
    temperatures: TemperatureRange | None  # of the rows
    created: str  # ISO 8601, UTC

    @property
    def metrics(self) -> Metrics:
        """Torque error on the rows that were fitted."""
        return self.fit.metrics

    @property
    def accepted(self) -> bool:
        """Whether the model explains the recording."""
        return self.verdict != "not_explained"

    def facts(self) -> list[tuple[str, str]]:
        """Return what was done, as pairs of name and value."""
        fit, model = self.fit, self.robot.model
        facts = [
            ("robot", f"{model.name}, {model.n} joints, sha256 {self.robot.sha256[:12]}"),
            ("recording", f"{self.recording.path}, span {span_text(self.span)}, sha256 {self.recording.sha256[:12]}"),
            ("joints", "elastic: rotors and their friction move with the motor encoders, links with theirs"),
            ("method", f"wls, {len(fit.base)} base parameters"),
            ("band", band_text(self.settings, fit.rows.rate_hz, fit.rows.band_hz)),
            ("rows", ", ".join(str(int(c)) for c in fit.metrics.count) + " per joint"),
            ("relative torque error", f"{100 * fit.metrics.relative_error:.2f} %"),
        ]
        if self.comparison is not None:
            facts.append(("beside rigid joints", self.comparison.reason))
        facts += [
            (f"stiffness {s.joint}", s.text("N*m/rad" if joint.kind == "revolute" else "N/m"))
            for s, joint in zip(self.stiffness, model.joints, strict=True)
        ]
        return facts

    @cached_property
    def document(self) -> dict[str, Any]:
        """What the command prints and writes, as plain data."""
        fit, seen = self.fit, self.temperatures
        parameters = parameter_table(fit.base, fit.solution.theta, fit.std, fit.status, ("undetermined",))
        if not self.accepted:
            for row in parameters:
                row.update(value=None, status="invalid")
        joints = []
        for j, (joint, spring) in enumerate(zip(self.robot.model.joints, self.stiffness, strict=True)):
            joints.append(
                {
                    "name": joint.name, "unit": "N*m/rad" if joint.kind == "revolute" else "N/m",
                    "stiffness": {key: getattr(spring, key) for key in _FIELDS}, "stiffness_cubic": spring.cubic,
                    "rmse": float(fit.metrics.rmse[j]), "explained": float(fit.metrics.explained[j]),
                }
            )  # fmt: skip
        rows = [int(c) for c in fit.metrics.count]
        return {
            "format": FORMAT, "created": self.created, "verdict": self.verdict,
            "reasons": list(self.reasons), "robot": {"name": self.robot.model.name, "sha256": self.robot.sha256},
            "data": {"sha256": self.recording.sha256, "span": span_text(self.span), "rows": rows},
            "settings": {
                "cutoff_hz": self.settings.cutoff_hz, "rate_hz": fit.rows.rate_hz, "band_hz": fit.rows.band_hz,
            },
            "temperatures": None if seen is None else seen.plain, "chosen": "elastic",
            "comparison": None if self.comparison is None else comparison_document(self.comparison),
            "relative_error": fit.metrics.relative_error, "joints": joints, "parameters": parameters,
        }  # fmt: skip


def why_not_elastic(recording: Recording, model: RobotModel) -> str | None:
    """Return why a recording of this robot cannot show elastic joints, None if it may."""
    where = str(recording.path or "recording")
    if "q_motor" not in recording.channels:
        return (
            f"{where}: no channel q_motor: a joint's spring shows between an encoder on its motor and one on its link"
        )
    if not np.isfinite(recording.channels["q_motor"]).any(axis=0).all():
        return f"{where}: a joint has no value of q_motor: all joints need an encoder on the motor and one on the link"
    if model.transmission is None:
        return f"robot {model.name} has no [transmission]: the gear ratio of each joint must be known"
    if not np.array_equal(model.coupling, np.eye(model.n)):
        return f"robot {model.name} has motors that also turn with other joints"
    if model.friction.load:
        return f"friction of robot {model.name} depends on the load"
    return None


def arm_rows(
    recording: Recording, model: RobotModel, settings: SignalSettings, span: Span | None
) -> tuple[ArmRows, FloatArray]:
    """Prepare both sides of a recording alike; return rows, and the encoders' noise (n,) by `difference_noise`.

    Raises `ElasticArmError` if the recording does not have both encoders, or the robot does not allow for springs;
    `DataError` if the recording is not of this robot, or nothing of it can be used.
    """
    if reason := why_not_elastic(recording, model):
        raise ElasticArmError(reason)
    check_recording(recording, model)
    channels, gears = recording.channels, model.transmission
    assert gears is not None  # else there had been a reason
    positions = np.hstack((channels["q"], gears.joint_position(channels["q_motor"])))
    valid = np.asarray(np.isfinite(positions).all(axis=1))
    if recording.valid is not None:
        valid = valid & np.asarray(recording.valid.all(axis=1))
    warm = None if model.friction.temperature == "none" else np.hstack((channels["temperature"],) * 2)
    torque = np.hstack((channels["tau"],) * 2)

    def prepared(noise: FloatArray | None = None, dq: FloatArray | None = None) -> tuple[Signals, Signals]:
        both = prepare(
            recording.t, positions, torque, settings, valid=valid, seq=recording.seq, noise=noise,
            rate_hz=nominal_rate_of(recording), spans=recording.spans, temperature=warm, dq=dq,
        )  # fmt: skip
        return sides(both, model.n)

    try:
        links, motors = prepared()
        measured = None
        if "dq" in channels:  # rigid joints are fitted with it, and elastic ones have to be better than that
            measured = in_step(links, prepared(dq=np.hstack((channels["dq"], np.zeros(channels["q"].shape))))[0])
        rows = ArmRows(model, links, motors, settings, *span_bounds(recording, span), measured)
        noise = np.zeros(positions.shape)
        noise[valid] = encoder_noise(positions[valid], np.random.default_rng(0))
        return rows, separability.difference_noise((links, motors), prepared(noise), settings)
    except DataError as error:
        raise DataError(f"{recording.path or 'recording'}: {error}") from error


def choose_joints(
    asked: str, recording: Recording, robot: RobotFile, rigid: Identification, settings: SignalSettings,
    span: Span | None, created: str,
) -> tuple[ElasticArm | None, dict[str, Any]]:  # fmt: skip
    """Identify with elastic joints if `asked` for ("elastic"), or if the data call for it ("auto").

    Returns the arm if joints are elastic, and the choice, as plain data. `rigid` is an earlier fit, which gives the
    velocity constants of friction: where it does not explain the recording, or is doubtful, so is the elastic one,
    because the cause may be the springs, and may be a sign, a unit or a delay. Raises `DataError` if there are too few
    rows for what was asked for.
    """

    def choice(chosen: str, reason: str, comparison: Comparison | None = None) -> dict[str, Any]:
        compared = None if comparison is None else comparison_document(comparison)
        return {"asked": asked, "chosen": chosen, "reason": reason, "comparison": compared}

    model = rigid.model
    if (reason := why_not_elastic(recording, model)) is not None:
        return None, choice("rigid", reason)
    try:
        rows, noise = arm_rows(recording, model, settings, span)
    except DataError as error:
        if asked == "elastic":
            raise
        return None, choice("rigid", f"elastic joints cannot be tried: {error}")
    comparison = None
    try:
        comparison = rows.compare()
        reason = comparison.reason
    except DataError as error:
        reason = f"too few data to compare: {error}"
    if asked == "auto" and (comparison is None or not comparison.elastic):
        return None, choice("rigid", reason, comparison)
    stiffness = tuple(_stiffness(recording, model, joint, settings, span) for joint in range(model.n))
    fit, seen, verdict, reasons = _judged_fit(rows, noise, stiffness, rigid)
    arm = ElasticArm(robot, recording, settings, span, fit, comparison, stiffness, verdict, reasons, seen, created)
    return arm, choice("elastic", reason, comparison)


def _judged_fit(
    rows: ArmRows, noise: FloatArray, stiffness: tuple[Stiffness, ...], rigid: Identification
) -> tuple[ArmFit, TemperatureRange | None, Verdict, tuple[str, ...]]:
    """Fit the torque with elastic joints; return also temperatures of the rows, verdict and reasons.

    `rows` and `noise` are those of `arm_rows`; `DataError` if there are too few.
    """
    model = rigid.model
    found = rows.fit("both")
    share = separability.difference_share(found, noise)
    apart = separability.separabilities(share, [spring.value is not None for spring in stiffness])
    # Motion between two readings looks like motion of the spring, and the link's inertia like the rotor's.
    apart = tuple("doubtful" if a == "told" and s.late else a for a, s in zip(apart, stiffness, strict=True))
    rests = separability.rests_on_difference(rows.bases["link"], rows.bases["both"])
    fit = separability.withhold(separability.widened(found, share), rests, apart)
    seen = temperatures_of(model, fit.rows)
    cold = unseen(fit.base.layout, seen)
    fit = replace(fit, status=tuple("undetermined" if c else s for c, s in zip(cold, fit.status, strict=True)))
    verdict, reasons = _judge(fit, model, seen, rigid)
    if verdict == "doubtful":
        fit = replace(fit, status=tuple("doubtful" if s == "determined" else s for s in fit.status))
    if verdict != "not_explained":
        reasons += tuple(
            f"joint {model.joints[j].name}: rotor and link {_APART[apart[j]]}: "
            + ("its spring is undetermined" if spring.value is None else spring.late
               or f"{100 * (1.0 - share[j]):.0f} % of what tells them apart is noise of the encoders")
            for j, spring in enumerate(stiffness)
            if rests[j].any() and apart[j] != "told"
        )  # fmt: skip
    return fit, seen, verdict, reasons


def _judge(
    fit: ArmFit, model: RobotModel, seen: TemperatureRange | None, rigid: Identification
) -> tuple[Verdict, tuple[str, ...]]:
    metrics = fit.metrics
    reasons = []
    for j, joint in enumerate(model.joints):
        if metrics.count[j] == 0:
            reasons.append(f"joint {joint.name} never moves faster than its min_velocity: it has no rows")
        elif not metrics.explained[j] >= EXPLAINED_LIMIT:
            share = "nothing" if np.isnan(metrics.explained[j]) else f"{100 * max(metrics.explained[j], 0.0):.0f} %"
            reasons.append(f"joint {joint.name}: the model explains {share} of the torque's variance")
    error = metrics.relative_error
    if not error <= RELATIVE_ERROR_LIMIT:
        reasons.append(f"the relative torque error is {100 * error:.1f} %")
    if reasons:
        return "not_explained", tuple(reasons)
    if error > DOUBTFUL_ERROR:
        reasons.append(f"the relative torque error is {100 * error:.1f} %: something is not modelled")
    if rigid.verdict == "not_explained":
        reasons.append(f"rigid joints do not explain the recording: {rigid.reasons[0]}")
    elif rigid.verdict == "doubtful":
        reasons.append(f"the model with rigid joints is doubtful: {rigid.reasons[0]}")
    doubtful = bool(reasons)
    reasons.extend(narrow_reasons(model, fit.base.layout, seen))
    count = fit.status.count("undetermined")
    if count:
        reasons.append(f"{count} of {len(fit.status)} parameters are not determined by these data")
    return "doubtful" if doubtful else "weak_excitation" if reasons else "ok", tuple(reasons)


def _stiffness(
    recording: Recording, model: RobotModel, joint: int, settings: SignalSettings, span: Span | None
) -> Stiffness:
    """Identify the spring of one joint; its links may be unknown."""
    name = model.joints[joint].name
    gears = model.transmission
    assert gears is not None
    ratio = float(gears.matrix[joint, joint])
    table: dict[str, Any] = {
        "recording": str(recording.path or "recording"), "joint": joint + 1, "cutoff_hz": settings.cutoff_hz,
        "gear_ratio": ratio, "torque_constant": float(gears.torque_constant[joint]) if gears.known else None,
    }  # fmt: skip
    if model.dynamics is not None and model.dynamics.armature[joint] > 0.0:
        table["rotor_inertia"] = float(model.dynamics.armature[joint]) / ratio**2
    if span is not None:
        table["span"] = str(span)
    try:
        found = identify_joint(read_elastic_joint(table), recording, None, created="").answer
    except ElasticJointError as error:
        return Stiffness(name, None, "undetermined", error.message)
    except OperationError as error:
        return Stiffness(name, None, "undetermined", str(error))
    k1 = found["k1"]
    if k1.value is None:
        reason = found.reasons[0] if found.verdict == "doubtful" else k1.reason
        return Stiffness(name, None, k1.status, reason or "these data do not tell it")
    reasons = [*(found.reasons if found.verdict == "doubtful" else ()), _NO_INTERVAL]
    return Stiffness(name, k1.value, "doubtful", "; ".join(reasons), found["k2"].value, _lateness(found))


def _lateness(found: ElasticFit) -> str:
    """Return a note if two encoders are read at different times, or may be; empty otherwise."""
    for lag in (p for p in found.parameters if p.name.startswith("lag")):
        if lag.value is None or lag.lower is None or lag.upper is None:
            return "it is not known whether its encoders are read at one time"
        if not lag.lower <= 0.0 <= lag.upper:
            return f"its encoders are read {abs(lag.value) * 1e3:.2g} ms apart, which is not made up for"
    return ""


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison with rigid joints, as plain data."""
    return {
        "elastic": comparison.elastic,
        "reason": comparison.reason,
        "held_out_s": comparison.held_out_s,
        "against": {
            motions: {
                "better": paired.better, "gain": paired.gain, "z": paired.z if np.isfinite(paired.z) else None,
                "ratio": [float(v) if np.isfinite(v) else None for v in paired.ratio], "reason": paired.reason,
            }
            for motions, paired in comparison.against.items()
        },
    }  # fmt: skip
