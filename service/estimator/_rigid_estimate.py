"""The rigid model's estimate as a consumer of frames, and what it takes from them."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from math import isnan
from operator import attrgetter
from typing import Any

import numpy as np

from drivers.frame import CHANNELS, JointFrame
from rt_core.model.robot import RobotModel
from rt_core.online import OnlineEstimator
from rt_core.types import BoolArray, FloatArray
from service.estimator._frame_consumer import FrameBlock, FrameConsumer, Joints, stacked


class Inputs:
    """Joint positions, torques and velocities of frames, from whichever channels the source has."""

    def __init__(self, model: RobotModel, has_dq: bool) -> None:
        self.model, self.has_dq = model, has_dq

    def blocks(self, frames: Sequence[JointFrame], *, guided: bool = False) -> Iterator[FrameBlock]:
        """Return successive frames in blocks with the same channels, all of them or none with positions."""
        for _, alike in groupby(frames, _layout) if len(frames) > 1 else ((None, frames),):
            some = list(alike)
            rest: FrameBlock | None = FrameBlock.of(some, self(*stacked(some)), guided=guided)
            while rest is not None:
                block, rest = rest, None
                if any(map(isnan, block.q[:, 0].tolist())):
                    lacking = np.asarray(np.isnan(block.q).all(axis=1))
                    block, rest = block.split(int(np.argmin(lacking == lacking[0])) or len(block))
                    block.lacking = bool(lacking[0])
                yield block

    def __call__(self, channels: Mapping[str, FloatArray], valid: BoolArray | None) -> Joints:
        """Return the `Joints`, with a velocity if `has_dq`; NaN, and none of them valid, if a channel lacks."""
        n, transmission = self.model.n, self.model.transmission
        q, tau, q_motor, current = map(channels.get, ("q", "tau", "q_motor", "current"))
        if q is None and q_motor is not None and transmission is not None and q_motor.shape[-1] == n:
            q = transmission.joint_position(q_motor)
        if tau is None and current is not None and transmission is not None and current.shape[-1] == n:
            # row by row: sums of a product of matrices have another order
            tau = np.array([transmission.joint_torque(transmission.torque_constant * row) for row in current])
        dq = channels.get("dq") if self.has_dq else q
        if q is None or tau is None or dq is None or not q.shape[-1] == tau.shape[-1] == dq.shape[-1] == n:
            nothing = np.full((len(next(iter(channels.values()))), n), np.nan)
            return nothing, nothing, np.zeros(nothing.shape, dtype=np.bool_), nothing if self.has_dq else None
        return q, tau, valid, dq if self.has_dq else None


_values = attrgetter(*CHANNELS, "valid")


def _layout(frame: JointFrame) -> tuple[int | None, ...]:
    return tuple([None if value is None else value.size for value in _values(frame)])


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
        if temperature is not None and temperature.shape != block.q.shape:
            temperature = None
        self.unusable += block.lacking * len(block)
        valid, dq = block.joints_valid, block.dq
        if len(block) > 1:
            updated = self.estimator.take(
                block.t_ns, block.seq, block.q, block.tau, valid, dq, temperature, block.masked
            )
        else:  # takes less than a block of one
            updated = [0] * self.estimator.step(
                block.t_ns[0], block.seq[0], block.q[0], block.tau[0], None if valid is None else valid[0],
                None if dq is None else dq[0], None if temperature is None else temperature[0], block.masked,
            )  # fmt: skip
        if updated:
            self.renewed, self.renewed_host_ns = True, block.t_host_ns[updated[-1]]
            self.updates += len(updated)

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
