"""Search for the constants, alone or with all parameters, and the weights that belong to the result."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from rt_core.identification.least_squares import Method, solve
from rt_core.identification.nonlinear.compressed import CompressedTorque
from rt_core.identification.nonlinear.full import FullObjective
from rt_core.identification.nonlinear.separable import SeparableObjective
from rt_core.optimise.registry import optimise
from rt_core.optimise.run import Callback, SearchProgress
from rt_core.optimise.settings import Budget, Name, Settings
from rt_core.statistics import CHI_SQUARED_QUANTILE_95
from rt_core.types import BoolArray, FloatArray

SearchMethod: TypeAlias = Literal["separable"] | Name

#: Methods that end at a minimum; the others end with the budget, and keep that point.
DESCENDING: tuple[SearchMethod, ...] = ("separable", "lm", "pso_lm")
#: Methods that also scan every constant for a lower minimum: over the constants alone that is cheap, and a swarm rarely
#: finds the best minimum of all of them at once.
SWEEPING: tuple[SearchMethod, ...] = ("separable", "pso_lm")

_WEIGHT_ROUNDS = 20
_WEIGHT_TOLERANCE = 1e-7
#: Of the cost, which is of the order of the number of rows.
TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class SearchResult:
    """Result of a search over constants, or over all parameters; `x` (m,), `phi` (P,) or None, `sigma` (n,).

    `history` is with the initial weights.  `descends` and `sweeps`: the method includes a further descent, and a sweep
    along each constant; if neither, `x` is the end of the method itself.
    """

    x: FloatArray
    phi: FloatArray | None
    sigma: FloatArray
    history: FloatArray
    evaluations: int
    stopped: str
    descends: bool = False
    sweeps: bool = False


def weights_at(data: CompressedTorque, x: FloatArray, weights: Method, without: tuple[int, ...] = ()) -> FloatArray:
    """Return the standard deviations (n,) that the method `weights` divides by at constants `x` (m,)."""
    return solve(data.triangles(x, without), len(data.base), weights).weighted_with


def search_separable(
    data: CompressedTorque, *, method: SearchMethod = "separable", weights: Method = "wls",
    sigma: FloatArray | None = None, starts: int = 8, seed: int = 0, settings: Settings | None = None,
    budget: Budget | None = None, callback: Callback | None = None,
) -> SearchResult:  # fmt: skip
    """Find the constants of least cost, everything else eliminated; arguments as in `fit_torque`.

    `sigma` (n,) are standard deviations to divide by instead of `weights`.

    With the weights of the result, methods in `DESCENDING` continue to the minimum, and those in `SWEEPING` to the
    lowest that a sweep finds.  For the others only the weights are renewed: a descent would hide their own result.
    """
    m = len(data.constants)
    middle = data.box.mean(axis=0)
    given = sigma is not None
    spread = weights_at(data, middle, weights) if sigma is None else sigma
    if m == 0:
        return SearchResult(middle, None, spread, np.zeros(0), 0, "minimum", True, True)
    objective = SeparableObjective(data, spread)
    if method == "separable":
        x, history, stopped = _multistart(objective, starts, seed, callback)
        evaluations = objective.evaluations
    else:
        outcome = optimise(method, objective.problem(), settings, budget, seed=seed, callback=callback)
        x, history, evaluations, stopped = outcome.x, outcome.history, outcome.evaluations, outcome.stopped
    descends = method in DESCENDING
    sweeps = method in SWEEPING and stopped != "cancelled"
    if descends and method != "separable" and stopped != "cancelled":
        before = objective.evaluations
        x, _ = objective.descend(objective.sweep(x) if sweeps else x, np.ones(m, dtype=bool), TOLERANCE)
        evaluations += objective.evaluations - before
    if not (given or stopped == "cancelled"):
        if descends:
            x, spread, more = refine_weights(data, x, spread, weights)
            evaluations += more
        else:
            spread = weights_at(data, x, weights)
    return SearchResult(x, None, spread, history, evaluations, stopped, descends, sweeps)


def refine_weights(
    data: CompressedTorque, x: FloatArray, sigma: FloatArray, weights: Method, without: tuple[int, ...] = ()
) -> tuple[FloatArray, FloatArray, int]:
    """Iterate constants and weights from `x` (m,) and `sigma` (n,) until they agree; also return the evaluations."""
    free = np.array([c not in without for c in range(x.size)], dtype=bool)
    evaluations = 0
    for _ in range(_WEIGHT_ROUNDS):
        previous = sigma
        sigma = weights_at(data, x, weights, without)
        if np.abs(sigma / previous - 1.0).max() < _WEIGHT_TOLERANCE:
            break
        objective = SeparableObjective(data, sigma, without)
        x, _ = objective.descend(x, free, TOLERANCE)
        evaluations += objective.evaluations
    return x, sigma, evaluations


def _multistart(
    objective: SeparableObjective, starts: int, seed: int, callback: Callback | None
) -> tuple[FloatArray, FloatArray, str]:
    """Sweep and descend from `starts` random points."""
    data = objective.data
    rng = np.random.default_rng(seed)
    best, lowest = np.zeros(0), np.inf
    history: list[float] = []
    for k in range(starts):
        x, cost = objective.descend(
            objective.sweep(rng.uniform(data.box[0], data.box[1])), np.ones(len(data.constants), dtype=bool), TOLERANCE
        )
        if cost < lowest:
            best, lowest = x, cost
        history.append(lowest)
        if callback is not None:
            progress = SearchProgress(k + 1, starts, "lm", lowest, best.copy(), objective.evaluations)
            go_on = callback(progress)
            if go_on is not None and not go_on:
                return best, np.array(history), "cancelled"
    return best, np.array(history), "minimum"


def search_full(
    data: CompressedTorque, *, method: Name, weights: Method = "wls", seed: int = 0,
    bounds: Mapping[str, tuple[float, float]] | None = None, settings: Settings | None = None,
    budget: Budget | None = None, callback: Callback | None = None,
) -> tuple[SearchResult, tuple[str, ...]]:  # fmt: skip
    """Search all standard parameters and constants at once; also return the names of parameters held by a bound."""
    spread = weights_at(data, data.box.mean(axis=0), weights)
    objective = FullObjective(data, spread)
    problem = objective.problem(bounds)
    outcome = optimise(method, problem, settings, budget, seed=seed, callback=callback)
    P = len(data.base.standard)
    gradient, normal = objective.normal_equations(outcome.x)
    held = held_back(outcome.at_bound, outcome.x, problem.lower, problem.upper, gradient, normal)
    names = tuple(objective.names[k] for k in np.flatnonzero(held))
    return (
        SearchResult(outcome.x[P:], outcome.x[:P], spread, outcome.history, outcome.evaluations, outcome.stopped),
        names,
    )


def held_back(
    at_bound: BoolArray, x: FloatArray, lower: FloatArray, upper: FloatArray, gradient: FloatArray, normal: FloatArray
) -> BoolArray:
    """Return a mask (d,) of parameters `x` at a bound that would lower the cost significantly beyond it."""
    outward = np.where(x - lower < upper - x, gradient > 0.0, gradient < 0.0)
    return np.asarray(at_bound & outward & (gradient**2 > CHI_SQUARED_QUANTILE_95 * np.diag(normal)))
