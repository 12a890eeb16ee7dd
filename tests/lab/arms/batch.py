"""A small arm with known parameters and exactly known torque, for the tests of the batch estimators."""

from dataclasses import dataclass

import numpy as np

from rt_core.model.base import BaseParameters, base_parameters
from rt_core.model.parameters import standard_parameters
from rt_core.model.regressor import regressor
from rt_core.model.robot import Joint, JointDynamics, RobotModel
from rt_core.types import FloatArray


def arm(gravity: tuple[float, float, float] = (0.0, 0.0, -9.81)) -> RobotModel:
    """Three joints: a shoulder about z, two about y; two links of a metre."""
    turn = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
    z = np.array([0.0, 0.0, 1.0])
    limits = {"lower": -2.5, "upper": 2.5, "velocity": 3.0, "effort": 200.0}
    joints = (
        Joint("base", "revolute", np.eye(3), np.array([0.0, 0.0, 0.4]), z, **limits),
        Joint("shoulder", "revolute", turn, np.zeros(3), z, **limits),
        Joint("elbow", "revolute", np.eye(3), np.array([0.8, 0.0, 0.0]), z, **limits),
    )
    inertial = np.array(
        [[8.0, 0.0, 0.02, 0.4, 0.2, 0.0, 0.2, 0.0, 0.0, 0.1], [6.0, 2.4, 0.1, 0.05, 0.05, 0.0, 1.4, 0.0, 0.0, 1.4],
         [3.0, 0.9, 0.0, 0.1, 0.03, 0.0, 0.4, 0.0, 0.0, 0.4]]
    )  # fmt: skip
    dynamics = JointDynamics(
        np.array([0.5, 0.4, 0.2]), np.array([4.0, 5.0, 2.0]), np.array([5.0, 6.0, 3.0]), np.array([0.3, -0.5, 0.2])
    )
    return RobotModel("arm", joints, np.array(gravity), inertial=inertial, dynamics=dynamics)


@dataclass(frozen=True)
class Motion:
    """Exact states of a rich motion and their torque."""

    t: FloatArray
    q: FloatArray
    dq: FloatArray
    ddq: FloatArray
    tau: FloatArray


def truth(model: RobotModel, base: BaseParameters | None = None) -> FloatArray:
    base = base_parameters(model) if base is None else base
    return base.theta(standard_parameters(model, base.standard))


def motion(model: RobotModel, seconds: float = 30.0, rate_hz: float = 500.0, seed: int = 0) -> Motion:
    """Sums of sines on every joint, up to 0.7 Hz; torque from the regressor, exact at every sample."""
    rng = np.random.default_rng(seed)
    t = np.arange(int(seconds * rate_hz)) / rate_hz
    q, dq, ddq = np.zeros((3, t.size, model.n))
    for j in range(model.n):
        for frequency in rng.uniform(0.1, 0.7, 4):
            w, phase, size = 2 * np.pi * frequency, rng.uniform(0, 2 * np.pi), rng.uniform(0.2, 0.5)
            q[:, j] += size * np.sin(w * t + phase)
            dq[:, j] += size * w * np.cos(w * t + phase)
            ddq[:, j] -= size * w**2 * np.sin(w * t + phase)
    base = base_parameters(model)
    tau = regressor(model, base.layout, q, dq, ddq) @ truth(model, base)
    return Motion(t, q, dq, ddq, tau)
