"""Report of a payload as a self-contained HTML page: verdict, quantities, torque."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drivers.files.recordings.span import Span
from rt_core.model.inertia import mass_com_inertia
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from service.models.document import ModelFile
from service.operations.payload import PayloadResult, payload_document
from service.reports.cells import ESTIMATES, estimate_row, number
from service.reports.figures import torque_figure
from service.reports.page import Section, embedded_figure, fact_table, render_page, table, text

VERDICT_TEXT = {
    "determined": "the payload is determined",
    "partly_determined": "there is a payload; some of it is not determined by these data",
    "doubtful": "there is a payload, but its figures are not to be trusted", "no_payload": "no payload is seen",
    "not_determined": "these data do not determine a payload",
    "not_explained": "the recording is not explained; no payload is reported",
}  # fmt: skip


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
    note = f"{text('payload.quantities')} {text('identification.interval')}"
    sections = [
        *(table("Payload", ESTIMATES, map(estimate_row, result.quantities), note) if result.present else ()),
        *(_body(result.body) if result.body is not None else ()), *fact_table("What was done", facts),
        *_torque(result, model),
    ]  # fmt: skip
    return render_page(
        title, sections, verdict=result.verdict, verdict_text=VERDICT_TEXT[result.verdict], reasons=result.reasons,
        facts=facts,
    )  # fmt: skip


def _torque(result: PayloadResult, model: RobotModel) -> list[Section]:
    """Return the figure of the torque, if there is a recording."""
    fit = result.identification
    if fit is None:
        return []
    own = result.predicted is None
    predicted = fit.rows.predict(fit.theta) if result.predicted is None else result.predicted
    key = "payload.own_fit_figure" if own else "payload.payload_figure"
    return [embedded_figure(key, torque_figure(model, fit.rows, predicted), "Torque, joint by joint")]


def _body(phi: FloatArray) -> list[Section]:
    """Return mass, centre of mass, and inertia about it."""
    mass, com, inertia = mass_com_inertia(phi)
    facts = (
        ("mass", f"{number(mass, 5)} kg"),
        ("centre of mass", f"{' '.join(number(x, 5) for x in com)} m"),
        ("inertia about it", f"{'; '.join(' '.join(number(x) for x in row) for row in inertia)} kg*m^2"),
    )
    return [part | {"note": "For a controller's payload setting."} for part in fact_table("Nearest real body", facts)]
