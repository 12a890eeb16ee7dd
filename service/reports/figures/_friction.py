"""Figures of friction over velocity: data, fitted curve, 95 % band; over temperature, too; and at constant speeds."""

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from rt_core.identification.friction_curve import FrictionCurve
from rt_core.model.robot import RobotModel
from rt_core.statistics import NORMAL_QUANTILE_95
from rt_core.types import FloatArray
from service.reports.figures import panels as draw

_DATA = "#8C8C8C"
_HEAT = "plasma"


def friction_figure(model: RobotModel, curves: Sequence[FrictionCurve]) -> bytes:
    """Draw one panel per curve; the points are the rows in use, the band is the 95 % confidence band of the curve."""
    with draw.style():
        figure, axes = draw.joint_panels(model, [curve.joint for curve in curves], height=2.6)
        for curve, axis in zip(curves, axes, strict=True):
            shown = draw.thin(curve.velocity.size)
            axis.plot(curve.velocity[shown], curve.torque[shown], ".", ms=2.5, color=_DATA, label="data")
            axis.fill_between(
                curve.grid, curve.lower, curve.upper, color=draw.PREDICTED, alpha=0.3, lw=0.0, label="95 %"
            )
            axis.plot(curve.grid, curve.fitted, color=draw.PREDICTED, lw=1.1, label="fitted")
            draw.cross(axis)
            if curve.coupled:
                axis.set_title(f"{model.joints[curve.joint].name}, the others at rest")
            j = curve.joint
            axis.set(
                xlabel=f"velocity [{draw.speed_unit(model, j)}]", ylabel=f"friction [{draw.torque_unit(model, j)}]"
            )
        if axes:
            draw.legend(figure, axes[0])
        return draw.png(figure)


def friction_temperature_figure(model: RobotModel, families: Sequence[Sequence[FrictionCurve]]) -> bytes:
    """Draw one panel per joint: its curves at several temperatures, and the rows in use, coloured by temperature."""
    shown = [curve for family in families for curve in family]
    with draw.style():
        figure, axes = draw.joint_panels(model, [family[0].joint for family in families], height=2.6)
        temperatures = [curve.temperature for curve in shown if curve.temperature is not None]
        scale = Normalize(min(temperatures, default=0.0), max(temperatures, default=1.0))
        heat = mpl.colormaps[_HEAT]
        for family, axis in zip(families, axes, strict=True):
            first, j = family[0], family[0].joint
            points = draw.thin(first.velocity.size)
            colours = _DATA if first.temperatures is None else heat(scale(first.temperatures[points]))
            axis.scatter(first.velocity[points], first.torque[points], s=2.5, c=colours, alpha=0.6, lw=0.0)
            for curve in family:
                colour = draw.PREDICTED if curve.temperature is None else heat(scale(curve.temperature))
                axis.fill_between(curve.grid, curve.lower, curve.upper, color=colour, alpha=0.25, lw=0.0)
                label = None if curve.temperature is None else f"{curve.temperature:.0f} °C"
                axis.plot(curve.grid, curve.fitted, color=colour, lw=1.3, label=label)
            draw.cross(axis)
            axis.set(
                xlabel=f"velocity [{draw.speed_unit(model, j)}]", ylabel=f"friction [{draw.torque_unit(model, j)}]"
            )
            axis.legend(frameon=False, fontsize=6.5)
        if axes:
            bar = figure.colorbar(ScalarMappable(scale, heat), ax=axes, shrink=0.8)
            bar.set_label("temperature [°C]")
        return draw.png(figure)


@dataclass(frozen=True)
class SweepCurve:
    """Friction (K,) of a joint, the fitted law (G,), standard deviations of both, and the law's 95 % `quantile`."""

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
    with draw.style():
        figure, axes = draw.joint_panels(model, [curve.joint for curve in curves], height=2.4)
        for curve, axis in zip(curves, axes, strict=True):
            half = curve.quantile * curve.fitted_std
            low, high = curve.fitted - half, curve.fitted + half
            axis.fill_between(curve.grid, low, high, color=draw.PREDICTED, alpha=0.3, lw=0.0, label="95 %")
            axis.plot(curve.grid, curve.fitted, color=draw.PREDICTED, lw=1.1, label="fitted")
            axis.errorbar(
                curve.speed, curve.friction, NORMAL_QUANTILE_95 * curve.std, fmt="o", ms=3.0, color=draw.MEASURED,
                lw=0.8, capsize=2.0, label="measured",
            )  # fmt: skip
            axis.set_xscale("log")
            draw.plain_ticks(axis.xaxis)
            largest = float(np.abs(curve.friction).max())
            axis.set_ylim(min(0.0, 1.2 * float(curve.friction.min())), 1.2 * largest if largest > 0.0 else 1.0)
            axis.set_xlabel(f"speed [{draw.speed_unit(model, curve.joint)}]")
            axis.set_ylabel(f"friction [{unit or draw.torque_unit(model, curve.joint)}]")
        if axes:
            draw.legend(figure, axes[0])
        return draw.png(figure)
