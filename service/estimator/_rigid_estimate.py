"""The rigid model's estimate as a consumer of frames, and what it takes from them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from drivers.frame import JointFrame
from rt_core.model.robot import RobotModel
from rt_core.online import OnlineEstimator
from service.estimator._frame_consumer import FrameBlock, FrameConsumer, Joints, row


class Inputs:
    """Joint positions, torques and velocities of a frame, from whichever channels the source has."""

    def __init__(self, model: RobotModel, has_dq: bool) -> None:
        self.model, self.has_dq = model, has_dq

    def __call__(self, frame: JointFrame) -> Joints:
        """Return the `Joints`, with a velocity if `has_dq`; NaN, and none of them valid, if a channel lacks."""
        n, transmission = self.model.n, self.model.transmission
        q, tau = frame.q, frame.tau
        if q is None and frame.q_motor is not None and transmission is not None and len(frame.q_motor) == n:
            q = transmission.joint_position(frame.q_motor)
        if tau is None and frame.current is not None and transmission is not None and len(frame.current) == n:
            tau = transmission.joint_torque(transmission.torque_constant * frame.current)
        dq = frame.dq if self.has_dq else q
        if q is None or tau is None or dq is None or not len(q) == len(tau) == len(dq) == n:
            nothing = np.full(n, np.nan)
            return nothing, nothing, np.zeros(n, dtype=np.bool_), nothing if self.has_dq else None
        return q, tau, frame.valid, dq if self.has_dq else None


class RigidEstimate(FrameConsumer):
    """Feeds the estimator, and counts what it does with the frames."""

    required = True

    def __init__(self, estimator: OnlineEstimator) -> None:
        self.estimator = estimator
        self.updates = self.unusable = 0  # frames without position or torque
        self.lost = 0  # frames that are missing before the next restart of the stream
        self.renewed = False  # since the estimate was published
        self.renewed_host_ns = 0  # when the frame arrived that has renewed it

    def push(self, block: FrameBlock) -> None:
        """Process frames."""
        temperature = block.channels.get("temperature")
        if temperature is not None and len(temperature[0]) != len(block.q[0]):
            temperature = None
        for k, t_ns in enumerate(block.t_ns):
            self.unusable += block.lacking
            if self.estimator.step(
                t_ns, block.seq[k], block.q[k], block.tau[k], row(block.joints_valid, k), row(block.dq, k),
                row(temperature, k), masked=block.masked,
            ):  # fmt: skip
                self.renewed, self.renewed_host_ns = True, block.t_host_ns[k]
                self.updates += 1

    def restart_stream(self) -> None:
        """Restart the stream; an outage is no latency of the estimate from before."""
        self.estimator.restart_stream(self.lost)
        self.renewed = False

    def reset(self) -> None:
        """Reset the estimate."""
        self.estimator.reset()

    def state(self) -> dict[str, Any]:
        """Return the estimator's state."""
        return self.estimator.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the estimator's state."""
        self.estimator.restore(state)

    def snapshot(self) -> Mapping[str, Any]:
        """Return the estimator's snapshot."""
        return self.estimator.snapshot()

    def rollback(self, snapshot: Mapping[str, Any]) -> None:
        """Have the estimator go back."""
        self.estimator.rollback(snapshot)
        self.renewed = False
