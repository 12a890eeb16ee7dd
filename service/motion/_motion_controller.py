"""Motion of an arm: armed, then a run of a trajectory or hand guiding, stopped, disarmed.

`rt_core.safety` decides what is allowed; this module executes it, frame by frame: drives are switched on and off,
permits granted, feedback checked in each cycle. The commands are those of an activity:
`service.motion._trajectory_follower` or `service.motion._hand_guiding`.
"""

from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from drivers.driver import Commandable, Reporting
from drivers.frame import JointFrame
from rt_core.model.robot import RobotModel
from rt_core.safety import FeedbackWatch, PermitError, SafetyError, SafetyState
from rt_core.types import FloatArray
from service.config.arm_tables import SafetyConfig
from service.io.trajectory_file import Trajectory
from service.motion._safety_limits import CommandBounds, narrowed, safety_limits
from service.motion._trajectory_follower import TrajectoryFollower, bridged_cycles
from service.motion.trajectory_run import Run

#: With a longer lead, feedback causes no stop, which would begin too late: the drives stop by themselves.
_PROMPT_S = 0.2
#: Longest time for the drives to be switched on, above any `enable_timeout_ms` of a driver; and the interval of checks
#: why they are not.
ARMING_S = 8.0
_LOOK_S = 0.1


class Activity(Protocol):
    """A use of a permit."""

    @property
    def token(self) -> str:
        """Permit of the last one; empty before the first."""

    @property
    def busy(self) -> bool:
        """Whether one is being prepared, waits for its client, or settles after its end."""

    @property
    def moving(self) -> bool:
        """Whether it moves the arm."""

    def begin(self, now_s: float) -> None:
        """Begin what is prepared: its client has sent a heartbeat."""

    def command(self, frame: JointFrame, driver: Any, now_s: float, lost: int, /) -> None:
        """Command the drives; `lost` cycles were before this frame."""

    def wait(self, frame: JointFrame, now_s: float, /) -> None:
        """Continue what is prepared while the drives hold."""

    def close(self) -> None:
        """Finish: the arm is disarmed."""


class Guidance(Activity, Protocol):
    """Hand guiding, see `service.motion._hand_guiding.HandGuiding`, which not every arm has."""

    @property
    def free(self) -> bool:
        """Whether drives follow torques, and positions the hand."""

    @property
    def position(self) -> FloatArray | None:
        """Commanded position after torque mode; None before."""

    def hold_at_once(self, reason: str) -> None:
        """Record a fault on the way to the hold, and make that a quick one."""

    def report(self) -> dict[str, Any] | None:
        """Return the last session as plain values; None before the first."""


class MotionController:
    """Motion of one arm whose drives follow set positions; raises `SafetyError` if the limits do not suit the robot.

    Times `now_s` are of one clock that never goes back. `sha256` is of the robot's description, `bounds` are the
    driver's. `bridged` are the cycles without a frame that driver and drives bridge by extrapolation; set positions are
    sent `lead_s` ahead, as `DriverInfo.lead_s`, and lie on a line where frames were lost. `pace` are seconds of the
    arm's cycles a second. `guiding` is to be set where the arm can be guided.
    """

    def __init__(
        self, model: RobotModel, sha256: str, config: SafetyConfig, period_s: float, bridged: int = 0,
        lead_s: float = 0.0, pace: float = 1.0, bounds: CommandBounds | None = None,
    ) -> None:  # fmt: skip
        limits = safety_limits(model, config)
        # Set positions of a gap lie on a line where they are sent ahead: a stop begins later there, too.
        blind_s = bridged_cycles(period_s, bridged, lead_s) * period_s
        self.limits = replace(limits if bounds is None else narrowed(limits, bounds), blind_s=blind_s)
        self.state = SafetyState(config.heartbeat_s, config.silence_s)
        self.guiding: Guidance | None = None
        self._follower = TrajectoryFollower(
            model, sha256, self.limits, self.state, config.approach, period_s, bridged, lead_s, pace, bounds
        )
        self._feedback = FeedbackWatch(self.limits, config.overload_s)
        self._model, self._config, self._period_s, self._lead_s = model, config, period_s, lead_s
        self._on = False  # drives have been switched on
        self._arming_until_s = 0.0
        self._seq: int | None = None
        self._frame_s = self._whole_s = 0.0  # of the last frame, and of the last with values of all joints
        self._look_s = 0.0
        self._behind = np.full(self.limits.n, np.nan)  # following error at the beginning of a stop, where it is known
        self._found: set[tuple[str, str]] = set()  # joint and quantity, since the arm was armed: each is reported once

    @property
    def run(self) -> Run | None:
        """The last run."""
        return self._follower.run

    @property
    def _activities(self) -> tuple[Activity, ...]:
        return (self._follower,) if self.guiding is None else (self._follower, self.guiding)

    @property
    def _activity(self) -> Activity:
        """The activity that moves the arm, if any does."""
        guided = self.guiding is not None and self.guiding.moving
        return self.guiding if guided and self.guiding is not None else self._follower

    @property
    def busy(self) -> bool:
        """Whether something is being prepared, waits for its client, or settles after its end."""
        return any(activity.busy for activity in self._activities)

    # ------------------------------------------------------------ what is asked for

    def arm(self, token: str, now_s: float, for_s: float, driver: Commandable) -> None:
        """Switch the drives on and grant a permit; it may be used when `state.phase` is "armed".

        Raises `SafetyError` if the robot states no limits, the time is too long, or the arm moves; `DriverError` if the
        drives may not be switched on.
        """
        if self.limits.missing:
            raise SafetyError(
                f"robot '{self._model.name}' states no {', '.join(self.limits.missing)}: an arm is not moved without; "
                "add them to the robot file"
            )
        if not 0.0 < for_s <= self._config.permit_max_s:
            raise SafetyError(
                f"a permit for {for_s:g} s: above 0 and at most safety.permit_max_s = {self._config.permit_max_s:g} s "
                "can be granted"
            )
        if self.busy:
            raise PermitError("a run or guiding is under way: abort it, or wait for its end")
        before = self.state.phase
        self.state.arm(token, now_s, for_s)
        self._found.clear()
        self._behind = np.full(self.limits.n, np.nan)
        if before == "disarmed":
            self._feedback = FeedbackWatch(self.limits, self._config.overload_s)
            self._frame_s = self._whole_s = now_s
            self._arming_until_s, self._look_s = now_s + ARMING_S, now_s + _LOOK_S
        self._on = True  # whatever happens: a driver that has failed on the way is switched off like one that has not
        try:
            driver.enable()
        except Exception as error:
            self.state.off(str(error))
            raise

    def start(
        self, trajectory: Trajectory, token: str, now_s: float, *, periods: int, hold: bool, name: str, changed: bool
    ) -> Run:
        """Begin to check a run, see its `outcome`; after the checks a heartbeat begins it.

        Raises `SafetyError` or `TrajectoryError`: the permit is not good for it, or the trajectory is not for this arm.
        """
        self.check_permit(token, now_s)
        return self._follower.start(
            trajectory, token, now_s, periods=periods, hold=hold, name=name, changed=changed
        )  # fmt: skip

    def check_permit(self, token: str, now_s: float) -> None:
        """Raise `PermitError` unless an activity may be prepared with `token` now."""
        self.state.check_permit(token, now_s)
        if self.busy:
            raise PermitError("another run or guiding is under way")

    def heartbeat(self, token: str, now_s: float) -> None:
        """Note the client's heartbeat, and begin what is prepared for it; raises `SafetyError` for another's token.

        That of an activity that has ended is accepted: its client asks for the outcome.
        """
        state = self.state
        mine = [activity for activity in self._activities if activity.token == token]
        if mine and not state.moving and (state.permit is None or state.permit.token != token):
            return
        state.heartbeat(token, now_s)
        for activity in mine:
            activity.begin(now_s)

    def stop(self, reason: str, driver: Commandable) -> None:
        """Stop within the acceleration limits if anything moves; then switch the drives off."""
        if self.state.phase == "stopping" and self.guiding is not None and self.guiding.free:
            self.guiding.hold_at_once(reason)
        self.state.stop(reason)
        if self.state.phase == "disarmed":
            self._switch_off(driver)

    def off(self, reason: str) -> None:
        """Note that the drives were switched off by another request."""
        self.state.off(reason)
        self._on = False
        self._close()

    # ------------------------------------------------------------ frame by frame

    def step(self, frame: JointFrame, driver: Commandable, now_s: float) -> None:
        """Check `frame`, and command the drives."""
        state = self.state
        lost = 0 if self._seq is None else max(frame.seq - self._seq - 1, 0)
        self._seq = frame.seq
        self._frame_s = now_s
        whole = frame.q is not None and (frame.valid is None or bool(frame.valid.all()))
        if whole:
            self._whole_s = now_s
        if state.phase == "disarmed":
            self._close()
        elif state.phase == "arming":
            self._await_drives(frame if whole else None, driver, now_s)
        elif not driver.enabled:
            state.off(self._with_failure("the drives are no longer enabled", driver))
        else:
            self._watch(frame, now_s, (1 + lost) * self._period_s)
            if state.moving:
                self._activity.command(frame, driver, now_s, lost)
            elif state.phase == "armed":
                for activity in self._activities:
                    activity.wait(frame, now_s)
        if state.phase == "disarmed" and self._on:
            self._switch_off(driver)

    def silent(self, driver: Commandable, now_s: float) -> None:
        """Handle a missing frame: nothing can be commanded, the drives have to stop by themselves."""
        left_s = self.state.silence_s - (now_s - self._frame_s)
        if left_s < 0.0 and self.state.phase != "disarmed":
            self.state.off(self._with_failure(f"no frame for more than {self.state.silence_s:g} s", driver))
        else:
            self._watch_time(now_s)
        if self.state.phase == "disarmed" and self._on:
            self._switch_off(driver)  # for when the connection is back

    def _switch_off(self, driver: Commandable) -> None:
        self._on = False
        self._close()
        driver.disable()

    def _await_drives(self, frame: JointFrame | None, driver: Commandable, now_s: float) -> None:
        """Check whether the drives are on; `frame` is None if not all joints have values in it."""
        if driver.enabled and frame is not None:
            here = frame.q if frame.setpoint is None else frame.setpoint
            if here is not None and np.isfinite(here).all():
                self._follower.set_position(here)
                self.state.on()
                return
        failure = ""
        if now_s >= self._look_s:
            self._look_s = now_s + _LOOK_S
            failure = self._failure(driver)
        if failure or now_s > self._arming_until_s:
            self.state.off(failure or f"the drives were not switched on within {ARMING_S:g} s")
        elif reason := self.state.overdue(now_s, self._whole_s):
            self.state.off(reason)

    def _watch(self, frame: JointFrame, now_s: float, passed_s: float) -> None:
        guiding = self.guiding if self.guiding is not None and self.guiding.moving else None
        stopping = self.state.phase == "stopping"
        if stopping and guiding is None:
            self._watch_stop(frame)
            return
        command = self._reference(frame)
        found = self._feedback.check(passed_s, command, frame.q, frame.dq, frame.tau, frame.temperature, frame.valid)
        if found is None:
            self._watch_time(now_s)
            return
        new = (found.joint, found.what) not in self._found
        self._found.add((found.joint, found.what))
        if not stopping and self._lead_s > _PROMPT_S:
            self.state.off(str(found))
        elif guiding is None or not stopping:
            self.state.stop(str(found))
        elif guiding.free:
            if new:
                guiding.hold_at_once(str(found))
        elif new or found.what != "temperature":  # a drive that was hot before can hold for as long as it takes
            guiding.hold_at_once(str(found))
            self.state.off(str(found))

    def _watch_stop(self, frame: JointFrame) -> None:
        """Check that the arm follows the set positions of a stop: where it does not, drives brake by themselves."""
        if frame.q is None:
            return
        deviation = np.abs(frame.q - self._reference(frame))
        known = np.isfinite(deviation) if frame.valid is None else np.isfinite(deviation) & frame.valid
        self._behind = np.where(np.isnan(self._behind) & known, deviation, self._behind)
        most = self._behind + self.limits.following_error
        behind = known & (deviation > most)
        if behind.any():
            joint = int(np.argmax(behind))
            self.state.off(str(self.limits.violation("following error", joint, deviation[joint], most[joint])))

    def _watch_time(self, now_s: float) -> None:
        """Stop where frames, the permit or the client fail; make a slow end of guiding a quick one."""
        free = self.guiding is not None and self.guiding.free
        reason = self.state.overdue(now_s, self._whole_s, stopping=free)
        if not reason:
            return
        new = ("", "time") not in self._found
        self._found.add(("", "time"))
        if self.state.phase != "stopping":
            self.state.stop(reason)
        elif new and self.guiding is not None:
            self.guiding.hold_at_once(reason)

    def _reference(self, frame: JointFrame) -> FloatArray:
        """Return the position where the drives should be in this cycle."""
        guiding = self.guiding if self.guiding is not None and self.guiding.moving else None
        if guiding is not None and guiding.free and frame.q is not None:
            return frame.q  # the hand determines it
        if guiding is not None and guiding.position is not None:
            return guiding.position
        return self._follower.position if frame.setpoint is None else frame.setpoint

    # ------------------------------------------------------------ what came of it

    def _close(self) -> None:
        """Finish what has been stopped."""
        for activity in self._activities:
            activity.close()

    def _failure(self, driver: Commandable) -> str:
        return str(driver.report().get("enable_failure", "")) if isinstance(driver, Reporting) else ""

    def _with_failure(self, reason: str, driver: Commandable) -> str:
        failure = self._failure(driver)
        return f"{reason} ({failure})" if failure else reason

    @property
    def unchecked(self) -> list[str]:
        """Properties of a trajectory that are not checked in advance, in words."""
        return self._follower.unchecked

    def report(self, now_s: float) -> dict[str, Any]:
        """Return state, permit and last activities, as plain values."""
        state = self.state
        return {
            "state": state.phase, "reason": state.reason,
            "permit_left_s": None if state.permit is None or state.permit.used else state.permit.left_s(now_s),
            "run": self._follower.report(), "guiding": None if self.guiding is None else self.guiding.report(),
        }  # fmt: skip
