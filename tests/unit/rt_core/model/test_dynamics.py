"""Inverse dynamics against the product of exponentials (Murray, Li, Sastry): screws in the space frame."""

from __future__ import annotations

import numpy as np
import pytest

from rt_core.model.dynamics import inverse_dynamics
from rt_core.model.inertia import tensor
from tests.lab.arms.random_arms import random_arm, random_motion


def cross(v: np.ndarray) -> np.ndarray:
    return np.array([[0.0, -v[2], v[1]], [v[2], 0.0, -v[0]], [-v[1], v[0], 0.0]])


def exponential(screw: np.ndarray, value: float) -> np.ndarray:
    """Rodrigues' formula for a twist `(w, v)` with `|w| = 1` or `w = 0`."""
    w, v = screw[:3], screw[3:]
    T = np.eye(4)
    if np.linalg.norm(w) < 0.5:
        T[:3, 3] = v * value
        return T
    W = cross(w)
    T[:3, :3] = np.eye(3) + np.sin(value) * W + (1.0 - np.cos(value)) * W @ W
    G = np.eye(3) * value + (1.0 - np.cos(value)) * W + (value - np.sin(value)) * W @ W
    T[:3, 3] = G @ v
    return T


def adjoint(T: np.ndarray) -> np.ndarray:
    R, p = T[:3, :3], T[:3, 3]
    return np.block([[R, np.zeros((3, 3))], [cross(p) @ R, R]])


def bracket(V: np.ndarray) -> np.ndarray:
    """`ad_V` of a twist `(w, v)`."""
    return np.block([[cross(V[:3]), np.zeros((3, 3))], [cross(V[3:]), cross(V[:3])]])


def screw_torque(model, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray) -> np.ndarray:  # type: ignore[no-untyped-def]
    """Joint torques from space-frame screws at the zero posture and the links' poses there."""
    homes, screws = [], []
    M = np.eye(4)
    for joint in model.joints:
        step = np.eye(4)
        step[:3, :3], step[:3, 3] = joint.rotation, joint.translation
        M = M @ step
        axis = M[:3, :3] @ joint.axis
        moving = joint.kind == "revolute"
        w = axis if moving else np.zeros(3)
        screws.append(np.concatenate((w, np.cross(M[:3, 3], axis) if moving else axis)))
        homes.append(M.copy())
    # forwards: twists and their rates in the space frame; gravity as the base's acceleration
    T, V, dV = np.eye(4), np.zeros(6), np.concatenate((np.zeros(3), -model.gravity))
    present, wrenches = [], []
    for i, (home, screw) in enumerate(zip(homes, screws, strict=True)):
        S = adjoint(T) @ screw
        V_before = V
        V = V + S * dq[i]
        dV = dV + S * ddq[i] + bracket(V_before) @ S * dq[i]
        T = T @ exponential(screw, q[i])
        to_body = np.linalg.inv(adjoint(T @ home))
        m, h = model.inertial[i, 0], model.inertial[i, 1:4]
        body = np.block([[tensor(model.inertial[i, 4:]), cross(h)], [-cross(h), m * np.eye(3)]])
        inertia = to_body.T @ body @ to_body
        wrenches.append(inertia @ dV - bracket(V).T @ inertia @ V)
        present.append(S)
    total, tau = np.zeros(6), np.zeros(model.n)
    for i in range(model.n - 1, -1, -1):
        total = total + wrenches[i]
        tau[i] = present[i] @ total
    return tau


@pytest.mark.parametrize("seed", range(27))
def test_screws_and_recursion_agree(seed: int) -> None:
    model, _ = random_arm(seed)
    states = random_motion(np.random.default_rng(seed), 5, model.n)
    ours = inverse_dynamics(model.geometry, model.gravity, model.inertial, *states)
    screws = np.array([screw_torque(model, *state) for state in zip(*states, strict=True)])
    np.testing.assert_allclose(ours, screws, rtol=0, atol=1e-10 * np.abs(screws).max())


def test_a_single_state_may_be_one_dimensional() -> None:
    model, _ = random_arm(7)
    q, dq, ddq = random_motion(np.random.default_rng(0), 3, model.n)
    together = inverse_dynamics(model.geometry, model.gravity, model.inertial, q, dq, ddq)
    alone = inverse_dynamics(model.geometry, model.gravity, model.inertial, q[1], dq[1], ddq[1])
    assert alone.shape == (1, model.n)
    np.testing.assert_array_equal(alone[0], together[1])
