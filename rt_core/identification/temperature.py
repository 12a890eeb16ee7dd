"""Temperatures that a fit is based on, and rows at other temperatures."""

import numpy as np

from rt_core.identification.rows import Rows
from rt_core.model.parameters import ParameterLayout
from rt_core.model.robot import RobotModel
from rt_core.model.temperature import MIN_SPAN_K, TemperatureRange
from rt_core.types import BoolArray, FloatArray


def _used(model: RobotModel, rows: Rows) -> BoolArray:
    """Return a mask (N, n) of rows in use for each motor's friction: those of any joint that it turns."""
    return np.asarray(rows.use @ (model.coupling != 0.0).T)


def temperatures_of(model: RobotModel, rows: Rows) -> TemperatureRange | None:
    """Return the temperatures of the rows in use; None where they have none."""
    if rows.temperature is None:
        return None
    use = _used(model, rows)
    used = [rows.temperature[use[:, j], j] for j in range(use.shape[1])]
    lower = np.array([x.min() if x.size else np.nan for x in used])
    return TemperatureRange(lower, np.array([x.max() if x.size else np.nan for x in used]))


def unseen(layout: ParameterLayout, seen: TemperatureRange | None) -> BoolArray:
    """Return a mask (p,) of columns that follow the temperature of a joint whose temperature hardly changed."""
    narrow = np.ones(layout.motor.shape[1], dtype=bool) if seen is None else seen.narrow
    return np.asarray(layout.follows_temperature & narrow[layout.joint])


def narrow_reasons(model: RobotModel, layout: ParameterLayout, seen: TemperatureRange | None) -> tuple[str, ...]:
    """Return a sentence for each joint whose temperature changed too little."""
    if seen is None or not layout.has_temperature:
        return ()
    return tuple(
        f"joint {joint.name}: its temperature changes by {seen.upper[j] - seen.lower[j]:.2g} K only, from "
        f"{seen.lower[j]:.1f} degC: at least {MIN_SPAN_K:g} K show how friction follows it"
        for j, joint in enumerate(model.joints)
        if seen.narrow[j] and np.isfinite(seen.lower[j])
    )


def share_outside(model: RobotModel, fitted: TemperatureRange, rows: Rows) -> FloatArray:
    """Return the share (n,) of each joint's rows in use at temperatures outside those of the fit."""
    if rows.temperature is None:
        return np.zeros(rows.use.shape[1])
    use = _used(model, rows)
    outside = fitted.outside(rows.temperature) & use
    return np.asarray(outside.sum(axis=0) / np.maximum(use.sum(axis=0), 1))


def outside_reasons(model: RobotModel, fitted: TemperatureRange, rows: Rows) -> tuple[str, ...]:
    """Return a sentence for each joint with rows at temperatures outside those of the fit."""
    seen, share = temperatures_of(model, rows), share_outside(model, fitted, rows)
    return tuple(
        fitted.reason(joint.name, j, f"{seen.lower[j]:.1f} to {seen.upper[j]:.1f}")
        for j, joint in enumerate(model.joints)
        if seen is not None and share[j] > 0.0
    )
