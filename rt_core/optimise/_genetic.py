"""Real-coded genetic algorithm.

Binary tournaments choose the parents, simulated binary crossover mixes them (Deb and Agrawal 1995), polynomial mutation
disturbs one component a child on average (Deb and Goyal 1996), and the best of parents and children survive.
"""

from typing import NamedTuple

import numpy as np

from rt_core.jit import jit
from rt_core.optimise._swarm import scatter
from rt_core.optimise.run import SearchRun
from rt_core.optimise.settings import Settings
from rt_core.types import FloatArray, IntArray

#: Usual values: probability that a pair crosses, and the distribution indices.
CROSSOVER = 0.9
CROSSOVER_INDEX = 15.0
MUTATION_INDEX = 20.0


class Draws(NamedTuple):
    """Uniform random numbers of a generation of `h` pairs."""

    crosses: FloatArray  # (h,) whether a pair crosses
    mixes: FloatArray  # (h, d) and a component of it
    spread: FloatArray  # (h, d) and how far
    mutates: FloatArray  # (2h, d) whether a component of a child mutates
    shift: FloatArray  # (2h, d) and how far


@jit
def breed(
    x: FloatArray, parents: IntArray, draws: Draws, lower: FloatArray, upper: FloatArray, children: FloatArray
) -> None:
    """Fill `children` (2h, d) from the pairs `parents` (h, 2) of rows of `x` (m, d)."""
    crosses, mixes, spread, mutates, shift = draws
    d = x.shape[1]
    for i in range(parents.shape[0]):
        a, b = x[parents[i, 0]], x[parents[i, 1]]
        ca, cb = children[2 * i], children[2 * i + 1]
        for k in range(d):
            ca[k], cb[k] = a[k], b[k]
            if crosses[i] < CROSSOVER and mixes[i, k] < 0.5:
                u = spread[i, k]
                ratio = 2.0 * u if u <= 0.5 else 0.5 / (1.0 - u)
                beta = ratio ** (1.0 / (CROSSOVER_INDEX + 1.0))
                ca[k] = 0.5 * ((1.0 + beta) * a[k] + (1.0 - beta) * b[k])
                cb[k] = 0.5 * ((1.0 - beta) * a[k] + (1.0 + beta) * b[k])
    power = 1.0 / (MUTATION_INDEX + 1.0)
    for i in range(children.shape[0]):
        c = children[i]
        for k in range(d):
            if mutates[i, k] * d < 1.0:
                u = shift[i, k]
                delta = (2.0 * u) ** power - 1.0 if u < 0.5 else 1.0 - (2.0 * (1.0 - u)) ** power
                c[k] += delta * (upper[k] - lower[k])
            c[k] = min(max(c[k], lower[k]), upper[k])


def ga(run: SearchRun, settings: Settings, rng: np.random.Generator, x0: FloatArray | None) -> None:
    """Real-coded genetic algorithm; `particles` is the population, `swarm_iterations` the generations."""
    run.planned = run.budget.swarm_iterations
    m, d = settings.particles, run.problem.lower.size
    pairs = (m + 1) // 2
    run.affords(m)
    x = scatter(run, m, rng, x0)
    cost = run.evaluate(x)
    children = np.empty((2 * pairs, d))
    if not run.start("ga"):
        return
    for _ in range(run.planned):
        if not run.affords(m):
            return
        one, other = rng.integers(0, m, (2, pairs, 2))
        parents = np.where(cost[one] <= cost[other], one, other)
        draws = Draws(rng.random(pairs), *rng.random((2, pairs, d)), *rng.random((2, 2 * pairs, d)))
        breed(x, parents, draws, run.problem.lower, run.problem.upper, children)
        population = np.vstack((x, children[:m]))
        costs = np.concatenate((cost, run.evaluate(population[m:])))
        fittest = np.argsort(costs, kind="stable")[:m]
        x, cost = population[fittest], costs[fittest]
        if not run.report("ga"):
            return
