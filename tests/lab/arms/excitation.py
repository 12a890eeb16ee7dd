"""Arms of two and three joints that designs are quick on, and what they do, in the slow and obvious way."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rt_core.model.robot import Joint, JointDynamics, RobotModel
from rt_core.types import FloatArray

TURN = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])  # a right angle about x


def joint(name: str, kind: str = "revolute", turned: bool = False, along: float = 0.0, **limits: float) -> Joint:
    limits = {"lower": -2.0, "upper": 1.5, "velocity": 2.0, "effort": 150.0} | limits
    rotation = TURN if turned else np.eye(3)
    return Joint(name, kind, rotation, np.array([along, 0.0, 0.1]), np.array([0.0, 0.0, 1.0]), **limits)  # type: ignore[arg-type]


def dynamics(n: int) -> JointDynamics:
    return JointDynamics(
        armature=np.linspace(0.3, 0.6, n), viscous=np.linspace(2.0, 4.0, n), coulomb=np.linspace(3.0, 2.0, n),
        offset=np.linspace(-0.5, 0.5, n),
    )  # fmt: skip


def arm(*joints: Joint, **more: Any) -> RobotModel:
    """An arm of these joints, each with a body of 3 kg off its axis."""
    n = len(joints)
    body = [3.0, 0.3, 0.06, -0.15, 0.08, 0.01, 0.1, -0.02, 0.015, 0.09]
    known = {"inertial": np.array([body] * n), "dynamics": dynamics(n), "tip_translation": np.array([0.2, 0.1, 0.0])}
    return RobotModel("arm", joints, **(known | more))


def two() -> RobotModel:
    return arm(joint("first"), joint("second", turned=True, along=0.3))


def three() -> RobotModel:
    """The last joint slides."""
    slide = joint("slide", "prismatic", along=0.2, lower=-0.3, upper=0.4, velocity=0.5, effort=90.0)
    return arm(joint("first"), joint("second", turned=True, along=0.3), slide)


def series_at(plain: Mapping[str, Any], t: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Position, velocity and acceleration at `t`, term by term as methods.md 2 has them."""
    n = len(plain["q0"])
    q, dq, ddq = np.array(plain["q0"], dtype=np.float64), np.zeros(n), np.zeros(n)
    for i in range(n):
        for k, (a, b) in enumerate(zip(plain["a"][i], plain["b"][i], strict=True), start=1):
            w = 2.0 * math.pi * k * plain["f0_hz"]
            q[i] += a / w * math.sin(w * t) - b / w * math.cos(w * t)
            dq[i] += a * math.cos(w * t) + b * math.sin(w * t)
            ddq[i] += w * (b * math.cos(w * t) - a * math.sin(w * t))
    return q, dq, ddq


def series_on(plain: Mapping[str, Any], t: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """`series_at` for many times (N,): (N, n) each."""
    a, b = (np.array(plain[name])[None] for name in "ab")
    w = 2.0 * np.pi * plain["f0_hz"] * np.arange(1, a.shape[2] + 1)
    s, c = np.sin(t[:, None, None] * w), np.cos(t[:, None, None] * w)
    q = np.array(plain["q0"]) + (a / w * s - b / w * c).sum(axis=2)
    return q, (a * c + b * s).sum(axis=2), (w * (b * c - a * s)).sum(axis=2)
