"""Report of a payload as a self-contained HTML page: verdict, quantities, torque."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drivers.files.recordings.span import Span
from rt_core.model.inertia import mass_com_inertia
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from service.models.document import ModelFile
from service.operations.payload import PayloadResult, Quantity, payload_document
from service.reports.figures import torque_figure
from service.reports.identification import number
from service.reports.page import encoded, render_page

VERDICT_TEXT = {
    "determined": "the payload is determined",
    "partly_determined": "there is a payload; some of it is not determined by these data",
    "doubtful": "there is a payload, but its figures are not to be trusted",
    "no_payload": "no payload is seen",
    "not_determined": "these data do not determine a payload",
    "not_explained": "the recording is not explained; no payload is reported",
}
PAYLOAD_CAPTION = (
    "Measured torque of the recording with payload (black), that of the arm with the payload as estimated (blue, "
    "dashed) and what is left over (orange). What is left over should be small and look like noise."
)
OWN_FIT_CAPTION = (
    "Measured torque of the recording with payload (black), a fit of its own with all parameters free (blue, dashed) "
    "and what is left over (orange). No payload leaves less."
)


def payload_facts(result: PayloadResult, before: ModelFile, loaded: Path) -> list[tuple[str, str]]:
    """Return what was compared, and how well it fits, as pairs of name and value."""
    facts = [("without payload", str(before.path)), ("with payload", str(loaded))]
    if result.errors is not None:
        names = ("without payload", "with it", "of a fit of its own")
        texts = [f"{100 * e:.2f} % {name}" for e, name in zip(result.errors, names, strict=True) if e is not None]
        facts.append(("relative torque error", ", ".join(texts)))
    if result.present:
        allowed = f"allowed for by {100 * result.torque_std:g} %" if result.torque_std else "not in the intervals"
        text = f"a factor common to all torques does not show: mass and inertia have it, too; {allowed}"
        facts.append(("torque scale", text))
    if result.torque_factor is not None and result.torque_factor.value is not None:
        f = result.torque_factor
        text = f"{number(f.value, 5)} (95 % from {number(f.lower, 5)} to {number(f.upper, 5)})"
        facts.append(("torque factor", text))
    if result.scatter is not None:
        facts.append(("scatter", f"{result.scatter:.2f} times what noise explains"))
    return facts


def payload_summary(
    result: PayloadResult, before: ModelFile, loaded: Path, span: Span | None, refit_effects: bool
) -> dict[str, Any]:
    """Return the `--json` result."""
    return payload_document(result) | {
        "robot": before.robot.model.name, "model": str(before.path), "loaded": str(loaded),
        "span": None if span is None else str(span), "refit_effects": refit_effects,
    }  # fmt: skip


def payload_page(result: PayloadResult, before: ModelFile, loaded: Path) -> str:
    """Render the report of the payload between the model file `before`, without it, and `loaded`, with it."""
    model = before.robot.model
    facts = [("robot", model.name), *payload_facts(result, before, loaded)]
    return payload_html(f"{model.name}: payload from {loaded.name}", result, model, facts)


def payload_html(title: str, result: PayloadResult, model: RobotModel, facts: Sequence[tuple[str, str]]) -> str:
    """Render the report of a payload; with a figure of the torque if it comes from a recording.

    `model` is the arm; `facts` are (name, value) pairs of what was done.
    """
    figure, caption = _torque(result, model)
    return render_page(
        "payload", title=title, verdict=result.verdict, verdict_text=VERDICT_TEXT[result.verdict],
        reasons=result.reasons, quantities=[_quantity(q) for q in result.quantities] if result.present else [],
        body=None if result.body is None else _body(result.body), facts=facts,
        figure=None if figure is None else encoded(figure), caption=caption,
    )  # fmt: skip


def _torque(result: PayloadResult, model: RobotModel) -> tuple[bytes | None, str]:
    """Return the figure of the torque, and its caption."""
    fit = result.identification
    if fit is None:
        return None, ""
    if result.predicted is None:
        return torque_figure(model, fit.rows, fit.rows.predict(fit.theta)), OWN_FIT_CAPTION
    return torque_figure(model, fit.rows, result.predicted), PAYLOAD_CAPTION


def _quantity(q: Quantity) -> dict[str, str]:
    cells = {key: number(getattr(q, key), 5) for key in ("value", "lower", "upper")}
    return {"name": q.name, "unit": q.unit, "status": q.status, "reason": q.reason or ""} | cells


def _body(phi: FloatArray) -> dict[str, Any]:
    """Return mass, centre of mass, and inertia about it, as texts."""
    mass, com, inertia = mass_com_inertia(phi)
    return {
        "mass": number(mass, 5),
        "com": " ".join(number(x, 5) for x in com),
        "inertia": "; ".join(" ".join(number(x) for x in row) for row in inertia),
    }
