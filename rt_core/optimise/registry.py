"""Optimisers by name, with a common interface."""

from collections.abc import Callable
from typing import TypeAlias, get_args

import numpy as np

from rt_core.optimise._genetic import ga
from rt_core.optimise._levenberg_marquardt import lm, pso_lm
from rt_core.optimise._swarm import pso, pso_linear
from rt_core.optimise._tcs_pso import tcs_pso
from rt_core.optimise.problem import Problem
from rt_core.optimise.run import Callback, SearchOutcome, SearchRun
from rt_core.optimise.settings import Budget, Name, Settings
from rt_core.types import FloatArray

Optimiser: TypeAlias = Callable[[SearchRun, Settings, np.random.Generator, FloatArray | None], None]

_OPTIMISERS: dict[Name, Optimiser] = {
    "pso": pso, "pso_linear": pso_linear, "tcs_pso": tcs_pso, "ga": ga, "lm": lm, "pso_lm": pso_lm,
}  # fmt: skip
NAMES: tuple[Name, ...] = get_args(Name)
#: Optimisers that need the normal equations of the problem.
LEAST_SQUARES: tuple[Name, ...] = ("lm", "pso_lm")


def optimise(
    name: Name, problem: Problem, settings: Settings | None = None, budget: Budget | None = None, *, seed: int = 0,
    x0: FloatArray | None = None, callback: Callback | None = None,
) -> SearchOutcome:  # fmt: skip
    """Minimise `problem`.

    Parameters
    ----------
    name : {"pso", "pso_linear", "tcs_pso", "ga", "lm", "pso_lm"}
    problem : Problem
    settings : Settings or None
    budget : Budget or None
        Those of DYN if None; `rt_core.optimise.settings` has those of the other papers.
    seed : int
        Of all random numbers: the same seed gives the same outcome to the bit.
    x0 : (d,) float64 or None
        Start of `lm`, and one of the first points of the others; random if None.
    callback : callable or None
        Called after the first evaluation and after each iteration; ends the search by returning False, with the best
        point so far as the outcome.

    Raises
    ------
    BoundsError
        If `x0` lies outside the bounds.
    ObjectiveError
        If the objective returns the wrong shape, no finite cost at any of the first points, or a derivative that
        is not finite.
    ValueError
        For an unknown name, a problem without normal equations where they are needed, or a budget of evaluations
        that does not cover the first points.
    """
    if name not in _OPTIMISERS:
        raise ValueError(f"unknown optimiser {name!r}; known: {', '.join(NAMES)}")
    if name in LEAST_SQUARES and problem.normal_equations is None:
        raise ValueError(f"{name} needs the problem's normal equations: give them, or choose a swarm")
    run = SearchRun(problem, Budget() if budget is None else budget, callback)
    start = None if x0 is None else problem.checked_start(x0)
    _OPTIMISERS[name](run, Settings() if settings is None else settings, np.random.default_rng(seed), start)
    return run.outcome()
