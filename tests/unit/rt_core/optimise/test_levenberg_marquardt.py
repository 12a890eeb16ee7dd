"""Levenberg-Marquardt against SciPy and a naive one, and the hybrid's returns to the swarm."""

import dataclasses

import numpy as np
import pytest
from scipy.optimize import least_squares, lsq_linear

from rt_core.optimise._levenberg_marquardt import RETURN, damped_step
from rt_core.optimise._swarm import NEIGHBOURHOOD, RENEWED
from rt_core.optimise.problem import Problem
from rt_core.optimise.registry import optimise
from rt_core.optimise.settings import Budget, Settings
from tests.lab.cost_functions import Counted, Decay

START = np.array([5.0, 0.3, 5.0, 10.0])


@pytest.mark.parametrize(("scaling", "upper_0"), [("none", 10.0), ("diagonal", 1.5)])
def test_minimum_is_that_of_scipy(scaling, upper_0) -> None:
    decay = Decay()
    upper = decay.upper.copy()
    upper[0] = upper_0
    start = np.minimum(START, upper)
    found = optimise("lm", decay.problem(upper=upper), Settings(scaling=scaling), Budget(lm_iterations=200), x0=start)
    tight = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15}
    inside = np.clip(start, decay.lower + 1e-3, upper - 1e-3)
    peer = least_squares(decay.residual, inside, decay.jacobian, bounds=(decay.lower, upper), **tight)
    assert found.cost == pytest.approx(2.0 * peer.cost, rel=1e-9)
    np.testing.assert_allclose(found.x, peer.x, rtol=1e-5)
    assert found.at_bound.tolist() == [upper_0 == 1.5, False, False, False]
    assert found.stopped == "damping"


@pytest.mark.parametrize("scaling", ["none", "diagonal"])
def test_schedule_of_mu_equals_the_naive_one(scaling) -> None:
    """Every trial point, to rounding: halved on success, doubled on failure."""
    decay = Decay()
    wide = (np.full(4, -1e3), np.full(4, 1e3))
    counted = Counted(decay.problem(lower=wide[0], upper=wide[1]))
    optimise("lm", counted.problem, Settings(scaling=scaling), Budget(lm_iterations=25), x0=START)
    x, mu, D = START, 1e-2, np.zeros(4)
    cost = decay.residual(x) @ decay.residual(x)
    trials, failures = [x], 0
    for _ in range(25):
        r, J = decay.residual(x), decay.jacobian(x)
        D = np.ones(4) if scaling == "none" else np.maximum(D, np.diag(J.T @ J))  # never smaller than it was
        trial = x - np.linalg.inv(J.T @ J + mu * np.diag(D)) @ J.T @ r
        trials.append(trial)
        trial_cost = decay.residual(trial) @ decay.residual(trial)
        if trial_cost < cost:
            x, cost, mu = trial, trial_cost, mu / 2
        else:
            mu *= 2
            failures += 1
    assert 3 <= failures <= 22
    np.testing.assert_allclose(np.concatenate(counted.points), trials, rtol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_steps_inside_bounds(seed) -> None:
    """Inside the box exactly the formula; at its bounds no worse than staying, and never outside."""
    rng = np.random.default_rng(seed)
    J, r = rng.normal(size=(12, 5)), rng.normal(size=12)
    A, g, damping = J.T @ J, J.T @ r, np.full(5, 0.1)
    free = damped_step(g, A, damping, np.full(5, -9.0), np.full(5, 9.0))
    np.testing.assert_allclose(free, -np.linalg.solve(A + 0.1 * np.eye(5), g), rtol=1e-10)
    low, high = -0.2 * rng.random(5), 0.2 * rng.random(5)
    low[rng.integers(5)] = 0.0
    step = damped_step(g, A, damping, low, high)
    assert (step >= low).all()
    assert (step <= high).all()

    def model(s):
        return g @ s + 0.5 * s @ (A @ s + damping * s)

    assert model(step) < 0.0
    best = lsq_linear(np.vstack((J, np.sqrt(0.1) * np.eye(5))), -np.append(r, np.zeros(5)), (low - 1e-12, high))
    assert model(step) >= model(best.x) - 1e-9
    assert model(step) <= 0.7 * model(best.x)


def test_no_step_where_the_matrix_is_not_definite() -> None:
    wide = np.full(2, 9.0)
    assert damped_step(np.ones(2), np.diag([1.0, -1.0]), np.full(2, 0.1), -wide, wide) is None
    held = damped_step(np.ones(2), np.eye(2), np.full(2, 0.1), np.zeros(2), wide)
    assert np.array_equal(held, np.zeros(2))


def test_mu_above_its_limit_returns_to_the_swarm_and_keeps_the_solution() -> None:
    """A noisy fit ends at a minimum above zero, where every step fails."""
    settings = Settings(particles=10)
    budget = Budget(swarm_iterations=20, lm_iterations=100)
    counted = Counted(Decay().problem())
    told = []
    found = optimise("pso_lm", counted.problem, settings, budget, seed=1, callback=told.append)
    assert found.returns >= 2
    assert found.stopped == "iterations"
    assert found.lm_iterations == 100
    assert found.swarm_iterations == 20 + found.returns * round(RETURN * 20)
    assert (np.diff(found.history) <= 0.0).all()
    turns = [i for i in range(1, len(told)) if told[i].stage == "pso" and told[i - 1].stage == "lm"]
    assert len(turns) == found.returns
    width = counted.problem.width
    renewed = [X for X in counted.points if len(X) == int(RENEWED * 10) - 1]
    assert len(renewed) == found.returns
    for turn, fresh in zip(turns, renewed, strict=True):
        solution = told[turn - 1].x
        assert (np.abs(fresh - solution) <= NEIGHBOURHOOD * width + 1e-12).all()
        assert told[turn].cost <= told[turn - 1].cost
    # mu, followed through the first descent: it passes its limit with the last step and not before.  Near the minimum
    # rounding decides whether a step lowers the cost, so that successes may lie between the failures.
    begun = next(i for i, progress in enumerate(told) if progress.stage == "lm")
    lower = [told[i].cost < told[i - 1].cost for i in range(begun, turns[0])]
    mu = settings.mu_start * np.cumprod([0.5 if success else 2.0 for success in lower])
    assert mu[-1] > settings.mu_limit
    assert (mu[:-1] <= settings.mu_limit).all()


@pytest.mark.parametrize(("iterations", "returns"), [(17, 0), (18, 1), (34, 1), (35, 2)])
def test_return_comes_after_seventeen_failures_if_any_descent_is_left(iterations, returns) -> None:
    """0.01 doubled 17 times exceeds 1000; a return that no descent could follow does not happen."""
    flat = Problem(np.zeros(2), np.ones(2), lambda X: np.ones(len(X)), lambda x: (np.ones(2), np.eye(2)))
    found = optimise("pso_lm", flat, Settings(particles=4), Budget(20, iterations), x0=np.full(2, 0.5))
    assert (found.returns, found.lm_iterations, found.swarm_iterations) == (returns, iterations, 20 + 2 * returns)
    assert found.stopped == "iterations"


def test_kin_leaves_the_swarm_near_the_tolerance() -> None:
    decay = Decay()
    problem = dataclasses.replace(decay.problem(), costs=decay.rms)
    settings, budget = Settings(particles=30), Budget(200, 50, tolerance=0.0105)
    found = optimise("pso_lm", problem, settings, budget, seed=0)
    assert found.stopped == "tolerance"
    assert 0 < found.swarm_iterations < 200
    near = found.history[: found.swarm_iterations + 1] <= 0.105
    assert near[-1]
    assert not near[:-1].any()
    exact = optimise("pso_lm", problem, Settings(particles=30, early_factor=1.0), budget, seed=0)
    assert exact.swarm_iterations > found.swarm_iterations
    # A swarm that begins near enough does not move at all.
    at_once = optimise("pso_lm", problem, settings, budget, seed=0, x0=decay.truth + 0.01)
    assert at_once.swarm_iterations == 0
    assert at_once.stopped == "tolerance"


def test_tolerance_in_a_return_does_not_shorten_it() -> None:
    """Near the tolerance but not at it: returns run their iterations, since being near was not enough."""
    problem = dataclasses.replace(Decay().problem(), costs=Decay().rms)
    found = optimise("pso_lm", problem, Settings(particles=10), Budget(30, 100, tolerance=5e-3), seed=0)
    assert found.stopped == "iterations"
    assert found.returns >= 1
    first = int((found.history <= 5e-2).argmax())
    assert found.swarm_iterations == min(first, 30) + 3 * found.returns
