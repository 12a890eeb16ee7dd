"""Levenberg-Marquardt on the normal equations, inside bounds.

`x <- x - (J'J + mu I)^-1 J'r`; `mu` halves when the step lowers the cost and doubles when it does not (DYN, KIN).
A parameter at a bound that the gradient pushes outward stays there.  Where a step would cross a bound, the parameter is
put on the bound and the others are solved for again; inside the box nothing differs from the formula.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import scipy.linalg as la

from rt_core.optimise._swarm import scatter
from rt_core.optimise.run import Run
from rt_core.optimise.settings import Settings
from rt_core.types import BoolArray, FloatArray

_TINY = float(np.finfo(np.float64).tiny)


def damped_step(
    gradient: FloatArray, normal: FloatArray, damping: FloatArray, to_lower: FloatArray, to_upper: FloatArray
) -> FloatArray | None:
    """Step (d,) that solves `(normal + diag(damping)) step = -gradient` between `to_lower` <= 0 <= `to_upper`.

    `gradient`, `damping`, `to_lower`, `to_upper` (d,), `normal` (d, d).  None if the damped matrix is not positive
    definite.
    """
    held = ((to_lower == 0.0) & (gradient > 0.0)) | ((to_upper == 0.0) & (gradient < 0.0))
    step = np.zeros(gradient.size)
    damped = normal.copy()
    damped[np.diag_indices_from(damped)] += damping
    while not held.all():
        free: BoolArray = ~held
        whole = not held.any()
        right = -gradient if whole else -(gradient[free] + normal[np.ix_(free, held)] @ step[held])
        # LAPACK itself: the wrappers cost more than the factorisation of so small a matrix.
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
    run: Run, settings: Settings, x: FloatArray, cost: float, iterations: int
) -> Literal["iterations", "damping", "over"]:
    """At most `iterations` trial steps from `x` (d,) of cost `cost`.

    Returns what ended them: their number, the damping above its limit, or the search as a whole.
    """
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
                # Never smaller than before (More 1978), or a column that vanishes for a moment makes a wild step.
                scale = np.maximum(scale, np.diag(normal))
        # A column without data has no scale and no gradient: any damping holds it.
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


def lm(run: Run, settings: Settings, rng: np.random.Generator, x0: FloatArray | None) -> None:
    """Levenberg-Marquardt from `x0`, or from a random point of the box."""
    run.planned = run.budget.lm_iterations
    run.affords(1)
    x = scatter(run, 1, rng, x0)
    cost = float(run.evaluate(x)[0])
    if run.start("lm") and descend(run, settings, x[0], cost, run.planned) == "damping":
        run.give_up()
