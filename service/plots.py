"""Figures of an identification or a validation, as PNG bytes."""

from __future__ import annotations

import io
import warnings
from contextlib import AbstractContextManager

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from rt_core.batch.rows import Rows
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray

# Okabe and Ito's colours: told apart without colour vision.
_MEASURED, _PREDICTED, _RESIDUAL = "#000000", "#0072B2", "#D55E00"


def _unit(model: RobotModel, joint: int) -> str:
    return "N·m" if model.joints[joint].kind == "revolute" else "N"


def _style() -> AbstractContextManager[None]:
    """Small type; file and joint names are text, never formulas."""
    return mpl.rc_context({"font.size": 8.0, "text.parse_math": False})


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph .* missing from font", UserWarning)
        figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def torque_figure(model: RobotModel, rows: Rows, predicted: FloatArray, title: str) -> bytes:
    """Measured against predicted torque and the residual over time, one panel per joint."""
    with _style():
        figure = Figure(figsize=(10.0, 1.0 + 1.7 * model.n), layout="constrained")
        axes = figure.subplots(model.n, 1, sharex=True, squeeze=False)[:, 0]
        for j, axis in enumerate(axes):
            # a row that is not used, and a gap, break the line
            measured = np.where(rows.use[:, j], rows.tau[:, j], np.nan)
            fitted = np.where(rows.use[:, j], predicted[:, j], np.nan)
            axis.plot(rows.t, measured, color=_MEASURED, lw=1.0, label="measured")
            axis.plot(rows.t, fitted, color=_PREDICTED, lw=1.0, ls="--", label="predicted")
            axis.plot(rows.t, measured - fitted, color=_RESIDUAL, lw=0.7, label="residual")
            axis.axhline(0.0, color="#999999", lw=0.4)
            axis.set_ylabel(f"{model.joints[j].name}\n[{_unit(model, j)}]")
            axis.grid(alpha=0.25)
        axes[0].legend(loc="upper right", ncols=3)
        axes[0].set_title(title)
        axes[-1].set_xlabel("time [s]")
        return _png(figure)


def residual_figure(model: RobotModel, rows: Rows, predicted: FloatArray) -> bytes:
    """Residual against velocity: friction that the law does not describe shows here."""
    with _style():
        columns = min(4, model.n)
        lines = -(-model.n // columns)
        figure = Figure(figsize=(2.6 * columns, 0.4 + 2.1 * lines), layout="constrained")
        axes = figure.subplots(lines, columns, squeeze=False).ravel()
        for j in range(model.n):
            use = rows.use[:, j]
            speed = "rad/s" if model.joints[j].kind == "revolute" else "m/s"
            axes[j].plot(rows.dq[use, j], (rows.tau - predicted)[use, j], ".", ms=1.5, color=_RESIDUAL)
            axes[j].axhline(0.0, color="#999999", lw=0.4)
            axes[j].set_title(model.joints[j].name)
            axes[j].set_xlabel(f"velocity [{speed}]")
            axes[j].set_ylabel(f"residual [{_unit(model, j)}]")
            axes[j].grid(alpha=0.25)
        for axis in axes[model.n :]:
            axis.set_visible(False)
        return _png(figure)
