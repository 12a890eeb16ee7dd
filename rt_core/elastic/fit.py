"""Least-squares fit of an elastic joint: spring, friction, lag of the link encoder, zero of the deflection.

The rows are those of `rt_core.elastic.problem`, each weighted by its rms residual.  A search over the lag with the rest
eliminated gives the start, Gauss-Newton iterations the result, and the linearised rows of the last iteration the
covariance.  Columns differ by many orders of magnitude (`d^3` is about 1e-10 where `N*dtheta_in` is 1e3), so ranks and
collinearity are judged on columns of unit length.

Friction with velocity constants starts from the fit without these terms and a grid over the constants with the rest
eliminated; the iterations then include the constants (`rt_core.elastic.constants`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rt_core.elastic._inverse import inverse_regression, spring_share
from rt_core.elastic.constants import ConstantProfile, ConstantSearch
from rt_core.elastic.problem import JointProblem, Terms
from rt_core.elastic.rows import ElasticRows
from rt_core.identification.least_squares import Solution, compress, solve
from rt_core.identification.preprocess import DataError
from rt_core.identification.rows import Rows
from rt_core.identification.uncertainty import Uncertainty, estimate_covariance
from rt_core.linear_algebra import lstsq
from rt_core.statistics import NORMAL_QUANTILE_95
from rt_core.types import BoolArray, FloatArray

#: A column is collinear if less than this share of its square is outside the span of the others.
COLLINEAR = 1e-3
_ITERATIONS = 60
_SETTLED = 1e-9
_ROWS_PER_PARAMETER = 3
_SEARCHES = 3
_FEW = 15  # iterations of a search: an undetermined constant does not converge


@dataclass(frozen=True)
class SpringFit:
    """A fit with its rows, covariance and diagnostics."""

    terms: Terms
    names: tuple[str, ...]  # of the p parameters
    values: FloatArray  # (p,)
    std: FloatArray  # (p,); infinite for undetermined and fixed parameters; with the uncertainty of velocity constants
    # (p,); False for a lag that was held fixed because it is collinear with viscous friction; without any deflection
    # also for parameters that depend on it
    free: BoolArray
    # (p,) share of each column (squared, weighted) outside the span of the others, with velocity constants held; of
    # cyclic friction also outside an offset of the sensor, which looks alike over a small angle
    apart: FloatArray
    partners: tuple[tuple[str, ...], ...]  # for each parameter, those with which it is collinear
    rows: Rows  # linearised rows: one "joint" for each of `terms.sides`
    solution: Solution
    uncertainty: Uncertainty
    share: float  # share of the spring in the sum of its torque and the residual (squared), outside all other columns
    # (p,) parameters if the whole residual were an error of the deflection instead of the torque; NaN where there is no
    # such regression
    inverse: FloatArray
    measured: FloatArray  # (K, r) torques of the rows [N*m], joint side
    predicted: FloatArray  # (K, r), likewise
    deflection: FloatArray  # (K,), lag and zero compensated (the mean of the rows if each has a lag of its own) [rad]
    difference: FloatArray  # (K,) the deflection as measured [rad]
    settled: bool
    speeds: tuple[float, float]  # slowest and fastest motor speed in the rows, motor side [rad/s]
    profile: ConstantProfile | None = None  # intervals of the velocity constants of friction, where these are estimated

    @property
    def link(self) -> FloatArray:
        """(K,) measured angle of the link [rad]."""
        return np.asarray(self.rows.q[:, 0] - self.difference)

    def value(self, name: str) -> float:
        """Return the value of a parameter, zero if the fit does not have it."""
        return float(self.values[self.names.index(name)]) if name in self.names else 0.0


def fit_spring(records: Sequence[ElasticRows], terms: Terms) -> SpringFit:
    """Fit `terms` to the rows of one or more recordings of the same joint.

    Raises `DataError` if there are too few rows, or none of a sensor that `terms` needs.
    """
    if terms.rows != "motor" and not records[0].has_sensor:
        raise DataError(f"rows {terms.rows!r} need the torque of a sensor behind the spring, and there is none")
    problem = JointProblem(records, terms)
    p = len(problem.names)
    if problem.size < _ROWS_PER_PARAMETER * p:
        raise DataError(f"{problem.size} rows for {p} parameters: record longer, or raise the cut-off")
    free = np.ones(p, dtype=bool)
    x = _without_constants(problem) if terms.friction == "full" and problem.deflects else problem.start()
    if not problem.deflects:
        # a deflection of rounding must not drive the iterations: the rows are linear in the rest
        free = np.array([name == "k1" or name in terms.damping for name in problem.names])
        x = problem.at_rest()
    elif terms.lags:
        # a lag that is collinear with viscous friction would diverge: it stays zero, and is reported as undetermined
        _, J, _ = problem.evaluate(x)
        apart, _ = _apart(_held(problem, J), _spread(problem, x))
        for k in map(problem.names.index, terms.lags):
            if apart[k] < COLLINEAR:
                x[k], free[k] = 0.0, False
    if terms.constants and problem.deflects:
        return _fit_constants(problem, x, free)
    x, solution, settled = _gauss_newton(problem, x, free)
    return _described(problem, x, free, solution, settled)


def _without_constants(problem: JointProblem) -> FloatArray:
    """Return the parameters (p,) of the fit with viscous friction only."""
    less = JointProblem(problem.records, replace(problem.terms, friction="viscous"))
    found, _, _ = _gauss_newton(less, less.start(), np.ones(len(less.names), dtype=bool))
    x = problem.at_rest()
    for name, value in zip(less.names, found, strict=True):
        x[problem.names.index(name)] = value
    return x


def _fit_constants(problem: JointProblem, x: FloatArray, free: BoolArray) -> SpringFit:
    """Search for the constants and iterate until both agree; then find which constants the data determine."""
    least = np.inf
    for _ in range(_SEARCHES):
        trial = ConstantSearch(problem, x, free, _spread(problem, x), 1.0).best()
        trial, solution, settled = _gauss_newton(problem, trial, free, _FEW)
        cost = float(np.sum(np.log(_spread(problem, trial))))
        done = cost > least - 1e-6
        if cost < least:
            x, least, found = trial, cost, (solution, settled)
        if done:
            break
    solution, settled = found
    spread = _spread(problem, x)
    kappa = float(_described(problem, x, free, solution, settled).uncertainty.inflation[0])
    profile = ConstantSearch(problem, x, free, spread, kappa).profile()
    for name in profile.why:  # undetermined constants are held; the profile has the effect on the others
        free[problem.names.index(name)] = False
    if profile.why or not settled:
        x, solution, settled = _gauss_newton(problem, x, free)
    fit = _described(problem, x, free, solution, settled)
    wide = np.where(np.isfinite(profile.upper), (profile.upper - profile.lower) / (2.0 * NORMAL_QUANTILE_95), 0.0)
    return replace(fit, std=np.maximum(fit.std, wide), profile=profile)


def _held(problem: JointProblem, J: FloatArray) -> FloatArray:
    """Return `J` (r, p, K) with the velocity constants of friction held."""
    if not problem.terms.constants:
        return J
    J = J.copy()
    J[:, [problem.names.index(name) for name in problem.terms.constants]] = 0.0
    return J


def _rows(problem: JointProblem, J: FloatArray, tau: FloatArray) -> Rows:
    """Return linearised rows from `J` (r, p, K) and `tau` (r, K)."""
    r, K = tau.shape
    state = np.broadcast_to(problem.motor[:, None], (K, r))
    speed = np.broadcast_to(problem.speed[:, None], (K, r))
    t = np.concatenate([piece.t for piece in problem.pieces])
    # samples that were left out split a piece: correlation must not reach across them
    step = 1.5 / problem.records[0].rate_hz
    parted = np.concatenate(([0], np.cumsum((np.diff(t) > step) | (np.diff(problem.piece) != 0) | (np.diff(t) <= 0.0))))
    return Rows(
        t, J, state, speed, np.zeros((K, r)), np.ascontiguousarray(tau.T), np.ones((K, r), dtype=bool), parted,
        problem.records[0].rate_hz, problem.records[0].band_hz,
    )  # fmt: skip


def _spread(problem: JointProblem, x: FloatArray) -> FloatArray:
    """Return the rms residual (r,) of each row."""
    f, _, _ = problem.evaluate(x)
    spread = np.sqrt(np.mean((problem.y - f) ** 2, axis=1))
    return np.asarray(np.maximum(spread, 1e-9 * max(float(np.abs(problem.y).max()), 1e-300)))


def _gauss_newton(
    problem: JointProblem, x: FloatArray, free: BoolArray, iterations: int = _ITERATIONS
) -> tuple[FloatArray, Solution, bool]:
    """Iterate from `x` over the `free` parameters; return the last solution, and whether it converged."""
    use = np.ones((problem.size, len(problem.y)), dtype=bool)
    total = float(np.linalg.norm(problem.y))
    f, J, _ = problem.evaluate(x)
    settled = False
    for _ in range(iterations):
        active = J[:, free]
        target = problem.y - f + np.einsum("rpk,p->rk", active, x[free])
        solution = solve(compress(active, target.T, use), int(free.sum()), "wls")
        step = np.zeros(x.size)
        step[free] = solution.theta - x[free]
        moved = float(np.linalg.norm(np.einsum("rpk,p->rk", J, step)))
        weight = 1.0 / solution.weighted_with[:, None]  # the weights of the step, with which it descends
        cost = float(np.sum(((problem.y - f) * weight) ** 2))
        share = 1.0
        for _ in range(8):
            trial = problem.within(x + share * step)
            f, J, _ = problem.evaluate(trial)
            if float(np.sum(((problem.y - f) * weight) ** 2)) <= cost * (1.0 + 1e-6):
                break
            share *= 0.5
        x = trial
        if moved <= _SETTLED * total:
            settled = True
            break
    return x, solution, settled


def _apart(J: FloatArray, spread: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return (p,) shares of unit columns outside the others, and (p, p) the coefficients of the others in each."""
    W = (J / spread[:, None, None]).transpose(0, 2, 1).reshape(-1, J.shape[1])
    scale = np.linalg.norm(W, axis=0)
    alive = scale > 0.0
    W = W / np.where(alive, scale, 1.0)
    p = W.shape[1]
    apart, made_of = np.zeros(p), np.zeros((p, p))
    R: FloatArray = np.asarray(np.linalg.qr(W, mode="r"))
    for k in range(p):
        others = [i for i in range(p) if alive[i] and i != k]
        if alive[k] and others:
            c = lstsq(R[:, others], R[:, k], rcond=1e-9)
            made_of[k, others] = c
            apart[k] = float(np.sum((R[:, k] - R[:, others] @ c) ** 2))
        elif alive[k]:
            apart[k] = 1.0
    return apart, made_of


def _described(problem: JointProblem, x: FloatArray, free: BoolArray, solution: Solution, settled: bool) -> SpringFit:
    f, J, deflection = problem.evaluate(x)
    spread = _spread(problem, x)
    rows = _rows(problem, J[:, free], problem.y - f + np.einsum("rpk,p->rk", J[:, free], x[free]))
    if J[:, free].any(axis=(1, 2)).all():
        uncertainty = estimate_covariance(rows, solution, cross=True)
    else:  # no columns, no uncertainty
        uncertainty = Uncertainty(np.zeros((rows.Y.shape[1],) * 2), np.ones(len(J)))
    std = np.full(x.size, np.inf)
    std[free] = np.where(solution.supported, uncertainty.std, np.inf)
    apart, made_of = _apart(_held(problem, J), spread)
    if "A1" in problem.names:
        offset = np.zeros((len(J), 1, problem.size))
        offset[problem.terms.sides.index("sensor")] = 1.0
        beyond, _ = _apart(np.concatenate((_held(problem, J), offset), axis=1), spread)
        cyclic = [problem.names.index(name) for name in ("A1", "A2")]
        apart[cyclic] = beyond[cyclic].min()
    partners = tuple(tuple(problem.names[i] for i in np.flatnonzero(np.abs(made_of[k]) > 0.1)) for k in range(x.size))
    share = spring_share(problem, x, f, J, spread)
    inverse = inverse_regression(problem, x, free, spread)
    return SpringFit(
        problem.terms, problem.names, x, std, free, apart, partners, rows, solution, uncertainty, share, inverse,
        np.ascontiguousarray(problem.y.T), np.ascontiguousarray(f.T), deflection.mean(axis=0), problem.encoders(0.0)[0],
        settled, (problem.slowest, problem.fastest),
    )  # fmt: skip
