"""Bounds, starts, settings and refused objectives."""

import dataclasses

import numpy as np
import pytest

from rt_core.optimise.problem import BoundsError, ObjectiveError, Problem
from rt_core.optimise.registry import NAMES, optimise
from rt_core.optimise.settings import Budget, Settings
from tests.lab.cost_functions import Decay, box, sphere


@pytest.mark.parametrize(
    ("lower", "upper", "message"),
    [
        ([0.0, 1.0, 0.0], [1.0, 1.0, 1.0], r"parameter 1 \(b\): lower bound 1.0 is not below"),
        ([np.nan, 0.0, 0.0], [1.0, 1.0, 1.0], r"parameter 0 \(a\): bounds nan to 1.0 are not finite"),
        ([0.0, 0.0, 0.0], [1.0, np.inf, 1.0], r"parameter 1 \(b\): bounds 0.0 to inf are not finite"),
        ([0.0, 0.0, -1e308], [1.0, 1.0, 1e308], r"parameter 2 \(c\): .* are not finite"),
    ],
)
def test_bounds_are_refused_by_name(lower, upper, message) -> None:
    with pytest.raises(BoundsError, match=message):
        Problem(np.array(lower), np.array(upper), sphere, names=("a", "b", "c"))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [5.1, np.nan])
def test_start_outside_is_refused_by_name(name, value) -> None:
    problem = dataclasses.replace(Decay().problem(lower=np.full(4, -4.0), upper=np.full(4, 5.0)), names=tuple("abcd"))
    with pytest.raises(BoundsError, match=r"parameter 2 \(c\): the start .* is outside -4.0 to 5.0") as error:
        optimise(name, problem, x0=np.array([0.0, 5.0, value, 1.0]))
    assert error.value.index == 2


@pytest.mark.parametrize("name", NAMES)
def test_wrong_shape_of_costs_is_refused(name) -> None:
    problem = Problem(np.zeros(2), np.ones(2), lambda X: np.zeros((len(X), 1)), lambda x: (x, np.eye(2)))
    with pytest.raises(ObjectiveError, match="the objective returned shape"):
        optimise(name, problem)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Problem(np.zeros(1), np.ones(2), sphere), r"must both be \(d,\)"),
        (lambda: Problem(np.zeros(3), np.ones(3), sphere, names=("a", "b")), "2 names for 3 parameters"),
        (lambda: optimise("pso", box(sphere, 2), x0=np.zeros(3)), r"the start has shape \(3,\), the problem \(2,\)"),
        (lambda: optimise("pso_lm", box(sphere, 2)), "needs the problem's normal equations"),
        (lambda: optimise("sa", box(sphere, 2)), "unknown optimiser 'sa'"),
        (lambda: Settings(particles=1), "particles must be at least 2"),
        (lambda: Settings(c1=-1.0), "c1 must be finite"),
        (lambda: Settings(w_end=np.nan), "w_end must be finite"),
        (lambda: Settings(velocity_limit=0.0), "velocity_limit must be above 0"),
        (lambda: Settings(mu_limit=1e-3), "mu_start < mu_limit"),
        (lambda: Settings(scaling="columns"), "unknown scaling"),
        (lambda: Settings(early_factor=0.5), "early_factor must be at least 1"),
        (lambda: Budget(swarm_iterations=0), "swarm_iterations must be at least 1"),
        (lambda: Budget(tolerance=np.nan), "tolerance must be finite"),
    ],
)
def test_what_means_nothing_is_refused(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("normal", "message"),
    [(lambda x: (x, np.eye(3)), "have shapes"),
     (lambda x: (np.array([1.0, np.nan]), np.eye(2)), "parameter 1: the derivative is not finite"),
     (lambda x: (x, np.array([[np.inf, 0.0], [0.0, 1.0]])), "parameter 0: the derivative is not finite")],
)  # fmt: skip
def test_wrong_normal_equations_are_refused(normal, message) -> None:
    problem = Problem(np.full(2, -1.0), np.ones(2), sphere, normal)
    with pytest.raises(ObjectiveError, match=message):
        optimise("lm", problem)
