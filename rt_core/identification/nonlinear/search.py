"""The search for the constants: over them alone, or over everything, and the weights that go with the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from rt_core.identification.least_squares import Method, solve
from rt_core.identification.nonlinear.compressed import CompressedTorque
from rt_core.identification.nonlinear.full import FullObjective
from rt_core.identification.nonlinear.separable import SeparableObjective
from rt_core.optimise.registry import Name, optimise
from rt_core.optimise.run import Callback, Progress
from rt_core.optimise.settings import Budget, Settings
from rt_core.types import BoolArray, FloatArray

SearchMethod: TypeAlias = Literal["separable"] | Name

#: These end at a minimum; the others end where the budget does, and are left there.
DESCENDING: tuple[SearchMethod, ...] = ("separable", "lm", "pso_lm")
#: And these look along every constant for a lower one before they are content: over the constants alone that is cheap,
#: and a swarm rarely has the best minimum of all of them at once.
SWEEPING: tuple[SearchMethod, ...] = ("separable", "pso_lm")

_WEIGHT_ROUNDS = 20
_WEIGHT_TOLERANCE = 1e-7
#: Of the cost, which is of the order of the number of rows.
TOLERANCE = 1e-9
#: A bound is in the way where the cost would fall by more than this beyond it (95 %, one degree of freedom).
PUSH = 3.841


@dataclass(frozen=True, eq=False)
class Search:
    """Where a search over constants, or over everything, ended; `x` (m,), `phi` (P,) or None, `sigma` (n,).

    `history` is with the weights that the search began with.  `descends`: further descent is part of the method, and
    `sweeps`: so is a sweep along each constant; if neither, `x` is where the method itself ended.
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
    """(n,) standard deviations that the method `weights` divides by at constants `x` (m,)."""
    return solve(data.triangles(x, without), len(data.base), weights).weighted_with


def search_separable(
    data: CompressedTorque,
    *,
    method: SearchMethod = "separable",
    weights: Method = "wls",
    sigma: FloatArray | None = None,
    starts: int = 8,
    seed: int = 0,
    settings: Settings | None = None,
    budget: Budget | None = None,
    callback: Callback | None = None,
) -> Search:
    """Constants of least cost, everything else eliminated; arguments as in `fit_torque`.

    With the weights of the result, those `DESCENDING` go on to the minimum, and those `SWEEPING` to the lowest that a
    sweep finds; of the others only the weights are renewed: a descent would hide what the method itself has reached.
    """
    m = len(data.constants)
    middle = data.box.mean(axis=0)
    given = sigma is not None
    spread = weights_at(data, middle, weights) if sigma is None else sigma
    if m == 0:
        return Search(middle, None, spread, np.zeros(0), 0, "minimum", True, True)
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
    return Search(x, None, spread, history, evaluations, stopped, descends, sweeps)


def refine_weights(
    data: CompressedTorque, x: FloatArray, sigma: FloatArray, weights: Method, without: tuple[int, ...] = ()
) -> tuple[FloatArray, FloatArray, int]:
    """Constants and weights that agree with one another, from `x` (m,) and `sigma` (n,); and evaluations done."""
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
    """Sweep and descent from `starts` random points."""
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
            progress = Progress(k + 1, starts, "lm", lowest, best.copy(), objective.evaluations)
            go_on = callback(progress)
            if go_on is not None and not go_on:
                return best, np.array(history), "cancelled"
    return best, np.array(history), "minimum"


def search_full(
    data: CompressedTorque,
    *,
    method: Name,
    weights: Method = "wls",
    sigma: FloatArray | None = None,
    seed: int = 0,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    start: FloatArray | None = None,
    settings: Settings | None = None,
    budget: Budget | None = None,
    callback: Callback | None = None,
) -> tuple[Search, tuple[str, ...]]:
    """All standard parameters and constants at once; and the names of parameters that a bound holds back."""
    spread = weights_at(data, data.box.mean(axis=0), weights) if sigma is None else sigma
    objective = FullObjective(data, spread)
    problem = objective.problem(bounds)
    outcome = optimise(method, problem, settings, budget, seed=seed, x0=start, callback=callback)
    P = len(data.base.standard)
    gradient, normal = objective.normal_equations(outcome.x)
    held = held_back(outcome.at_bound, outcome.x, problem.lower, problem.upper, gradient, normal)
    names = tuple(objective.names[k] for k in np.flatnonzero(held))
    return (
        Search(outcome.x[P:], outcome.x[:P], spread, outcome.history, outcome.evaluations, outcome.stopped),
        names,
    )


def held_back(
    at_bound: BoolArray, x: FloatArray, lower: FloatArray, upper: FloatArray, gradient: FloatArray, normal: FloatArray
) -> BoolArray:
    """Which parameters `x` at a bound would lower the cost significantly beyond it; all (d,), `normal` (d, d)."""
    outward = np.where(x - lower < upper - x, gradient > 0.0, gradient < 0.0)
    return np.asarray(at_bound & outward & (gradient**2 > PUSH * np.diag(normal)))
