"""Configured motion of an arm with real drives: from its position to the start, then along the motion.

The motion is planned before the drives are switched on, within the joints' limits. Its clock advances by one cycle per
frame. Over lost frames it continues for as many cycles as the drives extrapolate (`bridge_cycles`), and otherwise
waits: a set position that caught up with more than that would be a jump. Where the drives have extrapolated along a
line and the motion has bent, set positions return to it at a small share of the velocity limits: a jump would also be
the speed at which the drives extrapolate over the next lost frames.
"""

from typing import Literal

import numpy as np

from drivers.frame import JointFrame
from rt_core.model.robot import RobotModel
from rt_core.safety import Approach, SafetyLimits, check_feedback, check_positions
from rt_core.types import FloatArray
from service.config.arm_tables import ArmMotionSettings
from sim_backend.arm.settings import MotionSettings
from sim_backend.arm.trajectory import MotionLimits, plan_motion
from sim_backend.errors import MotionError

State = Literal["waiting", "approach", "running", "ended", "stopped"]

_MIN_APPROACH_S = 0.5
#: Share of the velocity limits at which set positions return to the motion.
_RETURN = 0.05


class MotionPlayer:
    """Computes the next set position from each frame; raises `MotionError` if the motion does not suit the robot.

    `bridged` are the cycles without a frame that driver and drives bridge by extrapolation. `state` is "waiting" for
    the drives, "approach" to the start, "running", "ended", or "stopped" for `reason`.
    """

    def __init__(self, model: RobotModel, settings: ArmMotionSettings, period_s: float, bridged: int = 0) -> None:
        for joint in model.joints:
            if not np.isfinite([joint.lower, joint.upper, joint.velocity]).all():
                raise MotionError(
                    f"robot '{model.name}' states no lower, upper or velocity limit for joint '{joint.name}': a real "
                    "arm is not moved without; add them to the robot file"
                )
        plain = settings.model_dump(exclude={"approach", "following_error", "at_end"}, exclude_unset=True)
        self.motion = plan_motion(model, MotionSettings(**plain))
        self.state: State = "waiting"
        self.reason = ""
        self._limits = _limits(model, settings)
        self._share = settings.approach
        self._period_s = period_s
        self._bridged = bridged
        self._seq = 0
        self._cycle = 0
        self._approach: Approach | None = None
        self._target = self._before = np.zeros(model.n)  # commanded last, and before that
        self._off = np.zeros(model.n)  # offset of set positions from the motion

    def step(self, frame: JointFrame, enabled: bool) -> FloatArray | None:
        """Return the set position (n,) for the cycle after `frame`; None while there is nothing to command.

        The drives hold the last one after the motion has ended.
        """
        if self.state in ("ended", "stopped"):
            return None
        if self.state == "waiting":
            if not enabled or frame.q is None or not (frame.valid is None or frame.valid.all()):
                return None
            # A drive that was switched on holds its set position, within its following error.
            self._begin(frame.q if frame.setpoint is None else frame.setpoint)
            self._seq = frame.seq - 1
        elif not enabled:
            self.stop("the drives are no longer enabled")
            return None
        elif frame.q is not None:
            # The commanded position of this cycle is stated in the frame, or else the last target.
            command = self._target if frame.setpoint is None else frame.setpoint
            if found := check_feedback(self._limits, command, frame.q, frame.dq, valid=frame.valid):
                self.stop(str(found))
                return None
        lost = self._gone(frame.seq - self._seq - 1)
        self._seq = frame.seq
        if lost:
            gone = self._target + lost * (self._target - self._before) if frame.setpoint is None else frame.setpoint
            self._off, self._target = gone - self._advance(lost), gone
        here = self._advance(1)
        self._before, self._target = self._target, self._back_to(here)
        if self._over and not self._off.any():
            self.state = "ended"
        if found := check_positions(self._limits, self._period_s, self._target[None]):
            self.stop(str(found))
            return None
        return self._target

    def _gone(self, missed: int) -> int:
        """Return for how many cycles the drives have extrapolated while frames were missed, before they held."""
        return max(missed, 0) if missed <= self._bridged else max(self._bridged - 1, 0)

    def _back_to(self, here: FloatArray) -> FloatArray:
        """Return the set position (n,) on the return to `here`, within the velocity limits."""
        if not self._off.any():
            return here
        most = self._limits.velocity * self._period_s
        off = np.copysign(np.maximum(np.abs(self._off) - _RETURN * most, 0.0), self._off)
        step = here + off - self._target
        self._off = np.where(np.abs(step) > most, self._target + np.copysign(most, step) - here, off)
        return here + self._off

    def _advance(self, cycles: int) -> FloatArray:
        """Advance by so many cycles; return the position (n,)."""
        self._cycle += cycles
        t = self._cycle * self._period_s
        if self._approach is not None and t >= self._approach.duration_s:
            self._approach = None
            self.state = "running"
            self._cycle, t = 0, 0.0
        return self.motion.sample(t)[0] if self._approach is None else self._approach.at(t)

    @property
    def _over(self) -> bool:
        """Whether the motion has ended."""
        once = not np.isfinite(self.motion.period_s)
        return self.state == "running" and once and self._cycle * self._period_s >= self.motion.duration_s

    @property
    def time_s(self) -> float:
        """Time since the beginning of the motion [s]; 0 before, its duration after."""
        return 0.0 if self.state in ("waiting", "approach") else self._cycle * self._period_s

    def stop(self, reason: str) -> None:
        """Stop commanding; the first reason stays."""
        if self.state == "stopped":
            return
        self.state, self.reason = "stopped", reason

    def restart(self) -> None:
        """Begin again with the approach, once the drives are enabled."""
        self.state, self.reason, self._cycle = "waiting", "", 0

    def _begin(self, q: FloatArray) -> None:
        self._target = self._before = q.copy()
        self._off[:] = 0.0
        self._approach = Approach(self._limits, q, self.motion.centre, self._share, _MIN_APPROACH_S)
        self.state = "approach"
        self._cycle = 0


def _limits(model: RobotModel, settings: ArmMotionSettings) -> SafetyLimits:
    """Return the monitored limits: the motion was planned within the others."""
    plan, n = MotionLimits.of(model, settings.acceleration), model.n
    free = np.full(n, np.inf)
    return SafetyLimits(
        joints=tuple(joint.name for joint in model.joints),
        units=tuple("rad" if joint.kind == "revolute" else "m" for joint in model.joints), lower=np.full(n, -np.inf),
        upper=free, velocity=plan.velocity, acceleration=plan.acceleration, overspeed=free, effort=free,
        following_error=np.full(n, settings.following_error), temperature=free,
    )  # fmt: skip
