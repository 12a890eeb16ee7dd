"""Search for the velocity constants of the motor's friction, and their intervals.

`C1*tanh(dtheta_in/omega1)` and `C2*dtheta_in*exp(-|dtheta_in/omega_s|)` are linear in `C1` and `C2`.  So for each pair
of constants on a grid everything else follows from one linear solve (variable projection, Golub and Pereyra 1973): the
other columns are projected out once, and two amplitudes remain.  Lag and zero of the deflection take part by their
derivatives.  A descent starts from the lowest points of a grid of all pairs; from the minimum each constant is moved
away while the other is fitted.

The interval of a constant holds the values at which the cost exceeds the minimum by less than `kappa` times the
quantile of chi-squared; the interval of any other parameter holds its values at all of them (profile likelihood).
`kappa` is the factor by which the residual's correlation in time widens variances.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rt_core.elastic.problem import SHAPED, JointProblem
from rt_core.identification.nonlinear.profile import SEEN
from rt_core.statistics import CHI_SQUARED_QUANTILE_95
from rt_core.types import BoolArray, FloatArray

_POINTS, _CLOSE = 48, 24  # points along an axis of the whole grid, and of a refined one
_MINIMA = 6
_STEPS = 12
_SMALL = 1e-4  # step of numerical derivatives, in a logarithm
_FIRST = 0.02  # first step of a walk, in the logarithm
_MAX = 60
_NEARLY = 1.0 + 1e-9
_MIN = 1e-10  # part of a column outside the span of the others that counts as rounding, as a share of its length
_ALONE = 1e-8  # least part of a term outside the other columns, as a share of its square
_NOTHING = 1e-150  # least square of a term, which may be zero at all observed speeds
_TOGETHER = 1e-4  # share of a term outside the other below which only one of them is fitted
_ALIKE = 1e-6  # least share of a term outside the other: below it the cost is rounding

Axes = tuple[FloatArray, FloatArray]


@dataclass(frozen=True)
class Grid:
    """Weighted residual sums of squares (g, h) at each pair of constants on `axes` [rad/s]."""

    axes: Axes
    cost: FloatArray


@dataclass(frozen=True)
class ConstantProfile:
    """Intervals of the constants and of the other parameters."""

    lower: FloatArray  # (p,) interval (95 %) of each parameter over all constants that the data allow; NaN without one
    upper: FloatArray  # (p,)
    why: Mapping[str, str]  # undetermined constants, and the reason


class ConstantSearch:
    """The search, with lag and zero linearised at `x` (p,).

    `free` (p,) marks the fitted parameters, `spread` (r,) is the rms residual of the rows.  `found` (2,) are the
    constants of the lowest cost `least`.
    """

    def __init__(self, problem: JointProblem, x: FloatArray, free: BoolArray, spread: FloatArray, kappa: float) -> None:
        f, J, _ = problem.evaluate(x)
        self.problem, self.x = problem, x
        self.limit = CHI_SQUARED_QUANTILE_95 * kappa
        self._weight = 1.0 / float(spread[0])  # the terms are in the motor's row, which is the first
        weight = 1.0 / spread[:, None]
        self._amplitudes = [problem.names.index(amplitude) for amplitude in SHAPED.values()]
        unlike = (*self._amplitudes, *(problem.names.index(name) for name in problem.terms.constants))
        self._plain = [int(k) for k in np.flatnonzero(free) if k not in unlike]
        linear = len(problem.terms.spring) + len(problem.terms.damping)
        moving = [k for k in self._plain if k >= linear]
        target = problem.y - f + np.einsum("rpk,p->rk", J[:, :linear], x[:linear])
        target += np.einsum("rpk,p->rk", J[:, moving], x[moving])
        target = (target * weight).ravel()
        W = (J[:, self._plain] * weight[:, None]).transpose(0, 2, 1).reshape(target.size, -1)
        length = np.linalg.norm(W, axis=0)
        self._length = np.where(length > 0.0, length, 1.0)
        Q, R = np.linalg.qr(W / self._length)
        own = np.abs(np.diag(R))
        self._back: FloatArray = np.asarray(np.linalg.inv(R + np.diag(np.where(own < _MIN, _MIN, 0.0))))
        self._Q = Q
        self._on_motor = Q[: problem.size]
        self._z = Q.T @ target
        self._rest = target - Q @ self._z
        self._square = float(self._rest @ self._rest)
        self.free = np.array([name in problem.terms.constants for name in SHAPED])
        given = [2 * [problem.constant(x, name)] for name in SHAPED]
        box = [problem.box(name) if free else has for name, free, has in zip(SHAPED, self.free, given, strict=True)]
        self.box = np.array(box).T
        self.whole = self._grid((self._whole(0), self._whole(1)))
        self.found, self.least = self._search()

    def best(self) -> FloatArray:
        """Return the parameters (p,) of the lowest cost; those that are not free stay."""
        omegas = self.found
        values, _ = self._parameters((omegas[[0]], omegas[[1]]))
        x = self.x.copy()
        x[[*self._plain, *self._amplitudes]] = values[:, 0, 0]
        for name, omega in zip(SHAPED, omegas, strict=True):
            if name in self.problem.terms.constants:
                x[self.problem.names.index(name)] = omega
        return self.problem.within(x)

    def profile(self) -> ConstantProfile:
        """Return the intervals of the constants and of each parameter."""
        problem, names = self.problem, self.problem.names
        lower, upper = np.full(len(names), np.nan), np.full(len(names), np.nan)
        which = [*self._plain, *self._amplitudes]
        walked = [self._walk(side, sign) for side in range(2) if self.free[side] for sign in (-1.0, 1.0)]
        self.least = min([self.least, *(cost for path in walked for _, cost in path)])
        good = [omegas for path in walked for omegas, cost in path if cost <= self.least + self.limit]
        for axes in (self.whole.axes, *((omegas[[0]], omegas[[1]]) for omegas in good)):
            budget = self.least + self.limit - self._grid(axes).cost
            inside = budget >= 0.0
            if inside.any():
                values, std = self._parameters(axes)
                half = np.sqrt(budget[inside]) * std[:, inside]
                lower[which] = np.fmin(lower[which], (values[:, inside] - half).min(axis=1))
                upper[which] = np.fmax(upper[which], (values[:, inside] + half).max(axis=1))
        places = np.argwhere(self.whole.cost <= self.least + self.limit)
        good += [np.array([self.whole.axes[0][i], self.whole.axes[1][j]]) for i, j in places]
        why: dict[str, str] = {}
        for side, name in enumerate(SHAPED):
            if not self.free[side]:
                continue
            ends = tuple(float(end([omegas[side] for omegas in good])) for end in (min, max))
            k = names.index(name)
            lower[k], upper[k] = ends
            seen = self._without(side) - self.least > SEEN * self.limit / CHI_SQUARED_QUANTILE_95
            below, above = ends[0] <= self.box[0, side] * _NEARLY, ends[1] >= self.box[1, side] / _NEARLY
            reason = _open_reason(problem, name, below, above, seen, (ends[0], ends[1]))
            if reason is not None:
                why[name] = reason
        return ConstantProfile(lower, upper, why)

    # Costs and parameters on grids

    def _terms(self, side: int, axis: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the columns (K, g) of a term along an axis, and their parts (b, g) in the plain columns.

        They are those of the motor's rows; in all other rows they are zero.
        """
        name = list(SHAPED)[side]
        columns = np.stack([self.problem.shape(name, float(omega)) for omega in axis], axis=1) * self._weight
        return columns, self._on_motor.T @ columns

    def _products(self, axes: Axes) -> tuple[FloatArray, ...]:
        """Return the products of both terms, outside the plain columns, with each other and with the torque."""
        (c1, p1), (c2, p2) = (self._terms(side, axis) for side, axis in enumerate(axes))
        motor = self._rest[: self.problem.size]
        own1, own2 = _own(c1, p1), _own(c2, p2)
        both = c1.T @ c2 - p1.T @ p2
        most = np.sqrt((1.0 - _ALIKE) * own1[:, None] * own2[None, :])
        return own1, own2, np.clip(both, -most, most), c1.T @ motor, c2.T @ motor, p1, p2

    def _grid(self, axes: Axes) -> Grid:
        own1, own2, both, z1, z2, _, _ = self._products(axes)
        a, c = _solved(own1, own2, both, z1, z2)
        return Grid(axes, self._square - a * z1[:, None] - c * z2[None, :])

    def _parameters(self, axes: Axes) -> tuple[FloatArray, FloatArray]:
        """Return values and standard deviations (b + 2, g, h) of plain parameters and both amplitudes at each pair."""
        own1, own2, both, z1, z2, p1, p2 = self._products(axes)
        a, c = _solved(own1, own2, both, z1, z2)
        determinant = own1[:, None] * own2[None, :] - both**2
        var_a, var_c, cov = own2[None, :] / determinant, own1[:, None] / determinant, -both / determinant
        U, V = (self._back @ p1)[:, :, None], (self._back @ p2)[:, None, :]
        plain = (self._back @ self._z)[:, None, None] - U * a - V * c
        variance = (self._back**2).sum(axis=1)[:, None, None] + U**2 * var_a + V**2 * var_c + 2.0 * U * V * cov
        scale = self._length[:, None, None]
        values = np.concatenate((plain / scale, a[None], c[None]))
        std = np.concatenate((np.sqrt(np.maximum(variance, 0.0)) / scale, np.sqrt(var_a)[None], np.sqrt(var_c)[None]))
        return values, std

    # The search

    def _whole(self, side: int) -> FloatArray:
        """Return the axis of the whole range, evenly in the logarithm; one point for a given constant."""
        low, high = self.box[:, side]
        return np.geomspace(low, high, _POINTS) if self.free[side] else np.array([low])

    def _search(self) -> tuple[FloatArray, float]:
        """Return the constants (2,) of the lowest cost, and that cost."""
        best, least = np.zeros(2), np.inf
        for i, j in _minima(self.whole.cost):
            omegas, cost = self._descend(np.array([self.whole.axes[0][i], self.whole.axes[1][j]]), self.free)
            if cost < least:
                best, least = omegas, cost
        return best, least

    def _descend(self, omegas: FloatArray, move: BoolArray) -> tuple[FloatArray, float]:
        """Descend from `omegas` (2,) over the constants `move` (2,); return the minimum and its cost.

        Gauss-Newton steps of the logarithms and amplitudes (Kaufman 1975).
        """
        cost = self._cost(omegas)
        for _ in range(_STEPS if move.any() else 0):
            step = self._step(omegas, move)
            better = False
            for share in (1.0, 0.5, 0.25, 0.1, 0.02):
                trial = np.clip(omegas * np.exp(np.clip(share * step, -1.0, 1.0)), self.box[0], self.box[1])
                new = self._cost(trial)
                if new < cost:
                    gain, omegas, cost, better = cost - new, trial, new, True
                    break
            if not better or gain < 1e-3 * self.limit:
                break
        return omegas, cost

    def _cost(self, omegas: FloatArray) -> float:
        return float(self._grid((omegas[[0]], omegas[[1]])).cost[0, 0])

    def _step(self, omegas: FloatArray, move: BoolArray) -> FloatArray:
        """Return the step (2,) of the logarithms from `omegas` (2,)."""
        own1, own2, both, z1, z2, _, _ = self._products((omegas[[0]], omegas[[1]]))
        a, c = _solved(own1, own2, both, z1, z2)
        columns = []
        for side, name in enumerate(SHAPED):
            up, down = (self.problem.shape(name, float(omegas[side] * np.exp(e))) for e in (_SMALL, -_SMALL))
            columns.append((up - down) * (float((a, c)[side][0, 0]) / (2.0 * _SMALL)))
        columns = [column for column, moves in zip(columns, move, strict=True) if moves]
        shapes = [self.problem.shape(name, float(omega)) for name, omega in zip(SHAPED, omegas, strict=True)]
        W = np.stack([*shapes, *columns], axis=1) * self._weight
        P = self._on_motor.T @ W
        gram = W.T @ W - P.T @ P
        scale = np.sqrt(np.maximum(np.diag(gram), _ALONE * (W**2).sum(axis=0)))
        scale = np.where(scale > 0.0, scale, 1.0)
        unit = gram / np.outer(scale, scale) + _ALIKE * np.eye(len(scale))
        found = np.linalg.solve(unit, (W.T @ self._rest[: self.problem.size]) / scale) / scale
        step = np.zeros(2)
        step[move] = found[2:]
        return step

    def _walk(self, side: int, sign: float) -> list[tuple[FloatArray, float]]:
        """Return pairs (2,) with their costs, one constant moving away from the best, the other fitted.

        The walk ends where the cost reaches the limit, or at the end of the range.
        """
        other = self.free & (np.arange(2) != side)
        end = float(self.box[1 if sign > 0.0 else 0, side])
        path, stride = [(self.found, self.least)], _FIRST
        for _ in range(_MAX):
            start, before = path[-1]
            value = start[side] * np.exp(sign * stride)
            value = min(value, end) if sign > 0.0 else max(value, end)
            omegas, cost = self._at(side, value, start, other)
            if cost > self.least + self.limit:
                if stride <= _FIRST / 8.0 or cost - before < 0.1 * self.limit:
                    break
                stride /= 3.0
                continue
            path.append((omegas, cost))
            if value == end:
                break
            if cost - before < 0.15 * self.limit:
                stride *= 2.0
        return path

    def _at(self, side: int, value: float, near: FloatArray, other: BoolArray) -> tuple[FloatArray, float]:
        """Return the pair with one constant at `value` and the other fitted, from `near` or the lowest grid point."""
        start = near.copy()
        start[side] = value
        found = self._descend(start, other)
        line = self.whole.cost.take(int(np.argmin(np.abs(np.log(self.whole.axes[side] / value)))), axis=side)
        if other.any() and line.min() < found[1] + 10.0 * self.limit:
            start[1 - side] = self.whole.axes[1 - side][int(line.argmin())]
            again = self._descend(start, other)
            found = again if again[1] < found[1] else found
        return found

    def _without(self, side: int) -> float:
        """Return the lowest cost without the term of one constant."""
        other, axis = 1 - side, self._whole(1 - side)
        whole, least = axis, np.inf
        for _ in range(4):
            c, p = self._terms(other, axis)
            cost = self._square - (c.T @ self._rest[: self.problem.size]) ** 2 / _own(c, p)
            k = int(cost.argmin())
            least = min(least, float(cost[k]))
            if axis.size == 1:
                break
            step = float(axis[1] / axis[0])
            axis = np.geomspace(max(axis[k] / step, whole[0]), min(axis[k] * step, whole[-1]), _CLOSE)
        return least


def _own(columns: FloatArray, plain: FloatArray) -> FloatArray:
    """Return the squares (g,) of columns (K, g) outside the plain ones, given their parts (b, g) in these."""
    whole = (columns**2).sum(axis=0)
    return np.asarray(np.maximum(whole - (plain**2).sum(axis=0), np.maximum(_ALONE * whole, _NOTHING)))


def _solved(
    own1: FloatArray, own2: FloatArray, both: FloatArray, z1: FloatArray, z2: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the amplitudes (g, h) of both terms; where they are nearly collinear, only of the one that explains more.

    The joint effect of two such terms is a difference of large numbers, and rounding could give it a spurious low cost.
    """
    square = own1[:, None] * own2[None, :]
    determinant = square - both**2
    alike = determinant < _TOGETHER * square
    determinant = np.where(alike, square, determinant)
    a = (own2[None, :] * z1[:, None] - both * z2[None, :]) / determinant
    c = (own1[:, None] * z2[None, :] - both * z1[:, None]) / determinant
    alone1, alone2 = (z1 / own1)[:, None], (z2 / own2)[None, :]
    first = alone1 * z1[:, None] >= alone2 * z2[None, :]
    return np.where(alike, alone1 * first, a), np.where(alike, alone2 * ~first, c)


def _minima(cost: FloatArray) -> list[tuple[int, int]]:
    """Return the indices of the lowest local minima of a grid (g, h)."""
    padded = np.pad(cost, 1, constant_values=np.inf)
    g, h = cost.shape
    around = [padded[1 + a : 1 + a + g, 1 + b : 1 + b + h] for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b]
    places = np.argwhere(cost <= np.min(around, axis=0))
    order = np.argsort([cost[i, j] for i, j in places], kind="stable")
    return [(int(places[k][0]), int(places[k][1])) for k in order[:_MINIMA]]


def _open_reason(
    problem: JointProblem, name: str, below: bool, above: bool, seen: bool, ends: tuple[float, float]
) -> str | None:
    """Return why a constant is undetermined, None if it is determined."""
    amplitude = SHAPED[name]
    speeds = f"the motor's speeds are {problem.slowest:.3g} to {problem.fastest:.3g} rad/s"
    if not seen:
        return f"the term of {amplitude} does not show in these data, whatever {name} is; {speeds}"
    if below and above:
        return f"all from {ends[0]:.3g} to {ends[1]:.3g} rad/s explain the data as well; {speeds}"
    if below:
        like = "Coulomb friction" if name == "omega1" else "nothing"
        return f"all below {ends[1]:.3g} rad/s explain the data as well, where the term looks like {like}; {speeds}"
    if above:
        like = "viscous friction"
        return f"all above {ends[0]:.3g} rad/s explain the data as well, where the term looks like {like}; {speeds}"
    return None
