"""Report of an identification or validation as a self-contained HTML page: verdict, parameters, figures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np

from rt_core.identification.friction_curve import friction_curve
from rt_core.identification.identify import Identification
from rt_core.identification.joint_verdict import verdicts_of
from rt_core.identification.rows import Rows
from rt_core.identification.status import ParameterStatus
from rt_core.model.robot import RobotModel
from rt_core.statistics import NORMAL_QUANTILE_95
from rt_core.types import BoolArray, FloatArray
from rt_core.validation import Metrics
from service.reports.figures import (
    friction_figure,
    friction_temperature_figure,
    histogram_figure,
    history_figure,
    residual_figure,
    spectrum_figure,
    torque_figure,
)
from service.reports.page import embedded_figure, render_page

VERDICT_TEXT = {
    "ok": "the model explains the torque",
    "weak_excitation": "the model explains the torque, but the data do not determine all of it",
    "doubtful": "the model explains most of the torque, but its parameters are not to be trusted",
    "outside_temperatures": "joints are colder or hotter than when the model was identified: it is not known to hold",
    "worse_than_fit": "the model predicts this motion much worse than the one it was identified on",
    "not_explained": "the model does not explain the torque; no parameters are reported",
}

TORQUE_CAPTION = (
    "Measured torque (black), the model's (blue, dashed) and what is left over (orange). The residual should be small "
    "and look like noise. If it follows the motion, something is not modelled; if it jumps where a joint turns round, "
    "that is friction. Lines break where a row was not used."
)
FRICTION_CAPTION = (
    "The fitted law (blue) with its 95 % band, and the data: each row's measured torque less everything but this "
    "joint's friction. Points should lie evenly on both sides of the curve at every velocity; where they do not, the "
    "law does not describe this joint. A wide band means few data at these velocities. The curve ends where the data "
    "do and leaves out standstill; friction that depends on load or position is not in it."
)
FRICTION_TEMPERATURE_CAPTION = (
    "The fitted law with its 95 % band at the lowest, the middle and the highest temperature of each joint, and the "
    "data in the colour of their temperature. Points should lie about the curve of their colour; curves that lie "
    "within each other's bands show no influence of temperature. Nothing is known outside these temperatures."
)
VELOCITY_CAPTION = (
    "Residual against velocity. An even band around zero is noise. A slope, a step at zero or a bow is friction that "
    "the law does not describe; a few points far out are outliers."
)
SPECTRUM_CAPTION = (
    "Power spectrum of the torque (black) and of the residual (orange). A flat residual is noise, and the dotted line "
    "is its floor. A residual that rises above the floor where the torque is strong is something not modelled; a "
    "narrow peak elsewhere is vibration or torque ripple. Right of the edge of the band (green) the filter rules."
)
HISTOGRAM_CAPTION = (
    "Distribution of the residual, and the normal curve of the same mean and standard deviation; dotted lines at three "
    "standard deviations, the outermost bars hold all beyond. Many values beyond 3σ are outliers or a model error that "
    "comes and goes; two humps are mostly friction that the law has wrong."
)
HISTORY_CAPTION = (
    "Lowest cost after each iteration of the search, one line for each start, the best in blue. A line that still "
    "falls at its end needed more iterations; starts that end at different costs have found different minima."
)


def number(value: float | None, digits: int = 4) -> str:
    """Return a number as a short text, a dash for None."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}g}"


def percent(value: float | None, digits: str = ".2g") -> str:
    """Return a share in per cent as text, a dash for None."""
    return "–" if value is None or not math.isfinite(value) else f"{100 * value:{digits}} %"


def certain(value: float | None) -> str:
    """Return a relative standard deviation as text; beyond 100 % without its size."""
    return percent(value) if value is None or not value > 1.0 or math.isinf(value) else "> 100 %"


def html_report(
    title: str, model: RobotModel, rows: Rows, predicted: FloatArray, metrics: Metrics, verdict: str,
    reasons: Sequence[str], facts: Sequence[tuple[str, str]], parameters: Sequence[dict[str, Any]] = (), *,
    identification: Identification | None = None, constants: Sequence[dict[str, Any]] = (),
    history: Sequence[FloatArray] = (),
) -> str:  # fmt: skip
    """Render the report of an identification, or of a validation when there are no `parameters`.

    `predicted` (K, n) is the model's torque at `rows`, `facts` are (name, value) pairs of what was done, and
    `parameters` as `service.models.document.parameter_table` makes them. The `identification` fitted to `rows` adds the
    verdict on each joint and the friction curves. `constants` are velocity constants of the friction law: `name`,
    `value`, `lower`, `upper`, `unit`, `status`; `value` is None where the data do not determine it. `history` holds the
    cost after each iteration (iterations + 1,) of each start of a search.
    """
    accepted = verdict != "not_explained"
    figures = [embedded_figure(TORQUE_CAPTION, torque_figure(model, rows, predicted))]
    if identification is not None and accepted:
        figures += _friction(identification)
    figures += [
        embedded_figure(VELOCITY_CAPTION, residual_figure(model, rows, predicted), "Residual"),
        embedded_figure(SPECTRUM_CAPTION, spectrum_figure(model, rows, predicted)),
        embedded_figure(HISTOGRAM_CAPTION, histogram_figure(model, rows, predicted)),
    ]
    if history:
        figures.append(embedded_figure(HISTORY_CAPTION, history_figure(history), "Search"))
    statuses = Counter(sorted((p["status"] for p in parameters), key=_rank))
    return render_page(
        "report", title=title, verdict=verdict, verdict_text=VERDICT_TEXT.get(verdict, verdict), reasons=reasons,
        facts=facts, joints=[] if identification is None else _joints(identification), torques=_torques(model, metrics),
        parameters=[parameter_row(p) for p in parameters] if accepted else [],
        constants=[_constant(c) for c in constants] if accepted else [], statuses=statuses,
        counts=", ".join(f"{n} {status}" for status, n in statuses.items()), figures=figures,
    )  # fmt: skip


def _rank(status: str) -> int:
    """Return the rank of a status: best first, others (of the online core) last."""
    known: tuple[str, ...] = get_args(ParameterStatus)
    return known.index(status) if status in known else len(known)


def _joints(fit: Identification) -> list[dict[str, Any]]:
    """Return the verdict on each joint."""
    return [
        {
            "name": joint.name, "word": found.word, "style": found.word.replace(" ", "_"),
            "counts": ", ".join(f"{n} {status}" for status, n in found.counts.items()), "reason": found.reason,
        }
        for joint, found in zip(fit.model.joints, verdicts_of(fit), strict=True)
    ]  # fmt: skip


def _torques(model: RobotModel, metrics: Metrics) -> list[dict[str, str]]:
    """Return the prediction error of each joint's torque."""
    return [
        {
            "name": joint.name, "count": f"{metrics.count[j]:.0f}", "unit": "N·m" if joint.kind == "revolute" else "N",
            "rmse": number(metrics.rmse[j]), "mae": number(metrics.mae[j]), "max": number(metrics.maximum[j]),
            "R": number(metrics.R[j], 5), "explained": percent(metrics.explained[j], ".2f"),
        }
        for j, joint in enumerate(model.joints)
    ]  # fmt: skip


def parameter_row(p: dict[str, Any]) -> dict[str, str]:
    """Return a parameter of a model file as texts, with its 95 % interval."""
    # a dropped parameter is held at zero: its missing deviation is no knowledge
    open_ended = p["value"] is None or p["std"] is None or p["status"] == "dropped"
    half = None if open_ended else NORMAL_QUANTILE_95 * p["std"]
    return {
        "name": p["name"], "value": number(p["value"], 5),
        "lower": number(None if half is None else p["value"] - half, 5),
        "upper": number(None if half is None else p["value"] + half, 5), "unit": p["unit"],
        "relative": certain(p["relative_std"]), "status": p["status"], "expression": p["expression"],
    }  # fmt: skip


def _constant(c: dict[str, Any]) -> dict[str, str]:
    bounds = {key: number(c[key], 5) for key in ("lower", "upper")}
    return {"name": c["name"], "value": number(c["value"], 5), "unit": c["unit"], "status": c["status"]} | bounds


def _friction(fit: Identification) -> list[dict[str, str]]:
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
    return [embedded_figure(FRICTION_CAPTION + note, friction_figure(fit.model, curves), "Friction")]


def _friction_by_temperature(
    fit: Identification, covariance: FloatArray, known: BoolArray, constants: Sequence[str]
) -> list[dict[str, str]]:
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
    return [embedded_figure(FRICTION_TEMPERATURE_CAPTION, friction_temperature_figure(fit.model, families), "Friction")]
