"""Fitted friction of one joint over its velocity, with its uncertainty and the data points.

The curve holds the terms of the friction law that depend on velocity, and the torque offset, without which friction
could not differ between the directions.  It leaves out friction that depends on position (cyclic) or on load.

A data point is the curve at the row's velocity plus the row's residual ("component-plus-residual plot", Larsen and
McCleary 1972): the torque less everything that other columns explain.  In filtered rows this also removes the effect of
the filter on a step in friction, so that a point lies off the curve by its residual alone.

Friction that follows temperature has a curve for each temperature; a data point is at its own.  Where a motor turns
with several joints, its friction acts on each of them: the curve is that of one joint while the others rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rt_core.identification.rows import Rows
from rt_core.jit import jit
from rt_core.model import friction as laws
from rt_core.model.base import BaseParameters
from rt_core.model.parameters import ParameterLayout, friction_constants
from rt_core.model.robot import RobotModel
from rt_core.statistics import NORMAL_QUANTILE_95
from rt_core.types import BoolArray, FloatArray, IntArray

_SIDE_POINTS = 120  # of the curve, in each direction
_STEP = 1e-4  # in the logarithm of a velocity constant


@dataclass(frozen=True)
class FrictionCurve:
    """Friction of a joint; torques in N*m or N, velocities in rad/s or m/s."""

    joint: int
    coupled: bool  # whether a motor that also turns with another joint takes part
    velocity: FloatArray  # (K,) data points: the rows in use
    torque: FloatArray  # (K,)
    grid: FloatArray  # (G,) velocities of the curve, ascending, within the observed ones; one NaN at standstill
    fitted: FloatArray  # (G,) the curve
    lower: FloatArray  # (G,) its 95 % band
    upper: FloatArray  # (G,)
    temperature: float | None = None  # of the curve [degC], where friction follows it
    temperatures: FloatArray | None = None  # (K,) of the data points


@jit
def _effects(law: IntArray, shape: FloatArray, weight: FloatArray, velocity: FloatArray, out: FloatArray) -> None:
    """Compute the torque per unit of each column at a joint that moves alone, into `out` (V, c)."""
    for t in range(velocity.shape[0]):
        for c in range(law.shape[0]):
            if law[c] == laws.LAW_OFFSET:
                out[t, c] = weight[c]
            else:
                v = weight[c] * velocity[t]
                out[t, c] = weight[c] * laws.friction_effect(law[c], shape[c], 0.0, v, 0.0)


def _grid(velocity: FloatArray, standstill: float) -> FloatArray:
    """Return the velocities of the curve: the observed range of both directions, denser near standstill."""
    spread = np.linspace(0.0, 1.0, _SIDE_POINTS) ** 2
    sides: list[FloatArray] = []
    for sign in (-1.0, 1.0):
        seen = sign * velocity[sign * velocity > 0.0]
        if seen.size == 0 or seen.max() <= standstill:
            continue
        first = max(float(seen.min()), standstill)
        side = sign * (first + (float(seen.max()) - first) * spread)
        sides.append(side[:: int(sign)])
    if len(sides) == 2:
        return np.concatenate((sides[0], [np.nan], sides[1]))
    return sides[0] if sides else np.zeros(0)


def _shaped(model: RobotModel, layout: ParameterLayout, constant: str) -> BoolArray:
    """Return a mask (P,) of the columns that the named velocity constant shapes."""
    field, joint = friction_constants(model)[constant]
    codes = next(codes for _, known, codes in model.friction.constants if known == field)
    return np.asarray(np.isin(layout.law, codes) & (layout.joint == joint) & ~layout.is_link)


def friction_curve(
    model: RobotModel, base: BaseParameters, rows: Rows, theta: FloatArray, covariance: FloatArray,
    supported: BoolArray, joint: int, constants: Sequence[str] = (), temperature: float | None = None,
) -> FrictionCurve | None:  # fmt: skip
    """Return the friction curve of `joint` for base parameters `theta` (p,), fitted to `rows`.

    Parameters
    ----------
    covariance : (p, p) or (p + m, p + m) float64
        Of the base parameters, and of the logarithms of `constants`.
    supported : (p,) bool
        False for undetermined parameters.
    constants : sequence of str
        Names (m,) of the velocity constants whose uncertainty counts; the others are taken as known.
    temperature : float or None
        Of the joint [degC], where friction follows it; None for the median of the rows in use.

    Returns
    -------
    FrictionCurve or None
        None if the joint has no friction that depends on velocity, never moved, or has an undetermined parameter of
        friction.
    """
    layout = base.layout
    elsewhere = (laws.LAW_LINK, laws.LAW_ARMATURE, laws.LAW_LOAD, *laws.CYCLIC)
    columns = np.flatnonzero(~np.isin(layout.law, elsewhere) & (layout.motor[:, joint] != 0.0))
    use = rows.use[:, joint]
    velocity = rows.dq[use, joint]
    grid = _grid(velocity, float(model.standstill_velocity[joint]))
    if grid.size == 0 or (layout.law[columns] == laws.LAW_OFFSET).all():
        return None

    warm = layout.follows_temperature[columns]
    seen, own = None, np.zeros(0)
    if warm.any() and rows.temperature is not None:
        seen = rows.temperature[use][:, layout.joint[columns]]  # of each column's own motor
        own = rows.temperature[use, joint]
        temperature = float(np.median(own)) if temperature is None else temperature
    else:
        temperature = None

    def effects(v: FloatArray, shape: FloatArray, at: FloatArray | float | None) -> FloatArray:
        out = np.zeros((v.size, columns.size))
        weight = np.ascontiguousarray(layout.motor[columns, joint])
        _effects(layout.law[columns], shape, weight, np.ascontiguousarray(v), out)
        if at is not None:
            out *= np.where(warm, at - laws.REFERENCE_TEMPERATURE, 1.0)
        return out

    shape = layout.shape[columns]
    at_rows = effects(velocity, shape, seen)
    active = at_rows.any(axis=0)  # not the terms that an unknown velocity constant switches off
    if not supported[columns[active]].all():
        return None
    residual = rows.tau[use, joint] - rows.Y[joint][:, use].T @ theta
    there = np.nan_to_num(grid)
    at_grid = effects(there, shape, temperature)
    fitted = at_grid @ theta[columns]
    moved = [columns[active]]
    gradient = [at_grid[:, active]]
    for k, name in enumerate(constants, start=theta.size):
        shaped = _shaped(model, layout, name)[columns] & (shape[:, 0] > 0.0)
        if shaped.any() and np.isfinite(covariance[k, k]):
            above, below = shape.copy(), shape.copy()
            above[shaped, 0] *= np.exp(_STEP)
            below[shaped, 0] *= np.exp(-_STEP)
            change = effects(there, above, temperature) - effects(there, below, temperature)
            slope = change @ theta[columns] / (2.0 * _STEP)
            moved.append(np.array([k], dtype=np.int64))
            gradient.append(slope[:, None])
    index, J = np.concatenate(moved), np.hstack(gradient)
    variance = np.einsum("gc,cd,gd->g", J, covariance[np.ix_(index, index)], J)
    half = NORMAL_QUANTILE_95 * np.sqrt(np.maximum(variance, 0.0))
    gap = np.isnan(grid)
    fitted[gap] = half[gap] = np.nan
    coupled = bool((np.count_nonzero(layout.motor[columns], axis=1) > 1).any())
    return FrictionCurve(
        joint, coupled, velocity, at_rows @ theta[columns] + residual, grid, fitted, fitted - half, fitted + half,
        temperature, None if seen is None else own,
    )  # fmt: skip
