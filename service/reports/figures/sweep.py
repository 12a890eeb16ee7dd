"""Figure of friction at constant speeds, with the law fitted to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rt_core.model.robot import RobotModel
from rt_core.statistics import NORMAL_QUANTILE_95
from rt_core.types import FloatArray
from service.reports.figures.panels import (
    MEASURED,
    PREDICTED,
    joint_panels,
    plain_ticks,
    png,
    speed_unit,
    style,
    torque_unit,
)


@dataclass(frozen=True)
class SweepCurve:
    """Friction (K,) of a joint with standard deviations, and the fitted law (G,) with its own on a grid of speeds.

    `quantile` is half a 95 % interval of the law in its standard deviations.
    """

    joint: int
    speed: FloatArray
    friction: FloatArray
    std: FloatArray
    grid: FloatArray
    fitted: FloatArray
    fitted_std: FloatArray
    quantile: float = NORMAL_QUANTILE_95


def sweep_figure(model: RobotModel, curves: Sequence[SweepCurve], unit: str = "") -> bytes:
    """Draw one panel per joint; bars and band are 95 % intervals, `unit` is that of friction where it is no torque."""
    with style():
        figure, axes = joint_panels(model, [curve.joint for curve in curves], height=2.4)
        for curve, axis in zip(curves, axes, strict=True):
            half = curve.quantile * curve.fitted_std
            axis.fill_between(
                curve.grid, curve.fitted - half, curve.fitted + half, color=PREDICTED, alpha=0.3, lw=0.0, label="95 %"
            )
            axis.plot(curve.grid, curve.fitted, color=PREDICTED, lw=1.1, label="fitted")
            axis.errorbar(
                curve.speed, curve.friction, NORMAL_QUANTILE_95 * curve.std, fmt="o", ms=3.0, color=MEASURED, lw=0.8,
                capsize=2.0, label="measured",
            )  # fmt: skip
            axis.set_xscale("log")
            plain_ticks(axis.xaxis)
            largest = float(np.abs(curve.friction).max())
            axis.set_ylim(min(0.0, 1.2 * float(curve.friction.min())), 1.2 * largest if largest > 0.0 else 1.0)
            axis.set_xlabel(f"speed [{speed_unit(model, curve.joint)}]")
            axis.set_ylabel(f"friction [{unit or torque_unit(model, curve.joint)}]")
        if axes:
            figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=3, frameon=False)
        return png(figure)
