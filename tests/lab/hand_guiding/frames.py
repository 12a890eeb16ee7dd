"""Frames made by hand for a controller without an arm."""

from dataclasses import replace

import numpy as np

from drivers.frame import JointFrame
from rt_core.hand_guiding import GuidingModel, ZeroForceController, ZeroForceSettings
from rt_core.model.base import base_parameters
from rt_core.model.parameters import standard_parameters
from rt_core.model.robot import RobotModel

MS = 1_000_000
#: Guiding at once and whatever comes: for looking at single torques.
AT_ONCE = ZeroForceSettings(
    ramp_s=1e-3, residual_time_s=1e6, takeover_residual_s=1e6, limited_s=1e6, torque_rise_s=1e-9, speed_share=1.0
)


def guiding_model(model: RobotModel) -> GuidingModel:
    base = base_parameters(model)
    return GuidingModel.of(model, base, base.theta(standard_parameters(model, base.standard)))


def limited(model: RobotModel, **limits: float) -> RobotModel:
    """The arm with the given limits on every joint."""
    return replace(model, joints=tuple(replace(joint, **limits) for joint in model.joints))


def frame(k: int, q: np.ndarray | float, dq: np.ndarray | float | None = 0.0, **channels: np.ndarray) -> JointFrame:
    q = np.atleast_1d(np.asarray(q, dtype=float))
    velocity = None if dq is None else np.broadcast_to(dq, q.shape).astype(float)
    if "tau" in channels:  # a sensor that never changes is frozen
        channels["tau"] = channels["tau"] + 1e-9 * (k % 2)
    return JointFrame(k, k * MS, k * MS, q=q, dq=velocity, **channels)


def torque(model: RobotModel, q: np.ndarray | float, dq: np.ndarray | float = 0.0, **options: float) -> np.ndarray:
    """Torque while guiding at one state."""
    settings = replace(AT_ONCE, **options)
    controller = ZeroForceController(guiding_model(model), settings)
    for k in range(4):
        tau = controller.step(frame(k, q, dq))
    return tau
