"""State of a search: its evaluations, its best point, its progress and its end."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from rt_core.optimise.problem import ObjectiveError, Problem
from rt_core.optimise.settings import Budget
from rt_core.types import BoolArray, FloatArray

Stage = Literal["pso", "ga", "lm", "gradient"]
Stopped = Literal["iterations", "tolerance", "evaluations", "damping", "cancelled"]

#: A parameter within this share of its range from a bound is reported as at the bound.
AT_BOUND = 1e-6


@dataclass(frozen=True, eq=False)
class SearchProgress:
    """State of a search after an iteration."""

    iteration: int  # iterations done in all stages, 0 after the first evaluation
    of: int  # their planned number, larger when `pso_lm` returns to the swarm, smaller when it leaves it early
    stage: Stage
    cost: float  # lowest so far
    x: FloatArray  # (d,) copy of the best point
    evaluations: int


#: Called after every iteration; ends the search by returning False.
Callback: TypeAlias = Callable[[SearchProgress], bool | None]


@dataclass(frozen=True, eq=False)
class SearchOutcome:
    """Result of a search."""

    x: FloatArray  # (d,) best point, inside the bounds
    cost: float  # cost of `x`
    # (iterations + 1,) lowest cost after the first evaluation and after each iteration; never increases
    history: FloatArray
    evaluations: int  # points passed to `costs`, and calls of `normal_equations`
    linearisations: int  # calls of `normal_equations`
    swarm_iterations: int  # or generations of `ga`
    lm_iterations: int
    returns: int  # number of returns of `pso_lm` to the swarm
    # `iterations` or `evaluations`: the budget is used up.  `tolerance`: the cost is low enough.  `damping`: no step of
    # `lm` lowers the cost, as at a minimum.  `cancelled`: by the callback
    stopped: Stopped
    at_bound: BoolArray  # (d,) parameters that ended at a bound: the minimum may lie outside


class SearchRun:
    """State of a search, common to all optimisers.

    `planned` is the planned number of iterations; `best_x` (d,) and `best_cost` are the best point so far.
    """

    def __init__(self, problem: Problem, budget: Budget, callback: Callback | None) -> None:
        self.problem = problem
        self.budget = budget
        self.planned = 0
        self.best_x = np.full(problem.lower.size, np.nan)
        self.best_cost = float("inf")
        self.returns = 0
        self._callback = callback
        self._evaluations = 0
        self._linearisations = 0
        self._iterations: dict[Stage, int] = {"pso": 0, "ga": 0, "lm": 0}
        self._history: list[float] = []
        self._stopped: Stopped = "iterations"

    @property
    def iterations(self) -> int:
        """Iterations done in all stages."""
        return sum(self._iterations.values())

    @property
    def lm_iterations(self) -> int:
        """Iterations of Levenberg-Marquardt done."""
        return self._iterations["lm"]

    def affords(self, evaluations: int) -> bool:
        """Return whether `evaluations` more fit the budget; if not, set the reason of the end."""
        limit = self.budget.evaluations
        if limit is None or self._evaluations + evaluations <= limit:
            return True
        if not self._history:
            raise ValueError(f"a budget of {limit} evaluations does not cover the first {evaluations}: raise it")
        self._stopped = "evaluations"
        return False

    def evaluate(self, X: FloatArray) -> FloatArray:
        """Return the costs (m,) of the points `X` (m, d), infinite where the objective's are not finite.

        Raises `ObjectiveError` if the objective returns another shape, or has given no finite cost so far.
        """
        costs = np.asarray(self.problem.costs(X), dtype=np.float64)
        if costs.shape != (X.shape[0],):
            raise ObjectiveError(
                f"the objective returned shape {costs.shape} for {X.shape[0]} points, not one cost a point"
            )
        costs = np.where(np.isfinite(costs), costs, np.inf)
        self._evaluations += X.shape[0]
        best = int(costs.argmin())
        if costs[best] < self.best_cost:
            self.best_cost = float(costs[best])
            self.best_x = X[best].copy()
        if self.best_cost == np.inf:
            raise ObjectiveError(
                f"the cost is not finite at any of the first {self._evaluations} points: "
                "check the data for NaN, or move the bounds to where the objective is defined"
            )
        return costs

    def linearise(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return `J'r` (d,) and `J'J` (d, d) at `x` (d,).

        Raises `ObjectiveError` if they have another shape or are not finite.
        """
        assert self.problem.normal_equations is not None
        gradient, normal = self.problem.normal_equations(x)
        gradient, normal = np.asarray(gradient, dtype=np.float64), np.asarray(normal, dtype=np.float64)
        self._evaluations += 1
        self._linearisations += 1
        d = x.size
        if gradient.shape != (d,) or normal.shape != (d, d):
            raise ObjectiveError(
                f"the normal equations have shapes {gradient.shape} and {normal.shape}, not {(d,)} and {(d, d)}"
            )
        broken = ~(np.isfinite(gradient) & np.isfinite(normal).all(axis=1))
        if broken.any():
            label = self.problem.label(int(broken.argmax()))
            raise ObjectiveError(f"{label}: the derivative is not finite where the cost is: check the Jacobian")
        return gradient, normal

    def start(self, stage: Stage) -> bool:
        """Report the first evaluation; False if the search is over."""
        return self._notify(stage)

    def report(self, stage: Stage) -> bool:
        """Report one more iteration; False if the search is over."""
        self._iterations[stage] += 1
        return self._notify(stage)

    def _notify(self, stage: Stage) -> bool:
        self._history.append(self.best_cost)
        if self._callback is not None:
            progress = SearchProgress(
                self.iterations, self.planned, stage, self.best_cost, self.best_x.copy(), self._evaluations
            )
            go_on = self._callback(progress)
            if go_on is not None and not go_on:
                self._stopped = "cancelled"
                return False
        if self.budget.tolerance is not None and self.best_cost <= self.budget.tolerance:
            self._stopped = "tolerance"
            return False
        return True

    def give_up(self) -> None:
        """End the search because the damping has passed its limit."""
        self._stopped = "damping"

    def outcome(self) -> SearchOutcome:
        """Return the outcome."""
        problem = self.problem
        margin = AT_BOUND * problem.width
        return SearchOutcome(
            x=self.best_x, cost=self.best_cost, history=np.array(self._history), evaluations=self._evaluations,
            linearisations=self._linearisations, swarm_iterations=self._iterations["pso"] + self._iterations["ga"],
            lm_iterations=self.lm_iterations, returns=self.returns, stopped=self._stopped,
            at_bound=(self.best_x - problem.lower <= margin) | (problem.upper - self.best_x <= margin),
        )  # fmt: skip
