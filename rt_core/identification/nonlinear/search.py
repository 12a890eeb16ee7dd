"""Search for the constants, alone or with all parameters, and the weights that belong to the result."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from rt_core.identification.least_squares import Method, solve
from rt_core.identification.methods import Formulation
from rt_core.identification.nonlinear.compressed import CompressedTorque
from rt_core.identification.nonlinear.full import FullObjective
from rt_core.identification.nonlinear.separable import SeparableObjective
from rt_core.optimise.problem import Problem
from rt_core.optimise.registry import optimise
from rt_core.optimise.run import Callback, SearchOutcome, SearchProgress
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


@dataclass(frozen=True)
class Search:
    """How constants, or all parameters, are searched for.

    `method` is "separable", sweep and descent from `starts` random points; or an optimiser of `rt_core.optimise`.  Over
    the constants alone "lm" descends to the minimum with the final weights, and "pso_lm" also scans each constant for a
    lower one; the others keep their result.

    Attributes
    ----------
    formulation : str
        Unknowns: "separable", the constants; "full", all standard parameters and the constants (Jing et al. 2025), in a
        box around the model's own values.
    weights : str
        Of the joints, as in `solve`; the full formulation takes them from the middle of the box.
    bounds : mapping of str to (float, float), optional
        Of constants, and of standard parameters in the full formulation, by name.
    settings, budget : optional
        Of the optimiser; those of Jing et al. by default.
    """

    method: SearchMethod = "separable"
    formulation: Formulation = "separable"
    weights: Method = "wls"
    seed: int = 0
    starts: int = 8
    bounds: Mapping[str, tuple[float, float]] | None = None
    settings: Settings | None = None
    budget: Budget | None = None
    callback: Callback | None = None


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


def search_separable(data: CompressedTorque, search: Search, sigma: FloatArray | None = None) -> SearchResult:
    """Find the constants of least cost, everything else eliminated.

    `sigma` (n,) are standard deviations to divide by instead of the search's `weights`.

    With the weights of the result, methods in `DESCENDING` continue to the minimum, and those in `SWEEPING` to the
    lowest that a sweep finds.  For the others only the weights are renewed: a descent would hide their own result.
    """
    m = len(data.constants)
    middle = data.box.mean(axis=0)
    given = sigma is not None
    spread = weights_at(data, middle, search.weights) if sigma is None else sigma
    if m == 0:
        return SearchResult(middle, None, spread, np.zeros(0), 0, "minimum", True, True)
    objective = SeparableObjective(data, spread)
    if search.method == "separable":
        x, history, stopped = _multistart(objective, search)
        evaluations = objective.evaluations
    else:
        outcome = _optimised(objective.problem(), search)
        x, history, evaluations, stopped = outcome.x, outcome.history, outcome.evaluations, outcome.stopped
    descends = search.method in DESCENDING
    sweeps = search.method in SWEEPING and stopped != "cancelled"
    if descends and search.method != "separable" and stopped != "cancelled":
        before = objective.evaluations
        x, _ = objective.descend(objective.sweep(x) if sweeps else x, np.ones(m, dtype=bool), TOLERANCE)
        evaluations += objective.evaluations - before
    if not (given or stopped == "cancelled"):
        if descends:
            x, spread, more = refine_weights(data, x, spread, search.weights)
            evaluations += more
        else:
            spread = weights_at(data, x, search.weights)
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


def _multistart(objective: SeparableObjective, search: Search) -> tuple[FloatArray, FloatArray, str]:
    """Sweep and descend from random points."""
    data = objective.data
    rng = np.random.default_rng(search.seed)
    best, lowest = np.zeros(0), np.inf
    history: list[float] = []
    for k in range(search.starts):
        x, cost = objective.descend(
            objective.sweep(rng.uniform(data.box[0], data.box[1])), np.ones(len(data.constants), dtype=bool), TOLERANCE
        )
        if cost < lowest:
            best, lowest = x, cost
        history.append(lowest)
        if search.callback is not None:
            progress = SearchProgress(k + 1, search.starts, "lm", lowest, best.copy(), objective.evaluations)
            go_on = search.callback(progress)
            if go_on is not None and not go_on:
                return best, np.array(history), "cancelled"
    return best, np.array(history), "minimum"


def _optimised(problem: Problem, search: Search) -> SearchOutcome:
    if search.method == "separable":
        raise ValueError("the full formulation needs an optimiser: choose method lm, pso_lm or another of them")
    return optimise(search.method, problem, search.settings, search.budget, seed=search.seed, callback=search.callback)


def search_full(data: CompressedTorque, search: Search) -> tuple[SearchResult, tuple[str, ...]]:
    """Search all standard parameters and constants at once; also return the names of parameters held by a bound."""
    spread = weights_at(data, data.box.mean(axis=0), search.weights)
    objective = FullObjective(data, spread)
    problem = objective.problem(search.bounds)
    outcome = _optimised(problem, search)
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
