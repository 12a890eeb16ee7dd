"""Figures of an elastic joint: stiffness, friction over speed, residual, and the online estimate over time."""

from collections.abc import Collection, Mapping

import numpy as np
from matplotlib.axes import Axes

from rt_core.elastic.fit import SpringFit
from rt_core.elastic.problem import SHAPED
from rt_core.online.elastic.history import ElasticHistory
from rt_core.types import FloatArray
from service.reports.figures import panels as draw

_MIN_SPEED = 1e-9  # [rad/s]
_SIDE = {"motor": draw.MARK, "sensor": draw.RESIDUAL, "coupled": draw.MARK}
_PAIRS = (("k1", "k2"), ("b_in", "b_inD"), ("b_out", "b_outC"))
_UNITS = {
    "k1": "k1 [N·m/rad]", "k2": "k2 [N·m/rad³]", "b_in": "b_in [N·m·s/rad]", "b_inD": "b_inD [N·m]",
    "b_out": "b_out [N·m·s/rad]", "b_outC": "b_outC [N·m]",
}  # fmt: skip


def stiffness_figure(fit: SpringFit, *, known: bool) -> bytes:
    """Draw the torque of the spring over its deflection: each row's torque less fitted friction, and the fitted curve.

    If the stiffness is not `known`, the measured torques over the difference of the encoders.
    """
    with draw.style():
        figure, ((axis,),) = draw.grid(1, 1, (7.0, 3.6))
        shown = draw.thin(fit.deflection.size)
        deflection = fit.deflection if known else fit.difference - fit.difference.mean()
        torque = _spring(fit, deflection)[:, None] + fit.measured - fit.predicted if known else fit.measured
        for i, side in enumerate(fit.terms.sides):
            axis.plot(1e3 * deflection[shown], torque[shown, i], ".", ms=2.5, color=_SIDE[side], label=f"{side} row")
        if known:
            along = np.linspace(float(deflection.min()), float(deflection.max()), 200)
            axis.plot(1e3 * along, _spring(fit, along), color=draw.PREDICTED, lw=1.3, label="fitted")
        axis.set_xlabel("deflection [mrad]" if known else "difference of the encoders, less its mean [mrad]")
        axis.set_ylabel("torque of the spring [N·m]" if known else "torque, joint side [N·m]")
        axis.axhline(0.0, color=draw.AXIS, lw=0.6)
        axis.legend(frameon=False)
        return draw.png(figure)


def elastic_friction_figure(fit: SpringFit, gear_ratio: float, unknown: Collection[str] = ()) -> bytes:
    """Draw the friction of each side over speed, joint side: each row's torque less the fitted spring, and the law.

    Cyclic friction is subtracted too. A side with an `unknown` parameter has no law.
    """
    with draw.style():
        sides = [side for side in fit.terms.sides if side != "coupled"]
        figure, panels = draw.grid(1, len(sides), (5.0 * len(sides), 3.2))
        for axis, (i, side) in zip(panels[0], enumerate(sides), strict=True):
            speed, shown = fit.rows.dq[:, i], draw.thin(fit.deflection.size)
            left = (fit.measured - fit.predicted)[:, i] * (1.0 if side == "motor" else -1.0)
            data = _friction(fit, side, gear_ratio, speed) + left
            axis.plot(speed[shown], data[shown], ".", ms=2.5, color=_SIDE[side], label="data")
            of_side = {
                "motor": {"b_in", "b_inD", "C1", "C2", "omega1", "omega_s"}, "sensor": {"b_out", "b_outC"},
            }[side]  # fmt: skip
            for way in (-1.0, 1.0):
                there = np.abs(speed[way * speed > 0.0])
                if there.size and not of_side & set(unknown):
                    along = way * np.geomspace(max(float(there.min()), _MIN_SPEED), float(there.max()), 80)
                    law = _friction(fit, side, gear_ratio, along)
                    axis.plot(along, law, color=draw.PREDICTED, lw=1.3, label="fitted" if way > 0.0 else None)
            draw.cross(axis)
            axis.set(title=side, xlabel="speed of the joint [rad/s]", ylabel="friction, joint side [N·m]")
            axis.legend(frameon=False)
        return draw.png(figure)


def elastic_cyclic_figure(fit: SpringFit) -> bytes:
    """Draw the link's cyclic friction over its angle: the residual of the rest of the fit, and the law."""
    with draw.style():
        figure, ((axis,),) = draw.grid(1, 1, (7.0, 3.2))
        i, shown = fit.terms.sides.index("sensor"), draw.thin(fit.deflection.size)
        data = _cyclic(fit, fit.link) - (fit.measured - fit.predicted)[:, i]
        axis.plot(fit.link[shown], data[shown], ".", ms=2.5, color=_SIDE["sensor"], label="data")
        along = np.linspace(float(fit.link.min()), float(fit.link.max()), 200)
        axis.plot(along, _cyclic(fit, along), color=draw.PREDICTED, lw=1.3, label="fitted")
        axis.axhline(0.0, color=draw.AXIS, lw=0.6)
        axis.set(xlabel="angle of the link [rad]", ylabel="cyclic friction [N·m]")
        axis.legend(frameon=False)
        return draw.png(figure)


def elastic_residual_figure(fit: SpringFit) -> bytes:
    """Draw the residual of each row's torque, over time and over the deflection."""
    with draw.style():
        sides = fit.terms.sides
        figure, panels = draw.grid(len(sides), 2, (10.0, 0.3 + 2.3 * len(sides)))
        left, shown = fit.measured - fit.predicted, draw.thin(fit.deflection.size)
        for axes, (i, side) in zip(panels, enumerate(sides), strict=True):
            abscissae = ((fit.rows.t, "time [s]"), (1e3 * fit.deflection, "deflection [mrad]"))
            for axis, (x, label) in zip(axes, abscissae, strict=True):
                axis.plot(x[shown], left[shown, i], ".", ms=2.0, color=draw.RESIDUAL)
                axis.axhline(0.0, color=draw.AXIS, lw=0.6)
                axis.set(title=side, xlabel=label, ylabel="residual [N·m]")
        return draw.png(figure)


def elastic_history_figure(history: ElasticHistory, reference: Mapping[str, float]) -> bytes:
    """Draw online estimates over time with their 95 % band, `reference` values dashed; and the forgetting factor.

    The spring, the friction of the motor's side and, where there is one, of the sensor's (Sun et al., fig. 6 to 8).
    """
    with draw.style():
        pairs = [pair for pair in _PAIRS if set(pair) & set(history.names)]
        count = len(pairs) + 1
        figure, panels = draw.grid(count, 2, (10.0, 0.3 + 2.2 * count), gap=0.15, sharex=True)
        for axes, pair in zip(panels, pairs, strict=False):
            for axis, name in zip(axes, pair, strict=True):
                axis.set_ylabel(_UNITS[name])
                if name in history.names:
                    _over_time(axis, history, history.names.index(name), reference.get(name))
                else:
                    draw.nothing(axis, "not estimated")
        last = ((history.lam, "forgetting factor"), (history.relative_error, "relative error"))
        for axis, (y, label) in zip(panels[-1], last, strict=True):
            axis.plot(history.t, y, color=draw.RESIDUAL, lw=0.8)
            axis.set(ylabel=label, xlabel="time [s]")
        return draw.png(figure)


def _over_time(axis: Axes, history: ElasticHistory, k: int, reference: float | None) -> None:
    value = history.value[:, k]
    known = history.determined[:, k]
    axis.plot(history.t, np.where(known, np.nan, value), color=draw.AXIS, lw=0.8)
    axis.plot(history.t, np.where(known, value, np.nan), color=draw.PREDICTED, lw=1.1)
    low, high = (np.where(known, end[:, k], np.nan) for end in (history.lower, history.upper))
    axis.fill_between(history.t, low, high, color=draw.PREDICTED, alpha=0.25, lw=0.0)
    if reference is not None:
        axis.axhline(reference, color=draw.MEASURED, lw=0.9, ls="--")
        ends = np.concatenate((value, [reference]))
        margin = 0.15 * float(np.ptp(ends)) or 1.0
        axis.set_ylim(float(ends.min()) - margin, float(ends.max()) + margin)


def _spring(fit: SpringFit, deflection: FloatArray) -> FloatArray:
    """Return the torque of the fitted spring, of the deflection's shape."""
    return np.asarray(fit.value("k1") * deflection + fit.value("k2") * deflection**3)


def _friction(fit: SpringFit, side: str, N: float, speed: FloatArray) -> FloatArray:
    """Return the fitted friction of one side at a speed, joint side, of the speed's shape."""
    if side == "motor":
        plain = N**2 * fit.value("b_in") * speed + abs(N) * fit.value("b_inD") * np.sign(speed)
        if "C1" not in fit.names:
            return np.asarray(plain)
        v, terms = abs(N) * speed, fit.terms
        omega1, omega_s = (fit.value(name) if name in terms.constants else getattr(terms, name) for name in SHAPED)
        falling = fit.value("C1") * np.tanh(v / omega1) + fit.value("C2") * v * np.exp(-np.abs(v) / omega_s)
        return np.asarray(plain + abs(N) * falling)
    return np.asarray(fit.value("b_out") * speed + fit.value("b_outC") * np.sign(speed))


def _cyclic(fit: SpringFit, link: FloatArray) -> FloatArray:
    """Return the fitted cyclic friction at angles of the link, of their shape."""
    return np.asarray(fit.value("A1") * np.sin(link) + fit.value("A2") * np.cos(link))
