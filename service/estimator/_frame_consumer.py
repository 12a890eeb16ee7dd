"""The protocol of everything that an arm's estimator process feeds with frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from drivers.frame import CHANNELS, JointFrame
from rt_core.types import BoolArray, FloatArray

#: Position, torque, `valid` or None, and velocity or None of the joints (N, n), from whichever channels the source has.
Joints = tuple[FloatArray, FloatArray, BoolArray | None, FloatArray | None]


@dataclass(slots=True)
class FrameBlock:
    """Successive frames of one stream, with one set of channels; flags hold for all N of them, or for none."""

    t_ns: Sequence[int]  # (N,) times of the source, of this host, and sequence numbers, as of a `JointFrame`
    t_host_ns: Sequence[int]
    seq: Sequence[int]
    channels: Mapping[str, FloatArray]  # (N, n) what the source measures, by names of `drivers.frame.CHANNELS`
    valid: BoolArray | None  # (N, n) of the channels
    q: FloatArray  # (N, n), as the following ones: see `Joints`
    tau: FloatArray
    joints_valid: BoolArray | None
    dq: FloatArray | None
    masked: bool = False  # the frames carry no information on the arm
    guided: bool = False  # a hand moves it
    lacking: bool = False  # without positions or torques

    @classmethod
    def of(
        cls, frames: Sequence[JointFrame], joints: Joints, *, masked: bool = False, guided: bool = False
    ) -> FrameBlock:
        """Return a block of frames that have the same channels."""
        channels, valid = stacked(frames)
        q, tau, joints_valid, dq = joints
        return cls(
            [frame.t_bus_ns for frame in frames], [frame.t_host_ns for frame in frames],
            [frame.seq for frame in frames], channels, valid, q, tau, joints_valid, dq, masked, guided,
        )  # fmt: skip

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self.t_ns)

    def split(self, size: int) -> tuple[FrameBlock, FrameBlock | None]:
        """Return the first `size` frames, and the others if there are any."""
        return (self, None) if size >= len(self) else (self._part(slice(size)), self._part(slice(size, None)))

    def _part(self, some: slice) -> FrameBlock:
        channels = {name: values[some] for name, values in self.channels.items()}
        return FrameBlock(
            self.t_ns[some], self.t_host_ns[some], self.seq[some], channels,
            None if self.valid is None else self.valid[some], self.q[some], self.tau[some],
            None if self.joints_valid is None else self.joints_valid[some],
            None if self.dq is None else self.dq[some], self.masked, self.guided, self.lacking,
        )  # fmt: skip

    def until(self, due_ns: int) -> int:
        """Return the number of frames up to the first at or after `due_ns`, that one included; N without one."""
        for k, t_ns in enumerate(self.t_ns, 1):
            if t_ns >= due_ns:
                return k
        return len(self.t_ns)


def stacked(frames: Sequence[JointFrame]) -> tuple[dict[str, FloatArray], BoolArray | None]:
    """Return the channels (N, n) of frames that have the same ones, and `valid`."""
    first = frames[0]
    if len(frames) == 1:  # views: an array of one row costs a microsecond
        channels = {name: value[None] for name in CHANNELS if (value := getattr(first, name)) is not None}
        return channels, None if first.valid is None else first.valid[None]
    names = [name for name in CHANNELS if getattr(first, name) is not None]
    channels = {name: np.array([getattr(frame, name) for frame in frames]) for name in names}
    return channels, None if first.valid is None else np.array([frame.valid for frame in frames])


class FrameConsumer:
    """A consumer of an arm's frames; it overrides what it needs.

    Its entries in the state file begin with `prefix`. If it is `required`, a saved state that it cannot use spoils the
    file; otherwise it begins anew.
    """

    prefix = ""
    required = False

    def limit(self, block: FrameBlock) -> int:
        """Return how many of the frames `push` can take at once, so that the result is that of one after the other.

        A consumer acts on others with the last of them, and uses what others have learned with the first.
        """
        return len(block)

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
