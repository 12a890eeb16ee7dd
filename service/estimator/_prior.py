"""Reply to the verb `prior`: the robot's description beside the present estimate.

A value that the description leaves out is missing, not zero. Friction curves hold the terms that depend on a joint's
velocity, and its torque offset, at the reference temperature. The band is that of the estimated terms; velocity
constants are taken as given.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rt_core.model.friction import CYCLIC, LAW_ARMATURE, LAW_LINK, LAW_LOAD, LAW_OFFSET, REFERENCE_TEMPERATURE
from rt_core.model.parameters import ParameterLayout, standard_layout, standard_parameters, stated_parameters
from rt_core.model.regressor import regressor
from rt_core.online import OnlineEstimator
from rt_core.online.status import STATUS, STATUSES_WITH_VALUE
from rt_core.statistics import NORMAL_QUANTILE_95
from rt_core.types import BoolArray, FloatArray
from service.protocol.json_values import json_values

_SIDE_POINTS = 24  # of a curve, in each direction
_UNKNOWN_SPEED = 1.0  # where a joint has no limit [rad/s or m/s]


def prior_reply(estimator: OnlineEstimator, args: Mapping[str, Any]) -> dict[str, Any]:
    """Handle the verb `prior`."""
    model, base = estimator.model, estimator.base
    known = prior_known(estimator)
    prior = base.theta(standard_parameters(model, base.standard))
    report = estimator.report(note=False)  # without side effects
    has_value = np.isin(report.status, STATUS[:STATUSES_WITH_VALUE])
    found: dict[str, Any] = json_values(
        {
            "arm": args["arm"], "hash": str(estimator.meta["hash"]), "parameters": np.where(known, prior, np.nan),
            "temperature": REFERENCE_TEMPERATURE if base.layout.has_temperature else None,
            "friction": friction_curves(estimator, prior, known, report.theta, has_value),
            "chain": model.geometry, "tip": model.tip_translation, "gravity": model.gravity,
        }
    )  # fmt: skip
    return found


def prior_known(estimator: OnlineEstimator) -> BoolArray:
    """Return which base parameters (p,) the robot's description gives: all of their components are in it."""
    model, base = estimator.model, estimator.base
    stated = stated_parameters(model, base.standard)
    return np.asarray(~((base.mapping != 0.0) & ~stated).any(axis=1))


def velocities(standstill: float, top: float) -> FloatArray:
    """Return velocities in both directions up to `top`, denser near standstill, with standstill as a gap."""
    side = standstill + (top - standstill) * np.linspace(0.0, 1.0, _SIDE_POINTS) ** 2
    return np.concatenate((-side[::-1], [0.0], side))


def friction_curves(
    estimator: OnlineEstimator, prior: FloatArray, known: BoolArray, theta: FloatArray, has_value: BoolArray
) -> list[dict[str, Any]]:
    """Return the friction of each joint that has any: described by `prior` (p,), and estimated by `theta` (p,).

    The estimate has a 95 % band. A curve is None where a term is not `known` (p,), or has no value (`has_value` (p,));
    then `undetermined` names it. The description's curve has its own velocity constants, and is None without them.
    """
    model, base = estimator.model, estimator.base
    layout, n = base.layout, model.n
    columns = np.flatnonzero(~np.isin(layout.law, (LAW_LINK, LAW_ARMATURE, LAW_LOAD, *CYCLIC)))
    tops = [joint.velocity if np.isfinite(joint.velocity) else _UNKNOWN_SPEED for joint in model.joints]
    grids = [velocities(float(s), max(top, 2.0 * s)) for s, top in zip(model.standstill_velocity, tops, strict=True)]
    still = np.zeros((sum(grid.size for grid in grids), n))
    dq = still.copy()
    for j, grid in enumerate(grids):
        dq[j * grid.size : (j + 1) * grid.size, j] = grid
    warm = np.full(still.shape, REFERENCE_TEMPERATURE)
    own = _as_described(estimator)
    Y, Y_own = (regressor(model, each.take(columns), still, dq, still, temperature=warm) for each in (layout, own))
    shaped = np.isin(layout.law, model.friction.shaped)
    known = known & ~(shaped & (own.shape[:, 0] == 0.0))
    covariance = estimator.stated_covariance[np.ix_(columns, columns)]
    found = []
    for j, (joint, grid) in enumerate(zip(model.joints, grids, strict=True)):
        effects = Y[j * grid.size : (j + 1) * grid.size, j, :]
        effects_own = Y_own[j * grid.size : (j + 1) * grid.size, j, :]
        acting = effects.any(axis=0) | effects_own.any(axis=0)
        index = columns[acting]
        if (layout.law[index] == LAW_OFFSET).all():
            continue
        G = np.where(grid[:, None] == 0.0, np.nan, effects[:, acting])
        G_own = np.where(grid[:, None] == 0.0, np.nan, effects_own[:, acting])
        lacking = [layout.names[c] for c in index if not has_value[c]]
        described = G_own @ prior[index] if known[index].all() else None
        estimated = lower = upper = None
        if not lacking:
            value = G @ theta[index]
            variance = np.einsum("gc,cd,gd->g", G, covariance[np.ix_(acting, acting)], G)
            half = NORMAL_QUANTILE_95 * np.sqrt(np.maximum(variance, 0.0))
            estimated, lower, upper = value, value - half, value + half
        revolute = joint.kind == "revolute"
        found.append(
            {
                "joint": joint.name, "unit": "N*m" if revolute else "N", "speed_unit": "rad/s" if revolute else "m/s",
                "velocity": grid, "described": described, "estimated": estimated, "lower": lower, "upper": upper,
                "undetermined": lacking,
            }
        )  # fmt: skip
    return found


def _as_described(estimator: OnlineEstimator) -> ParameterLayout:
    """Return the columns of the estimate with the velocity constants of the description."""
    model, base = estimator.model, estimator.base
    every = standard_layout(model)
    shape = {name: every.shape[c] for c, name in enumerate(every.names)}
    return replace(base.layout, shape=np.array([shape[name] for name in base.layout.names]))
