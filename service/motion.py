"""A motion that the acquisition has real drives follow: from where the arm stands to its start, then along it.

The motion is planned before the drives are switched on, within the joints' limits.  Its clock advances by one cycle for
each frame.  Where frames are lost it goes on for as many cycles as the drives extrapolate (`bridge_cycles`), and
otherwise waits: a set position that caught up with more than that would be a jump.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from drivers.frame import JointFrame
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from service.config import ArmMotionSettings
from sim_backend.errors import MotionError
from sim_backend.settings import MotionSettings
from sim_backend.trajectory import MotionLimits, plan_motion

State = Literal["waiting", "approach", "running", "ended", "stopped"]

#: Largest speed and acceleration of `10 x^3 - 15 x^4 + 6 x^5` over the unit interval.
_PEAK_SPEED = 1.875
_PEAK_ACCELERATION = 10.0 / np.sqrt(3.0)
_LEAST_APPROACH_S = 0.5


class MotionPlayer:
    """Turns frames into the next set position.

    Parameters
    ----------
    model : RobotModel
    settings : ArmMotionSettings
    period_s : float
        Of the cycle.
    bridged : int
        Cycles without a frame that driver and drives bridge by extrapolation.

    Attributes
    ----------
    state : str
        "waiting" for the drives, "approach" to the start, "running", "ended", or "stopped" for `reason`.

    Raises
    ------
    MotionError
        The motion does not suit the robot.
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
        self._names = [joint.name for joint in model.joints]
        self._limits = MotionLimits.of(model, settings.acceleration)
        self._share = settings.approach
        self._following_error = settings.following_error
        self._period_s = period_s
        self._bridged = bridged
        self._seq = 0
        self._cycle = 0
        self._approach_s = 0.0
        self._from = np.zeros(model.n)
        self._target = np.zeros(model.n)

    def step(self, frame: JointFrame, enabled: bool) -> FloatArray | None:
        """Set position (n,) for the cycle after `frame`; None while there is nothing to command.

        The drives hold the last one after the motion has ended.
        """
        if self.state in ("ended", "stopped"):
            return None
        if self.state == "waiting":
            if not enabled or frame.q is None or not (frame.valid is None or frame.valid.all()):
                return None
            # A drive that was switched on holds its set position, and may stand off it by its following error.
            self._begin(frame.q if frame.setpoint is None else frame.setpoint)
            self._seq = frame.seq - 1
        elif not enabled:
            self.stop("the drives are no longer enabled")
            return None
        elif frame.q is not None and (far := self._far(frame)) is not None:
            self.stop(far)
            return None
        self._cycle += 1 + min(max(frame.seq - self._seq - 1, 0), self._bridged)
        self._seq = frame.seq
        t = self._cycle * self._period_s
        if self.state == "approach" and t >= self._approach_s:
            self.state = "running"
            self._cycle, t = 0, 0.0
        if self.state == "approach":
            x = t / self._approach_s
            self._target = self._from + (self.motion.centre - self._from) * x**3 * (10.0 + x * (6.0 * x - 15.0))
        else:
            self._target = self.motion.sample(t)[0]
            if t >= self.motion.duration_s and not np.isfinite(self.motion.period_s):
                self.state = "ended"
        return self._target

    @property
    def time_s(self) -> float:
        """Time since the beginning of the motion [s]; 0 before, the whole of it after."""
        return 0.0 if self.state in ("waiting", "approach") else self._cycle * self._period_s

    def stop(self, reason: str) -> None:
        """Command nothing any more; the first reason stays."""
        if self.state == "stopped":
            return
        self.state, self.reason = "stopped", reason

    def restart(self) -> None:
        """Begin again with the approach, once the drives are enabled."""
        self.state, self.reason, self._cycle = "waiting", "", 0

    def _begin(self, q: FloatArray) -> None:
        self._from = q.copy()
        self._target = q.copy()
        way = np.abs(self.motion.centre - q)
        speed = _PEAK_SPEED * way / (self._share * self._limits.velocity)
        acceleration = np.sqrt(_PEAK_ACCELERATION * way / (self._share * self._limits.acceleration))
        self._approach_s = max(_LEAST_APPROACH_S, float(speed.max()), float(acceleration.max()))
        self.state = "approach"
        self._cycle = 0

    def _far(self, frame: JointFrame) -> str | None:
        """Return what is wrong if a joint has lost its command; joints without valid values are not judged.

        The command is the one that the frame states as that of its cycle, else the last target.
        """
        assert frame.q is not None
        error = np.abs(frame.q - (self._target if frame.setpoint is None else frame.setpoint))
        if frame.valid is not None:
            error = np.where(frame.valid, error, 0.0)
        joint = int(np.argmax(error))
        if error[joint] <= self._following_error:
            return None
        return (
            f"joint {self._names[joint]} is {error[joint]:.3g} from its command, more than following_error = "
            f"{self._following_error:g}"
        )
