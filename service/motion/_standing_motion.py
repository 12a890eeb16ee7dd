"""The motion of `[arm.motion]`: a run that needs no permit and no client, and begins whenever the drives are on."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from drivers.driver import CommandRefusedError, DriverError
from drivers.frame import JointFrame
from rt_core.model.robot import RobotModel
from rt_core.safety import SafetyError, SafetyLimits
from service.config.arm_tables import ArmMotionSettings, SafetyConfig
from service.config.load import ArmConfig
from service.motion._motion_controller import MotionController
from service.motion._safety_limits import safety_limits
from service.motion.run_verbs import CommandedArm, RunRequests
from service.worker.worker import Worker
from sim_backend.arm.settings import MotionSettings
from sim_backend.arm.trajectory import Motion, MotionLimits, plan_motion

State = Literal["waiting", "approach", "running", "ended", "stopped"]

#: Of the permit that the motion has, which no client can state.
_TOKEN = ""


def standing_safety(model: RobotModel, safety: SafetyConfig, settings: ArmMotionSettings) -> SafetyConfig:
    """Return `safety` with what `[arm.motion]` states; of acceleration limits the stricter one counts, joint by joint.

    Raises `SafetyError` or `MotionError` for a list that has not one value for each joint.
    """
    update: dict[str, Any] = settings.model_dump(include={"approach", "following_error"}, exclude_none=True)
    if settings.acceleration is not None:
        asked = MotionLimits.of(model, settings.acceleration).acceleration
        update["acceleration"] = tuple(np.minimum(safety_limits(model, safety).acceleration, asked).tolist())
    return safety.model_copy(update=update)


def planned(model: RobotModel, limits: SafetyLimits, safety: SafetyConfig, settings: ArmMotionSettings) -> Motion:
    """Plan the motion within `limits` and the share of effort that is monitored; raises `MotionError`."""
    each = zip(model.joints, limits.lower.tolist(), limits.upper.tolist(), limits.velocity.tolist(), strict=True)
    model = replace(model, joints=tuple(replace(j, lower=a, upper=b, velocity=v) for j, a, b, v in each))
    most = np.minimum(limits.acceleration, MotionLimits.of(model, settings.acceleration).acceleration)
    plain = settings.model_dump(exclude={"approach", "following_error", "at_end"}, exclude_unset=True)
    plain["acceleration"] = tuple(most.tolist())
    plain["effort_fraction"] = min(settings.effort_fraction, safety.effort_fraction)
    return plan_motion(model, MotionSettings(**plain))


class StandingMotion(RunRequests):
    """The motion of one arm, frame by frame: the client of its run.

    `state` is "waiting" for the drives, "approach" to the start, "running", "ended", or "stopped". Raises `SafetyError`
    or `MotionError` if the robot states no limits, or the motion does not suit it.
    """

    def __init__(
        self, worker: Worker, arm: ArmConfig, model: RobotModel, driver: CommandedArm, controller: MotionController
    ) -> None:
        super().__init__(worker, arm, driver, controller)
        assert arm.motion is not None
        controller.check_limits()
        self._motion = planned(model, controller.limits, arm.safety, arm.motion)
        self._hold = arm.motion.at_end == "hold"
        self._waiting = not worker.restarts  # after a restart nothing moves until a client enables it
        controller.state.reason = "the acquisition was restarted; thetad control enable goes on"
        self._seen = (self.state, controller.state.phase)
        self.handlers = {verb: self.handlers[verb] for verb in ("abort", "disarm")}

    @property
    def state(self) -> State:
        """What the motion does."""
        phase, run = self._controller.state.phase, self._controller.run
        if self._waiting:
            return "waiting"
        if phase == "approach" or phase == "running":
            return phase
        completed = run is not None and run.outcome == "completed"
        if phase == "armed":
            return "ended" if completed else "running"  # which settles
        return "ended" if completed and not self._hold else "stopped"

    @property
    def over(self) -> bool:
        """Whether the stream ends with the motion, which has ended."""
        return not self._hold and self.state == "ended"

    def report(self) -> dict[str, Any]:
        """Return state and reason of a stop, as plain values."""
        return {"state": self.state, "reason": self._controller.state.reason if self.state == "stopped" else ""}

    def status(self) -> dict[str, Any]:
        """Return what is published."""
        return {"motion": self.report()}

    def info(self) -> dict[str, Any]:
        """Return what heartbeats of the process tell: also the time since the beginning of the motion [s]."""
        run = None if self._waiting else self._controller.report(0.0)["run"]
        return {"motion": self.state, "motion_s": 0.0 if run is None else run["t_s"]}

    def enable(self) -> None:
        """Begin again what has stopped or ended; raises `CommandRefusedError` while it is being stopped."""
        if self._controller.state.phase == "stopping":
            raise CommandRefusedError("the drives are still stopping; try again in a moment")
        self._waiting = self._waiting or self.state in ("stopped", "ended")

    def stop(self, reason: str) -> None:
        """See `RunRequests.stop`."""
        self._wait_no_more(reason)
        super().stop(reason)

    def off(self, reason: str) -> None:
        """See `RunRequests.off`."""
        self._wait_no_more(reason)
        super().off(reason)

    def _wait_no_more(self, reason: str) -> None:
        if self._waiting:
            self._waiting, self._controller.state.reason = False, reason

    def _prepare(self, frame: JointFrame | None, now_s: float) -> None:
        """Take drives over that are on, begin from where they hold, and be a client that is always there."""
        controller, permit = self._controller, self._controller.state.permit
        whole = frame is not None and frame.q is not None and (frame.valid is None or bool(frame.valid.all()))
        try:
            if self._waiting and self._driver.enabled and whole:
                if permit is None or permit.used:
                    controller.arm(_TOKEN, now_s, math.inf, self._driver)
                elif controller.state.phase == "armed":
                    controller.stand(self._motion, now_s, hold=self._hold)
                    self._waiting = False
        except (SafetyError, DriverError) as error:
            self.stop(str(error))
        controller.heartbeat(_TOKEN, now_s)

    def _answer(self) -> bool:
        before, self._seen = self._seen, (self.state, self._controller.state.phase)
        state, reason = self.state, self.report()["reason"]
        if state != before[0]:
            self._worker.log.info("motion_" + state, reason=reason)
        if self._seen != before and self._seen == ("stopped", "disarmed"):
            self._worker.event("motion_stopped", f"the motion was stopped: {reason}", reason=reason)
        return self._seen != before
