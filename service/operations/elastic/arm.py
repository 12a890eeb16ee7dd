"""Whole arms with encoders on motors and links: elasticity of the joints, torque model, spring of each joint."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from drivers.files.recordings.recording import Recording, Span
from rt_core.elastic import separability
from rt_core.elastic.arm import ArmFit, ArmRows, Comparison, in_step, sides
from rt_core.elastic.identify import ElasticFit
from rt_core.identification.estimate import Estimate
from rt_core.identification.identify import DOUBTFUL_ERROR, Identification, Verdict
from rt_core.identification.preprocess import DataError, Signals, SignalSettings, prepare
from rt_core.identification.temperature import narrow_reasons, temperatures_of, unseen
from rt_core.identification.total_least_squares import encoder_noise
from rt_core.model.robot import RobotModel
from rt_core.model.temperature import TemperatureRange
from rt_core.types import FloatArray
from service.operations.elastic.joint import ElasticJointError, identify_joint
from service.operations.elastic.parameters import read_elastic_joint
from service.operations.errors import OperationError
from service.operations.identify import check_recording, dead_velocities, nominal_rate_of, span_bounds, unexplained

_APART = {"open": "cannot be separated", "doubtful": "are separated with doubt"}
_NO_INTERVAL = "no interval is stated: those of the joint alone were too narrow in simulated arms"


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
    recording: Recording, model: RobotModel, settings: SignalSettings, span: Span | None, *, fit: bool = True
) -> tuple[ArmRows, FloatArray]:
    """Prepare both sides of a recording alike; return rows, and the encoders' noise (n,) by `difference_noise`.

    Without `fit` they are rows to score a prediction on, and the noise is zero. Raises `DataError` if the recording
    does not have both encoders or is not of this robot, the robot does not allow for springs, or nothing can be used.
    """
    if reason := why_not_elastic(recording, model):
        raise DataError(reason)
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
        # rigid joints are fitted with it, and elastic ones have to be better than that
        if "dq" in channels and not dead_velocities(recording, model):
            measured = in_step(links, prepared(dq=np.hstack((channels["dq"], np.zeros(channels["q"].shape))))[0])
        links = replace(links, part=span_bounds(recording, span))
        rows = ArmRows(model, links, motors, settings, measured, slow=fit)
        if not fit:
            return rows, np.zeros(model.n)
        noise = np.zeros(positions.shape)
        noise[valid] = encoder_noise(positions[valid], np.random.default_rng(0))
        return rows, separability.difference_noise((links, motors), prepared(noise), settings)
    except DataError as error:
        raise DataError(f"{recording.path or 'recording'}: {error}") from error


def choose_joints(
    asked: str, recording: Recording, rigid: Identification, settings: SignalSettings, span: Span | None,
    lag: float | Literal["estimate"] = "estimate",
) -> tuple[Identification, list[dict[str, Any]], dict[str, Any]]:  # fmt: skip
    """Identify with elastic joints if `asked` for ("elastic"), or if the data call for it ("auto").

    Returns the model, the entries of its springs, none where joints are `rigid`, and the choice, as plain data. `lag`
    is how late the link encoders are [s]. `rigid` is an earlier fit, which gives the velocity constants of friction:
    where it does not explain the recording, or is doubtful, so is the elastic one, because the cause may be the
    springs, and may be a sign, a unit or a delay. Raises `DataError` if there are too few rows for what was asked for.
    """

    def choice(chosen: str, reason: str, comparison: Comparison | None = None) -> dict[str, Any]:
        compared = None if comparison is None else comparison_document(comparison)
        return {"asked": asked, "chosen": chosen, "reason": reason, "comparison": compared}

    model = rigid.model
    if (reason := why_not_elastic(recording, model)) is not None:
        return rigid, [], choice("rigid", reason)
    try:
        rows, noise = arm_rows(recording, model, settings, span)
    except DataError as error:
        if asked == "elastic":
            raise
        return rigid, [], choice("rigid", f"elastic joints cannot be tried: {error}")
    comparison = None
    try:
        comparison = rows.compare()
        reason = comparison.reason
    except DataError as error:
        reason = f"too few data to compare: {error}"
    if asked == "auto" and (comparison is None or not comparison.elastic):
        return rigid, [], choice("rigid", reason, comparison)
    springs = [_spring(recording, model, joint, settings, span, lag) for joint in range(model.n)]
    found = _judged_fit(rows, noise, springs, rigid)
    return found, [entry for entry, _ in springs], choice("elastic", reason, comparison)


def _judged_fit(
    rows: ArmRows, noise: FloatArray, springs: Sequence[tuple[dict[str, Any], str]], rigid: Identification
) -> Identification:  # fmt: skip
    """Fit the torque with elastic joints; tests of the data are those of the `rigid` fit.

    `rows` and `noise` are those of `arm_rows`; `DataError` if there are too few.
    """
    model = rigid.model
    free = rows.fit("both")
    share = separability.difference_share(free, noise)
    apart = separability.separabilities(share, [entry["stiffness"]["value"] is not None for entry, _ in springs])
    # Motion between two readings looks like motion of the spring, and the link's inertia like the rotor's.
    apart = tuple("doubtful" if a == "told" and late else a for a, (_, late) in zip(apart, springs, strict=True))
    rests = separability.rests_on_difference(rows.bases["link"], rows.bases["both"])
    fit = separability.withhold(separability.widened(free, share), rests, apart)
    seen = temperatures_of(model, fit.rows)
    cold = unseen(fit.base.layout, seen)
    fit = replace(fit, status=tuple("undetermined" if c else s for c, s in zip(cold, fit.status, strict=True)))
    verdict, reasons = _judge(fit, model, seen, rigid)
    if verdict == "doubtful":
        fit = replace(fit, status=tuple("doubtful" if s == "determined" else s for s in fit.status))
    if verdict != "not_explained":
        reasons += tuple(
            f"joint {model.joints[j].name}: rotor and link {_APART[apart[j]]}: "
            + ("its spring is undetermined" if entry["stiffness"]["value"] is None else late
               or f"{100 * (1.0 - share[j]):.0f} % of what tells them apart is noise of the encoders")
            for j, (entry, late) in enumerate(springs)
            if rests[j].any() and apart[j] != "told"
        )  # fmt: skip
    found = Estimate(
        model, fit.base, fit.rows, fit.solution, fit.uncertainty, fit.std, rigid.estimate.constants, search=None,
        consistent=None, dropped=np.zeros(len(fit.base), dtype=np.bool_), weights=None,
    )  # fmt: skip
    return replace(
        rigid, estimate=found, status=fit.status, metrics=fit.metrics, verdict=verdict, reasons=reasons,
        velocity="position",
    )  # fmt: skip


def _judge(
    fit: ArmFit, model: RobotModel, seen: TemperatureRange | None, rigid: Identification
) -> tuple[Verdict, tuple[str, ...]]:
    error, still = fit.metrics.relative_error, np.flatnonzero(fit.metrics.count == 0)
    reasons = [f"joint {model.joints[j].name} never moves faster than its min_velocity: it has no rows" for j in still]
    large, small = unexplained(fit.metrics, model)
    if reasons := [*reasons, *large, *small]:
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


def _spring(
    recording: Recording, model: RobotModel, joint: int, settings: SignalSettings, span: Span | None,
    lag: float | Literal["estimate"],
) -> tuple[dict[str, Any], str]:  # fmt: skip
    """Return the entry of a joint's spring in a model file, and a note if its encoders are read at different times.

    The links may be unknown. A value is never better than doubtful: intervals of one joint's fit hold the truth too
    seldom in whole arms (docs/elastic-joint.md).
    """
    pairs = zip(model.joints, recording.joint_names, strict=True)
    named = replace(model, joints=tuple(replace(described, name=name) for described, name in pairs))
    table: dict[str, Any] = {
        "recording": str(recording.path or "recording"), "joint": joint + 1, "cutoff_hz": settings.cutoff_hz,
        "lag": lag, "span": None if span is None else str(span),
    }  # fmt: skip
    try:
        whole = identify_joint(read_elastic_joint(table), recording, named, created="")
    except (ElasticJointError, OperationError) as error:
        return _entry(model, joint, getattr(error, "message", str(error))), ""
    found, k1 = whole.answer, whole.answer["k1"]
    if k1.value is None:
        reason = found.reasons[0] if found.verdict == "doubtful" else k1.reason
        return _entry(model, joint, reason or "these data do not tell it"), ""
    reasons = [*(found.reasons if found.verdict == "doubtful" else ()), _NO_INTERVAL]
    cubic = found["k2"].value if found["k2"].status == "determined" else None
    entry = _entry(model, joint, "; ".join(reasons), k1.value, cubic)
    return entry | {key: whole.document[key] for key in ("drive", "online_start")}, _lateness(found, lag)


def _entry(
    model: RobotModel, joint: int, reason: str, k1: float | None = None, k2: float | None = None
) -> dict[str, Any]:  # fmt: skip
    """Return the entry of a spring in a model file, without a start of an online estimate."""
    name, revolute = model.joints[joint].name, model.joints[joint].kind == "revolute"
    status = "undetermined" if k1 is None else "doubtful"
    return {
        "joint": name, "unit": "N*m/rad" if revolute else "N/m", "stiffness_cubic": k2,
        "stiffness": {"value": k1, "std": None, "status": status, "reason": reason},
        "drive": {}, "online_start": {"reason": reason},
    }  # fmt: skip


def _lateness(found: ElasticFit, given: float | Literal["estimate"]) -> str:
    """Return a note if two encoders are read at different times, or may be; empty otherwise."""
    late = 0.0 if given == "estimate" else given
    for lag in (p for p in found.parameters if p.name.startswith("lag")):
        if lag.value is None or lag.lower is None or lag.upper is None:
            return "it is not known whether its encoders are read at one time"
        late = 0.0 if lag.lower <= 0.0 <= lag.upper else lag.value
    return f"its encoders are read {abs(late) * 1e3:.2g} ms apart, which is not made up for" if late else ""


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
