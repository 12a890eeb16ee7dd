"""Mass matrix, bias and forward dynamics against Pinocchio."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
from hypothesis import given
from hypothesis import strategies as st

from rt_core.model.forward import equations_of_motion, forward_dynamics, solve_definite
from tests.lab.arms.simulated import random_arm, twin


@given(n=st.integers(1, 9), seed=st.integers(0, 10_000), prismatic=st.sampled_from([0.0, 0.4, 1.0]))
def test_equal_to_pinocchio_on_random_arms(n: int, seed: int, prismatic: float) -> None:
    model = random_arm(n, seed, prismatic=prismatic)
    oracle = twin(model)
    data = oracle.createData()
    rng = np.random.default_rng(seed)
    q, dq, tau = rng.uniform(-3.0, 3.0, (3, 4, n))
    arguments = (model.geometry, model.gravity, model.inertial, q, dq)
    mass, bias = equations_of_motion(*arguments)
    ddq = forward_dynamics(*arguments, tau)
    for k in range(4):
        M = pin.crba(oracle, data, q[k])
        M = np.triu(M) + np.triu(M, 1).T
        assert np.allclose(mass[k], M, rtol=0, atol=1e-12 * np.abs(M).max())
        b = pin.nle(oracle, data, q[k], dq[k])
        assert np.allclose(bias[k], b, rtol=0, atol=1e-11 * max(1.0, np.abs(b).max()))
        a = pin.aba(oracle, data, q[k], dq[k], tau[k])
        assert np.allclose(ddq[k], a, rtol=0, atol=1e-13 * np.linalg.cond(M) * max(1.0, np.abs(a).max()))


def test_rotor_inertia_adds_to_the_diagonal() -> None:
    model = random_arm(4, 3)
    oracle = twin(model)
    armature = np.array([0.3, 0.0, 1.2, 0.1])
    oracle.armature = armature
    rng = np.random.default_rng(0)
    q, dq, tau = rng.normal(size=(3, 1, 4))
    ddq = forward_dynamics(model.geometry, model.gravity, model.inertial, q, dq, tau, armature)
    assert np.allclose(ddq[0], pin.aba(oracle, oracle.createData(), q[0], dq[0], tau[0]), rtol=1e-9, atol=1e-9)


@given(n=st.integers(1, 12), seed=st.integers(0, 1000))
def test_definite_solver_equals_numpy_and_reads_the_lower_triangle_only(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n))
    matrix = root @ root.T + 0.1 * np.eye(n)
    right = rng.normal(size=n)
    x, lower = right.copy(), np.tril(matrix) + np.triu(np.full((n, n), np.nan), 1)
    assert solve_definite(lower, x)
    assert np.allclose(matrix @ x, right, atol=1e-8 * np.abs(right).max())


def test_definite_solver_refuses_what_is_not_definite() -> None:
    assert not solve_definite(np.array([[1.0, 2.0], [2.0, 1.0]]), np.ones(2))
    assert not solve_definite(np.array([[np.nan]]), np.ones(1))
