"""Report of estimates over time as a self-contained HTML page: events, then each parameter with its band."""

from collections.abc import Sequence

import numpy as np

from rt_core.statistics import NORMAL_QUANTILE_95
from rt_core.types import BoolArray, FloatArray
from service.operations.trend import Trend
from service.reports.cells import number
from service.reports.figures.panels import AXIS, PREDICTED, RESIDUAL, grid, nothing, png, style, thin
from service.reports.page import Section, embedded_figure, render_page, table

#: Parameters in one figure.
_TOGETHER = 18
_IN_A_LINE = 3
_COLUMNS = ("<parameter", "first told", "last told", "std", "change", "<now")
_KNOWN = "estimated"
_NO_EVENTS: Section = {"heading": "Events", "note": "No events in this time."}


def trend_page(arm: str, trend: Trend) -> str:
    """Render the estimates and events of an arm; times count from the first estimate."""
    t = trend.arrays()[0]
    begin = float(t[0]) if t.size else 0.0
    events = [(str(k + 1), f"{event.t - begin:.1f}", event.event, event.text) for k, event in enumerate(trend.events)]
    lines = [(event.t - begin, str(k + 1)) for k, event in enumerate(trend.events)]
    rows, figures = _parts(trend, begin, lines)
    others = [(spring, f"{joint}: ") for joint, spring in sorted(trend.joints.items())]
    for other, prefix in others + ([] if trend.breakaway is None else [(trend.breakaway, "")]):
        more = _parts(other, begin, lines, prefix)
        rows, figures = rows + more[0], figures + more[1]
    again = f"Estimates of other parameters began {trend.restarts} times meanwhile; only the last of them are shown."
    sections = [
        *([{"note": again}] if trend.restarts else []),
        *(table("Events", ("number", "time [s]", "<event", "*event"), events) or [_NO_EVENTS]),
        *table("Parameters", _COLUMNS, rows, styles=["" if row[-1] == _KNOWN else "undetermined" for row in rows]),
        {"heading": "Over time"}, *figures, {"note": f"{len(trend)} estimates are drawn."},
    ]  # fmt: skip
    return render_page(f"{arm}: estimates over {t[-1] - begin:.0f} s" if t.size else f"{arm}: no estimates", sections)


def _parts(
    trend: Trend, begin: float, lines: list[tuple[float, str]], prefix: str = ""
) -> tuple[list[tuple[str, ...]], list[Section]]:
    """Return table rows and figures of a trend; `lines` are times of events from `begin` on, and their numbers."""
    t, theta, std, known = trend.arrays()
    count = theta.shape[1] if t.size else 0
    names = [prefix + (trend.names[k] if k < len(trend.names) else f"parameter {k}") for k in range(count)]
    units = [trend.units[k] if k < len(trend.units) else "" for k in range(count)]
    titles = [f"{name} [{unit}]" if unit else name for name, unit in zip(names, units, strict=True)]
    figures = []
    for first in range(0, count, _TOGETHER):
        some = slice(first, first + _TOGETHER)
        image = trend_figure(t - begin, theta[:, some], std[:, some], known[:, some], titles[some], lines)
        figures.append(embedded_figure("trend.figure", image) | {"alt": f"estimates of {', '.join(names[some])}"})
    return [_row(titles[k], theta[:, k], std[:, k], known[:, k]) for k in range(count)], figures


def _row(name: str, theta: FloatArray, std: FloatArray, known: BoolArray) -> tuple[str, ...]:
    """Return the first and last known value of a parameter."""
    there = np.flatnonzero(known)
    now = _KNOWN if known[-1] else "not told by the data"
    if not there.size:
        return (name, *[number(None)] * 4, now)
    a, b = there[0], there[-1]
    return (name, *(number(float(x)) for x in (theta[a], theta[b], std[b], theta[b] - theta[a])), now)


def trend_figure(
    t: FloatArray, theta: FloatArray, std: FloatArray, known: BoolArray, titles: Sequence[str],
    events: Sequence[tuple[float, str]],
) -> bytes:  # fmt: skip
    """Draw values (N, p) over times (N,) [s]: with a band where they are `known` (N, p), grey where not.

    `events` are times [s] and their numbers.
    """
    with style():
        columns = min(_IN_A_LINE, max(len(titles), 1))
        lines = -(-len(titles) // columns)
        figure, panels = grid(lines, columns, (10.0, 0.3 + 1.9 * lines), sharex=True)
        axes = panels.ravel()
        shown = thin(t.size)
        for axis, k in zip(axes, range(len(titles)), strict=False):
            axis.set_title(titles[k])
            value, half, there = theta[shown, k], NORMAL_QUANTILE_95 * std[shown, k], known[shown, k]
            if not np.isfinite(value).any():
                nothing(axis, "not estimated")
            axis.plot(t[shown], np.where(there, np.nan, value), color=AXIS, lw=0.9)
            axis.plot(t[shown], np.where(there, value, np.nan), color=PREDICTED, lw=1.1)
            band = np.where(there, half, np.nan)
            axis.fill_between(t[shown], value - band, value + band, color=PREDICTED, alpha=0.2, lw=0.0)
            for when, number in events:
                axis.axvline(when, color=RESIDUAL, lw=0.8)
                where = ("data", "axes fraction")
                axis.annotate(number, (when, 1.0), xycoords=where, color=RESIDUAL, va="top", fontsize=7)
        for axis in axes[len(titles) :]:
            axis.set_visible(False)
        for axis in axes[max(len(titles) - columns, 0) : len(titles)]:
            axis.set_xlabel("time [s]")
            axis.tick_params(labelbottom=True)
        return png(figure)
