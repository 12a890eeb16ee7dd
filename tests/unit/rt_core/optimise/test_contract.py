"""What every optimiser of the family keeps to."""

from itertools import pairwise, product

import numpy as np
import pytest

from rt_core.optimise.problem import ObjectiveError, Problem
from rt_core.optimise.registry import NAMES, optimise
from rt_core.optimise.settings import Budget, Settings
from tests.lab.cost_functions import Counted, Decay

SMALL = Settings(particles=12)
SHORT = Budget(swarm_iterations=20, lm_iterations=15)


def decay_of() -> Problem:
    return Decay().problem()


@pytest.mark.parametrize("name", NAMES)
def test_points_are_counted_inside_the_box_and_the_best_is_returned(name) -> None:
    counted = Counted(decay_of())
    found = optimise(name, counted.problem, SMALL, SHORT, seed=1)
    points = np.concatenate(counted.points)
    assert found.evaluations == counted.evaluations
    assert found.linearisations == counted.linearised
    assert (points >= counted.problem.lower).all()
    assert (points <= counted.problem.upper).all()
    costs = decay_of().costs(points)
    assert found.cost == costs.min()
    assert np.array_equal(found.x, points[costs.argmin()])
    assert found.history[-1] == found.cost
    assert found.stopped in ("iterations", "damping")


@pytest.mark.parametrize("name", NAMES)
def test_progress_is_monotone_and_complete(name) -> None:
    told = []
    found = optimise(name, decay_of(), SMALL, SHORT, seed=1, callback=told.append)
    assert [p.iteration for p in told] == list(range(len(found.history)))
    assert [p.cost for p in told] == list(found.history)
    assert all(b.cost <= a.cost and b.evaluations >= a.evaluations for a, b in pairwise(told))
    assert all(p.iteration <= p.of for p in told)
    assert found.swarm_iterations + found.lm_iterations == told[-1].iteration
    if found.stopped == "iterations":
        assert told[-1].of == told[-1].iteration
    stages = list(dict.fromkeys(p.stage for p in told))
    assert stages == {"ga": ["ga"], "lm": ["lm"], "pso_lm": ["pso", "lm"]}.get(name, ["pso"])
    assert told[-1].x is not found.x
    assert np.array_equal(told[-1].x, found.x)


@pytest.mark.parametrize(("name", "at"), [*product(NAMES, (0, 7)), ("pso_lm", 22)])  # there it descends
@pytest.mark.parametrize("answer", [False, np.False_])
def test_callback_cancels_with_the_best_so_far(name, at, answer) -> None:
    told = []

    def callback(progress):
        told.append(progress)
        return answer if progress.iteration == at else None

    found = optimise(name, decay_of(), SMALL, SHORT, seed=2, callback=callback)
    assert found.stopped == "cancelled"
    assert found.swarm_iterations + found.lm_iterations == at
    assert found.cost == told[-1].cost
    whole = optimise(name, decay_of(), SMALL, SHORT, seed=2)
    assert np.array_equal(found.history, whole.history[: at + 1])
    assert decay_of().costs(found.x[None])[0] == found.cost


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("limit", [13, 40, 301])
def test_evaluations_never_exceed_the_limit(name, limit) -> None:
    counted = Counted(decay_of())
    budget = Budget(swarm_iterations=200, lm_iterations=900, evaluations=limit)
    found = optimise(name, counted.problem, SMALL, budget, seed=5)
    assert counted.evaluations == found.evaluations <= limit
    if name != "lm":
        assert found.stopped == "evaluations"


@pytest.mark.parametrize("name", NAMES)
def test_tolerance_ends_the_search(name) -> None:
    found = optimise(name, decay_of(), SMALL, Budget(300, 100, tolerance=0.5), seed=0)
    assert found.stopped == "tolerance"
    assert found.cost <= 0.5
    assert (found.history[:-1] > 0.5).all()
    assert optimise(name, decay_of(), SMALL, SHORT, x0=Decay.truth, seed=0).cost <= 0.5


@pytest.mark.parametrize("name", NAMES)
def test_minimum_outside_ends_at_the_bound(name) -> None:
    A = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.3], [0.0, 0.3, 1.0]])
    free = np.array([0.2, 1.4, -0.3])

    def costs(X):
        return np.einsum("mi,ij,mj->m", X - free, A, X - free)

    for reach, outside in ((1.0, True), (2.0, False)):
        problem = Problem(np.full(3, -reach), np.full(3, reach), costs, lambda x: (A @ (x - free), A))
        found = optimise(name, problem, Settings(particles=30), Budget(150, 60), seed=0)
        assert found.at_bound.tolist() == [False, outside, False]
        within = np.array([0.2 + 0.25 * 0.4, 1.0, -0.3 + 0.3 * 0.4]) if outside else free
        np.testing.assert_allclose(found.x, within, atol=0.02 if name == "ga" else 1e-3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_points_without_a_cost_never_win(name, bad) -> None:
    """Half of the box has no cost; -inf counts as none, too."""
    truth = np.array([0.2, -0.4, 0.6])

    def costs(X):
        return np.where(X[:, 0] < 0.0, bad, ((X - truth) ** 2).sum(axis=1))

    problem = Problem(np.full(3, -1.0), np.ones(3), costs, lambda x: (x - truth, np.eye(3)))
    found = optimise(name, problem, Settings(particles=20), Budget(100, 40), seed=1, x0=np.array([0.05, 0.9, 0.9]))
    assert np.isfinite(found.history).all()
    assert found.x[0] >= 0.0
    np.testing.assert_allclose(found.x, truth, atol=1e-2 if name == "ga" else 1e-3)


def test_no_finite_cost_at_all_and_a_budget_below_the_first_swarm_are_errors() -> None:
    problem = Problem(np.zeros(2), np.ones(2), lambda X: np.full(len(X), np.nan), lambda x: (x, np.eye(2)))
    for name in NAMES:
        with pytest.raises(ObjectiveError, match="the cost is not finite at any of the first"):
            optimise(name, problem)
        if name != "lm":
            with pytest.raises(ValueError, match="a budget of 11 evaluations does not cover the first 12"):
                optimise(name, decay_of(), SMALL, Budget(evaluations=11))
