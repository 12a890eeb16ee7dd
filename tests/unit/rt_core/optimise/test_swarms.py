"""The kernels of the swarms and of the genetic algorithm against slow, obvious NumPy."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from rt_core.optimise._genetic import CROSSOVER, CROSSOVER_INDEX, MUTATION_INDEX, breed
from rt_core.optimise._swarm import NEIGHBOURHOOD, Swarm, move
from rt_core.optimise._tcs_pso import IMITATED, TERMINAL, cross, imitate, move_terminal
from rt_core.optimise.registry import optimise
from rt_core.optimise.run import SearchRun
from rt_core.optimise.settings import HYP, Budget, Settings
from tests.lab.cost_functions import box, rastrigin

LOWER = np.array([-4.0, 0.0, 10.0])
UPPER = np.array([5.0, 1.0, 400.0])


def state(seed: int, m: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Positions, velocities, personal bests, best: many components on the box's faces, and some to leave it."""
    rng = np.random.default_rng(seed)
    width = UPPER - LOWER
    x, own = np.clip(LOWER + width * rng.uniform(-0.3, 1.3, (2, m, 3)), LOWER, UPPER)
    return x, width * rng.uniform(-1.0, 1.0, (m, 3)), own, own[m // 2].copy()


def moved(x, v, to_own, to_best, r, w, c1, c2, limit, position):
    """One iteration in whole arrays."""
    step = w * v + c1 * r[0] * to_own + c2 * r[1] * to_best
    step = np.clip(step, -limit, limit)
    to = position(step)
    inside = np.clip(to, LOWER, UPPER)
    return inside, np.where(inside == to, step, 0.0)


@pytest.mark.parametrize("seed", range(5))
def test_one_iteration_equals_the_formula_to_the_bit(seed) -> None:
    x, v, own, best = state(seed)
    r = np.random.default_rng(seed + 100).random((2, *x.shape))
    limit = 0.2 * (UPPER - LOWER)
    expected_x, expected_v = moved(x, v, own - x, best - x, r, 0.7, 1.8, 1.6, limit, lambda step: x + step)
    move(x, v, own, best, r, 0.7, 1.8, 1.6, limit, LOWER, UPPER)
    assert np.array_equal(x, expected_x)
    assert np.array_equal(v, expected_v)
    assert ((x == LOWER) | (x == UPPER)).any()  # the case with bounds has been met


@pytest.mark.parametrize("seed", range(5))
def test_one_terminal_iteration_equals_the_formula_to_the_bit(seed) -> None:
    x, v, own, best = state(seed)
    rng = np.random.default_rng(seed + 100)
    r, w = rng.random((2, *x.shape)), 0.55
    partner = rng.integers(0, len(x), len(x))
    limit = 0.2 * (UPPER - LOWER)
    expected_x, expected_v = moved(
        x, v, own[partner] - x, best - x, r, w, 2.0, 2.0, limit, lambda step: best + w * (x - best) + (1.0 - w) * step
    )
    move_terminal(x, v, own, partner, best, r, w, 2.0, 2.0, limit, LOWER, UPPER)
    assert np.array_equal(x, expected_x)
    assert np.array_equal(v, expected_v)


def test_children_lie_between_the_personal_bests() -> None:
    rng = np.random.default_rng(0)
    own, ratio = rng.normal(size=(2, 30, 4))
    ratio = rng.random(ratio.shape)
    partner = rng.permutation(30)
    children = np.empty_like(own)
    cross(own, partner, ratio, children)
    np.testing.assert_allclose(children, (1.0 - ratio) * own + ratio * own[partner], rtol=1e-12, atol=1e-14)
    assert (children >= np.minimum(own, own[partner])).all()
    assert (children <= np.maximum(own, own[partner])).all()


def test_imitation_copies_some_components() -> None:
    rng = np.random.default_rng(0)
    own = rng.normal(size=(20, 50))
    best = np.full(50, 9.0)
    shares = []
    for _ in range(400):
        candidate = imitate(best, own, rng)
        copied = candidate != best
        assert copied.any()
        assert all(candidate[k] in own[:, k] for k in np.flatnonzero(copied))
        shares.append(copied.mean())
    assert np.mean(shares) == pytest.approx(IMITATED + 1 / 50 * (1 - IMITATED), abs=0.01)


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


@pytest.mark.parametrize("name", ["pso", "pso_linear"])
def test_whole_search_equals_the_naive_one_to_the_bit(name) -> None:
    settings = Settings(particles=9, c1=1.8, c2=1.6)
    problem = box(rastrigin, 3)
    found = optimise(name, problem, settings, Budget(25), seed=11)
    naive = NaivePso(rastrigin, problem.lower, problem.upper, settings, 11)
    history = [naive.fg]
    for t in range(25):
        naive.iterate(0.7298 if name == "pso" else np.linspace(0.9, 0.4, 25)[t])
        history.append(naive.fg)
    assert np.array_equal(found.history, history)
    assert np.array_equal(found.x, naive.g)


class NaiveTcs(NaivePso):
    """TCS-PSO in whole arrays, with the draws in the order of the optimiser."""

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


def test_whole_tcs_search_equals_the_naive_one_to_the_bit() -> None:
    settings = Settings(particles=9, c1=2.0, c2=2.0)
    problem = box(rastrigin, 3)
    found = optimise("tcs_pso", problem, settings, Budget(30), seed=4)
    naive = NaiveTcs(rastrigin, problem.lower, problem.upper, settings, 4)
    history = [naive.fg]
    for t in range(30):
        naive.iterate_tcs(t, 30)
        history.append(naive.fg)
    assert np.array_equal(found.history, history)
    assert np.array_equal(found.x, naive.g)
    assert found.evaluations == 9 + 20 * 10 + 10 * 19


def test_shifted_box_does_not_matter() -> None:
    """No optimiser prefers the origin or the middle of the box: a shifted problem is searched alike."""
    for name in ("pso", "pso_linear", "tcs_pso", "ga"):
        here = optimise(name, box(lambda X: ((X - 1.0) ** 2).sum(axis=1), 4, -2.0, 2.0), HYP[0], Budget(60), seed=1)
        there = optimise(
            name, box(lambda X: ((X - 1025.0) ** 2).sum(axis=1), 4, 1022.0, 1026.0), HYP[0], Budget(60), seed=1
        )
        np.testing.assert_allclose(here.history[:40], there.history[:40], rtol=1e-3, err_msg=name)


def test_linear_weight_needs_the_whole_budget_and_constant_does_not_fall() -> None:
    """With equal weights at both ends the two variants are one."""
    even = Settings(particles=8, w_start=0.7298, w_end=0.7298)
    problem = box(rastrigin, 2)
    one, two = (optimise(name, problem, even, Budget(15), seed=3) for name in ("pso", "pso_linear"))
    assert np.array_equal(one.history, two.history)
    falling = optimise("pso_linear", problem, dataclasses.replace(even, w_end=0.4), Budget(15), seed=3)
    assert not np.array_equal(one.history, falling.history)


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


@pytest.mark.parametrize("seed", range(3))
def test_breeding_equals_the_formulas(seed) -> None:
    rng = np.random.default_rng(seed)
    m, d, pairs = 20, 3, 10
    x = LOWER + (UPPER - LOWER) * rng.random((m, d))
    parents = rng.integers(0, m, (pairs, 2))
    draws = (rng.random(pairs), rng.random((pairs, d)), rng.random((pairs, d)), *rng.random((2, 2 * pairs, d)))
    children = np.empty((2 * pairs, d))
    breed(x, parents, *draws, LOWER, UPPER, children)
    np.testing.assert_allclose(children, bred(x, parents, *draws, LOWER, UPPER), rtol=1e-12)


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


def test_renewed_swarm_keeps_the_solution_and_its_good_half() -> None:
    problem = box(rastrigin, 3)
    run = SearchRun(problem, Budget(), None)
    swarm = Swarm(run, Settings(particles=11), np.random.default_rng(0), None)
    swarm.search(np.full(5, 0.7))
    run.evaluate(np.full((1, 3), 0.5))  # what a descent found
    before = swarm.x.copy(), swarm.v.copy(), swarm.own.copy(), swarm.own_cost.copy()
    assert swarm.renew()
    poor = np.argsort(before[3])[6:]
    good = np.setdiff1d(np.arange(11), poor)
    for array, old in zip((swarm.x, swarm.v, swarm.own, swarm.own_cost), before, strict=True):
        assert np.array_equal(array[good], old[good])
    assert np.array_equal(swarm.x[poor], swarm.own[poor])
    assert not swarm.v[poor].any()
    assert (swarm.x == 0.5).all(axis=1).sum() == 1
    offset = np.abs(swarm.x[poor] - 0.5) / problem.width
    assert (offset <= NEIGHBOURHOOD).all()
    assert offset.max() > 0.5 * NEIGHBOURHOOD
    np.testing.assert_array_equal(swarm.own_cost, rastrigin(swarm.own))
