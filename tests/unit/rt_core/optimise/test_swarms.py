"""Whole searches of the swarms and of the genetic algorithm against slow, obvious NumPy."""

import numpy as np
import pytest

from rt_core.optimise._genetic import CROSSOVER, CROSSOVER_INDEX, MUTATION_INDEX
from rt_core.optimise._tcs_pso import IMITATED, TERMINAL
from rt_core.optimise.registry import optimise
from rt_core.optimise.settings import Budget, Settings
from tests.lab.cost_functions import box, rastrigin


class NaivePso:
    """PSO as the papers write it, particle by particle, with the draws in the order of the optimiser."""

    def __init__(self, costs, lower, upper, settings, seed):
        self.rng = np.random.default_rng(seed)
        self.costs, self.lower, self.upper, self.s = costs, lower, upper, settings
        self.limit = settings.velocity_limit * (upper - lower)
        m, d = settings.particles, lower.size
        self.x = lower + (upper - lower) * self.rng.random((m, d))
        self.v = self.limit * self.rng.uniform(-1, 1, (m, d))
        self.p = self.x.copy()
        self.f = costs(self.x)
        self.g, self.fg = self.p[self.f.argmin()].copy(), self.f.min()

    def iterate(self, w):
        r1, r2 = self.rng.random((2, *self.x.shape))
        for i in range(len(self.x)):
            for k in range(self.lower.size):
                a = self.s.c1 * r1[i, k] * (self.p[i, k] - self.x[i, k])
                v = w * self.v[i, k] + a + self.s.c2 * r2[i, k] * (self.g[k] - self.x[i, k])
                v = min(max(v, -self.limit[k]), self.limit[k])
                x = self.x[i, k] + v
                self.x[i, k] = min(max(x, self.lower[k]), self.upper[k])
                self.v[i, k] = v if self.x[i, k] == x else 0.0
        f = self.costs(self.x)
        better = f < self.f
        self.p[better], self.f[better] = self.x[better], f[better]
        if f.min() < self.fg:
            self.g, self.fg = self.x[f.argmin()].copy(), f.min()


class NaiveTcs(NaivePso):
    """The same, and TCS-PSO in whole arrays, with the draws in the order of the optimiser."""

    def iterate_tcs(self, t, iterations):
        rng, s, x, p, g = self.rng, self.s, self.x, self.p, self.g
        m, d = x.shape
        terminal = t >= TERMINAL * iterations
        k = rng.random() + rng.exponential(0.5)
        w = s.w_start - (s.w_start - s.w_end) * (t / (iterations - 1)) ** k
        assert s.w_end <= w <= s.w_start
        r1, r2 = rng.random((2, m, d))
        model = rng.integers(0, m, d)
        chosen = rng.random(d) < IMITATED
        chosen[rng.integers(0, d)] = True
        candidate = np.where(chosen, p[model, np.arange(d)], g)
        towards = p
        if terminal:
            partner = (np.arange(m) + rng.integers(1, m, m)) % m
            assert (partner != np.arange(m)).all()
            towards = p[partner]
            children = p + rng.random((m, d)) * (towards - p)
        v = np.clip(w * self.v + s.c1 * r1 * (towards - x) + s.c2 * r2 * (g - x), -self.limit, self.limit)
        to = g + w * (x - g) + (1 - w) * v if terminal else x + v
        self.x = np.clip(to, self.lower, self.upper)
        self.v = np.where(self.x == to, v, 0.0)
        for points in (self.x, children) if terminal else (self.x,):
            f = self.costs(points)
            better = f < self.f
            self.p, self.f = np.where(better[:, None], points, self.p), np.where(better, f, self.f)
        everything = np.vstack((self.p, g, candidate))
        f = self.costs(everything)
        self.g, self.fg = everything[f.argmin()].copy(), f.min()


@pytest.mark.parametrize(
    ("name", "c1", "c2", "iterations", "seed"),
    [("pso", 1.8, 1.6, 25, 11), ("pso_linear", 1.8, 1.6, 25, 11), ("tcs_pso", 2.0, 2.0, 30, 4)],
)
def test_whole_search_equals_the_naive_one_to_the_bit(name, c1, c2, iterations, seed) -> None:
    settings = Settings(particles=9, c1=c1, c2=c2)
    problem = box(rastrigin, 3)
    found = optimise(name, problem, settings, Budget(iterations), seed=seed)
    naive = NaiveTcs(rastrigin, problem.lower, problem.upper, settings, seed)
    history = [naive.fg]
    for t in range(iterations):
        if name == "tcs_pso":
            naive.iterate_tcs(t, iterations)
        else:
            naive.iterate(0.7298 if name == "pso" else np.linspace(0.9, 0.4, iterations)[t])
        history.append(naive.fg)
    assert np.array_equal(found.history, history)
    assert np.array_equal(found.x, naive.g)
    assert name != "tcs_pso" or found.evaluations == 9 + 20 * 10 + 10 * 19


def bred(x, parents, crosses, mixes, spread, mutates, shift, lower, upper):
    """Simulated binary crossover and polynomial mutation in whole arrays."""
    a, b = x[parents[:, 0]], x[parents[:, 1]]
    beta = np.where(spread <= 0.5, 2 * spread, 1 / (2 * (1 - spread))) ** (1 / (CROSSOVER_INDEX + 1))
    beta = np.where((crosses[:, None] < CROSSOVER) & (mixes < 0.5), beta, 1.0)
    children = np.empty((2 * len(parents), x.shape[1]))
    children[::2] = 0.5 * ((1 + beta) * a + (1 - beta) * b)
    children[1::2] = 0.5 * ((1 - beta) * a + (1 + beta) * b)
    power = 1 / (MUTATION_INDEX + 1)
    delta = np.where(shift < 0.5, (2 * shift) ** power - 1, 1 - (2 * (1 - shift)) ** power)
    children += np.where(mutates < 1 / x.shape[1], delta, 0.0) * (upper - lower)
    return np.clip(children, lower, upper)


@pytest.mark.parametrize("m", [7, 10])
def test_whole_genetic_search_equals_the_naive_one(m) -> None:
    problem, d, pairs = box(rastrigin, 3), 3, (m + 1) // 2
    found = optimise("ga", problem, Settings(particles=m), Budget(12), seed=6)
    rng = np.random.default_rng(6)
    x = problem.lower + problem.width * rng.random((m, d))
    history = [rastrigin(x).min()]
    for _ in range(12):
        one, other = rng.integers(0, m, (2, pairs, 2))
        f = rastrigin(x)
        parents = np.array(
            [[a if f[a] <= f[b] else b for a, b in zip(*row, strict=True)] for row in zip(one, other, strict=True)]
        )
        draws = rng.random(pairs), rng.random((pairs, d)), rng.random((pairs, d))
        draws += rng.random((2 * pairs, d)), rng.random((2 * pairs, d))
        everybody = np.vstack((x, bred(x, parents, *draws, problem.lower, problem.upper)[:m]))
        x = everybody[np.argsort(rastrigin(everybody), kind="stable")[:m]]
        history.append(rastrigin(x[:1])[0])
    np.testing.assert_allclose(found.history, history, rtol=1e-8)
    np.testing.assert_allclose(found.x, x[0], rtol=1e-8)
