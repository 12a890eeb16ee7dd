"""Terminal crossover and steering-based particle swarm (TCS-PSO).

Our reading of Zhang et al., Applied Soft Computing 2019, 85, 105841, as Zhang et al. 2025 (HYP) use it:

1. The inertia weight falls nonlinearly and at random, `w = w_start - (w_start - w_end) (t/T)^k` with
   `k = U(0, 1) + Exp(mean 0.5)` drawn each iteration.
2. In the terminal phase, the last third of the iterations, a position becomes `x <- w x + (1 - w) v`, with
   the origin of the coordinates at the best point `g`: `x <- g + w (x - g) + (1 - w) v`.
   About the origin of the parameters themselves the rule would drive every particle towards zero.
3. There, each personal best is also crossed with that of a random partner, component by component at a random ratio,
   and replaced if the child is better.  The partner's best takes the place of the particle's own
   in the velocity: that steers it into another direction.
4. In every iteration the best point imitates random particles: a candidate takes some components from their
   personal bests, and replaces the best point if it is better.
"""

import numpy as np

from rt_core.jit import jit
from rt_core.optimise._swarm import Swarm, keep_better, move
from rt_core.optimise.run import SearchRun
from rt_core.optimise.settings import Settings
from rt_core.types import FloatArray, IntArray

#: Share of the iterations before the terminal phase, and of the components that imitate (ours).
TERMINAL = 2.0 / 3.0
IMITATED = 0.1


@jit
def cross(own: FloatArray, partner: IntArray, ratio: FloatArray, children: FloatArray) -> None:
    """Fill `children` (m, d) between the personal bests `own` (m, d) and those of `partner` (m,), at `ratio` (m, d)."""
    for i in range(own.shape[0]):
        pi, pj, ai, ci = own[i], own[partner[i]], ratio[i], children[i]
        for k in range(pi.shape[0]):
            between = pi[k] + ai[k] * (pj[k] - pi[k])
            # Rounding may pass the partner, and so a bound.
            ci[k] = min(max(between, min(pi[k], pj[k])), max(pi[k], pj[k]))


def imitate(best: FloatArray, own: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return `best` (d,) with one random component, and others by chance, from random rows of `own` (m, d)."""
    m, d = own.shape
    model = rng.integers(0, m, d)
    chosen = np.asarray(rng.random(d) < IMITATED)
    chosen[rng.integers(0, d)] = True
    return np.where(chosen, own[model, np.arange(d)], best)


def tcs_pso(run: SearchRun, settings: Settings, rng: np.random.Generator, x0: FloatArray | None) -> None:
    """Search by terminal crossover and steering-based swarm; twice the evaluations in its terminal phase."""
    iterations = run.planned = run.budget.swarm_iterations
    swarm = Swarm(run, settings, rng, x0)
    m, d = swarm.x.shape
    if not run.start("pso"):
        return
    points = np.empty((2 * m + 1, d))  # moved particles, candidate, children
    r = np.empty((2, m, d))
    ratio = np.empty((m, d))
    for t in range(iterations):
        terminal = t >= TERMINAL * iterations
        count = 2 * m + 1 if terminal else m + 1
        if not run.affords(count):
            return
        phase = t / max(iterations - 1, 1)
        w = settings.w_start - (settings.w_start - settings.w_end) * phase ** (rng.random() + rng.exponential(0.5))
        rng.random(out=r)
        points[m] = imitate(run.best_x, swarm.own, rng)
        steering = swarm.own
        if terminal:
            partner = (np.arange(m) + rng.integers(1, m, m)) % m
            rng.random(out=ratio)
            cross(swarm.own, partner, ratio, points[m + 1 :])
            steering = swarm.own[partner]
        move(swarm.x, swarm.v, steering, run.best_x, r, swarm.pull(w, terminal))
        points[:m] = swarm.x
        cost = run.evaluate(points[:count])
        keep_better(swarm.x, cost[:m], swarm.own, swarm.own_cost)
        if terminal:
            keep_better(points[m + 1 :], cost[m + 1 :], swarm.own, swarm.own_cost)
        if not run.report("pso"):
            return
