"""Figures of a hand guiding session: motion, torque, and external torque."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.axes import Axes

from rt_core.hand_guiding import GuidingState
from rt_core.model.robot import RobotModel
from service.reports.figures import panels as draw

if TYPE_CHECKING:
    from service.operations.hand_guiding_replay import GuidingRecord

_DASHES = ("-", "--", ":")
_FORCE_COLOURS = (draw.RESIDUAL, draw.PREDICTED, draw.MEASURED)
_SHADES = {GuidingState.ALARM: (draw.RESIDUAL, 0.3), GuidingState.HOLD_REQUESTED: (draw.RESIDUAL, 0.12)}
_TAKEOVER = (draw.AXIS, 0.2)


def _mark_states(axis: Axes, record: GuidingRecord) -> None:
    """Shade the times at which the arm was not being guided."""
    start = 0
    for state, run in groupby(record.states):
        end = start + len(list(run))
        if state is not GuidingState.GUIDING:
            colour, alpha = _SHADES.get(state, _TAKEOVER)
            axis.axvspan(record.t[start], record.t[min(end, record.t.size - 1)], color=colour, alpha=alpha, lw=0.0)
        start = end


def _units(model: RobotModel, of_joint: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(of_joint[j] for j in range(model.n)))


def guiding_figure(model: RobotModel, record: GuidingRecord, title: str = "") -> bytes:
    """Draw signals of all joints and the hand's force; grey: taking over or stopping, orange: an alarm and its hold."""
    shown = draw.thin(record.t.size)
    t = record.t[shown]
    kinds = [joint.kind for joint in model.joints]
    torques = _units(model, [draw.torque_unit(model, j) for j in range(model.n)])
    panels = [
        (record.q, f"position [{_units(model, ['rad' if k == 'revolute' else 'm' for k in kinds])}]"),
        (record.dq, f"velocity [{_units(model, [draw.speed_unit(model, j) for j in range(model.n)])}]"),
        (record.tau, f"torque [{torques}]"),
        (record.outside, f"from outside [{torques}]"),
    ]
    with draw.style():
        head = 0.15 + 0.19 * (1 + title.count("\n"))
        figure, axes = draw.grid(len(panels) + 1, 1, (9.0, 8.0), right=1.2, head=head, gap=0.15, sharex=True)
        axes = axes[:, 0]
        for axis, (values, label) in zip(axes, panels, strict=False):
            for j, joint in enumerate(model.joints):
                of_joint = mpl.colormaps["viridis"](j / max(1, model.n - 1) * 0.9)
                axis.plot(t, values[shown, j], color=of_joint, ls=_DASHES[j % len(_DASHES)], lw=1.1, label=joint.name)
            axis.set_ylabel(label)
        if record.force is None:
            draw.nothing(axes[-1], "the force was not measured")
        else:
            for k, colour in enumerate(_FORCE_COLOURS):
                axes[-1].plot(t, record.force[shown, k], color=colour, lw=1.2, label=f"force {'xyz'[k]}")
        axes[-1].set_ylabel("force [N]")
        for axis in axes:
            _mark_states(axis, record)
        lines, labels = axes[0].get_legend_handles_labels()
        more, others = axes[-1].get_legend_handles_labels()
        figure.legend(lines + more, labels + others, loc="upper right", frameon=False)
        if title:
            axes[0].set_title(title, loc="left")
        axes[-1].set_xlabel("time [s]")
        return draw.png(figure)


def guiding_torque_figure(model: RobotModel, record: GuidingRecord) -> bytes:
    """Draw the motor torque of each joint, and the external torque against its margin."""
    shown = draw.thin(record.t.size)
    t = record.t[shown]
    with draw.style():
        figure, axes = draw.joint_panels(model, range(model.n))
        for j, axis in enumerate(axes):
            margin = record.margin[shown, j]
            axis.fill_between(t, -margin, margin, color=draw.PREDICTED, alpha=0.2, lw=0.0, label="margin")
            axis.plot(t, record.tau[shown, j], color=draw.MEASURED, lw=1.1, label="motor")
            axis.plot(t, record.outside[shown, j], color=draw.RESIDUAL, lw=1.0, label="from outside")
            _mark_states(axis, record)
            axis.set(xlabel="time [s]", ylabel=f"torque [{draw.torque_unit(model, j)}]")
        if axes:
            draw.legend(figure, axes[0])
        return draw.png(figure)
