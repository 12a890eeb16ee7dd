"""Full formulation: a cost over all standard parameters and constants at once (Jing et al. 2025).

A point is `[phi, x]`: standard parameters (P,) in the order of the layout, then the natural logarithms (m,) of the
constants.  Its cost is the sum of squared residuals, each joint's divided by `sigma_j^2`; the time does not depend on
the length of the recording.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from rt_core.identification.nonlinear._table import POINTS, interpolation
from rt_core.identification.nonlinear.compressed import CompressedTorque
from rt_core.jit import kernel
from rt_core.model.friction import DISSIPATIVE, LAW_ARMATURE, LAW_LINK
from rt_core.model.parameters import standard_parameters
from rt_core.optimise.problem import Problem
from rt_core.types import FloatArray, IntArray

_LANES = 16
#: Range of a parameter with a prior, as a share of its value on both sides ...
PRIOR_FACTOR = 2.0
#: ... and of one without: up to where it alone causes this many times the joint's torque.
TORQUE_FACTOR = 2.0


class SparseMapping(NamedTuple):
    """`theta = mapping @ phi` in compressed rows."""

    starts: IntArray  # (p + 1,)
    sources: IntArray
    weights: FloatArray


class WhitenedJoints(NamedTuple):
    """Reduced rows of all joints, divided by their `sigma`."""

    columns: IntArray  # (n, c)
    sizes: IntArray  # (n, 2) columns and rows in use
    R: FloatArray  # (n, c, c)
    z: FloatArray  # (n, r)
    rest: float


class ShapedTerms(NamedTuple):
    """Shaped terms of all joints."""

    terms: IntArray  # (t, 4) joint, constant, plus and minus
    tables: FloatArray  # (t, M, r) columns
    grid: FloatArray  # (k, 2) origins and steps


@kernel
def swarm_costs(
    X: FloatArray, mapping: SparseMapping, joints: WhitenedJoints, shaped: ShapedTerms, out: FloatArray
) -> None:
    """Compute the costs `out` (m,) of the points `X` (m, P + k), sixteen at a time."""
    starts, sources, weights = mapping
    columns, sizes, R, z, rest = joints
    terms, tables, grid = shaped
    count = X.shape[0]
    p = starts.shape[0] - 1
    P = X.shape[1] - grid.shape[0]
    theta = np.zeros((p, _LANES))
    residual = np.zeros((z.shape[1], _LANES))
    column = np.zeros(z.shape[1])
    weight, slope = np.zeros(POINTS), np.zeros(POINTS)
    total = np.zeros(_LANES)
    sums = np.zeros(_LANES)
    for start in range(0, count, _LANES):
        size = min(_LANES, count - start)
        for k in range(p):
            for b in range(_LANES):
                sums[b] = 0.0
            for i in range(starts[k], starts[k + 1]):
                w, source = weights[i], sources[i]
                for b in range(size):
                    sums[b] += w * X[start + b, source]
            for b in range(_LANES):
                theta[k, b] = sums[b]
        for b in range(_LANES):
            total[b] = rest
        for j in range(sizes.shape[0]):
            c, r = sizes[j, 0], sizes[j, 1]
            for i in range(r):
                for b in range(_LANES):
                    sums[b] = z[j, i]
                if i < c:
                    row, column_of = R[j, i], columns[j]
                    for k in range(i, c):
                        w = row[k]
                        value = theta[column_of[k]]
                        for b in range(_LANES):
                            sums[b] -= w * value[b]
                target = residual[i]
                for b in range(_LANES):
                    target[b] = sums[b]
            for t in range(terms.shape[0]):
                if terms[t, 0] != j:
                    continue
                constant = terms[t, 1]
                for b in range(size):
                    a = theta[terms[t, 2], b]
                    if terms[t, 3] >= 0:
                        a -= theta[terms[t, 3], b]
                    x = X[start + b, P + constant]
                    if not np.isfinite(x):
                        total[b] = np.nan
                        continue
                    first = interpolation(x, grid[constant, 0], grid[constant, 1], tables.shape[1], weight, slope)
                    for i in range(r):
                        column[i] = 0.0
                    for k in range(POINTS):
                        w = a * weight[k]
                        near = tables[t, first + k]
                        for i in range(r):
                            column[i] += w * near[i]
                    for i in range(r):
                        residual[i, b] -= column[i]
            for i in range(r):
                value = residual[i]
                for b in range(_LANES):
                    total[b] += value[b] * value[b]
        for b in range(size):
            out[start + b] = total[b]


class FullObjective:
    """Cost and normal equations over all standard parameters and constants, with weights `1/sigma` (n,)."""

    def __init__(self, data: CompressedTorque, sigma: FloatArray) -> None:
        self.data = data
        self.sigma = sigma
        n, p = len(data.joints), len(data.base)
        mapping = data.base.mapping
        rows, sources = (x.astype(np.int64) for x in np.nonzero(mapping))
        starts = np.searchsorted(rows, np.arange(p + 1)).astype(np.int64)
        self._mapping = SparseMapping(starts, sources, mapping[rows, sources])
        widest = max(joint.columns.size for joint in data.joints)
        longest = max(joint.z.size for joint in data.joints)
        columns = np.zeros((n, widest), dtype=np.int64)
        sizes = np.zeros((n, 2), dtype=np.int64)
        R, z, rest = np.zeros((n, widest, widest)), np.zeros((n, longest)), 0.0
        terms, tables = [], []
        for j, (joint, s) in enumerate(zip(data.joints, sigma, strict=True)):
            c, r = joint.columns.size, joint.z.size
            columns[j, :c] = joint.columns
            sizes[j] = c, r
            top = min(c, r)
            R[j, :top, :c] = joint.R[:top] / s
            z[j, :r] = joint.z / s
            rest += joint.rest / s**2
            for k, index in enumerate(joint.terms):
                term = data.terms[index]
                terms.append((j, term.constant, term.plus, term.minus))
                tables.append(np.pad(joint.tables[k] / s, ((0, 0), (0, longest - r))))
        self._joints = WhitenedJoints(columns, sizes, R, z, rest)
        self._shaped = ShapedTerms(
            np.array(terms, dtype=np.int64).reshape(-1, 4),
            np.stack(tables) if tables else np.zeros((0, POINTS, longest)), data.axes,
        )  # fmt: skip
        # J of the fixed columns is constant; only the part of the shaped columns changes with the point.
        fixed = np.zeros((p, p))
        for joint, s in zip(data.joints, sigma, strict=True):
            fixed[np.ix_(joint.columns, joint.columns)] += joint.R.T @ joint.R / s**2
        self._fixed = mapping.T @ fixed @ mapping
        self._amplitude = data.amplitude @ mapping

    @property
    def names(self) -> tuple[str, ...]:
        """Standard parameters, then constants (as logarithms in a point)."""
        return self.data.base.standard.names + tuple(c.name for c in self.data.constants)

    def split(self, point: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return base parameters (p,) and logarithms of constants (m,) of a point (P + m,)."""
        P = len(self.data.base.standard)
        return np.asarray(self.data.base.mapping @ point[:P]), point[P:]

    def costs(self, points: FloatArray) -> FloatArray:
        """Return the costs (m,) of the points (m, P + k)."""
        out = np.empty(points.shape[0])
        swarm_costs(np.ascontiguousarray(points), self._mapping, self._joints, self._shaped, out)
        return out

    def normal_equations(self, point: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return `J'r` (P + m,) and `J'J` of the whitened residual at a point."""
        data, mapping = self.data, self.data.base.mapping
        theta, x = self.split(point)
        p, m, t, P = theta.size, x.size, len(data.terms), mapping.shape[1]
        size = data.amplitude @ theta
        slope = np.zeros(p)  # J'r of the fixed columns
        cross, square, slope_shaped = np.zeros((p, 2 * t)), np.zeros((2 * t, 2 * t)), np.zeros(2 * t)
        for joint, s, (value, derivative) in zip(data.joints, self.sigma, data.shaped(x), strict=True):
            of_joint = size[joint.terms]
            residual = joint.R @ theta[joint.columns] - joint.z + of_joint @ value
            shaped = np.concatenate((value, of_joint[:, None] * derivative)) / s
            both = np.concatenate((joint.terms, t + joint.terms))
            slope[joint.columns] += joint.R.T @ residual / s**2
            if both.size:
                cross[np.ix_(joint.columns, both)] += (shaped @ joint.R).T / s
                square[np.ix_(both, both)] += shaped @ shaped.T
                slope_shaped[both] += shaped @ residual / s
        spread = np.zeros((2 * t, P + m))  # from the shaped columns to the parameters
        spread[:t, :P] = self._amplitude
        spread[t + np.arange(t), P + np.array([term.constant for term in data.terms], dtype=np.int64)] = 1.0
        gradient = spread.T @ slope_shaped
        gradient[:P] += mapping.T @ slope
        normal = spread.T @ square @ spread
        normal[:P, :P] += self._fixed
        mixed = (mapping.T @ cross) @ spread
        normal[:P] += mixed
        normal[:, :P] += mixed.T
        return gradient, normal

    def problem(self, bounds: Mapping[str, tuple[float, float]] | None = None) -> Problem:
        """Return the problem for the optimisers: a box around the prior, or `bounds` by name (not as logarithms).

        Raises `ValueError` for bounds of an unknown parameter; `BoundsError` for bounds that enclose nothing.
        """
        lower, upper = self._box()
        names = {name: k for k, name in enumerate(self.names)}
        P = len(self.data.base.standard)
        for name, (low, high) in (bounds or {}).items():
            if name not in names:
                raise ValueError(f"bounds for {name!r}: this model has no such parameter or constant")
            k = names[name]
            if k < P:
                lower[k], upper[k] = low, high
        return Problem(lower, upper, self.costs, self.normal_equations, self.names)

    def _box(self) -> tuple[FloatArray, FloatArray]:
        data, layout = self.data, self.data.base.standard
        reach = np.zeros(len(layout))
        for joint in data.joints:
            columns = joint.R @ data.base.mapping[joint.columns]
            length = np.linalg.norm(columns, axis=0)
            for k, index in enumerate(joint.terms):
                # the length of a shaped column is the largest on the grid
                term = data.terms[index]
                of_term = data.base.independent[[c for c in (term.plus, term.minus) if c >= 0]]
                length[of_term] = np.linalg.norm(joint.tables[k], axis=1).max()
            size = np.sqrt(joint.z @ joint.z + joint.rest)
            some = length > 1e-9 * max(float(length.max(initial=0.0)), 1e-300)
            reach[some] = np.maximum(reach[some], TORQUE_FACTOR * size / length[some])
        reach[reach == 0.0] = 1.0  # no effect on torque: any value
        lower, upper = -reach, reach.copy()
        if data.model.inertial is not None or data.model.dynamics is not None:
            prior = standard_parameters(data.model, layout)
            known = prior != 0.0
            lower[known] = (prior - PRIOR_FACTOR * np.abs(prior))[known]
            upper[known] = (prior + PRIOR_FACTOR * np.abs(prior))[known]
        mass = (layout.law == LAW_LINK) & (layout.source % 10 == 0)
        one_sided = np.isin(layout.law, (*DISSIPATIVE, LAW_ARMATURE)) | mass
        lower[one_sided] = np.maximum(lower[one_sided], 0.0)
        return np.concatenate((lower, data.box[0])), np.concatenate((upper, data.box[1]))
