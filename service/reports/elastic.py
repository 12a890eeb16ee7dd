"""Report of an elastic joint as a self-contained HTML page: verdict, parameters, figures."""

import itertools
from collections.abc import Sequence

from rt_core.elastic.hysteresis import hysteresis
from rt_core.elastic.identify import ElasticParameter
from service.operations.elastic.joint import VERDICT_TEXT, ElasticIdentification
from service.operations.elastic.online import OnlineResult
from service.reports.cells import ESTIMATES, estimate_row, percent
from service.reports.figures import elastic as draw
from service.reports.page import Section, embedded_figure, fact_table, render_page, table, text

CYCLIC = ("A1", "A2")


def elastic_facts(result: ElasticIdentification) -> list[tuple[str, str]]:
    """Return what was done, as pairs of name and value."""
    document, signals, fit = result.document, result.signals, result.answer
    drive, recording = signals.drive, signals.recording
    name = "a recording" if recording.path is None else str(recording.path)
    inertia = "not known: constant speed only" if drive.rotor_inertia is None else f"{drive.rotor_inertia:.4g} kg*m^2"
    facts = [
        ("recording", f"{name}, span {document['data']['span']}, sha256 {recording.sha256[:12]}"),
        ("joint", signals.name), ("gear ratio", f"{drive.gear_ratio:.6g}"), ("rotor inertia", inertia),
        ("stage", f"{result.found.stage}, rows: {fit.rows}"),
        ("rows", f"{fit.fit.deflection.size}, cut-off {document['settings']['cutoff_hz']:g} Hz"),
        ("slowest", f"{document['settings']['min_velocity']:.3g} rad/s"),
        ("relative torque error", percent(fit.metrics.relative_error, ".2f")),
        ("condition number", f"{fit.fit.solution.scaled_condition_number:.0f} with unit columns"),
    ]  # fmt: skip
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
        _table(heading, other.parameters, f"{text('elastic.status')} {text('elastic.interval')}")
        for heading, other in (
            ("Parameters", fit), *((f"For comparison: rows {other.rows}", other) for other in result.found.fits[:-1]),
        )
    ]  # fmt: skip
    caption = "elastic.stiffness_figure" if result.accepted else "elastic.measured_figure"
    figures = [embedded_figure(caption, draw.stiffness_figure(fit.fit, known=result.accepted), "Stiffness")]
    if result.accepted and fit.fit.terms.damping:
        terms = fit.fit.terms
        open_ = {q.name for q in fit.parameters if q.value is None}
        drawn = draw.elastic_friction_figure(fit.fit, result.signals.drive.gear_ratio, open_)
        unknown = sorted(open_ & {*terms.damping, *terms.constants} - set(CYCLIC))
        note = f" No law is drawn where these data do not determine it: {', '.join(unknown)}." if unknown else ""
        figures.append(embedded_figure("elastic.friction_figure", drawn, "Friction", note))
        if set(CYCLIC) <= set(terms.damping) - open_:
            figures.append(
                embedded_figure("elastic.cyclic_figure", draw.elastic_cyclic_figure(fit.fit), "Cyclic friction")
            )
    if result.accepted:
        figures.append(embedded_figure("elastic.residual_figure", draw.elastic_residual_figure(fit.fit), "Residual"))
    facts = elastic_facts(result)
    if online is not None:
        note = text("elastic.online") if online.warning is None else f"{online.warning}. {text('elastic.online')}"
        tables.insert(1, _table("Online estimate", online.last.parameters, note))
        drawn = draw.elastic_history_figure(online.history, online.reference)
        figures.append(embedded_figure("elastic.online_figure", drawn, "Online estimate"))
        facts += online.facts()
    return render_page(
        f"{result.signals.name}: elastic joint from {'a recording' if path is None else path.name}",
        [*itertools.chain(*tables), *fact_table("What was done", facts), *figures], verdict=fit.verdict,
        verdict_text=VERDICT_TEXT[fit.verdict], reasons=fit.reasons, facts=facts,
    )  # fmt: skip


def _table(heading: str, parameters: Sequence[ElasticParameter], note: str) -> list[Section]:
    return table(heading, ESTIMATES, map(estimate_row, parameters), note)
