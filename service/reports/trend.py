"""Report of estimates over time as a self-contained HTML page: events, then each parameter with its band."""

from __future__ import annotations

import numpy as np

from rt_core.types import BoolArray, FloatArray
from service.operations.trend import Trend
from service.reports.figures.trend import trend_figure
from service.reports.identification import number
from service.reports.page import encoded, render_page

#: Parameters in one figure.
_TOGETHER = 18
CAPTION = (
    "Estimates (blue) with their 95 % band; grey where the data did not tell the parameter, or no longer do. "
    "Numbered lines are the events above."
)


def trend_page(arm: str, trend: Trend) -> str:
    """Render the estimates and events of an arm; times count from the first estimate."""
    t = trend.arrays()[0]
    begin = float(t[0]) if t.size else 0.0
    events = [
        {"number": str(k + 1), "t": f"{event.t - begin:.1f}", "event": event.event, "text": event.text}
        for k, event in enumerate(trend.events)
    ]
    lines = [(event.t - begin, str(k + 1)) for k, event in enumerate(trend.events)]
    rows, figures = _parts(trend, begin, lines)
    others = [(spring, f"{joint}: ") for joint, spring in sorted(trend.joints.items())]
    for other, prefix in others + ([] if trend.breakaway is None else [(trend.breakaway, "")]):
        more = _parts(other, begin, lines, prefix)
        rows, figures = rows + more[0], figures + more[1]
    return render_page(
        "trend",
        title=f"{arm}: estimates over {t[-1] - begin:.0f} s" if t.size else f"{arm}: no estimates",
        events=events, rows=rows, figures=figures, caption=CAPTION, restarts=trend.restarts, kept=len(trend),
    )  # fmt: skip


def _parts(
    trend: Trend, begin: float, lines: list[tuple[float, str]], prefix: str = ""
) -> tuple[list[dict[str, object]], list[dict[str, str]]]:
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
        figures.append({"png": encoded(image), "alt": f"estimates of {', '.join(names[some])}"})
    return [_row(titles[k], theta[:, k], std[:, k], known[:, k]) for k in range(count)], figures


def _row(name: str, theta: FloatArray, std: FloatArray, known: BoolArray) -> dict[str, object]:
    """Return the first and last known value of a parameter."""
    there = np.flatnonzero(known)
    texts = dict.fromkeys(("first", "last", "std", "moved"), number(None))
    if there.size:
        a, b = there[0], there[-1]
        values = {"first": theta[a], "last": theta[b], "std": std[b], "moved": theta[b] - theta[a]}
        texts = {key: number(float(value)) for key, value in values.items()}
    return {"name": name, "now": bool(known[-1]), **texts}
