"""The hybrid of DYN and KIN: a particle swarm, then Levenberg-Marquardt from its best point.

The swarm has a linearly decreasing inertia weight and ends at its iteration limit, or (KIN) when the cost is
within a factor of the tolerance.  When `mu` exceeds its limit, the search returns to the swarm: the present
solution is kept, poor particles are replaced in its neighbourhood, and the swarm goes on for a tenth of its
iterations, its inertia weight falling anew (the papers state no number), before Levenberg-Marquardt starts again
with its first `mu`.  It ends when all iterations of Levenberg-Marquardt together reach their limit, or at the
tolerance.
"""

from __future__ import annotations

import math

import numpy as np

from rt_core.optimise._levenberg_marquardt import descend
from rt_core.optimise._swarm import Swarm, falling_weights
from rt_core.optimise.run import Run
from rt_core.optimise.settings import Settings
from rt_core.types import FloatArray

#: Iterations of the swarm after a return, as a share of its limit.
RETURN = 0.1


def pso_lm(run: Run, settings: Settings, rng: np.random.Generator, x0: FloatArray | None) -> None:
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
        weights, enough = again, -math.inf  # it came back because being near was not enough
        run.planned += again.size
