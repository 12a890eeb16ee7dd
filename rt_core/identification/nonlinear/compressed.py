"""Compressed recording: the cost of any parameters and constants without the samples.

Per joint, the rows `[fixed columns | skeleton of each shaped column | torque]` are reduced to a triangle once, both
sides filtered and masked as in `rt_core.identification.rows`.  The reduction keeps norms within the span of these
columns, and every shaped column lies in that span (`_table`).  So the sum of squared residuals of joint `j` is

    | z_j - R_j theta - sum_b a_b(theta) T_jb(x_b) |^2 + rest_j

with `T_jb` interpolated in a table over the logarithm `x` of the constant.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.linalg as la

from rt_core.identification.least_squares import JointTriangle, Solution, compress_joint, solve
from rt_core.identification.nonlinear._constants import Constant, Term, shaped_terms, with_constants
from rt_core.identification.nonlinear._table import (
    POINTS,
    Curve,
    FilteredSamples,
    grid_size,
    interpolation,
    shaped_rows,
    skeleton,
)
from rt_core.identification.preprocess import DataError, SignalPiece, Signals, SignalSettings
from rt_core.identification.rows import Rows, build_rows, row_filter, standing_velocity
from rt_core.linear_algebra import svd
from rt_core.model.base import BaseParameters
from rt_core.model.friction import REFERENCE_TEMPERATURE
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray, IntArray

#: Number and share of the rows that may be slower than the speed taken as the slowest.
_SLOW_ROWS = 10
_SLOW_SHARE = 0.002
#: Upper end of the search, as a multiple of the fastest speed: above it the term is a polynomial.
_FASTEST = 2.0
_TABLE_TOLERANCE = 1e-13


@dataclass(frozen=True, eq=False)
class JointData:
    """One joint's reduced rows.

    `columns` (c,) are base parameters with a fixed column, `R` (r, c) has zeros below row `c`; `z` (r,), `rest` and
    `count` as in `JointTriangle`; `terms` (b,) are the shaped terms of the joint, `tables` (b, M, r) their columns on
    the grid of their constant.
    """

    columns: IntArray
    R: FloatArray
    z: FloatArray
    rest: float
    count: int
    terms: IntArray
    tables: FloatArray


@dataclass(frozen=True, eq=False)
class Source:
    """Rows of the fixed columns, and the signals they are built from."""

    model: RobotModel
    rows: Rows
    signals: Signals
    settings: SignalSettings


@dataclass(frozen=True, eq=False)
class CompressedTorque:
    """A recording for the torque fit, see the module's docstring.

    `lower`, `upper` (m,) are the natural logarithms of the range of the tables, in which the data can determine each
    constant; `box` (2, m) is the range of the search, narrower with bounds.
    """

    base: BaseParameters
    constants: tuple[Constant, ...]
    terms: tuple[Term, ...]
    joints: tuple[JointData, ...]
    source: Source
    lower: FloatArray
    upper: FloatArray
    box: FloatArray
    grid: int

    @property
    def model(self) -> RobotModel:
        """The arm, with its own constants."""
        return self.source.model

    @property
    def rows(self) -> Rows:
        """The rows of the fixed columns."""
        return self.source.rows

    @cached_property
    def step(self) -> FloatArray:
        """(m,) steps of the grids."""
        return (self.upper - self.lower) / (self.grid - 1)

    @cached_property
    def axes(self) -> FloatArray:
        """(m, 2) origins and steps of the grids."""
        return np.stack((self.lower, self.step), axis=1)

    @cached_property
    def amplitude(self) -> FloatArray:
        """(b, p) matrix with `a = amplitude @ theta`, the amplitudes of the shaped terms."""
        out = np.zeros((len(self.terms), len(self.base)))
        for k, term in enumerate(self.terms):
            out[k, term.plus] = 1.0
            if term.minus >= 0:
                out[k, term.minus] = -1.0
        return out

    @property
    def count(self) -> int:
        """Rows in use, all joints."""
        return sum(joint.count for joint in self.joints)

    def values(self, x: FloatArray) -> dict[str, float]:
        """Return the constants by name, from their logarithms `x` (m,)."""
        return {c.name: float(np.exp(v)) for c, v in zip(self.constants, x, strict=True)}

    def shaped(self, x: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        """Return per joint the reduced shaped columns (b, r) at `x` (m,), and their derivatives by `x`."""
        weight, slope = np.empty(POINTS), np.empty(POINTS)
        out = []
        for joint in self.joints:
            value, derivative = np.zeros((2, joint.terms.size, joint.z.size))
            for k, term in enumerate(joint.terms):
                c = self.terms[term].constant
                first = interpolation(x[c], self.lower[c], self.step[c], self.grid, weight, slope)
                near = joint.tables[k, first : first + POINTS]
                value[k], derivative[k] = weight @ near, slope @ near
            out.append((value, derivative))
        return out

    def triangles(self, x: FloatArray, without: tuple[int, ...] = ()) -> tuple[JointTriangle, ...]:
        """Return the triangles of the linear problem at constants `x` (m,), without the terms of `without`."""
        out = []
        for joint, (value, _) in zip(self.joints, self.shaped(x), strict=True):
            R = np.zeros((joint.z.size, len(self.base)))
            R[:, joint.columns] = joint.R
            touched = np.zeros(len(self.base), dtype=bool)
            touched[joint.columns] = True
            for k, term in enumerate(joint.terms):
                if self.terms[term].constant not in without:
                    R += value[k][:, None] * self.amplitude[term]
                    touched |= self.amplitude[term] != 0.0
            columns = np.flatnonzero(touched)
            out.append(_triangle(columns, R[:, columns], joint.z, joint.rest, joint.count))
        return tuple(out)

    def residual_sums(self, theta: FloatArray, x: FloatArray) -> FloatArray:
        """Return the sums (n,) of squared residuals of base parameters `theta` (p,) at constants `x` (m,)."""
        return np.array([t.residual_sum(theta) for t in self.triangles(x)])


def _triangle(columns: IntArray, R: FloatArray, z: FloatArray, rest: float, count: int) -> JointTriangle:
    """Reduce few rows `R` (r, c), `z` (r,) to a square triangle."""
    width = columns.size
    reduced = np.zeros((width + 1, width + 1))
    found = la.qr(np.column_stack((R, z)), mode="r", check_finite=False)[0][: width + 1]
    reduced[: found.shape[0]] = found
    rest += float(reduced[width, width] ** 2)
    return JointTriangle(columns, reduced[:width, :width].copy(), reduced[:width, width].copy(), rest, count)


def weighted_solution(triangles: tuple[JointTriangle, ...], p: int, sigma: FloatArray) -> Solution:
    """Solve with the given weights `1/sigma` (n,)."""
    whitened = tuple(
        replace(t, R=t.R / s, z=t.z / s, rest=t.rest / s**2) for t, s in zip(triangles, sigma, strict=True)
    )
    solution = solve(whitened, p, "ols")
    return replace(solution, sigma=solution.sigma * sigma, weighted_with=np.array(sigma))


def compress_torque(
    model: RobotModel, base: BaseParameters, signals: Signals, settings: SignalSettings, *,
    bounds: Mapping[str, tuple[float, float]] | None = None, load_theta: FloatArray | None = None,
) -> CompressedTorque:  # fmt: skip
    """Reduce the rows in the part of the signals.

    The range of a constant reaches from where its term is negligible at the slowest speed up to twice the fastest, or
    is that of `bounds` by name.  `load_theta` as in `build_rows`. Raises `DataError` if there are no more rows than
    parameters and constants, or a row is not finite, `ValueError` if bounds of a constant are not `0 < lower < upper`.
    """
    constants, terms = shaped_terms(model, base)
    _, fixed = with_constants(model, base, {c.name: 0.0 for c in constants})
    rows = build_rows(model, fixed, signals, settings, load_theta=load_theta).select(*signals.part)
    unknowns = len(base) + len(constants)
    if rows.use.sum() <= unknowns:
        raise DataError(
            f"{int(rows.use.sum())} rows for {unknowns} parameters and constants: record longer, or raise rate_hz"
        )
    if not (np.isfinite(rows.Y).all() and np.isfinite(rows.tau).all()):
        raise DataError("the rows are not finite: the signals hold NaN or overflow")
    lower, upper, box = constant_range(model, constants, terms, rows, bounds or {})
    grid = max(
        (grid_size(tuple(t for t in terms if t.constant == c), upper[c] - lower[c]) for c in range(len(constants))),
        default=POINTS,
    )
    bones = []
    for term in terms:
        speeds = [np.abs(piece.dq @ term.motor).max() for piece in signals.pieces]
        axis = np.linspace(lower[term.constant], upper[term.constant], grid)
        bones.append(skeleton(term, axis, float(max(speeds))))
    source = Source(model, rows, signals, settings)
    joints = []
    for j in range(model.n):
        of_joint = np.array([k for k, term in enumerate(terms) if term.motor[j] != 0.0], dtype=np.int64)
        use = rows.use[:, j]
        built = [shaped_columns(source, terms[k], j, bones[k][0])[use] for k in of_joint]
        joints.append(_reduce(rows.Y[j][:, use], rows.tau[use, j], built, of_joint, [bones[k][1] for k in of_joint]))
    return CompressedTorque(base, constants, terms, tuple(joints), source, lower, upper, box, grid)


def _reduce(
    Y: FloatArray, tau: FloatArray, built: list[FloatArray], terms: IntArray, coefficients: list[FloatArray]
) -> JointData:
    """Reduce one joint's fixed columns `Y` (p, K), skeletons `built` (K, m_b) and torque (K,)."""
    p = Y.shape[0]
    triangle = compress_joint(np.vstack([Y, *(x.T for x in built)]), tau)
    fixed = triangle.columns < p
    columns = triangle.columns[fixed]
    c = min(columns.size, triangle.R.shape[0])
    # Below the fixed columns, the shaped ones span few directions.
    below = triangle.R[c:, ~fixed]
    keep = 0
    if below.size:
        U, size, _ = svd(below, full_matrices=True)
        keep = int((size > _TABLE_TOLERANCE * max(float(np.abs(triangle.R).max()), 1e-300)).sum())
        rotated = U.T @ triangle.z[c:]
        shaped = np.vstack((triangle.R[:c, ~fixed], (U.T @ below)[:keep]))
    else:
        rotated = triangle.z[c:]
        shaped = triangle.R[:c, ~fixed]
    R = np.vstack((triangle.R[:c, fixed], np.zeros((keep, columns.size))))
    z = np.concatenate((triangle.z[:c], rotated[:keep]))
    rest = triangle.rest + float(rotated[keep:] @ rotated[keep:])
    full = np.zeros((c + keep, sum(x.shape[1] for x in built)))
    full[:, triangle.columns[~fixed] - p] = shaped
    tables, at = [], 0
    for coefficient in coefficients:
        tables.append((full[:, at : at + coefficient.shape[0]] @ coefficient).T)
        at += coefficient.shape[0]
    stacked = np.stack(tables) if tables else np.zeros((0, POINTS, c + keep))
    return JointData(columns, R, z, rest, triangle.count, terms, np.ascontiguousarray(stacked))


def shaped_columns(source: Source, term: Term, joint: int, constants: FloatArray) -> FloatArray:
    """Build the columns (K, m) of a shaped term at `constants` (m,), in the rows of `joint`."""
    rows, signals, settings = source.rows, source.signals, source.settings
    factor = max(1, round(signals.rate_hz / min(settings.row_rate_hz, signals.rate_hz)))
    taps = row_filter(settings, signals.rate_hz, factor)
    standing = float(standing_velocity(source.model, settings)[joint])
    curve = Curve(term.law, term.exponent, term.smoothing, np.ascontiguousarray(constants), term.motor)
    out = np.zeros((rows.t.size, constants.size))
    for number, piece in enumerate(signals.pieces):
        inside = np.flatnonzero(rows.piece == number)
        if inside.size:
            centres = np.searchsorted(piece.t, rows.t[inside]).astype(np.int64)
            samples = FilteredSamples(np.ascontiguousarray(piece.row_velocity), _weight_of(term, piece), taps, centres)
            part = np.zeros((inside.size, constants.size))
            shaped_rows(curve, joint, standing, samples, part)
            out[inside] = part
    return out


def _weight_of(term: Term, piece: SignalPiece) -> FloatArray:
    """Return the factor (N,) of a term beside its function of velocity; empty if there is none."""
    if not term.warm or piece.temperature is None:
        return np.zeros(0)
    return np.ascontiguousarray(piece.temperature[:, term.source] - REFERENCE_TEMPERATURE)


def constant_range(
    model: RobotModel, constants: tuple[Constant, ...], terms: tuple[Term, ...], rows: Rows,
    bounds: Mapping[str, tuple[float, float]],
) -> tuple[FloatArray, FloatArray, FloatArray]:  # fmt: skip
    """Return the logarithms of the range (m,), (m,) of the tables, and (2, m) of the search."""
    unknown = set(bounds) - {c.name for c in constants}
    if unknown:
        raise ValueError(f"bounds for {sorted(unknown)[0]!r}: there is no such constant in this friction law")
    lower, upper = np.zeros((2, len(constants)))
    box = np.zeros((2, len(constants)))
    for c, constant in enumerate(constants):
        speeds = []
        for term in terms:
            if term.constant == c:
                use = (rows.use & (term.motor != 0.0)).any(axis=1)
                speeds.append(np.abs(rows.dq[use] @ term.motor))
        speed = np.sort(np.concatenate(speeds))
        speed = speed[speed > 0.0]
        if speed.size < _SLOW_ROWS:
            speed = np.ones(1)  # a joint that does not move: its term has no rows, and any range will do
        slow = float(speed[min(max(_SLOW_ROWS, int(_SLOW_SHARE * speed.size)), speed.size - 1)])
        fine = min(term.resolution for term in terms if term.constant == c)
        default = (slow * fine, _FASTEST * float(speed[-1]))
        low, high = bounds.get(constant.name, default)
        if not 0.0 < low < high < np.inf:
            raise ValueError(
                f"bounds of {constant.name} of joint {model.joints[constant.joint].name}: {low:g} to {high:g} "
                f"{constant.unit} is not a range of positive velocities"
            )
        box[:, c] = np.log(low), np.log(high)
        lower[c], upper[c] = np.log(min(low, default[0])), np.log(max(high, default[1]))
    return lower, upper, box
