"""Friction against velocity: data, fitted curve, 95 % band."""

from __future__ import annotations

from collections.abc import Sequence

from rt_core.batch.friction_curve import FrictionCurve
from rt_core.model.robot import RobotModel
from service.figures.panels import AXIS, PREDICTED, joint_panels, png, speed_unit, style, thin, torque_unit

_DATA = "#8C8C8C"


def friction_figure(model: RobotModel, curves: Sequence[FrictionCurve]) -> bytes:
    """One panel per curve; the points are the rows in use, the band is where the curve lies with 95 % confidence."""
    with style():
        figure, axes = joint_panels(model, [curve.joint for curve in curves], height=2.6)
        for curve, axis in zip(curves, axes, strict=True):
            shown = thin(curve.velocity.size)
            axis.plot(curve.velocity[shown], curve.torque[shown], ".", ms=2.5, color=_DATA, label="data")
            axis.fill_between(curve.grid, curve.lower, curve.upper, color=PREDICTED, alpha=0.3, lw=0.0, label="95 %")
            axis.plot(curve.grid, curve.fitted, color=PREDICTED, lw=1.1, label="fitted")
            axis.axhline(0.0, color=AXIS, lw=0.6)
            axis.axvline(0.0, color=AXIS, lw=0.6)
            if curve.coupled:
                axis.set_title(f"{model.joints[curve.joint].name}, the others at rest")
            j = curve.joint
            axis.set_xlabel(f"velocity [{speed_unit(model, j)}]")
            axis.set_ylabel(f"friction [{torque_unit(model, j)}]")
        if axes:
            figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=3, frameon=False)
        return png(figure)
