"""Clipping of measured torques at the end of their range."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from drivers.frame import JointFrame
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray

_ROUNDING = 1e-9  # of the limit, for values scaled from digits
REPEAT_NS = 600_000_000_000  # between two reports of a joint while its torque is still clipped
LASTS_NS = 2_000_000_000  # how long after the last clipped frame a joint counts as clipped


@dataclass(frozen=True)
class Clipped:
    """A joint whose torque is at the end of its range: torque and limit [N*m or N], and the number of frames."""

    joint: int
    torque: float
    limit: float
    frames: int

    def text(self, name: str, unit: str) -> str:
        """Return it as a sentence, with the name of the joint and the unit of its torque."""
        return (
            f"{name} shows {self.torque:.6g} {unit}, and its torque_range ends at {self.limit:g}: the whole frame is "
            f"left out of what is learned, for all joints (frames so far: {self.frames})"
        )


class TorqueRange:
    """Marks the joints of a frame whose measured torque is clipped, and `counts` such frames of each joint (n,).

    A clipped torque is a number like any other, only too small, and the model that is fitted to it is wrong.  So a
    joint that shows the largest torque that it can show is not valid in that frame, which estimator, window and
    recording all keep to: one joint that is not valid takes the whole frame from what is learned.  What moves the arm
    judges the frame as the driver gave it: safety checks pass over a joint that is not valid, and at its largest torque
    a joint has to be judged most of all.

    `limits` are the n largest torques that the measurement can show [N*m or N], joint side. A source without torque has
    one by its current, where each motor turns one joint of the `model` (`service.acquisition.sources.check_source`).
    """

    def __init__(self, limits: Sequence[float], model: RobotModel) -> None:
        self._limits = np.array(limits, dtype=np.float64)
        self._transmission = model.transmission
        self.counts = np.zeros(self._limits.size, dtype=np.int64)
        self._next_report_ns = np.zeros(self._limits.size, dtype=np.int64)
        self._last_ns = np.zeros(self._limits.size, dtype=np.int64)

    def marked(self, frame: JointFrame) -> tuple[JointFrame, list[Clipped]]:
        """Return a copy of `frame` (itself if nothing is clipped) without clipped joints, and the joints to report.

        A joint is reported at the first frame, and every ten minutes while it goes on, by `t_host_ns`.
        """
        tau = self._torque(frame)
        if tau is None:
            return frame, []
        clipped = np.isfinite(tau) & (np.abs(tau) >= self._limits * (1.0 - _ROUNDING))
        if not clipped.any():
            return frame, []
        self.counts += clipped
        self._last_ns[clipped] = frame.t_host_ns
        reported = np.flatnonzero(clipped & (frame.t_host_ns >= self._next_report_ns))
        self._next_report_ns[reported] = frame.t_host_ns + REPEAT_NS
        valid = ~clipped if frame.valid is None else frame.valid & ~clipped
        limits, counts = self._limits, self.counts
        found = [Clipped(int(i), float(tau[i]), float(limits[i]), int(counts[i])) for i in reported]
        return replace(frame, valid=valid), found

    def lasting(self, now_ns: int) -> list[int]:
        """Return the joints that are clipped at `now_ns` of CLOCK_MONOTONIC, or were a moment ago."""
        return [int(i) for i in np.flatnonzero((self.counts > 0) & (now_ns - self._last_ns < LASTS_NS))]

    def _torque(self, frame: JointFrame) -> FloatArray | None:
        if frame.tau is not None or frame.current is None or self._transmission is None:
            return frame.tau
        return self._transmission.joint_torque(self._transmission.torque_constant * frame.current)
