"""Tests for small errors that are not in the model, by extra columns of the regression (score tests).

If the data or the robot file are wrong by a small `eta` (the base tilted by some degrees, a joint's zero off, a channel
late, a gain too large), the torque differs by `D eta` with `D` the derivative of the predicted torque by `eta`.  So `D`
is added as a column to the regression, and

    eta = (D' M D)^-1 D' M r,    M = I - Y (Y'Y)^+ Y',

with the residual `r` of the fit (Cook and Weisberg 1983, "Diagnostics for heteroscedasticity in regression", for score
tests; Chen 1983 for constructed variables).  The rows are divided by each joint's residual standard deviation.  They
are far from independent, so the standard deviation of `eta` comes from a jackknife over blocks of time, which leaves
out all joints of a block at once.

`z` says that the model is wrong.  `left`, the geometric mean over the joints of the residual that remains, says whether
this is why: real arms reach large `z` for errors that explain next to nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
import scipy

from rt_core.identification.diagnostics.alternatives import Profile, solve_scaled
from rt_core.identification.diagnostics.row_filter import RowFilter, sampled_torque
from rt_core.identification.preprocess import SignalPiece, Signals
from rt_core.model.base import BaseParameters, link_torque
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray, IntArray

Kind = Literal[
    "tilt", "clock", "zero", "position_scale", "torque_late", "velocity_late", "torque_scale", "friction", "reversal",
    "yielding",
]  # fmt: skip

DELAYS = ("torque_late", "velocity_late")
BLOCKS = 30
#: A column with less than this share of its length outside the span of the regressor cannot be told from parameters.
IDENTIFIABLE = 0.02
#: Rounds of weights in the comparison of residuals.
_ROUNDS = 20
_MIN_SHARE = 1e-9  # least residual of a joint, as a share of the largest
_STEP = {"zero": 1e-4, "position_scale": 1e-4, "tilt": 1e-4, "clock": 1e-4, "velocity_late": 1e-3}


@dataclass(frozen=True)
class Direction:
    """A small error, and its effect on the torque.

    `joint` is None where it concerns the whole arm; `columns` (m, K, n) has the derivatives of the rows' torque, for
    `tilt` by rotations of gravity about two axes, for `forms` by their terms, otherwise by one number in `unit`.
    """

    kind: Kind
    joint: int | None
    unit: str
    columns: FloatArray


@dataclass(frozen=True)
class AddedVariable:
    """Result of the test for one direction.

    Attributes
    ----------
    eta, std : (m,) float64
        Estimate and standard deviation, in `unit`.
    z : float
        Size of the estimate over its standard deviation (of several numbers, the Mahalanobis distance).
    rate : float
        Share of good recordings with a larger `z`: Hotelling's T, with the degrees of freedom of the blocks.
    identifiable : float
        Share of the column's length outside the span of the regressor.
    left : float
        Geometric mean over the joints of the residual with the column over that without.
    shift : (p,) float64
        Change of the base parameters if `eta` is freed.
    sigma : (n,) float64
        Residual standard deviations with the column.
    """

    kind: Kind
    joint: int | None
    unit: str
    eta: FloatArray
    std: FloatArray
    z: float
    rate: float
    identifiable: float
    left: float
    shift: FloatArray
    sigma: FloatArray


def gravity_axes(gravity: FloatArray) -> FloatArray:
    """Return two unit vectors (2, 3) that are orthogonal to `gravity` (3,) and to each other."""
    g = gravity / np.linalg.norm(gravity)
    first = np.cross(g, np.eye(3)[int(np.argmin(np.abs(g)))])
    first /= np.linalg.norm(first)
    return np.stack((first, np.cross(g, first)))


def tilted(gravity: FloatArray, eta: FloatArray) -> FloatArray:
    """Return `gravity` (3,) rotated by `eta` (2,) [rad] about its `gravity_axes`."""
    angle = float(np.linalg.norm(eta))
    if angle == 0.0:
        return gravity.copy()
    axis = gravity_axes(gravity).T @ (eta / angle)
    return np.asarray(gravity * np.cos(angle) + np.cross(axis, gravity) * np.sin(angle))


def directions(
    model: RobotModel, base: BaseParameters, theta: FloatArray, rows_filter: RowFilter, *,
    measured_velocity: bool = False, only: tuple[Kind, int | None] | None = None,
) -> list[Direction]:  # fmt: skip
    """Return the directions that are tested, all or `only` one, at the base parameters `theta` (p,).

    The first joint's zero is left out: without gravity it has no effect, and with gravity it is a tilt of the base.  A
    measured velocity shows a wrong clock by itself.
    """
    pieces, rate = rows_filter.pieces, rows_filter.rate_hz
    n = model.n
    only_joint = np.eye(n)
    revolute = [joint.kind == "revolute" for joint in model.joints]

    def by_tilt(step: FloatArray) -> FloatArray:
        up, down = (replace(model, gravity=tilted(model.gravity, s * step)) for s in (1.0, -1.0))
        parts = [
            link_torque(up, base, theta, p.q, p.dq, p.ddq) - link_torque(down, base, theta, p.q, p.dq, p.ddq)
            for p in pieces
        ]
        return rows_filter.apply(parts) / (2.0 * float(np.linalg.norm(step)))

    def by_signal(kind: Kind, joint: int | None) -> FloatArray:
        def torque_at(piece: SignalPiece, step: float) -> FloatArray:
            return sampled_torque(model, base, theta, piece, **_moved(piece, kind, joint, step))

        # a velocity has to pass zero at a sample for friction to show
        step = max(_STEP[kind], 1.0 / rate) if kind == "velocity_late" else _STEP[kind]
        return rows_filter.apply([torque_at(p, step) - torque_at(p, -step) for p in pieces]) / (2.0 * step)

    def wanted(kind: Kind, joint: int | None) -> bool:
        return only is None or only == (kind, joint)

    found: list[Direction] = []
    if np.any(model.gravity) and wanted("tilt", None):
        columns = [by_tilt(_STEP["tilt"] * e) for e in np.eye(2)]
        found.append(Direction("tilt", None, "rad", np.stack(columns)))
    if not measured_velocity and wanted("clock", None):
        found.append(Direction("clock", None, "", by_signal("clock", None)[None]))
    for j in range(n):
        if j and wanted("zero", j):
            found.append(Direction("zero", j, "rad" if revolute[j] else "m", by_signal("zero", j)[None]))
        if wanted("position_scale", j):
            found.append(Direction("position_scale", j, "", by_signal("position_scale", j)[None]))
    if only is None or only[0] in ("torque_late", "torque_scale"):
        torque = [sampled_torque(model, base, theta, piece) for piece in pieces]
        late = rows_filter.apply([-np.gradient(x, 1.0 / rate, axis=0) for x in torque])
        if wanted("torque_late", None):
            found.append(Direction("torque_late", None, "s", late[None]))
        predicted = rows_filter.apply(torque)
        for j in range(n) if n > 1 else ():
            if wanted("torque_late", j):
                found.append(Direction("torque_late", j, "s", (late * only_joint[j])[None]))
            if wanted("torque_scale", j):
                found.append(Direction("torque_scale", j, "", (predicted * only_joint[j])[None]))
    if measured_velocity:
        together = wanted("velocity_late", None)
        each = {j: by_signal("velocity_late", j) for j in range(n) if together or wanted("velocity_late", j)}
        if together:
            found.append(Direction("velocity_late", None, "s", np.sum(list(each.values()), axis=0)[None]))
        if n > 1:
            found += [
                Direction("velocity_late", j, "s", x[None]) for j, x in each.items() if wanted("velocity_late", j)
            ]
    return found


def _moved(piece: SignalPiece, kind: Kind, joint: int | None, step: float) -> dict[str, FloatArray]:
    """Return the signals of `piece` as they would be if joint `joint` had the error `step`."""
    if kind == "clock":  # gravity does not change with it: its size tells the unit of time
        return {"dq": piece.dq * (1.0 + step), "ddq": piece.ddq * (1.0 + step) ** 2}
    own = step * (np.arange(piece.q.shape[1]) == joint)
    if kind == "zero":
        return {"q": piece.q + own}
    if kind == "position_scale":
        return {name: getattr(piece, name) * (1.0 + own) for name in ("q", "dq", "ddq")}
    # a velocity that is late: the true one is ahead of the measured one
    jerk = np.gradient(piece.ddq, float(piece.t[1] - piece.t[0]), axis=0)
    return {"dq": piece.dq + own * piece.ddq, "ddq": piece.ddq + own * jerk}


def corrected(model: RobotModel, signals: Signals, found: AddedVariable) -> Signals:
    """Return signals without the error that `found` states, which is not a tilt."""
    eta = float(found.eta[0])
    own = np.arange(model.n) == (np.arange(model.n) if found.joint is None else found.joint)
    pieces = []
    for piece in signals.pieces:

        def ahead(x: FloatArray, t: FloatArray = piece.t) -> FloatArray:
            return np.stack([np.interp(t + eta * a, t, y) for a, y in zip(own, x.T, strict=True)], axis=1)

        q, dq, ddq, tau = piece.q, piece.dq, piece.ddq, piece.tau
        if found.kind == "zero":
            q = q + eta * own
        elif found.kind == "position_scale":
            q, dq, ddq = (x * (1.0 + eta * own) for x in (q, dq, ddq))
        elif found.kind == "clock":
            dq, ddq = dq * (1.0 + eta), ddq * (1.0 + eta) ** 2
        elif found.kind == "torque_scale":
            tau = tau / (1.0 + eta * own)
        elif found.kind == "torque_late":
            tau = ahead(tau)
        else:
            dq, ddq = ahead(dq), ahead(ddq)
        pieces.append(replace(piece, q=q, dq=dq, ddq=ddq, tau=tau))
    return replace(signals, pieces=tuple(pieces))


class AddedVariableTest:
    """The rows of a fit with extra columns, reduced to Gram matrices of joints and of blocks of time.

    Parameters
    ----------
    Y : (n, p, K) float64
        Regressor by columns; `residual`, `use` (K, n), `weights` (K, n) of the rows or None.
    basis : (p, r) float64
        `inverse_root` of the solution: the regressor in it has orthonormal weighted columns.
    sigma : (n,) float64
        Residual standard deviation of each joint.
    """

    def __init__(
        self, Y: FloatArray, residual: FloatArray, use: np.ndarray, basis: FloatArray, sigma: FloatArray,
        found: Sequence[Direction], *, weights: FloatArray | None = None, blocks: int = BLOCKS,
    ) -> None:  # fmt: skip
        n, _, count = Y.shape
        self.directions = list(found)
        self.basis = basis
        self.rank = basis.shape[1]
        # a joint without any residual would get infinite weight
        sigma = np.maximum(sigma, _MIN_SHARE * max(float(sigma.max()), 1e-100))
        widths = [d.columns.shape[0] for d in found]
        self.starts = np.concatenate(([0], np.cumsum(widths))).astype(np.int64) + self.rank
        P = int(self.starts[-1]) + 1
        # columns of unit length, or the normal equations lose digits on long recordings
        self.scales = [np.maximum(np.sqrt(np.sum((d.columns / sigma) ** 2, axis=(1, 2))), 1e-100) for d in found]
        self.joints = np.zeros((n, P, P))
        self.counts = np.zeros(n)
        edges = np.linspace(0, count, min(blocks, count) + 1).astype(np.int64)
        self.blocks = np.zeros((edges.size - 1, P, P))
        for b, (a, e) in enumerate(pairwise(edges)):
            for j in range(n):
                inside = use[a:e, j]
                if not inside.any():
                    continue
                X = np.empty((int(inside.sum()), P))
                X[:, : self.rank] = Y[j][:, a:e][:, inside].T @ basis
                for k, d in enumerate(found):
                    X[:, self.starts[k] : self.starts[k + 1]] = d.columns[:, a:e, j][:, inside].T / self.scales[k]
                X[:, -1] = residual[a:e, j][inside]
                if weights is not None:
                    X *= np.sqrt(weights[a:e, j][inside])[:, None]
                gram = X.T @ X
                self.joints[j] += gram
                self.counts[j] += inside.sum()
                self.blocks[b] += gram / sigma[j] ** 2
        self.total = self.blocks.sum(axis=0)
        live = np.where(self.counts > 0, sigma, np.inf)
        inverse = solve_scaled(self.total[: self.rank, : self.rank], np.eye(self.rank))
        leverage = np.einsum("jik,ki->j", self.joints[:, : self.rank, : self.rank], inverse) / live**2
        self._profile = Profile(np.where(self.counts > 0, np.maximum(self.counts - leverage, 1.0), 0.0), sigma)
        self.plain_sigma = self._spread(np.arange(self.rank))
        self._whole = _Projected(self.total, self.rank)
        self._without = [_Projected(self.total - block, self.rank) for block in self.blocks]

    def _spread(self, columns: IntArray) -> FloatArray:
        """Return the residual standard deviations (n,) of the iteratively reweighted fit with `columns`."""
        index = np.append(columns, self.total.shape[0] - 1)
        return self._profile.fit(self.joints[:, index[:, None], index], rounds=_ROUNDS)[1]

    def run(self) -> list[AddedVariable]:
        """Test every direction by itself."""
        return [self.freed([k]) for k in range(len(self.directions))]

    def freed(self, which: Sequence[int]) -> AddedVariable:
        """Test the directions `which` together, as one of the kind of the first."""
        direction, whole, without = self.directions[which[0]], self._whole, self._without
        own = np.concatenate([np.arange(self.starts[k], self.starts[k + 1]) for k in which])
        scale = np.concatenate([self.scales[k] for k in which])
        if direction.kind in ("friction", "reversal", "yielding"):  # terms that others span have no estimate
            k = own - self.rank
            apart = np.diag(whole.gram)[k] > IDENTIFIABLE**2 * whole.lengths[k]
            own, scale = (own[apart], scale[apart]) if apart.any() else (own[:1], scale[:1])
        eta = whole.estimate(own)
        each = np.array([part.estimate(own) for part in without])
        apart = each - each.mean(axis=0)
        B = each.shape[0]
        covariance = np.asarray((B - 1.0) / B * apart.T @ apart)
        z = float(np.sqrt(max(float(eta @ np.linalg.pinv(covariance, hermitian=True) @ eta), 0.0)))
        # a joint that moves in few of the blocks has as many less degrees of freedom (Kish)
        energy = np.einsum("bii->b", self.blocks[:, own[:, None], own])
        moving = float(energy.sum() ** 2 / max(float((energy**2).sum()), 1e-300))
        m, free = own.size, moving - own.size
        rate = float(scipy.stats.f.sf(z**2 * free / (m * (moving - 1.0)), m, free)) if free > 0.0 else 1.0
        sigma = self._spread(np.append(np.arange(self.rank), own))
        n = self.counts
        ratio = np.where(n > 0, sigma, 1.0) / np.where(n > 0, self.plain_sigma, 1.0)
        left = float(np.exp(np.sum(n * np.log(ratio)) / n.sum()))
        return AddedVariable(
            direction.kind, direction.joint, direction.unit, eta / scale,
            np.sqrt(np.diag(covariance)) / scale, z, rate,
            whole.outside(own), left, self.basis @ whole.change(own, eta), sigma,
        )  # fmt: skip


class _Projected:
    """A Gram matrix of `[Y D r]`, with `D` and `r` projected on what is outside the span of `Y`."""

    def __init__(self, gram: FloatArray, rank: int) -> None:
        self.rank = rank
        self.inside = solve_scaled(gram[:rank, :rank], gram[:rank, rank:])
        self.gram = gram[rank:, rank:] - gram[:rank, rank:].T @ self.inside
        self.lengths = np.diag(gram)[rank:]

    def estimate(self, own: IntArray) -> FloatArray:
        k = own - self.rank
        return solve_scaled(self.gram[np.ix_(k, k)], self.gram[k, -1])

    def outside(self, own: IntArray) -> float:
        k = own - self.rank
        share = np.maximum(np.diag(self.gram)[k], 0.0) / np.maximum(self.lengths[k], 1e-300)
        return float(np.sqrt(share.max()))

    def change(self, own: IntArray, eta: FloatArray) -> FloatArray:
        """Change of the coefficients of `Y` where `eta` is freed."""
        return np.asarray(self.inside[:, -1] - self.inside[:, own - self.rank] @ eta)
