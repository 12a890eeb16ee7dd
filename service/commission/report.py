"""Report of a commissioning as one HTML page: verdict, signs, friction, excitation, model, validation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from drivers.files.recordings.recording import read_recording
from drivers.files.robots.file import RobotFile
from rt_core.commissioning.friction_law import FrictionFit
from service.commission.commissioning import CommissionResult
from service.models.document import load_model
from service.reports.figures import SweepCurve, sweep_figure, torque_figure
from service.reports.identification import certain, number, parameter_row, percent
from service.reports.page import embedded_figure, render_page
from service.reports.validation import report_validation

FRICTION_CAPTION = (
    "Friction against speed, without a model: half the difference of torque between the way there and the way back. "
    "Bars are 95 % intervals of the measured points, the band that of the law through them. Where points lie off the "
    "band, friction depends on something else too, such as the position or the load."
)
TORQUE_CAPTION = (
    "The validation run: measured torque (black), the model's (blue, dashed) and what is left over (orange). The model "
    "has not seen this motion. What is left over should be small and look like noise."
)
_VERDICTS = {"ok": "ok", "wrong": "wrong", "cannot_tell": "cannot tell"}
_GRID = 80


def commission_html(robot: RobotFile, result: CommissionResult, *, rehearsal: bool) -> str:
    """Render the report of the results so far."""
    where = "rehearsal with a simulated arm" if rehearsal else "commissioning"
    friction, payload, validate = (result.find(name) for name in ("friction", "payload", "validate"))
    return render_page(
        "commission", title=f"{robot.model.name}: {where}",
        verdict="ok" if result.validated else "wrong" if result.failed else "open", verdict_text=_verdict(result),
        steps=[
            {
                "name": step["step"], "state": step["state"], "summary": step["summary"],
                "seconds": number(step["seconds"], 3),
            }
            for step in result.steps
        ],
        notes=[note for name in ("robot", "signals", "friction") for note in result.find(name).get("notes", [])],
        checks=[_check(check) for check in result.find("joints").get("checks", [])],
        looked=result.find("joints").get("seen", []), friction=[_friction(row) for row in friction.get("joints", [])],
        motors=[_motor(row) for row in payload.get("motors", [])], design=result.find("design"),
        left=_left(result.find("design")), parameters=_parameters(result.find("identify")),
        identify=result.find("identify"), error=percent(result.find("identify").get("relative_error"), ".3g"),
        joints=[_joint(row, robot, j) for j, row in enumerate(validate.get("joints", []))], validate=validate,
        figures=_figures(robot, result),
    )  # fmt: skip


def _verdict(result: CommissionResult) -> str:
    if result.failed:
        return f"ended at step {result.failed}: {result.reason}"
    if result.validated:
        open_ = f"; not told: {'; '.join(result.open)}" if result.open else ""
        return f"the model predicts the validation run on every joint{open_}"
    return "not all steps have been done"


def _check(check: dict[str, Any]) -> dict[str, str]:
    std = check["std"]
    spread = "" if std is None else f" ± {number(std, 2)}"
    return {
        "joint": check["joint_name"], "what": check["check"], "verdict": _VERDICTS[check["verdict"]],
        "style": check["verdict"], "value": f"{number(check['value'], 4)}{spread}",
        "margin": number(check["margin"], 3), "text": check["text"],
    }  # fmt: skip


def _friction(row: dict[str, Any]) -> dict[str, str]:
    values = zip(row["parameters"], row["values"], row["std"], strict=True)
    return {
        "name": row["name"], "unit": row.get("unit", "").replace("*", "·"), "law": row["law"].replace("_", " and "),
        "values": ", ".join(f"{name} {number(value, 4)} ± {number(std, 2)}" for name, value, std in values),
        "scatter": number(row["scatter"], 3),
    }  # fmt: skip


def _motor(row: dict[str, Any]) -> dict[str, str]:
    relative = row["std"] / abs(row["torque_constant"]) if row["determined"] else None
    return {
        "name": row["name"], "value": number(row["torque_constant"], 5) if row["determined"] else "not determined",
        "relative": certain(relative), "stated": number(row["stated"], 5), "text": row["text"],
    }  # fmt: skip


def _left(design: dict[str, Any]) -> str:
    worst = design.get("worst")
    return "" if not worst else f"{percent(worst['share'], '.3g')} left to {worst['quantity']} of {worst['where']}"


def _parameters(identify: dict[str, Any]) -> list[dict[str, str]]:
    if not identify.get("model"):
        return []
    return [parameter_row(row) for row in load_model(Path(identify["model"])).document["parameters"]]


def _joint(row: dict[str, Any], robot: RobotFile, j: int) -> dict[str, str]:
    return {
        "name": row["name"], "R": number(row["R"], 5), "rmse": number(row["rmse"]), "max": number(row["max"]),
        "unit": "N·m" if robot.model.joints[j].kind == "revolute" else "N",
        "explained": percent(row["explained"], ".2f"),
    }  # fmt: skip


def _figures(robot: RobotFile, result: CommissionResult) -> dict[str, dict[str, str]]:
    found = {}
    friction = result.find("friction")
    if friction.get("joints"):
        units = {row.get("unit", "") for row in friction["joints"]} - {"N*m", "N"}
        unit = units.pop() if units else ""  # the figure derives the unit of a torque from the joint
        curves = [_curve(j, row) for j, row in enumerate(friction["joints"])]
        found["friction"] = embedded_figure(FRICTION_CAPTION, sweep_figure(robot.model, curves, unit))
    validate, identify = result.find("validate"), result.find("identify")
    if validate.get("recording") and identify.get("model"):
        report = report_validation(load_model(Path(identify["model"])), read_recording(Path(validate["recording"])))
        picture = torque_figure(report.model.robot.model, report.result.rows, report.result.predicted)
        found["torque"] = embedded_figure(TORQUE_CAPTION, picture)
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
