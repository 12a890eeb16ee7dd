"""Figure of estimates over time, each with its 95 % band, and events."""

from collections.abc import Sequence

import numpy as np

from rt_core.statistics import NORMAL_QUANTILE_95
from rt_core.types import BoolArray, FloatArray
from service.reports.figures.panels import AXIS, PREDICTED, RESIDUAL, grid, nothing, png, style, thin

_IN_A_LINE = 3


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
