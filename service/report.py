"""Self-contained HTML reports: verdict first, then what was done, the torque, the parameters."""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape

from rt_core.batch.rows import Rows
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from rt_core.validation import Metrics
from service.plots import residual_figure, torque_figure

VERDICT_TEXT = {
    "ok": "the model explains the torque",
    "weak_excitation": "the model explains the torque, but the data do not determine all of it",
    "doubtful": "the model explains most of the torque, but its parameters are not to be trusted",
    "worse_than_fit": "the model predicts this motion much worse than the one it was identified on",
    "not_explained": "the model does not explain the torque; no parameters are reported",
}


def number(value: float | None, digits: int = 4) -> str:
    """Short text of a number, a dash for none."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}g}"


def html_report(
    title: str,
    model: RobotModel,
    rows: Rows,
    predicted: FloatArray,
    metrics: Metrics,
    verdict: str,
    reasons: Sequence[str],
    facts: Sequence[tuple[str, str]],
    parameters: Sequence[dict[str, Any]] = (),
) -> str:
    """Render a report of an identification, or of a validation when there are no `parameters`."""
    environment = Environment(loader=PackageLoader("service"), autoescape=select_autoescape(default=True))
    joints = [
        {
            "name": joint.name,
            "count": int(metrics.count[j]),
            "unit": "N·m" if joint.kind == "revolute" else "N",
            "rmse": number(metrics.rmse[j]),
            "mae": number(metrics.mae[j]),
            "max": number(metrics.maximum[j]),
            "R": number(metrics.R[j]),
            "explained": f"{100 * metrics.explained[j]:.1f} %" if math.isfinite(metrics.explained[j]) else "–",
        }
        for j, joint in enumerate(model.joints)
    ]
    table = [
        {
            "name": p["name"],
            "value": number(p["value"], 5),
            "interval": number(None if p["std"] is None else 1.96 * p["std"], 2),
            "unit": p["unit"],
            "relative": "–" if p["relative_std"] is None else f"{100 * p['relative_std']:.2g} %",
            "status": p["status"],
            "expression": p["expression"],
        }
        for p in parameters
    ]
    counts = Counter(p["status"] for p in parameters)
    return environment.get_template("report.html.j2").render(
        title=title,
        verdict=verdict,
        verdict_text=VERDICT_TEXT.get(verdict, verdict),
        reasons=reasons,
        facts=facts,
        joints=joints,
        parameters=table,
        counts=", ".join(f"{n} {status}" for status, n in counts.items()) + ".",
        torque_png=base64.b64encode(torque_figure(model, rows, predicted, "measured and predicted torque")).decode(),
        residual_png=base64.b64encode(residual_figure(model, rows, predicted)).decode(),
    )
