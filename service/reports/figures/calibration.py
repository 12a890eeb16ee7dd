"""Figures of a calibration: errors in space, their sizes, and their directions."""

import numpy as np
from matplotlib.axes import Axes

from rt_core.types import BoolArray, FloatArray
from service.reports.figures.panels import AXIS, MARK, MEASURED, PREDICTED, RESIDUAL, grid, png, style, thin

_MM = 1e3
_BINS = 40
#: Length of the arrow of a large error before, as a share of the workspace's size; one in twenty is larger.
_ARROW = 0.1
_LARGE = 0.95
_MAX_ARROWS = 400


def error_vectors_figure(positions: FloatArray, before: FloatArray, after: FloatArray) -> bytes:
    """Draw errors (N, 3) [m] at `positions` (N, 3) [m], before and after, with equally scaled arrows.

    Errors without a direction (N, 1) are points whose size grows with the error.
    """
    chosen = np.unique(np.linspace(0, len(positions) - 1, min(len(positions), _MAX_ARROWS)).astype(np.int64))
    p = positions[chosen]
    size = float(np.ptp(p, axis=0).max()) or 1.0
    largest = float(np.quantile(np.linalg.norm(before[:, :3], axis=1), _LARGE)) or 1.0
    factor = _ARROW * size / largest
    with style():
        figure, panels = grid(1, 2, (10.0, 4.8), left=0.2, foot=0.2, subplot_kw={"projection": "3d"})
        for k, (title, errors) in enumerate((("before", before), ("after", after))):
            axis = panels[0, k]
            e = errors[chosen, :3]
            mean = _MM * float(np.linalg.norm(errors[:, :3], axis=1).mean())
            axis.set_title(f"{title}: mean {mean:.3g} mm, arrows {factor:.3g} times too long")
            if e.shape[1] == 3:
                axis.scatter(*p.T, s=2.0, color=AXIS)
                axis.quiver(*p.T, *(factor * e).T, color=(RESIDUAL, PREDICTED)[k], linewidth=0.7)
            else:
                axis.set_title(f"{title}: mean {mean:.3g} mm")
                axis.scatter(*p.T, s=1.0 + 40.0 * np.abs(e[:, 0]) / largest, color=(RESIDUAL, PREDICTED)[k])
            for name, middle in zip("xyz", 0.5 * (p.max(axis=0) + p.min(axis=0)), strict=True):
                getattr(axis, f"set_{name}lim")(middle - 0.55 * size, middle + 0.55 * size)
                getattr(axis, f"set_{name}label")(f"{name} [m]")
        return png(figure)


def error_histogram_figure(before: FloatArray, after: FloatArray, use: BoolArray) -> bytes:
    """Draw distances [mm] of residuals (N, 3) or (N, 1) [m], before and after; after for fitted and test poses."""
    lengths = {name: _MM * np.linalg.norm(r[:, :3], axis=1) for name, r in (("before", before), ("after", after))}
    with style():
        figure, ((left, right),) = grid(1, 2, (10.0, 3.0), head=0.15)
        _histogram(left, {"before": lengths["before"], "after": lengths["after"]}, (RESIDUAL, PREDICTED))
        parts = {"after, fitted": lengths["after"][use], "after, test": lengths["after"][~use]}
        _histogram(right, {k: v for k, v in parts.items() if v.size}, (PREDICTED, MARK))
        for axis in (left, right):
            axis.set(xlabel="error of a pose [mm]", ylabel="poses")
            axis.legend(frameon=False, loc="upper right")  # "best" is a search, which warns where it takes long
        return png(figure)


def axis_errors_figure(before: FloatArray, after: FloatArray) -> bytes:
    """Draw each coordinate's error [mm] of residuals (N, 3) or (N, 1) [m] over the poses in order."""
    names = ("x", "y", "z") if before.shape[1] > 1 else ("distance",)
    shown = thin(len(before))
    with style():
        figure, axes = grid(len(names), 1, (10.0, 1.0 + 1.6 * len(names)), gap=0.15, sharex=True)
        axes = axes[:, 0]
        for k, (name, axis) in enumerate(zip(names, axes, strict=True)):
            axis.plot(shown, _MM * before[shown, k], ".", ms=3.0, color=RESIDUAL, label="before")
            axis.plot(shown, _MM * after[shown, k], ".", ms=3.0, color=PREDICTED, label="after")
            axis.axhline(0.0, color=MEASURED, lw=0.6)
            axis.set_ylabel(f"{name} [mm]")
        axes[0].legend(frameon=False, ncols=2, loc="upper right")
        axes[-1].set_xlabel("pose")
        return png(figure)


def _histogram(axis: Axes, parts: dict[str, FloatArray], colours: tuple[str, ...]) -> None:
    most = max(float(v.max()) for v in parts.values()) or 1.0
    for (name, values), colour in zip(parts.items(), colours, strict=False):
        counts, edges = np.histogram(values, np.linspace(0.0, most, _BINS))
        axis.stairs(counts, edges, fill=True, color=colour, alpha=0.6, label=name)
