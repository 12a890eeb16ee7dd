"""The protocol of everything that an arm's estimator process feeds with frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from drivers.frame import CHANNELS, JointFrame
from rt_core.types import BoolArray, FloatArray

Row = TypeVar("Row", FloatArray, BoolArray)
#: Values (N, n) of N frames: an array, or a tuple of rows, which is made and read much faster where N is one.
Rows = FloatArray | tuple[FloatArray, ...]
Flags = BoolArray | tuple[BoolArray, ...]
#: Position, torque, `valid` or None, and velocity or None of the joints (n,), from whichever channels the source has.
Joints = tuple[FloatArray, FloatArray, BoolArray | None, FloatArray | None]


@dataclass(slots=True)
class FrameBlock:
    """Successive frames of one stream; flags hold for all N of them, or for none."""

    t_ns: Sequence[int]  # (N,) times of the source, of this host, and sequence numbers, as of a `JointFrame`
    t_host_ns: Sequence[int]
    seq: Sequence[int]
    channels: Mapping[str, Rows]  # (N, n) what the source measures, by names of `drivers.frame.CHANNELS`
    valid: Flags | None  # (N, n) of the channels
    q: Rows  # (N, n), as the following ones: see `Joints`
    tau: Rows
    joints_valid: Flags | None
    dq: Rows | None
    masked: bool  # the frames carry no information on the arm
    guided: bool  # a hand moves it
    lacking: bool  # without positions or torques

    @classmethod
    def of(cls, frame: JointFrame, joints: Joints, *, masked: bool = False, guided: bool = False) -> FrameBlock:
        """Return a block of one frame."""
        q, tau, valid, dq = joints
        return cls(
            (frame.t_bus_ns,), (frame.t_host_ns,), (frame.seq,),
            {name: (value,) for name in CHANNELS if (value := getattr(frame, name)) is not None},
            None if frame.valid is None else (frame.valid,),
            (q,), (tau,), None if valid is None else (valid,), None if dq is None else (dq,), masked, guided,
            lacking=bool(q[0] != q[0] and np.isnan(q).all()),
        )  # fmt: skip


def row(values: Row | tuple[Row, ...] | None, k: int) -> Row | None:
    """Return the values of frame `k` of a block, None where it has none."""
    return None if values is None else values[k]


class FrameConsumer:
    """A consumer of an arm's frames; it overrides what it needs.

    Its entries in the state file begin with `prefix`. If it is `required`, a saved state that it cannot use spoils the
    file; otherwise it begins anew.
    """

    prefix = ""
    required = False

    def push(self, block: FrameBlock) -> None:
        """Process frames."""

    def restart_stream(self) -> None:
        """Begin with another clock; what was learned stays."""

    def reset(self) -> None:
        """Discard what was learned."""

    def state(self) -> dict[str, Any]:
        """Return the state to save: numbers, texts and arrays."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state; raises `ValueError` or `TypeError`, without a change, if it cannot be used."""

    def snapshot(self) -> Mapping[str, Any]:
        """Return the state for `rollback`, on the clock of the present stream."""
        return self.state()

    def rollback(self, snapshot: Mapping[str, Any]) -> None:
        """Restore a snapshot, because frames since then were wrong."""
        self.restore(snapshot)

    def report(self) -> dict[str, Any]:
        """Return its part of a status message."""
        return {}


def prefixed(prefix: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of a saved state with its prefix."""
    return {prefix + key: value for key, value in state.items()}


def part(prefix: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a saved state that `prefixed` gave this prefix, without it."""
    return {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
