"""Figure of a search: lowest cost after each iteration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from rt_core.types import FloatArray
from service.reports.figures.panels import AXIS, PREDICTED, plain_ticks, png, style


def history_figure(histories: Sequence[FloatArray]) -> bytes:
    """Draw the cost over iterations (iterations + 1,), one line per start; the best one is highlighted."""
    with style():
        figure = Figure(figsize=(7.0, 2.8), layout="constrained")
        axis = figure.subplots()
        ends = [float(h[-1]) if h.size else np.inf for h in histories]
        best = int(np.argmin(ends)) if ends else -1
        for k, history in enumerate(histories):
            cost = np.where(np.isfinite(history), history, np.nan)
            mark = "." if cost.size < 3 else None
            colour, width = (PREDICTED, 1.4) if k == best else (AXIS, 0.7)
            axis.plot(np.arange(cost.size), cost, color=colour, lw=width, marker=mark, zorder=3 if k == best else 2)
        if any((h > 0.0).any() for h in histories):
            axis.set_yscale("log")
            plain_ticks(axis.yaxis)
        axis.set(xlabel="iteration", ylabel="lowest cost")
        return png(figure)
