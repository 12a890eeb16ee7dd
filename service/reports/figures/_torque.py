"""Measured against predicted torque over time."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from rt_core.identification.rows import Rows
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from service.reports.figures.panels import AXIS, MEASURED, PREDICTED, RESIDUAL, png, style, torque_unit


def torque_figure(model: RobotModel, rows: Rows, predicted: FloatArray, title: str = "") -> bytes:
    """Measured against predicted torque and the residual over time, one panel per joint."""
    with style():
        figure = Figure(figsize=(10.0, 1.0 + 1.5 * model.n), layout="constrained")
        axes = figure.subplots(model.n, 1, sharex=True, squeeze=False)[:, 0]
        new_piece = np.flatnonzero(np.diff(rows.piece)) + 1
        t = np.insert(rows.t, new_piece, rows.t[new_piece])
        for j, axis in enumerate(axes):
            # a row that is not used, and a gap, break the line
            measured = np.where(rows.use[:, j], rows.tau[:, j], np.nan)
            fitted = np.where(rows.use[:, j], predicted[:, j], np.nan)
            measured, fitted = (np.insert(x, new_piece, np.nan) for x in (measured, fitted))
            axis.plot(t, measured, color=MEASURED, lw=1.8, label="measured")
            axis.plot(t, fitted, color=PREDICTED, lw=0.9, ls="--", label="predicted")
            axis.plot(t, measured - fitted, color=RESIDUAL, lw=0.7, label="residual")
            axis.axhline(0.0, color=AXIS, lw=0.4)
            axis.set_ylabel(f"{model.joints[j].name}\n[{torque_unit(model, j)}]")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=3, frameon=False)
        if title:
            axes[0].set_title(title, loc="left")
        axes[-1].set_xlabel("time [s]")
        return png(figure)
