"""Particle swarms with a constant and with a linearly decreasing inertia weight.

`v <- w v + c1 r1 (p - x) + c2 r2 (g - x)`, `x <- x + v`, with `p` a particle's own best, `g` the best of all, and `r1`,
`r2` uniform in [0, 1) for each component (Kennedy and Eberhart 1995; Shi and Eberhart 1998).  A component of the
velocity is limited to a share of the parameter's range.  A particle that would leave the box stays on its face, and the
outward component of its velocity becomes zero.  All particles move before the best is updated, so that the objective is
called once an iteration.
"""

from typing import NamedTuple

import numpy as np

from rt_core.jit import jit
from rt_core.optimise.run import SearchRun
from rt_core.optimise.settings import Settings
from rt_core.types import FloatArray

#: Renewal of a swarm: share of the particles that are replaced, and their range around the best, as a share of each
#: parameter's (our reading of DYN and KIN, which state neither).
RENEWED = 0.5
NEIGHBOURHOOD = 0.1


class Pull(NamedTuple):
    """How particles move."""

    w: float  # inertia weight
    c1: float  # to a personal best
    c2: float  # to the best of all
    limit: FloatArray  # (d,) of the velocity
    lower: FloatArray  # (d,)
    upper: FloatArray  # (d,)
    steered: bool = False  # positions by rule 2 of `rt_core.optimise._tcs_pso`


@jit
def move(x: FloatArray, v: FloatArray, own: FloatArray, best: FloatArray, r: FloatArray, pull: Pull) -> None:
    """Move all particles `x`, `v` (m, d) in place; `own` (m, d) their personal bests, `best` (d,), `r` (2, m, d)."""
    w, c1, c2, limit, lower, upper, steered = pull
    for i in range(x.shape[0]):
        xi, vi, pi, ai, bi = x[i], v[i], own[i], r[0, i], r[1, i]
        for k in range(xi.shape[0]):
            step = w * vi[k] + c1 * ai[k] * (pi[k] - xi[k]) + c2 * bi[k] * (best[k] - xi[k])
            step = min(max(step, -limit[k]), limit[k])
            to = best[k] + w * (xi[k] - best[k]) + (1.0 - w) * step if steered else xi[k] + step
            inside = min(max(to, lower[k]), upper[k])
            vi[k] = step if inside == to else 0.0
            xi[k] = inside


@jit
def keep_better(x: FloatArray, cost: FloatArray, own: FloatArray, own_cost: FloatArray) -> None:
    """Update the personal bests `own` (m, d) and `own_cost` (m,) where `cost` (m,) of `x` (m, d) is lower."""
    for i in range(x.shape[0]):
        if cost[i] < own_cost[i]:
            own_cost[i] = cost[i]
            own[i] = x[i]


def scatter(run: SearchRun, particles: int, rng: np.random.Generator, x0: FloatArray | None) -> FloatArray:
    """Return points (particles, d) uniform in the box, the first at `x0` if it is given."""
    problem = run.problem
    # The sum can round up to just beyond the bound.
    x = np.minimum(problem.lower + problem.width * rng.random((particles, problem.lower.size)), problem.upper)
    if x0 is not None:
        x[0] = x0
    return x


class Swarm:
    """Particles `x` with velocities `v`, their own bests `own` (m, d each) and `own_cost` (m,)."""

    def __init__(self, run: SearchRun, settings: Settings, rng: np.random.Generator, x0: FloatArray | None) -> None:
        """Scatter and evaluate the particles."""
        self.run = run
        self.settings = settings
        self.rng = rng
        self.limit = settings.velocity_limit * run.problem.width
        run.affords(settings.particles)
        self.x = scatter(run, settings.particles, rng, x0)
        self.v = self.limit * rng.uniform(-1.0, 1.0, self.x.shape)
        self.own = self.x.copy()
        self.own_cost = run.evaluate(self.x)
        self._r = np.empty((2, *self.x.shape))

    def advance(self, w: float) -> None:
        """Do one iteration with inertia weight `w`."""
        self.rng.random(out=self._r)
        move(self.x, self.v, self.own, self.run.best_x, self._r, self.pull(w))
        keep_better(self.x, self.run.evaluate(self.x), self.own, self.own_cost)

    def pull(self, w: float, steered: bool = False) -> Pull:
        """Return how the particles move with inertia weight `w`."""
        settings, problem = self.settings, self.run.problem
        return Pull(w, settings.c1, settings.c2, self.limit, problem.lower, problem.upper, steered)

    def search(self, weights: FloatArray, enough: float = -np.inf) -> bool:
        """Do one iteration per inertia weight until the best cost is at most `enough`; False if the search is over."""
        for w in weights:
            if self.run.best_cost <= enough:
                break
            if not self.run.affords(self.settings.particles):
                return False
            self.advance(float(w))
            if not self.run.report("pso"):
                return False
        return True

    def renew(self) -> bool:
        """Move the poorest particles around the best point, one of them onto it; False if the search is over."""
        run = self.run
        problem = run.problem
        count = max(1, int(RENEWED * self.own_cost.size))
        if not run.affords(count - 1):
            return False
        poor = np.argsort(self.own_cost, kind="stable")[self.own_cost.size - count :]
        offset = NEIGHBOURHOOD * problem.width * self.rng.uniform(-1.0, 1.0, (count, problem.lower.size))
        offset[0] = 0.0
        fresh = np.clip(run.best_x + offset, problem.lower, problem.upper)
        cost = np.full(count, run.best_cost)
        if count > 1:
            cost[1:] = run.evaluate(fresh[1:])
        self.x[poor] = fresh
        self.v[poor] = 0.0
        self.own[poor] = fresh
        self.own_cost[poor] = cost
        return True


def falling_weights(settings: Settings, iterations: int) -> FloatArray:
    """Return inertia weights (iterations,) that fall linearly from `w_start` to `w_end`."""
    return np.linspace(settings.w_start, settings.w_end, iterations)


def pso(run: SearchRun, settings: Settings, rng: np.random.Generator, x0: FloatArray | None) -> None:
    """Search by a particle swarm with the constant inertia weight `w_constant`."""
    run.planned = run.budget.swarm_iterations
    swarm = Swarm(run, settings, rng, x0)
    if run.start("pso"):
        swarm.search(np.full(run.planned, settings.w_constant))


def pso_linear(run: SearchRun, settings: Settings, rng: np.random.Generator, x0: FloatArray | None) -> None:
    """Search by a particle swarm with linearly decreasing inertia weight, the PSO of DYN and KIN."""
    run.planned = run.budget.swarm_iterations
    swarm = Swarm(run, settings, rng, x0)
    if run.start("pso"):
        swarm.search(falling_weights(settings, run.planned))
