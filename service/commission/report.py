"""Report of a commissioning as one HTML page: verdict, signs, friction, excitation, model, validation."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from drivers.files.recordings.recording import read_recording
from drivers.files.robots.file import RobotFile
from rt_core.commissioning.friction_law import FrictionFit
from service.commission.commissioning import CommissionResult
from service.models.document import load_model
from service.reports.cells import PARAMETERS, certain, number, parameter_row, percent
from service.reports.figures import SweepCurve, sweep_figure, torque_figure
from service.reports.figures.panels import torque_unit
from service.reports.page import Section, embedded_figure, fact_table, render_page, table, text
from service.reports.validation import report_validation

_JOINTS = ("<joint", "R", "RMSE", "maximum", "<unit", "explained")
_CHECKS = ("<joint", "<check", "!verdict", "value", "margin", "*meaning")
_FRICTION = ("<joint", "<law", "<values", "<friction in", "scatter")
_MOTORS = ("<motor of", "torque constant", "rel.\u00a0std", "stated", "*because")
_VERDICTS = {"ok": "ok", "wrong": "wrong", "cannot_tell": "cannot tell"}
_GRID = 80


def commission_html(robot: RobotFile, result: CommissionResult, *, rehearsal: bool) -> str:
    """Render the report of the results so far."""
    where = "rehearsal with a simulated arm" if rehearsal else "commissioning"
    found = {name: result.find(name) for name in ("joints", "friction", "payload", "validate", "identify", "design")}
    validate, identify, design = found["validate"], found["identify"], found["design"]
    notes = [note for name in ("robot", "signals", "friction") for note in result.find(name).get("notes", [])]
    steps = [(s["step"], s["state"], s["summary"], number(s["seconds"], 3)) for s in result.steps]
    joints = [_joint(row, robot, j) for j, row in enumerate(validate.get("joints", []))]
    limit = f"Each joint needs R above {validate.get('least_R')}. {_sentence(validate)}"
    seen = found["joints"].get("seen", [])
    looked = f" Seen to move as described: {', '.join(seen)}." if seen else ""
    figures = _figures(robot, result)
    facts = [*design.get("facts", []), ("narrowest limit", _left(design))]
    facts += [("not checked", what) for what in design.get("unchecked", [])]
    excitation = [*fact_table("Excitation", facts), {"note": "More is in design/report.html."}]
    sections = [
        *table("Steps", ("<step", "!state", "*what it came to", "seconds"), steps), {"points": notes},
        *table("Validation", _JOINTS, joints, f"Torque of a run that the model was not fitted to. {limit}"),
        *figures.get("torque", ()),
        *table(
            "Signs, units and order of the signals", _CHECKS, map(_check, found["joints"].get("checks", [])),
            text("commission.checks") + looked,
        ),
        *table("Friction", _FRICTION, map(_friction, found["friction"].get("joints", [])), text("commission.friction")),
        *figures.get("friction", ()),
        *table(
            "Torque constants", _MOTORS, map(_motor, found["payload"].get("motors", [])),
            "From the current that a known payload costs, in N·m/A at the motor.",
        ),
        *(excitation if design.get("facts") else ()),
        *table("Parameters", PARAMETERS, _parameters(identify), _fitted(identify)),
    ]  # fmt: skip
    error = identify.get("relative_error")
    return render_page(
        f"{robot.model.name}: {where}", sections,
        verdict="ok" if result.validated else "wrong" if result.failed else "open", verdict_text=_verdict(result),
        facts=() if error is None else [("relative torque error", percent(error, ".3g"))],
    )  # fmt: skip


def _sentence(step: dict[str, Any]) -> str:
    return f"{'; '.join(step['reasons'])}." if step.get("reasons") else ""


def _fitted(identify: dict[str, Any]) -> str:
    error = percent(identify.get("relative_error"), ".3g")
    head = f"Job {identify.get('job')}, verdict {identify.get('verdict')}, relative torque error {error}."
    undetermined = "Undetermined: the data do not tell, and no value is shown."
    parts = (head, _sentence(identify), undetermined, text("identification.interval"))
    return f"{' '.join(parts)} More is in identification/report.html."


def _verdict(result: CommissionResult) -> str:
    if result.failed:
        return f"ended at step {result.failed}: {result.reason}"
    if result.validated:
        open_ = f"; not told: {'; '.join(result.open)}" if result.open else ""
        return f"the model predicts the validation run on every joint{open_}"
    return "not all steps have been done"


def _check(check: dict[str, Any]) -> tuple[str, ...]:
    spread = "" if check["std"] is None else f" ± {number(check['std'], 2)}"
    numbers = (f"{number(check['value'], 4)}{spread}", number(check["margin"], 3))
    return (check["joint_name"], check["check"], _VERDICTS[check["verdict"]], *numbers, check["text"])


def _friction(row: dict[str, Any]) -> tuple[str, ...]:
    values = zip(row["parameters"], row["values"], row["std"], strict=True)
    text = ", ".join(f"{name} {number(value, 4)} ± {number(std, 2)}" for name, value, std in values)
    unit = row.get("unit", "").replace("*", "·")
    return (row["name"], row["law"].replace("_", " and "), text, unit, number(row["scatter"], 3))


def _motor(row: dict[str, Any]) -> tuple[str, ...]:
    known = row["determined"]
    relative = certain(row["std"] / abs(row["torque_constant"]) if known else None)
    value = number(row["torque_constant"], 5) if known else "not determined"
    return (row["name"], value, relative, number(row["stated"], 5), row["text"])


def _left(design: dict[str, Any]) -> str:
    worst = design.get("worst")
    return "" if not worst else f"{percent(worst['share'], '.3g')} left to {worst['quantity']} of {worst['where']}"


def _parameters(identify: dict[str, Any]) -> list[tuple[str, ...]]:
    if not identify.get("model"):
        return []
    return [parameter_row(row) for row in load_model(Path(identify["model"])).document["parameters"]]


def _joint(row: dict[str, Any], robot: RobotFile, j: int) -> tuple[str, ...]:
    numbers = (number(row["R"], 5), number(row["rmse"]), number(row["max"]))
    return (row["name"], *numbers, torque_unit(robot.model, j), percent(row["explained"], ".2f"))


def _figures(robot: RobotFile, result: CommissionResult) -> dict[str, list[Section]]:
    found: dict[str, list[Section]] = {}
    friction = result.find("friction")
    if friction.get("joints"):
        units = {row.get("unit", "") for row in friction["joints"]} - {"N*m", "N"}
        unit = units.pop() if units else ""  # the figure derives the unit of a torque from the joint
        curves = [_curve(j, row) for j, row in enumerate(friction["joints"])]
        found["friction"] = [embedded_figure("commission.friction_figure", sweep_figure(robot.model, curves, unit))]
    validate, identify = result.find("validate"), result.find("identify")
    if validate.get("recording") and identify.get("model"):
        report = report_validation(load_model(Path(identify["model"])), read_recording(Path(validate["recording"])))
        picture = torque_figure(report.model.robot.model, report.result.rows, report.result.predicted)
        found["torque"] = [embedded_figure("commission.torque_figure", picture)]
    return found


def _curve(j: int, row: dict[str, Any]) -> SweepCurve:
    speed, friction, std, values = (
        np.array(row[k], dtype=np.float64) for k in ("speed", "friction", "friction_std", "values")
    )
    fit = FrictionFit(
        row["law"], tuple(row["parameters"]), values, np.array(row["covariance"]), row["scatter"], row.get("free", 0)
    )
    grid = np.geomspace(0.8 * speed.min(), 1.2 * speed.max(), _GRID)
    return SweepCurve(j, speed, friction, std, grid, *fit.at(grid), fit.quantile_95)


def summary(robot: RobotFile, result: CommissionResult, files: Sequence[tuple[str, Path]]) -> dict[str, Any]:
    """Return the `--json` result; `files` are pairs of name and path."""
    validate, identify = result.find("validate"), result.find("identify")
    rows = validate.get("joints", [])
    return {
        "robot": robot.model.name, "validated": result.validated, "failed": result.failed or None,
        "reason": result.reason or None, "open": result.open,
        "seconds": round(sum(step["seconds"] for step in result.steps), 1),
        "steps": [{key: step[key] for key in ("step", "state", "summary", "seconds")} for step in result.steps],
        "R": {row["name"]: row["R"] for row in rows}, "rmse": {row["name"]: row["rmse"] for row in rows},
        "relative_error": validate.get("relative_error"), "model": identify.get("model"),
        "model_id": identify.get("model_id"), "promotion": validate.get("promotion"),
        **{name: str(path) for name, path in files},
    }  # fmt: skip
