"""Report of an identification or validation as a self-contained HTML page: verdict, parameters, figures."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np

from rt_core.identification.friction_curve import friction_curve
from rt_core.identification.identify import Identification
from rt_core.identification.joint_verdict import verdicts_of
from rt_core.identification.status import ParameterStatus
from rt_core.model.robot import RobotModel
from rt_core.types import BoolArray, FloatArray
from rt_core.validation import Metrics
from service.operations.identify import Validation
from service.reports import figures
from service.reports.cells import PARAMETERS, VERDICT_TEXT, number, parameter_row, percent
from service.reports.figures.panels import torque_unit
from service.reports.page import Section, embedded_figure, fact_table, render_page, table, text

_JOINTS = ("<joint", "=verdict", "*because", "*parameters")
_TORQUES = ("<joint", "rows", "RMSE", "mean abs.", "maximum", "<unit", "R", "explained")


def html_report(
    title: str, model: RobotModel, result: Identification | Validation, facts: Sequence[tuple[str, str]],
    document: Mapping[str, Any] | None = None, history: Sequence[FloatArray] = (),
) -> str:  # fmt: skip
    """Render the report of an identification, with the verdict on each joint and friction curves, or of a validation.

    `facts` are (name, value) pairs of what was done. `document` is the model file; its `parameters` and `constants` are
    shown. `history` holds the cost after each iteration (iterations + 1,) of each start of a search.
    """
    rows, verdict, document = result.rows, result.verdict, document or {}
    parameters, accepted = document.get("parameters", ()), verdict != "not_explained"
    worst = int(np.argmin(np.nan_to_num(result.metrics.explained, nan=np.inf)))
    explained = f"{percent(result.metrics.explained[worst], '.2f')} of its torque explained"
    facts = [*facts, ("worst joint", f"{model.joints[worst].name}, {explained}")]
    sections: list[Section] = []
    if isinstance(result, Identification):
        predicted = rows.predict(result.theta)
        sections += table("Joint by joint", _JOINTS, _joints(result))
    else:
        predicted = result.predicted
    if accepted:
        sections += table("Parameters", PARAMETERS, map(parameter_row, parameters), _statuses(parameters))
        columns = ("<constant", *PARAMETERS[1:5], "!status")
        constants, note = map(_constant, document.get("constants", ())), text("identification.constants")
        sections += table("Velocity constants of friction", columns, constants, note)
    sections += fact_table("What was done", facts)
    sections += table("Torque, joint by joint", _TORQUES, _torques(model, result.metrics))
    sections.append(embedded_figure("identification.torque_figure", figures.torque_figure(model, rows, predicted)))
    if isinstance(result, Identification) and accepted:
        sections += _friction(result)
    sections += [
        embedded_figure("identification.velocity_figure", figures.residual_figure(model, rows, predicted), "Residual"),
        embedded_figure("identification.spectrum_figure", figures.spectrum_figure(model, rows, predicted)),
        embedded_figure("identification.histogram_figure", figures.histogram_figure(model, rows, predicted)),
    ]
    if history:
        sections.append(embedded_figure("identification.history_figure", figures.history_figure(history), "Search"))
    meaning = VERDICT_TEXT.get(verdict, verdict)
    return render_page(title, sections, verdict=verdict, verdict_text=meaning, reasons=result.reasons, facts=facts)


def _statuses(parameters: Sequence[dict[str, Any]]) -> str:
    """Return how many parameters have which status, and what those mean."""
    found = Counter(sorted((p["status"] for p in parameters), key=_rank))
    counts = ", ".join(f"{n} {status}" for status, n in found.items())
    rare = [f"identification.{status}" for status in ("prior", "dropped", "doubtful") if found[status]]
    return f"{counts}. " + " ".join(map(text, ["identification.status", *rare, "identification.interval"]))


def _rank(status: str) -> int:
    """Return the rank of a status: best first, others (of the online core) last."""
    known: tuple[str, ...] = get_args(ParameterStatus)
    return known.index(status) if status in known else len(known)


def _joints(fit: Identification) -> list[tuple[str, ...]]:
    return [
        (joint.name, found.word, found.reason, ", ".join(f"{n} {status}" for status, n in found.counts.items()))
        for joint, found in zip(fit.model.joints, verdicts_of(fit), strict=True)
    ]


def _torques(model: RobotModel, metrics: Metrics) -> list[tuple[str, ...]]:
    """Return the prediction error of each joint's torque."""
    sizes = (metrics.rmse, metrics.mae, metrics.maximum)
    return [
        (
            joint.name, f"{metrics.count[j]:.0f}", *(number(size[j]) for size in sizes), torque_unit(model, j),
            number(metrics.R[j], 5), percent(metrics.explained[j], ".2f"),
        )
        for j, joint in enumerate(model.joints)
    ]  # fmt: skip


def _constant(c: dict[str, Any]) -> tuple[str, ...]:
    return (c["name"], *(number(c[key], 5) for key in ("value", "lower", "upper")), c["unit"], c["status"])


def _friction(fit: Identification) -> list[Section]:
    """Draw the friction curves of all joints that have one, in one figure."""
    known = np.isfinite(fit.std)
    covariance, constants = fit.uncertainty.covariance, tuple[str, ...]()
    search = fit.estimate.search
    p = len(fit.base)
    if search is not None and np.array_equal(search.covariance[:p, :p], covariance):
        # no later step has changed the parameters: their covariance with the constants is known, too
        covariance, constants = search.covariance, tuple(c.name for c in search.constants)
    if fit.temperatures is not None:
        return _friction_by_temperature(fit, covariance, known, constants)
    found = [
        friction_curve(fit.model, fit.base, fit.rows, fit.theta, covariance, known, joint, constants)
        for joint in range(fit.model.n)
    ]
    curves = [curve for curve in found if curve is not None]
    missing = [joint.name for joint, curve in zip(fit.model.joints, found, strict=True) if curve is None]
    if not curves:
        return []
    note = f" Without a curve, for lack of friction or of data: {', '.join(missing)}." if missing else ""
    return [
        embedded_figure("identification.friction_figure", figures.friction_figure(fit.model, curves), "Friction", note)
    ]


def _friction_by_temperature(
    fit: Identification, covariance: FloatArray, known: BoolArray, constants: Sequence[str]
) -> list[Section]:
    """Draw the friction curves of all joints that have one, at the lowest, middle and highest temperature of each."""
    seen = fit.temperatures
    families = []
    for joint in range(fit.model.n):
        if seen is None or not np.isfinite(seen.lower[joint]):
            continue
        found = [
            friction_curve(fit.model, fit.base, fit.rows, fit.theta, covariance, known, joint, constants, float(at))
            for at in np.linspace(seen.lower[joint], seen.upper[joint], 3)
        ]
        if curves := [curve for curve in found if curve is not None]:
            families.append(curves)
    if not families:
        return []
    drawn = figures.friction_temperature_figure(fit.model, families)
    return [embedded_figure("identification.friction_temperature_figure", drawn, "Friction")]
