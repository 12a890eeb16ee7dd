"""Levenberg-Marquardt on the normal equations inside bounds, alone and after a particle swarm (DYN, KIN).

`x <- x - (J'J + mu I)^-1 J'r`; `mu` halves when the step lowers the cost and doubles when it does not.  A parameter at
a bound that the gradient pushes outward stays there.  If a step crosses a bound, the parameter is put on the bound and
the others are solved for again; inside the box the step is that of the formula.

The hybrid `pso_lm` starts with a swarm of linearly decreasing inertia weight, which ends at its iteration limit, or
(KIN) when the cost is within a factor of the tolerance.  When `mu` exceeds its limit, the search returns to the swarm:
the present solution is kept, poor particles are replaced in its neighbourhood, and the swarm continues for a tenth of
its iterations, its inertia weight falling anew (the papers state no number), before Levenberg-Marquardt restarts with
its first `mu`.  The search ends when all iterations of Levenberg-Marquardt reach their limit, or at the tolerance.
"""

import math
from typing import Literal

import numpy as np
import scipy.linalg as la

from rt_core.optimise._swarm import Swarm, falling_weights, scatter
from rt_core.optimise.run import SearchRun
from rt_core.optimise.settings import Settings
from rt_core.types import BoolArray, FloatArray

#: Iterations of the swarm after a return, as a share of its limit.
RETURN = 0.1
_TINY = float(np.finfo(np.float64).tiny)


def damped_step(
    gradient: FloatArray, normal: FloatArray, damping: FloatArray, to_lower: FloatArray, to_upper: FloatArray
) -> FloatArray | None:
    """Return the step (d,) of `(normal + diag(damping)) step = -gradient` in bounds; None if not positive definite."""
    held = ((to_lower == 0.0) & (gradient > 0.0)) | ((to_upper == 0.0) & (gradient < 0.0))
    step = np.zeros(gradient.size)
    damped = normal.copy()
    damped[np.diag_indices_from(damped)] += damping
    while not held.all():
        free: BoolArray = ~held
        whole = not held.any()
        right = -gradient if whole else -(gradient[free] + normal[np.ix_(free, held)] @ step[held])
        # LAPACK directly: the wrappers cost more than the factorisation of so small a matrix.
        factor, info = la.lapack.dpotrf(damped if whole else damped[np.ix_(free, free)])
        if info != 0:
            return None
        step[free] = la.lapack.dpotrs(factor, right)[0]
        if not np.isfinite(step).all():
            return None
        crossed = free & ((step < to_lower) | (step > to_upper))
        if not crossed.any():
            break
        step[crossed] = np.clip(step[crossed], to_lower[crossed], to_upper[crossed])
        held |= crossed
    return step


def descend(
    run: SearchRun, settings: Settings, x: FloatArray, cost: float, iterations: int
) -> Literal["iterations", "damping", "over"]:
    """Take at most `iterations` trial steps from `x` (d,) of cost `cost`; return the reason of the end."""
    lower, upper = run.problem.lower, run.problem.upper
    mu = settings.mu_start
    scale = np.ones(x.size) if settings.scaling == "none" else np.zeros(x.size)
    gradient, normal = np.zeros(0), np.zeros((0, 0))
    moved = True
    for _ in range(iterations):
        if not run.affords(2 if moved else 1):
            return "over"
        if moved:
            gradient, normal = run.linearise(x)
            if settings.scaling == "diagonal":
                # Never decreasing (More 1978), or a column that vanishes temporarily causes a huge step.
                scale = np.maximum(scale, np.diag(normal))
        # A column without data has no scale and no gradient: any damping fixes it.
        damping = mu * np.where(scale > 0.0, scale, 1.0)
        step = damped_step(gradient, normal, damping, lower - x, upper - x)
        moved = False
        if step is not None:
            trial = np.clip(x + step, lower, upper)
            if (trial != x).any():
                trial_cost = float(run.evaluate(trial[None])[0])
                moved = trial_cost < cost
        if moved:
            x, cost = trial, trial_cost
            mu = max(0.5 * mu, _TINY)
        else:
            mu *= 2.0
        if not run.report("lm"):
            return "over"
        if mu > settings.mu_limit:
            return "damping"
    return "iterations"


def lm(run: SearchRun, settings: Settings, rng: np.random.Generator, x0: FloatArray | None) -> None:
    """Levenberg-Marquardt from `x0`, or from a random point of the box."""
    run.planned = run.budget.lm_iterations
    run.affords(1)
    x = scatter(run, 1, rng, x0)
    cost = float(run.evaluate(x)[0])
    if run.start("lm") and descend(run, settings, x[0], cost, run.planned) == "damping":
        run.give_up()


def pso_lm(run: SearchRun, settings: Settings, rng: np.random.Generator, x0: FloatArray | None) -> None:
    """Particle swarm and Levenberg-Marquardt in turns."""
    budget = run.budget
    run.planned = budget.swarm_iterations + budget.lm_iterations
    enough = -math.inf
    if budget.tolerance is not None:
        enough = max(budget.tolerance, settings.early_factor * budget.tolerance)
    swarm = Swarm(run, settings, rng, x0)
    if not run.start("pso"):
        return
    weights = falling_weights(settings, budget.swarm_iterations)
    again = falling_weights(settings, max(1, round(RETURN * budget.swarm_iterations)))
    while swarm.search(weights, enough):
        run.planned = run.iterations + budget.lm_iterations - run.lm_iterations
        left = budget.lm_iterations - run.lm_iterations
        if descend(run, settings, run.best_x.copy(), run.best_cost, left) != "damping":
            return
        if run.lm_iterations == budget.lm_iterations or not swarm.renew():
            return
        run.returns += 1
        weights, enough = again, -math.inf  # the early exit did not suffice
        run.planned += again.size
