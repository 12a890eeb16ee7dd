"""Check of the mounting direction: compare the configured gravity with other directions.

Torque is linear in the gravity vector, so the regressor for any direction is a combination of four: without gravity and
with unit gravity along each axis.  They are built once, for all standard parameters; then every candidate direction is
one small least-squares problem.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import scipy.linalg as la

from rt_core.identification.preprocess import Signals, SignalSettings
from rt_core.identification.rows import build_rows
from rt_core.linear_algebra import svd
from rt_core.model.base import BaseParameters
from rt_core.model.parameters import ParameterLayout, standard_layout
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray

#: A candidate counts only if its error is below this share of the configured direction's.
BELIEVABLE = 0.93
_STANDARD_GRAVITY = 9.81
_ROW_LIMIT = 600  # rows used for the comparison; more do not change it
_TRUNCATION = 1e-7
_NO_EFFECT = 1e-9


@dataclass(frozen=True)
class GravityCheck:
    """Result of the comparison.

    Attributes
    ----------
    ratio : float
        Weighted residual with the best candidate over that with the configured gravity.
    best : (3,) float64
        The best candidate [m/s^2]; the configured vector if none is better.
    suspicious : bool
        Whether the best candidate is clearly better than the configured one.
    sensitive : bool
        False if every candidate fits about equally well.
    acts : bool
        False if the configured gravity has no effect on any joint of this arm in these postures.
    """

    ratio: float
    best: FloatArray
    suspicious: bool
    sensitive: bool
    acts: bool


def _all_columns(layout: ParameterLayout) -> BaseParameters:
    return BaseParameters(layout, np.arange(len(layout)), np.eye(len(layout)), 1.0, 0.0)


def candidates() -> list[FloatArray]:
    """Return unit vectors along the axes, the face diagonals and the space diagonals of a cube."""
    grid = (np.array(v, dtype=np.float64) for v in product((-1, 0, 1), repeat=3) if any(v))
    return [v / np.linalg.norm(v) for v in grid]


def check_gravity(
    model: RobotModel,
    signals: Signals,
    settings: SignalSettings,
    start_s: float,
    stop_s: float,
    sigma: FloatArray,
) -> GravityCheck:
    """Compare the configured gravity with 26 directions of the same (or standard) strength and none.

    Each joint is weighted by `sigma` (n,), its residual standard deviation with the configured gravity, so that the
    errors of other joints do not hide the joint that gravity acts on most.
    """
    layout = standard_layout(model)
    everything = _all_columns(layout)

    def stacked(gravity: FloatArray) -> tuple[FloatArray, FloatArray]:
        rows = build_rows(replace(model, gravity=gravity), everything, signals, settings).select(start_s, stop_s)
        keep = np.unique(np.linspace(0, rows.t.size - 1, min(_ROW_LIMIT, rows.t.size)).astype(np.int64))
        use = rows.use[keep]
        Y = np.concatenate([rows.Y[j][:, keep][:, use[:, j]].T / sigma[j] for j in range(model.n)])
        tau = np.concatenate([rows.tau[keep][use[:, j], j] / sigma[j] for j in range(model.n)])
        return Y, tau

    still, tau = stacked(np.zeros(3))
    axes = [stacked(np.eye(3)[a])[0] - still for a in range(3)]
    size = float(np.linalg.norm(model.gravity)) or _STANDARD_GRAVITY

    effect = sum(g * A for g, A in zip(model.gravity, axes, strict=True))
    acts = bool(np.linalg.norm(effect) > _NO_EFFECT * np.linalg.norm(still))

    def error(gravity: FloatArray) -> float:
        Y = still + sum(g * A for g, A in zip(gravity, axes, strict=True))
        scale = np.linalg.norm(Y, axis=0)
        Y = Y[:, scale > 0.0] / scale[scale > 0.0]
        R = la.qr(np.column_stack((Y, tau)), mode="r", check_finite=False)[0][: Y.shape[1] + 1]
        U, values, _ = svd(R[: Y.shape[1], :-1])
        z = R[: Y.shape[1], -1]
        z_in = U[:, values > _TRUNCATION * values[0]].T @ z
        left = max(float(tau @ tau) - float(z_in @ z_in), 0.0)
        return float(np.sqrt(left / (float(tau @ tau) or 1.0)))

    given = error(model.gravity)
    trials = [size * v for v in candidates()] + [np.zeros(3)]
    errors = np.array([error(g) for g in trials])
    k = int(np.argmin(errors))
    ratio = float(errors[k]) / given if given > 0.0 else 1.0
    suspicious = ratio < BELIEVABLE
    return GravityCheck(
        ratio,
        trials[k] if suspicious else np.asarray(model.gravity),
        suspicious,
        float(errors.max()) > 1.05 * float(errors.min()),
        acts,
    )
