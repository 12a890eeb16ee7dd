"""Separable formulation: a cost over the constants alone (variable projection).

For given constants the best base parameters follow from a linear solve.  The span of the fixed columns is projected out
once; at each point only the amplitudes of the shaped terms are solved for in the short remaining residual (Golub and
Pereyra 1973).  The gradient is exact; the normal matrix leaves out the derivative of the projection (Kaufman 1975).
Points are the natural logarithms (m,) of the constants.
"""

from typing import NamedTuple

import numpy as np
import scipy.linalg as la

from rt_core.identification.least_squares import RANK_TOLERANCE
from rt_core.identification.nonlinear._table import POINTS, interpolation
from rt_core.identification.nonlinear.compressed import CompressedTorque
from rt_core.jit import kernel
from rt_core.optimise.problem import Problem
from rt_core.types import BoolArray, FloatArray, IntArray

_ABSENT = 1e-24  # a column with less than this share of its largest square counts as zero
_DEPENDENT = 1e-13
_DESCENT_STEPS = 30
_SWEEPS = 4
_SCAN_POINTS = (20, 12)  # along each axis, where a joint has one or two constants


class Projected(NamedTuple):
    """Torque and shaped columns outside the span of the fixed columns, in S rows."""

    grid: FloatArray  # (m, 2) origins and steps
    tables: FloatArray  # (b, M, S)
    constant: IntArray  # (b,)
    active: BoolArray  # (b,) terms in use
    floor: FloatArray  # (b,) square of a column below which it counts as zero
    z: FloatArray  # (S,) torque


@kernel
def projected_cost(
    x: FloatArray, projected: Projected, derivatives: bool, work: FloatArray, gradient: FloatArray, normal: FloatArray
) -> float:
    """Return the residual sum of squares at constants `x` (m,) with the best amplitudes; `work` (2 b + m + 1, S).

    With `derivatives`, `gradient` (m,) and `normal` (m, m) receive `J'r` and `J'J`.  All is NaN if a constant is not
    finite.
    """
    grid, tables, constant, active, floor, z = projected
    count, size = tables.shape[0], z.shape[0]
    m = x.shape[0]
    weight, slope = np.zeros(POINTS), np.zeros(POINTS)
    L = np.zeros((count, count))
    a, scale = np.zeros(count), np.zeros(count)
    for t in range(count):
        if not active[t]:
            continue
        c = constant[t]
        if not np.isfinite(x[c]):
            if derivatives:
                gradient[:] = np.nan
                normal[:, :] = np.nan
            return np.nan
        first = interpolation(x[c], grid[c, 0], grid[c, 1], tables.shape[1], weight, slope)
        value, change = work[t], work[count + t]
        for i in range(size):
            value[i] = 0.0
            change[i] = 0.0
        for k in range(POINTS):
            w, s = weight[k], slope[k]
            near = tables[t, first + k]
            for i in range(size):
                value[i] += w * near[i]
            if derivatives:
                for i in range(size):
                    change[i] += s * near[i]
        square = 0.0
        for i in range(size):
            square += value[i] * value[i]
        scale[t] = 1.0 / np.sqrt(square) if square > floor[t] else 0.0
    # Cholesky factor of the normalised columns; dependent ones are left out
    for t in range(count):
        if scale[t] == 0.0:
            continue
        for u in range(t + 1):
            if scale[u] == 0.0:
                continue
            total = 0.0
            one, other = work[t], work[u]
            for i in range(size):
                total += one[i] * other[i]
            total *= scale[t] * scale[u]
            for k in range(u):
                total -= L[t, k] * L[u, k]
            if u < t:
                L[t, u] = total / L[u, u]
            elif total > _DEPENDENT:
                L[t, t] = np.sqrt(total)
            else:
                scale[t] = 0.0
                for k in range(t):
                    L[t, k] = 0.0
    for t in range(count):
        if scale[t] != 0.0:
            total = 0.0
            value = work[t]
            for i in range(size):
                total += value[i] * z[i]
            total *= scale[t]
            for k in range(t):
                total -= L[t, k] * a[k]
            a[t] = total / L[t, t]
    for t in range(count - 1, -1, -1):
        if scale[t] != 0.0:
            for k in range(t + 1, count):
                a[t] -= L[k, t] * a[k]
            a[t] /= L[t, t]
    residual = work[2 * count + m]
    for i in range(size):
        residual[i] = z[i]
    for t in range(count):
        w = a[t] * scale[t]
        value = work[t]
        if w != 0.0:
            for i in range(size):
                residual[i] -= w * value[i]
    cost = 0.0
    for i in range(size):
        cost += residual[i] * residual[i]
    if not derivatives:
        return cost
    inner = np.zeros((m, count))
    for c in range(m):
        total_change = work[2 * count + c]
        for i in range(size):
            total_change[i] = 0.0
        for t in range(count):
            if constant[t] == c and scale[t] != 0.0:
                w = a[t] * scale[t]
                change = work[count + t]
                for i in range(size):
                    total_change[i] += w * change[i]
        total = 0.0
        for i in range(size):
            total += total_change[i] * residual[i]
        gradient[c] = -total
        for t in range(count):
            if scale[t] != 0.0:
                total = 0.0
                value = work[t]
                for i in range(size):
                    total += total_change[i] * value[i]
                total *= scale[t]
                for k in range(t):
                    total -= L[t, k] * inner[c, k]
                inner[c, t] = total / L[t, t]
        for d in range(c + 1):
            total = 0.0
            one, other = work[2 * count + c], work[2 * count + d]
            for i in range(size):
                total += one[i] * other[i]
            for t in range(count):
                total -= inner[c, t] * inner[d, t]
            normal[c, d] = total
            normal[d, c] = total
    return cost


class SeparableObjective:
    """Cost of the constants in `box` (2, m), with the best base parameters and weights `1/sigma` (n,).

    Terms of the constants `without` are switched off.
    """

    def __init__(
        self, data: CompressedTorque, sigma: FloatArray, without: tuple[int, ...] = (), box: FloatArray | None = None
    ) -> None:
        self.data = data
        self.lower, self.upper = data.box if box is None else box
        self.sigma = sigma
        p = len(data.base)
        tops = [min(joint.columns.size, joint.z.size) for joint in data.joints]
        fixed, torque = np.zeros((sum(tops), p)), np.zeros(sum(tops))
        at = 0
        for joint, s, top in zip(data.joints, sigma, tops, strict=True):
            fixed[at : at + top, joint.columns] = joint.R[:top] / s
            torque[at : at + top] = joint.z[:top] / s
            at += top
        length = np.linalg.norm(fixed, axis=0)
        Q, R, _ = la.qr(fixed / np.where(length > 0.0, length, 1.0), pivoting=True, check_finite=False)
        size = np.abs(np.diag(R))
        rank = int((size > RANK_TOLERANCE * size[:1]).sum())
        free = Q[:, rank:]  # beyond the span of the fixed columns
        own = [joint.z.size - top for joint, top in zip(data.joints, tops, strict=True)]
        tables = np.zeros((len(data.terms), data.grid, free.shape[1] + sum(own)))
        floor = np.zeros(len(data.terms))
        tail = np.zeros(sum(own))
        at, below = 0, 0
        self._rest = 0.0
        for joint, s, top, more in zip(data.joints, sigma, tops, own, strict=True):
            tail[below : below + more] = joint.z[top:] / s
            self._rest += joint.rest / s**2
            for k, t in enumerate(joint.terms):
                table = joint.tables[k] / s
                tables[t, :, : free.shape[1]] += table[:, :top] @ free[at : at + top]
                tables[t, :, free.shape[1] + below : free.shape[1] + below + more] = table[:, top:]
                floor[t] += _ABSENT * float((table**2).sum(axis=1).max())
            at += top
            below += more
        z = np.concatenate((free.T @ torque, tail))
        constant = np.array([term.constant for term in data.terms], dtype=np.int64)
        self._projected = Projected(data.axes, tables, constant, ~np.isin(constant, without), floor, z)
        self._work = np.zeros((2 * len(data.terms) + len(data.constants) + 1, z.size))
        self.evaluations = 0

    def _evaluate(self, x: FloatArray, derivatives: bool) -> tuple[float, FloatArray, FloatArray]:
        gradient, normal = np.zeros(x.size), np.zeros((x.size, x.size))
        self.evaluations += 1
        cost = self._rest + projected_cost(
            x, self._projected, derivatives, self._work, gradient, normal
        )  # fmt: skip
        return cost, gradient, normal

    def evaluate(self, x: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Return cost, `J'r` (m,) and `J'J` (m, m) at `x` (m,)."""
        return self._evaluate(np.ascontiguousarray(x), True)

    def costs(self, points: FloatArray) -> FloatArray:
        """Return the costs (k,) of the points (k, m)."""
        return np.array([self._evaluate(np.ascontiguousarray(x), False)[0] for x in points])

    def normal_equations(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return `J'r` (m,) and `J'J` (m, m) at `x` (m,)."""
        return self.evaluate(x)[1:]

    def problem(self) -> Problem:
        """Return the problem for the optimisers."""
        names = tuple(c.name for c in self.data.constants)
        return Problem(self.lower, self.upper, self.costs, self.normal_equations, names)

    def descend(self, x: FloatArray, free: BoolArray, tolerance: float) -> tuple[FloatArray, float]:
        """Descend from `x` over the constants `free` (m,) by damped Gauss-Newton steps; return minimum and cost.

        Ends when a step is expected to lower the cost by less than `tolerance`.
        """
        x = x.copy()
        cost, gradient, normal = self.evaluate(x)
        damping = 1e-6
        for _ in range(_DESCENT_STEPS):
            outward = ((x <= self.lower) & (gradient > 0.0)) | ((x >= self.upper) & (gradient < 0.0))
            move = np.flatnonzero(free & ~outward & (np.diag(normal) > 0.0))
            if move.size == 0:
                break
            matrix = normal[np.ix_(move, move)].copy()
            matrix[np.diag_indices(move.size)] *= 1.0 + damping
            step = np.linalg.solve(matrix, -gradient[move])
            if -float(step @ gradient[move]) < tolerance:
                break
            trial = x.copy()
            trial[move] = np.clip(x[move] + np.clip(step, -1.0, 1.0), self.lower[move], self.upper[move])
            new = self.evaluate(trial)
            if new[0] < cost:
                x, (cost, gradient, normal) = trial, new
                damping = max(0.1 * damping, 1e-9)
            else:
                damping = max(10.0 * damping, 1e-3)
        return x, cost

    def scan(self, x: FloatArray, which: list[int]) -> tuple[FloatArray, float]:
        """Return the best point on a grid over the constants `which`, the others as in `x` (m,), and its cost."""
        count = _SCAN_POINTS[min(len(which), len(_SCAN_POINTS)) - 1]
        axes = np.meshgrid(*(np.linspace(self.lower[c], self.upper[c], count) for c in which))
        points = np.repeat(x[None], axes[0].size, axis=0)
        points[:, which] = np.stack([axis.ravel() for axis in axes], axis=1)
        costs = self.costs(points)
        k = int(costs.argmin())
        return points[k], float(costs[k])

    def sweep(self, x: FloatArray) -> FloatArray:
        """Scan each joint's constants in turn, from `x` (m,), until nothing improves.

        Joints hardly depend on one another, but each has several minima, in which descent alone ends.
        """
        data = self.data
        best = np.array(x)
        cost = float(self.costs(best[None])[0])
        for _ in range(_SWEEPS):
            before = cost
            for joint in sorted({constant.joint for constant in data.constants}):
                own = [c for c, constant in enumerate(data.constants) if constant.joint == joint]
                point, value = self.scan(best, own)
                if value < cost:
                    best, cost = point, value
            if cost == before:
                break
        return best
