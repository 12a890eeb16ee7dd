"""Figures of a designed trajectory and its search: use of the limits, determination of the parameters, cost."""

from collections.abc import Mapping, Sequence
from itertools import combinations, product

import numpy as np

from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from service.reports.figures import panels as draw


def history_figure(histories: Sequence[FloatArray]) -> bytes:
    """Draw the cost over iterations (iterations + 1,), one line per start; the best one is highlighted."""
    with draw.style():
        figure, ((axis,),) = draw.grid(1, 1, (7.0, 2.8), head=0.15)
        ends = [float(h[-1]) if h.size else np.inf for h in histories]
        best = int(np.argmin(ends)) if ends else -1
        for k, history in enumerate(histories):
            cost = np.where(np.isfinite(history), history, np.nan)
            mark = "." if cost.size < 3 else None
            colour, width = (draw.PREDICTED, 1.4) if k == best else (draw.AXIS, 0.7)
            axis.plot(np.arange(cost.size), cost, color=colour, lw=width, marker=mark, zorder=3 if k == best else 2)
        if any((h > 0.0).any() for h in histories):
            axis.set_yscale("log")
            draw.plain_ticks(axis.yaxis)
        axis.set(xlabel="iteration", ylabel="lowest cost")
        return draw.png(figure)


_COLOURS = {"position": draw.MEASURED, "velocity": draw.PREDICTED, "acceleration": draw.MARK, "torque": draw.RESIDUAL}

#: Beyond this range a linear axis would hide all but the tallest bars.
_WIDE = 50.0


def limits_figure(model: RobotModel, t: FloatArray, shares: Mapping[str, FloatArray]) -> bytes:
    """Draw the `shares` of the limits in use, by quantity (N, n), over `t` (N,) [s], one panel per joint.

    A share is 1 at the limit; positions are relative to the middle of the allowed range.
    """
    with draw.style():
        figure, axes = draw.joint_panels(model, range(model.n), height=2.0)
        for j, axis in enumerate(axes):
            for name, share in shares.items():
                if np.isfinite(share[:, j]).all():
                    axis.plot(t, share[:, j], color=_COLOURS[name], lw=1.0, label=name)
            for side in (-1.0, 1.0):
                axis.axhline(side, color=draw.AXIS, lw=0.8, ls="--")
            axis.set(ylim=(-1.15, 1.15), xlabel="time [s]", ylabel="share of what is allowed")
        lines = {str(line.get_label()): line for axis in axes for line in axis.get_lines()}
        known = [name for name in shares if name in lines]
        drawn = [lines[name] for name in known]
        figure.legend(drawn, known, loc="upper right", ncols=len(shares), frameon=False)
        return draw.png(figure)


def path_figure(points: FloatArray, floor: float | None, box: Sequence[tuple[float, float]] | None) -> bytes:
    """Draw the flange's path of `points` (N, n + 1, 3) [m], the arm at the start, the floor [m] and the tip's `box`."""
    with draw.style():
        size, three = (6.4, 5.2), {"projection": "3d"}
        figure, ((axis,),) = draw.grid(1, 1, size, left=0.2, right=0.4, foot=0.2, head=0.2, subplot_kw=three)
        axis.plot(*points[:, -1].T, color=draw.PREDICTED, lw=1.0, label="path of the flange")
        start = np.vstack((np.zeros(3), points[0]))
        axis.plot(*start.T, "o-", color=draw.MEASURED, lw=1.5, ms=3.0, label="arm at the start")
        if floor is not None:
            low, high = points.min(axis=(0, 1)), points.max(axis=(0, 1))
            x, y = np.meshgrid(*np.stack((low, high), axis=1)[:2])
            axis.plot_surface(x, y, np.full((2, 2), floor), color=draw.AXIS, alpha=0.3)
            if (below := points[points[..., 2] < floor]).size:
                axis.scatter(*below.T, s=2.0, color=draw.RESIDUAL, label="joints and flange below the floor")
        for one, other in combinations(product(*box), 2) if box else ():
            if np.count_nonzero(np.not_equal(one, other)) == 1:  # an edge
                axis.plot(*zip(one, other, strict=True), color=draw.MARK, lw=0.8, ls="--")
        axis.set(xlabel="x [m]", ylabel="y [m]", zlabel="z [m]", aspect="equal")
        figure.legend(loc="upper left", frameon=False)
        return draw.png(figure)


def determination_figure(singular_values: FloatArray, inflation: FloatArray, names: Sequence[str]) -> bytes:
    """Draw the singular values (p,) of the regressor, and the inflation of each parameter's deviation by the others."""
    with draw.style():
        below = 0.3 + 0.05 * max(map(len, names), default=0)  # names stand upright
        figure, ((left, right),) = draw.grid(1, 2, (10.0, 2.9 + below), foot=below, head=0.15, width_ratios=(1, 3))
        left.plot(np.arange(1, singular_values.size + 1), singular_values, ".-", color=draw.PREDICTED, lw=0.8)
        left.set(xlabel="number", ylabel="singular value")
        places = np.arange(len(names))
        known = np.isfinite(inflation)
        right.bar(places[known], inflation[known], color=draw.PREDICTED)
        right.bar(places[~known], np.full((~known).sum(), inflation[known].max(initial=1.0)), color=draw.RESIDUAL)
        right.set_xticks(places, names, rotation=90, fontsize=6.0)
        right.set(ylabel="spread over that alone", xlim=(-0.7, len(names) - 0.3))
        many = inflation[known].max(initial=1.0) > _WIDE
        for axis in (left, right) if many else (left,):
            axis.set_yscale("log")
            draw.plain_ticks(axis.yaxis)
        return draw.png(figure)
