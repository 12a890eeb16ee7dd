"""Report of an elastic joint or arm as a self-contained HTML page: verdict, parameters, figures."""

from __future__ import annotations

from collections.abc import Sequence

from rt_core.elastic.hysteresis import hysteresis
from rt_core.elastic.identify import ElasticParameter
from service.operations.elastic.arm import ElasticArm
from service.operations.elastic.joint import VERDICT_TEXT, ElasticIdentification
from service.operations.elastic.online import OnlineResult
from service.reports.figures.elastic import (
    elastic_cyclic_figure,
    elastic_friction_figure,
    elastic_history_figure,
    elastic_residual_figure,
    stiffness_figure,
)
from service.reports.identification import html_report, number, percent
from service.reports.page import embedded_figure, render_page

CYCLIC = ("A1", "A2")
STATUS_NOTE = (
    "Determined: the standard deviation is at most 30 % of the value. Weak: more, but small, and known to be small. "
    "Undetermined: these data do not tell, and no value is shown. Doubtful: see the verdict."
)
INTERVAL_NOTE = " Intervals span the direct and the inverse regression, for errors of torque and of deflection."
ONLINE_NOTE = (
    "Statuses are those above; all are doubtful while the joint changes, the estimate is not valid, or the off-line "
    "values are doubtful. Intervals span both regressions, as far as the off-line fit and what is remembered tell them."
)
STIFFNESS_CAPTION = (
    "Torque of the spring against its deflection. Points are each row's torque less the fitted friction, the line is "
    "the fitted spring. Points of both rows should lie on it, in both directions; two branches are friction that the "
    "law does not describe, or a lag of the encoders."
)
MEASURED_CAPTION = (
    "Measured torque against the difference of the encoders. These data tell no stiffness, so friction, lag and zero "
    "are still in it."
)
FRICTION_CAPTION = (
    "Friction torque against speed, on the joint side. Points are each row's torque less the fitted spring, the line "
    "is the fitted law. One speed alone does not tell viscous from Coulomb friction."
)
CYCLIC_CAPTION = (
    "Friction of the link's side that goes with its angle. Points are the sensor's row less the fitted spring and the "
    "friction that goes with speed, the line is the fitted law. Over little of a turn an offset of the sensor, or a "
    "load that goes with the angle, looks alike."
)
RESIDUAL_CAPTION = (
    "What the fit leaves, over time and against the deflection. It should look like noise; a bow against the "
    "deflection is a spring of another shape, a wave over time an encoder or gear that runs out of true."
)
ONLINE_CAPTION = (
    "Online estimate over the recording (blue, with its 95 % band; grey where it was not determined, or in doubt), "
    "started off the off-line values (dashed), and its forgetting factor and relative error."
)


def elastic_facts(result: ElasticIdentification) -> list[tuple[str, str]]:
    """Return what was done, as pairs of name and value."""
    document, signals, fit = result.document, result.signals, result.answer
    drive, recording = signals.drive, signals.recording
    name = "a recording" if recording.path is None else str(recording.path)
    inertia = "not known: constant speed only" if drive.rotor_inertia is None else f"{drive.rotor_inertia:.4g} kg*m^2"
    facts = [
        ("recording", f"{name}, span {document['data']['span']}, sha256 {recording.sha256[:12]}"),
        ("joint", signals.name),
        ("gear ratio", f"{drive.gear_ratio:.6g}"),
        ("rotor inertia", inertia),
        ("stage", f"{result.found.stage}, rows: {fit.rows}"),
        ("rows", f"{fit.fit.deflection.size}, cut-off {document['settings']['cutoff_hz']:g} Hz"),
        ("slowest", f"{document['settings']['min_velocity']:.3g} rad/s"),
        ("relative torque error", percent(fit.metrics.relative_error, ".2f")),
        ("condition number", f"{fit.fit.solution.scaled_condition_number:.0f} with unit columns"),
    ]
    facts += [
        (f"hysteresis, {side} row", f"{loop.half_width:.3g} N*m each way, std {loop.std:.2g}: not in the model")
        for side, loop in zip(fit.fit.terms.sides, hysteresis(fit.fit), strict=True)
        if loop is not None and result.accepted
    ]
    if signals.torque_constant is not None:
        facts.insert(3, ("torque constant", f"{signals.torque_constant:.5g} N*m/A"))
    return facts


def elastic_page(result: ElasticIdentification, online: OnlineResult | None = None) -> str:
    """Render the report of a stage; with `online` also the online estimate over the recording."""
    fit = result.answer
    path = result.signals.recording.path
    tables = [
        {"heading": heading, "note": STATUS_NOTE + INTERVAL_NOTE, "rows": _rows(other.parameters)}
        for heading, other in (
            ("Parameters", fit), *((f"For comparison: rows {other.rows}", other) for other in result.found.fits[:-1]),
        )
    ]  # fmt: skip
    caption = STIFFNESS_CAPTION if result.accepted else MEASURED_CAPTION
    figures = [embedded_figure(caption, stiffness_figure(fit.fit, known=result.accepted), "Stiffness")]
    if result.accepted and fit.fit.terms.damping:
        terms = fit.fit.terms
        open_ = {q.name for q in fit.parameters if q.value is None}
        drawn = elastic_friction_figure(fit.fit, result.signals.drive.gear_ratio, open_)
        unknown = sorted(open_ & {*terms.damping, *terms.constants} - set(CYCLIC))
        note = f" No law is drawn where these data do not determine it: {', '.join(unknown)}." if unknown else ""
        figures.append(embedded_figure(FRICTION_CAPTION + note, drawn, "Friction"))
        if set(CYCLIC) <= set(terms.damping) - open_:
            figures.append(embedded_figure(CYCLIC_CAPTION, elastic_cyclic_figure(fit.fit), "Cyclic friction"))
    if result.accepted:
        figures.append(embedded_figure(RESIDUAL_CAPTION, elastic_residual_figure(fit.fit), "Residual"))
    facts = elastic_facts(result)
    if online is not None:
        note = ONLINE_NOTE if online.warning is None else f"{online.warning}. {ONLINE_NOTE}"
        tables.insert(1, {"heading": "Online estimate", "note": note, "rows": _rows(online.last.parameters)})
        drawn = elastic_history_figure(online.history, online.reference)
        figures.append(embedded_figure(ONLINE_CAPTION, drawn, "Online estimate"))
        facts += online.facts()
    return render_page(
        "elastic", title=f"{result.signals.name}: elastic joint from {'a recording' if path is None else path.name}",
        verdict=fit.verdict, verdict_text=VERDICT_TEXT[fit.verdict], reasons=fit.reasons, tables=tables, facts=facts,
        figures=figures,
    )  # fmt: skip


def elastic_arm_html(found: ElasticArm) -> str:
    """Render the report of an arm with elastic joints."""
    name = found.recording.file_name or "a recording"
    return html_report(
        f"{found.robot.model.name}: elastic joints from {name}", found.robot.model, found.fit.rows,
        found.fit.rows.predict(found.fit.solution.theta), found.fit.metrics, found.verdict, found.reasons,
        found.facts(), found.document["parameters"] if found.accepted else (),
    )  # fmt: skip


def _rows(parameters: Sequence[ElasticParameter]) -> list[dict[str, str]]:
    return [
        {"name": q.name, "unit": q.unit, "status": q.status, "reason": q.reason or ""}
        | {key: number(getattr(q, key), 5) for key in ("value", "lower", "upper")}
        for q in parameters
    ]
