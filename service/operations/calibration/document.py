"""Results of a calibration as plain data, as a table of residuals, and in one line."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from drivers.files.robots.file import RobotFile
from rt_core.calibration.result import Accuracy, Calibration, Change, Errors, FrameEstimate
from rt_core.calibration.sample import Contacts, Distances
from rt_core.calibration.uncertainty import half_interval
from rt_core.types import BoolArray
from service.operations.calibration.table import MeasurementTable
from service.operations.workspace import Workspace

FORMAT = "thetad-calibration/1"
_MM = 1e3
_NAMED = 20
_RUN = 5


def calibration_document(
    found: Calibration, robot: RobotFile, table: MeasurementTable, settings: Mapping[str, Any], ws: Workspace,
    check: Accuracy | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return the calibration of a job with these `settings` as plain data; `check` are the errors on another table."""
    usable = found.verdict in ("ok", "not_converged")
    return {
        "format": FORMAT, "created": ws.created, "verdict": found.verdict, "reasons": found.reasons,
        "robot": {"name": robot.model.name, "sha256": robot.sha256, "convention": found.model.geometry.convention},
        "data": {
            "sha256": ws.inputs["measurements"].sha256, "poses": len(found.weights),
            "orientation": found.residual_after.shape[1] == 6, "kind": measurement_kind(table),
            "joint_range": [[float(q.min()), float(q.max())] for q in table.q.T],
        },
        "settings": dict(settings),
        "residual": {"training": _accuracy(found.training), "test": _accuracy(found.test), "check": _accuracy(check)},
        "outliers": int(found.outlying.sum()),
        "doubts": doubts_text(found, table.lines) + _check_text(found, check),
        "expected": {
            "rms_mm": _finite(_MM * found.expected.error),
            "nominal_rms_mm": _MM * found.expected.nominal,
            "postures": "random, within the joint limits",
        },
        "distance_offset": _distance_offset(found) if usable else None,
        "scale": {"position_mm": _MM * float(found.scale[0]), "rotation_rad": float(found.scale[1])},
        "parameters": [
            {
                "name": q.name, "unit": q.unit, "nominal": q.nominal, "status": q.status, "value": q.value,
                "std": q.std, "relative_std": q.relative_std, "prior": q.prior,
            }
            for q in found.parameters
        ],
        "base_frame": base_frame(found), "base": _frame(found.base), "tool": _frame(found.tool),
        "points": _points(found, table) if usable else None,
        "heads": _heads(found, table) if usable else None,
        "stations": _stations(found, table) if usable else None,
        "fixed": [{"name": item.name, "reason": item.reason, "on": dict(item.on)} for item in found.fixed],
        "correlated": [{"names": pair[:2], "correlation": pair[2]} for pair in found.correlated],
        "rank": len(found.free), "condition_number": found.condition_number,
        "observability": {name: getattr(found.observability, name) for name in ("O1", "O2", "O3", "O4", "O5")},
        "evaluations": found.evaluations,
        "standard_deviations": {
            "from": "blocks" if found.dependence.found else "independent_errors", "blocks": found.dependence.blocks,
            "variance_ratio": found.dependence.ratio, "limit": found.dependence.limit, "freedom": found.freedom,
        },
        "free": found.free if usable else None, "covariance": found.covariance if usable else None,
        "prediction": {"names": (*found.free, *found.held), "covariance": found.joint_covariance} if usable else None,
        "geometry": corrected_geometry(found) if usable else None,
    }  # fmt: skip


def measurement_kind(table: MeasurementTable) -> str:
    """Return the kind of measurement: position, pose, distance or socket."""
    if isinstance(table.measured, Contacts):
        return "socket"
    if isinstance(table.measured, Distances):
        return "distance"
    return "pose" if table.measured.shape[1] == 7 else "position"


def doubts_text(found: Calibration, lines: list[int]) -> list[str]:
    """Return sentences about poses that do not fit, by their lines in the table, with possible causes."""
    doubts = found.doubts
    out = [_unit_text(found)] if doubts.unit else []
    if doubts.change is not None:
        out.append(_change_text(doubts.change, lines))
    if found.expected.harmful and found.verdict in ("ok", "not_converged"):
        error = f"{_MM * found.expected.error:.2g} mm" if math.isfinite(found.expected.error) else "any amount"
        out.append(
            f"new poses within the joint limits may be off by {error} (root mean square), more than the "
            f"{_MM * found.expected.nominal:.2g} mm of the nominal arm as measured: the "
            f"{found.training.postures} distinct postures fitted say too little of the arm; measure others, over the "
            "whole range of all joints, or use it near the measured ones only"
        )
    out += [f"lines {lines[i]} and {lines[j]} look exchanged with each other" for i, j in doubts.exchanged]
    paired = {pose for pair in doubts.exchanged for pose in pair}
    single = [str(lines[pose]) for pose in doubts.poses if pose not in paired]
    if single:
        more = f", and {len(single) - _NAMED} more" if len(single) > _NAMED else ""
        out.append(f"poses that do not fit the others at all: lines {', '.join(single[:_NAMED])}{more}")
    if doubts.needed:
        out.append(
            f"too few poses to look for bad ones: {found.training.postures} were fitted, and {doubts.needed} would do; "
            "a bad one may look like errors of the arm"
        )
    if rising := rising_joints(found):
        out.append(
            f"{', '.join(rising)} below zero, by more than a 95 % interval: a joint would rise under its load; check "
            "the masses of the robot file, the sign of gravity and how the arm is mounted"
        )
    for first, last in _runs(found.outlying):
        out.append(
            f"lines {lines[first]} to {lines[last]} do not fit the others, all of them: something was moved or changed "
            "there, such as the instrument, the base or the tool"
        )
    return out


def _unit_text(found: Calibration) -> str:
    left = found.doubts.unit_left
    return found.doubts.unit + ("" if left is None else f" ({100.0 * left:.0f} % of the error would be left)")


def _change_text(change: Change, lines: list[int]) -> str:
    """Return a sentence about a change between two poses, by their lines in the table."""
    what, size = change.what, np.array(change.size)
    if what == "instrument":
        shift, turn = _MM * np.linalg.norm(size[:3]), math.degrees(np.linalg.norm(size[3:]))
        text = f"the instrument (or the base) looks moved by {shift:.3g} mm and turned by {turn:.3g} deg: measure its"
        advice = "poses as two stations"
    elif what == "tool":
        text = f"the tool looks moved by {_MM * np.linalg.norm(size[:3]):.3g} mm: calibrate the"
        advice = "poses before and after one by one"
    else:
        text = f"the zero of {what} looks changed by {_MM * size[0]:.3g} mrad (or mm): calibrate the"
        advice = "poses before and after one by one"
    return f"from line {lines[change.at]} on {text} {advice} ({100.0 * change.left:.0f} % of the error would be left)"


def rising_joints(found: Calibration) -> list[str]:
    """Return the names of compliances that are below zero by more than half a 95 % interval."""
    half = half_interval(found.freedom)
    return [
        q.name
        for q in found.parameters
        if q.name.startswith("compliance") and q.value is not None and q.std is not None and q.value < -half * q.std
    ]


def _runs(on: BoolArray) -> list[tuple[int, int]]:
    """Return first and last index of each run of `_RUN` or more successive ones of `on` (N,)."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], on, [False])).astype(np.int64)))
    return [(int(a), int(b) - 1) for a, b in edges.reshape(-1, 2) if b - a >= _RUN]


def _heads(found: Calibration, table: MeasurementTable) -> list[dict[str, Any]] | None:
    """Return the offsets of several points on the tool from the first, along the axes of the last frame."""
    if table.head is None:
        return None
    offsets = found.model.offsets(found.x)
    return [{"number": k, "offset": offset} for k, offset in zip(table.head_numbers, offsets, strict=True)]


def _stations(found: Calibration, table: MeasurementTable) -> list[dict[str, Any]] | None:
    """Return the base of the robot in the instrument's frame at each of its places."""
    if table.station is None:
        return None
    frames = zip(table.station_numbers, (found.base, *found.stations), strict=True)
    return [{"number": number, **(_frame(frame) or {})} for number, frame in frames]


def _points(found: Calibration, table: MeasurementTable) -> list[dict[str, Any]] | None:
    """Return sockets or centres in the base of the robot, without those that no fitted pose shows."""
    if table.numbers is None:
        return None
    names = set(found.free)
    return [
        {"number": number, "translation": place}
        for k, (number, place) in enumerate(zip(table.known_numbers, found.places, strict=True))
        if f"point{k + 1}_x" in names
    ]


def _check_text(found: Calibration, check: Accuracy | None) -> list[str]:
    """Return a sentence if the corrected arm does worse on another table than the nominal one."""
    if check is None or check.after.rms <= check.before.rms or found.verdict not in ("ok", "not_converged"):
        return []
    return [
        f"on the table to check with the corrected arm is off by {_MM * check.after.rms:.3g} mm (root mean square), "
        f"the nominal one by {_MM * check.before.rms:.3g} mm: the corrections do not hold there"
    ]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _distance_offset(found: Calibration) -> dict[str, float] | None:
    """Return the constant of the distance sensor, if it was estimated."""
    if "distance_offset" not in found.free:
        return None
    k = found.free.index("distance_offset")
    std = _MM * math.sqrt(float(found.covariance[k, k]))
    return {"value_mm": _MM * found.model.sensor_offset(found.x), "std_mm": std}


def _accuracy(accuracy: Accuracy | None) -> dict[str, Any] | None:
    if accuracy is None:
        return None
    counts = {"poses": accuracy.count, "postures": accuracy.postures}
    return counts | {"before": _errors(accuracy.before), "after": _errors(accuracy.after)}


def _errors(errors: Errors) -> dict[str, float | None]:
    out: dict[str, float | None] = {
        "mean_mm": _MM * errors.mean, "rms_mm": _MM * errors.rms, "max_mm": _MM * errors.maximum,
    }  # fmt: skip
    if errors.angle_mean is not None and errors.angle_maximum is not None:
        out |= {"mean_deg": math.degrees(errors.angle_mean), "max_deg": math.degrees(errors.angle_maximum)}
    return out


def base_frame(found: Calibration) -> str:
    """Return the base of the corrected arm: the "robot"'s own, or defined by "joint1"'s nominal zero and height.

    The latter where measurements do not separate the base from errors of the first joint. A prior of these errors
    leaves them at zero, because the base fits as well with any, and only gives their possible size.
    """
    return "robot" if found.base is None and not found.model.points else "joint1"


def _frame(frame: FrameEstimate | None) -> dict[str, Any] | None:
    if frame is None:
        return None
    return {
        "translation": frame.translation, "translation_std": frame.translation_std, "rotation": frame.rotation,
        "rotation_std": frame.rotation_std,
    }  # fmt: skip


def corrected_geometry(found: Calibration) -> dict[str, Any]:
    """Return placements of the calibrated joints, and of two frames in the last link; nominal where undetermined.

    `tip` is the measured frame, `robot_tip` that of the robot file, at its nominal place beyond the last row.
    """
    joints, (rotation, translation) = found.model.joints(found.x)
    nominal = found.model.geometry
    with_tip = found.model.with_frame("tool", nominal.tip_rotation, nominal.tip_translation)
    x = found.x.copy()
    x[found.model.belongs_to("tool")] = 0.0
    _, (own_rotation, own_translation) = with_tip.joints(x)
    placed = [
        {
            "name": joint.name, "kind": joint.kind, "rotation": joint.rotation, "translation": joint.translation,
            "axis": joint.axis,
        }
        for joint in joints
    ]  # fmt: skip
    return {
        "joints": placed,
        "tip": {"rotation": rotation, "translation": translation},
        "robot_tip": {"rotation": own_rotation, "translation": own_translation},
    }


def residual_table(found: Calibration, use: BoolArray, lines: list[int]) -> str:
    """Return every pose with its line in the file: the error before and after, and the latter's components."""
    columns = ["line", "part", "weight", "before_mm", "after_mm"]
    columns += ["dx_mm", "dy_mm", "dz_mm"] if found.residual_after.shape[1] > 1 else ["d_mm"]
    turns = found.residual_after.shape[1] == 6
    if turns:
        columns += ["before_deg", "after_deg"]
    out = [",".join(columns)]
    for i, line in enumerate(lines):
        before, after = found.residual_before[i], found.residual_after[i]
        values = [np.linalg.norm(before[:3]), np.linalg.norm(after[:3]), *after[:3]]
        texts = [f"{_MM * value:.6f}" for value in values]
        if turns:
            texts += [f"{math.degrees(np.linalg.norm(r[3:])):.6f}" for r in (before, after)]
        part = "training" if use[i] else "test"
        out.append(",".join((str(line), part, f"{found.weights[i]:.6f}", *texts)))
    return "\n".join(out) + "\n"


def summary(found: Calibration) -> str:
    """Return the calibration in one line."""
    shown, of = (found.training, "training") if found.test is None else (found.test, "test")
    text = (
        f"{found.verdict}: {_MM * shown.before.mean:.3f} mm before, {_MM * shown.after.mean:.3f} mm after "
        f"(mean of {shown.count} {of} poses)"
    )
    open_ = [q.name for q in found.parameters if q.value is None]
    if found.reasons:
        return f"{text}; {found.reasons[0]}" + (f"; {_unit_text(found)}" if found.doubts.unit else "")
    text += f"; undetermined: {', '.join(open_)}" if open_ else ""
    for status, what in (("imprecise", "imprecise"), ("prior", "from the prior, not from the poses")):
        names = [q.name for q in found.parameters if q.status == status]
        text += f"; {what}: {', '.join(names)}" if names else ""
    return text
