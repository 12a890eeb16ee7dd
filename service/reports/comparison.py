"""Comparison of estimators as table, figure and page."""

import numpy as np

from service.operations.compare import Comparison
from service.reports.cells import number
from service.reports.figures.panels import grid, plain_ticks, png, style
from service.reports.page import embedded_figure, fact_table, render_page, table, text

HEADINGS = ("method", "error", "worst joint", "least R", "parameters", "constants", "success", "time")
_COLOUR = "#0072B2"


def ordered(result: Comparison) -> list[str]:
    """Return the methods by their median torque error, those without a result last."""
    summaries = {name: result.summary(name)["error_in_noise"] for name in result.methods}
    return sorted(result.methods, key=lambda name: (summaries[name] is None, summaries[name] or 0.0))


def table_rows(result: Comparison) -> list[tuple[str, ...]]:
    """Return one row of texts per method, best first; the headings are `HEADINGS`."""
    rows: list[tuple[str, ...]] = []
    for name in ordered(result):
        s = result.summary(name)
        if s["error_in_noise"] is None:
            rows.append((name, "refused", "", "", "", "", "0 %", s["failure"] or ""))
            continue
        worst = float(np.max(s["torque_error"] / result.noise))
        parameter = "\u2013" if s["parameter_error"] is None else f"{100 * s['parameter_error']:.2g} %"
        constants = "\u2013"
        if s["constants"]:
            constants = f"{s['constants_inside']}/{s['constants_determined']} of {s['constants']}"
        rows.append(
            (
                name, number(s["error_in_noise"], 3), number(worst, 3), f"{s['least_R']:.4f}", parameter, constants,
                f"{100 * s['success_rate']:.0f} %", "\u2013" if np.isnan(s["seconds"]) else f"{s['seconds']:.2g} s",
            )
        )  # fmt: skip
    return rows


def comparison_figure(result: Comparison) -> bytes:
    """Draw the torque error of every seed, and the time, per method."""
    names = ordered(result)[::-1]
    places = np.arange(len(names))
    with style():
        timed = any(np.isfinite(t.seconds) for t in result.trials)  # durations on different machines are not comparable
        size, left_in = (9.0, 1.2 + 0.32 * len(names)), 0.2 + 0.07 * max(map(len, names), default=0)
        figure, (axes,) = grid(1, 2 if timed else 1, size, left=left_in, head=0.15, sharey=True)
        left, right = axes[0], axes[-1]
        for k, name in enumerate(names):
            done = [t for t in result.of(name) if not t.failure]
            errors = [result.total_error(t) for t in done]
            left.plot(errors, np.full(len(errors), k), "o", ms=3.0, alpha=0.5, color=_COLOUR)
            if errors:
                left.plot(np.median(errors), k, "|", ms=14.0, mew=2.0, color="black")
            if errors and timed:
                right.plot(np.median([t.seconds for t in done]), k, "o", ms=4.0, color="black")
        left.axvline(1.0, color="#D55E00", lw=0.8, ls="--")
        for axis in axes:
            axis.set_xscale("log")
            plain_ticks(axis.xaxis)
            axis.grid(alpha=0.25)
        left.set_yticks(places, names)
        left.set_ylim(-0.6, len(names) - 0.4)
        if timed:
            right.set_xlabel("time [s]")
        left.set_xlabel("torque error, in units of the noise")
        return png(figure)


def comparison_html(result: Comparison) -> str:
    """Render the report of a comparison."""
    c = result.conditions
    facts = [
        ("robot", f"{result.model.name}, {result.model.n} joints, friction {result.model.friction.law}"),
        ("motions", f"{c.seconds:g} s to learn from, {c.validation_s:g} s to be judged on, of their own for each seed"),
        ("seeds", str(len(result.of(result.methods[0])))),
        ("torque noise", ", ".join(f"{s:.3g}" for s in result.noise) + " N\u00b7m"),
        ("outliers", f"{100 * c.outliers:g} % of the training samples"),
    ]
    drawn = embedded_figure("comparison.figure", comparison_figure(result))
    results = table("", ("<method", *HEADINGS[1:]), table_rows(result), text("comparison.table"))
    sections = [*results, drawn, *fact_table("Conditions", facts)]
    return render_page(f"{result.model.name}: estimators compared", sections)
