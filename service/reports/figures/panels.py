"""Common parts of all figures: colours, style, one panel per joint, PNG bytes."""

import io
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from rt_core.model.robot import RobotModel
from rt_core.types import IntArray

# Okabe and Ito's colours, distinguishable without colour vision.
MEASURED, PREDICTED, RESIDUAL, MARK = "#000000", "#0072B2", "#D55E00", "#009E73"
AXIS = "#999999"
MAX_POINTS = 2000  # of a panel; more hide each other
_IN_A_LINE = 3


def torque_unit(model: RobotModel, joint: int) -> str:
    """Return the unit of a joint's torque or force."""
    return "N·m" if model.joints[joint].kind == "revolute" else "N"


def speed_unit(model: RobotModel, joint: int) -> str:
    """Return the unit of a joint's velocity."""
    return "rad/s" if model.joints[joint].kind == "revolute" else "m/s"


def style() -> AbstractContextManager[None]:
    """Apply the style: small type; file and joint names are text, never formulas."""
    return mpl.rc_context({"font.size": 8.0, "text.parse_math": False, "axes.grid": True, "grid.alpha": 0.25})


def grid(
    lines: int, columns: int, size: tuple[float, float], *, left: float = 0.75, right: float = 0.15, foot: float = 0.45,
    head: float = 0.3, gap: float | None = None, **options: Any,
) -> tuple[Figure, Any]:  # fmt: skip
    """Return a figure of `size` [inch] and its panels (lines, columns), with margins of a fixed width [inch].

    Margins hold the labels, `head` a title, and a legend if there is one; `gap` between lines is for both if None.
    Layout engines measure every text instead, several times, which costs as much as the drawing.
    """
    gap = foot + 0.3 if gap is None else gap
    wide = max((size[0] - right - left - (columns - 1) * (left + right)) / columns, 0.1)
    high = max((size[1] - foot - head - (lines - 1) * gap) / lines, 0.1)
    places = {
        "left": left / size[0], "right": 1.0 - right / size[0], "bottom": foot / size[1], "top": 1.0 - head / size[1],
        "wspace": (left + right) / wide, "hspace": gap / high,
    }  # fmt: skip
    figure = Figure(figsize=size)
    return figure, figure.subplots(lines, columns, squeeze=False, gridspec_kw=places, **options)


def legend(figure: Figure, axis: Axes, columns: int = 3) -> None:
    """Name the lines of a panel above all panels."""
    figure.legend(*axis.get_legend_handles_labels(), loc="upper right", ncols=columns, frameon=False)


def cross(axis: Axes) -> None:
    """Draw the lines of zero."""
    axis.axhline(0.0, color=AXIS, lw=0.6)
    axis.axvline(0.0, color=AXIS, lw=0.6)


def joint_panels(model: RobotModel, joints: Sequence[int], height: float = 2.2) -> tuple[Figure, list[Axes]]:
    """Return a figure with one panel for each of `joints`, titled with its name, three per line."""
    columns = max(1, min(_IN_A_LINE, len(joints)))
    lines = max(1, -(-len(joints) // columns))
    figure, panels = grid(lines, columns, (10.0 if columns > 1 else 6.0, 0.3 + height * lines), head=0.6)
    axes: list[Axes] = panels.ravel().tolist()
    for axis, j in zip(axes, joints, strict=False):
        axis.set_title(model.joints[j].name)
    for axis in axes[len(joints) :]:
        axis.set_visible(False)
    return figure, axes[: len(joints)]


def thin(count: int) -> IntArray:
    """Return the indices of at most `MAX_POINTS` of `count` points, evenly spread."""
    return np.unique(np.linspace(0, max(count - 1, 0), min(count, MAX_POINTS)).astype(np.int64))


def plain_ticks(axis: Axis) -> None:
    """Label the powers of ten of a logarithmic axis in plain text: formulas are not parsed here."""
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def nothing(axis: Axes, why: str) -> None:
    """Write into an empty panel why it is empty."""
    axis.text(0.5, 0.5, why, transform=axis.transAxes, ha="center", va="center", color=AXIS)


def png(figure: Figure) -> bytes:
    """Return a figure as a PNG file."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph .* missing from font", UserWarning)
        figure.savefig(buffer, format="png", dpi=110, pil_kwargs={"compress_level": 3})
    return buffer.getvalue()
