"""Report of a designed trajectory as a self-contained HTML page, and its table of points for a controller."""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from rt_core.excitation.constraints import Margin, PriorTorque
from rt_core.excitation.design import ExcitationDesign
from rt_core.excitation.fourier import FourierSeries
from rt_core.excitation.limits import Limits
from rt_core.model.frames import chain_points
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from service.reports.cells import number, percent
from service.reports.figures.excitation import determination_figure, history_figure, limits_figure, path_figure
from service.reports.page import embedded_figure, fact_table, render_page, table, text

VERDICT_TEXT = {
    "ok": "the motion keeps {limits} and determines all parameters that count",
    "poor": "the motion keeps {limits}, but some parameters are determined poorly",
    "undetermined": "the motion keeps {limits}, but does not tell some parameters apart",
    "infeasible": "no motion within the limits was found; there is no trajectory",
}
_WEAKEST = ("<parameter", "part", "spread", "*what it stands for")
_MARGINS = ("<where", "<quantity", "reached", "allowed", "limit", "left")
#: Points of a period in the figure.
_SHOWN = 500


def verdict_text(verdict: str, design: ExcitationDesign) -> str:
    """Return the meaning of a verdict on `design`, some of whose limits may be assumed or unchecked."""
    known = not (design.assumed or design.unchecked)
    return VERDICT_TEXT[verdict].format(limits="every limit" if known else "every limit that is known")


def excitation_html(
    model: RobotModel, design: ExcitationDesign, verdict: str, reasons: Sequence[str],
    facts: Sequence[tuple[str, str]], floor: float | None = None,
) -> str:  # fmt: skip
    """Render the report of `design`; `facts` are pairs of name and value, `floor` a height in the base frame [m]."""
    drawn = determination_figure(design.spectrum.singular_values, design.spectrum.inflation, design.parameters)
    own = excitation_facts(design)
    weakest = [(weak.name, percent(weak.share), number(weak.inflation, 3), weak.expression) for weak in design.weakest]
    margins = sorted(design.margins, key=lambda margin: margin.share)
    out = f"{text('excitation.left_out')} {', '.join(design.left_out)}." if design.left_out else ""
    unchecked = Markup(" <strong>Not checked: {}.</strong>" if design.unchecked else "").format(
        "; ".join(design.unchecked)
    )
    path = path_figure(path_points(model, design), floor, design.settings.workspace)
    sections = [
        *fact_table("What was designed", [*own, *facts]),
        *table("Weakest parameters", _WEAKEST, weakest, text("excitation.weakest")), *([{"note": out}] if out else []),
        *table(
            "Limits", _MARGINS, [margin_row(margin) for margin in margins], text("excitation.limits") + unchecked,
            ["broken" if margin.share < 0.0 else "" for margin in margins],
        ),
        embedded_figure("excitation.determination_figure", drawn, "Determination"),
        embedded_figure("excitation.limits_figure", limits_figure(model, *limit_shares(model, design)), "Motion"),
        embedded_figure("excitation.path_figure", path),
    ]  # fmt: skip
    histories = [search.history for search in design.searches if search.history.size > 1]
    if histories:
        sections.append(embedded_figure("excitation.history_figure", history_figure(histories), "Search"))
    narrowest = f"{percent(design.worst.share, '.3g')} left to {design.worst.quantity} of {design.worst.where}"
    return render_page(
        f"{model.name}: excitation trajectory", sections, verdict=verdict, verdict_text=verdict_text(verdict, design),
        reasons=reasons, facts=[*own, ("narrowest limit", narrowest)],
    )  # fmt: skip


def path_points(model: RobotModel, design: ExcitationDesign) -> FloatArray:
    """Return where links and flange are over a period (N, n + 1, 3) [m], to 1 µm: what stands at zero is not below."""
    return chain_points(model, design.series.sample(np.linspace(0.0, design.series.period_s, _SHOWN + 1))[0]).round(6)


def excitation_facts(design: ExcitationDesign) -> list[tuple[str, str]]:
    """Return the properties of the motion, as pairs of name and value."""
    spectrum, settings = design.spectrum, design.settings
    judged = "unit norm" if settings.scaled else "SI units"
    return [
        ("condition number", f"{number(spectrum.condition_scaled)} with columns of unit norm, "
                             f"{number(spectrum.condition_unscaled)} in SI units; designed for {judged}"),
        ("basis", f"{len(design.parameters)} base parameters"
                  f"{' of the links only' if settings.columns == 'rigid' else ''}" + (
            f", {len(design.left_out)} left out" if design.left_out else "")),
        ("largest spread", f"{number(float(spectrum.inflation.max()), 3)} times that of the parameter alone"),
        ("motion", f"{design.series.harmonics} harmonics of {design.series.f0_hz:g} Hz, "
                   f"period {design.series.period_s:g} s"
                   f"{'' if settings.rest else ', begins and ends at speed'}"),
        ("search", f"{design.optimiser}, objective {settings.objective}, seed {design.seed}, "
                   f"{sum(search.evaluations for search in design.searches)} evaluations"),
    ]  # fmt: skip


def limit_shares(model: RobotModel, design: ExcitationDesign) -> tuple[FloatArray, dict[str, FloatArray]]:
    """Return times (N,) over a period, and the shares of the limits that the motion uses, by quantity (N, n)."""
    series, limits = design.series, Limits.of(model, design.settings)
    t = np.linspace(0.0, series.period_s, _SHOWN + 1)
    q, dq, ddq = series.sample(t)
    middle, half = 0.5 * (limits.lower + limits.upper), 0.5 * (limits.upper - limits.lower)
    shares = {"position": (q - middle) / half, "velocity": dq / limits.velocity}
    shares["acceleration"] = ddq / limits.acceleration
    if model.inertial is not None:
        torque = PriorTorque(model)((q, dq, ddq))
        shares["torque"] = np.where(np.isfinite(limits.effort), torque / limits.effort, np.nan)
    return t, shares


def margin_row(margin: Margin) -> tuple[str, ...]:
    """Return a margin as texts."""
    limit = number(margin.limit) + (" (assumed)" if margin.assumed else "")
    numbers = (number(margin.reached), number(margin.allowed), limit, percent(margin.share, ".3g"))
    return (margin.where, margin.quantity, *numbers)


def point_table(model: RobotModel, series: FourierSeries, rate_hz: float) -> str:
    """Return one period as a table of set positions at equal intervals, in the units of a motion controller.

    Degrees or millimetres, a semicolon between columns, no exponents; headings name joint and unit. Such tables suit
    TwinCAT's NC FIFO channels (one row per FIFO cycle) and cam and scope tools.
    """
    count = round(series.period_s * rate_hz)
    q = series.sample(np.arange(count + 1) / rate_hz)[0]
    turning = np.array([joint.kind == "revolute" for joint in model.joints])
    values = np.where(turning, np.degrees(q), 1e3 * q)
    heads = [f"{joint.name} [{'deg' if turns else 'mm'}]" for joint, turns in zip(model.joints, turning, strict=True)]
    lines = [";".join(["time [s]", *heads])]
    lines += [f"{k / rate_hz:.9g};" + ";".join(f"{v:.9f}" for v in row) for k, row in enumerate(values.tolist())]
    return "\r\n".join(lines) + "\r\n"
