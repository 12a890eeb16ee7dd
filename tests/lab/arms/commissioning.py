"""Motions there and back of a made-up arm, with friction, gravity and noise that are written down here."""

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from drivers.files.robots.file import load_robot
from rt_core.commissioning.gravity_terms import GravityMotion
from rt_core.commissioning.joint_check import SmallMotion, torque_passes
from rt_core.commissioning.profiles import there_and_back
from rt_core.model.dynamics import inverse_dynamics
from rt_core.types import FloatArray

RATE_HZ = 500.0
NAMES = ["shoulder", "elbow", "wrist"]
COULOMB, VISCOUS = np.array([4.0, 2.0, 0.5]), np.array([3.0, 1.0, 0.4])
INERTIA, GRAVITY = np.array([1.5, 0.6, 0.1]), np.array([30.0, 12.0, 2.0])
NOISE = 0.01
WAY, LEG_S, DWELL_S = 0.06, 1.0, 0.3


def torque(q: FloatArray, dq: FloatArray, ddq: FloatArray) -> FloatArray:
    """Of joints that do not know of each other: `I ddq + g cos q + fc sgn dq + fv dq`."""
    return np.asarray(INERTIA * ddq + GRAVITY * np.cos(q) + COULOMB * np.sign(dq) + VISCOUS * dq)


def small_motion(joint: int, seed: int = 0, way: float = WAY, before_s: float = 0.7) -> SmallMotion:
    """One joint goes there and back, with rest before and after."""
    rng = np.random.default_rng(seed)
    start, change = np.array([0.4, -0.3, 0.2]), np.zeros(3)
    change[joint] = way
    rows = there_and_back(start, change, LEG_S, DWELL_S, RATE_HZ)
    rest = round(before_s * RATE_HZ)
    q = np.vstack((np.repeat(rows[:1], rest, axis=0), rows, np.repeat(rows[-1:], rest, axis=0)))
    dq = np.gradient(q, 1.0 / RATE_HZ, axis=0)
    dq[np.abs(dq) < 1e-9] = 0.0
    tau = torque(q, dq, np.gradient(dq, 1.0 / RATE_HZ, axis=0)) + NOISE * rng.normal(size=q.shape)
    t = np.arange(len(q)) / RATE_HZ
    noisy = q + 1e-6 * rng.normal(size=q.shape)
    return SmallMotion(joint, t, q[:, joint].copy(), way, noisy, dq + 1e-3 * rng.normal(size=q.shape), tau)


def arm_motion(robot: str, k: int, bend: float, inverted: Collection[int]) -> GravityMotion:
    """Move joint `k` of a shipped arm with masses of its own, some joints being inverted in all their signals.

    The posture is `bend` of the ranges away from their middle.
    """
    model = load_robot(robot).model
    inertial = model.inertial
    rng = np.random.default_rng(k)
    masses = inertial * (1.0 + 0.15 * rng.uniform(-1.0, 1.0, (model.n, 1)))
    lower, upper = (np.array([getattr(joint, name) for joint in model.joints]) for name in ("lower", "upper"))
    way, S = np.zeros(model.n), np.ones(model.n)
    way[k] = WAY
    S[list(inverted)] = -1.0
    rows = there_and_back(0.5 * (lower + upper) + bend * (upper - lower), way, 1.2, 0.3, RATE_HZ)
    q = np.vstack((np.repeat(rows[:1], 200, axis=0), rows, np.repeat(rows[-1:], 200, axis=0)))
    dq = np.gradient(q, 1.0 / RATE_HZ, axis=0)
    tau = inverse_dynamics(
        model.geometry, model.gravity, masses, q * S, dq * S, np.gradient(dq, 1.0 / RATE_HZ, axis=0) * S
    )
    tau[:, k] += 2.0 * np.sign(np.where(np.abs(dq * S) > 1e-9, dq * S, 0.0))[:, k]
    tau = tau * S + 0.05 * rng.normal(size=q.shape)
    motion = SmallMotion(k, np.arange(len(q)) / RATE_HZ, q[:, k].copy(), WAY, q, dq, tau)

    def gravity(at: FloatArray) -> FloatArray:
        return inverse_dynamics(model.geometry, model.gravity, inertial, at, np.zeros_like(at), np.zeros_like(at))

    return GravityMotion(k, torque_passes(motion), gravity, np.array([joint.effort for joint in model.joints]))


def second_try_only(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Fail as LAPACK's divide and conquer does when it has not converged; other drivers do as they do."""
    if "lapack_driver" not in options:
        raise np.linalg.LinAlgError("SVD did not converge")
    return call(*args, **options)
