"""What moves an arm: armed, then a run of a trajectory or guiding by hand, stopped, disarmed.

What may be done is decided by `rt_core.safety`; here it is done, frame by frame.  What is common to all motion is here:
drives that are switched on and off, the permit, what is watched in each cycle.  What is commanded is that of an
activity: `service.motion._trajectory_follower` or `service.motion._hand_guiding`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from drivers.driver import Commandable, DriverError, Reporting
from drivers.frame import JointFrame
from rt_core.model.robot import RobotModel
from rt_core.safety import FeedbackWatch, PermitError, SafetyError, SafetyState
from rt_core.types import FloatArray
from service.config.safety import SafetyConfig
from service.io.trajectory_file import Trajectory
from service.motion._safety_limits import CommandBounds, narrowed, safety_limits
from service.motion._trajectory_follower import Following, bridged_cycles
from service.motion.trajectory_run import Run

#: With a longer lead, what is measured is no reason for a stop that begins so late: the drives stop by themselves.
_PROMPT_S = 0.2
#: Longest time for the drives to be switched on, longer than `enable_timeout_ms` of a driver may be; and how often they
#: are asked why they are not.
ARMING_S = 8.0
_LOOK_S = 0.1


class Activity(Protocol):
    """What a permit is used for."""

    @property
    def token(self) -> str:
        """Of the permit of the last one; empty before the first."""
        ...

    @property
    def busy(self) -> bool:
        """Whether one is being prepared, waits for its client, or settles after its end."""
        ...

    @property
    def moving(self) -> bool:
        """Whether it is this that moves the arm."""
        ...

    def begin(self, now_s: float) -> None:
        """Begin what is prepared: its client has been heard of."""
        ...

    def command(self, frame: JointFrame, driver: Any, now_s: float, lost: int, /) -> None:
        """Give the drives what they are to do next; `lost` cycles were before this frame."""
        ...

    def wait(self, frame: JointFrame, now_s: float, /) -> None:
        """Go on with what is prepared while the drives hold."""
        ...

    def close(self) -> None:
        """Take note that the arm is disarmed."""
        ...


class Guidance(Activity, Protocol):
    """Guiding by hand, as `service.motion._hand_guiding.Guiding`, which not every arm has."""

    @property
    def free(self) -> bool:
        """Whether drives follow torques, and positions the hand."""
        ...

    @property
    def position(self) -> FloatArray | None:
        """Where the drives were told to hold the arm after torque mode; None before."""
        ...

    def hasten(self, reason: str) -> None:
        """Take note of what was found on the way to the hold, and go there at once."""
        ...

    def report(self) -> dict[str, Any] | None:
        """Return the last session as plain values; None before the first."""
        ...


class Execution:
    """What one arm does whose drives follow set positions.

    Times `now_s` are of one clock that never goes back.

    Parameters
    ----------
    model : RobotModel
    sha256 : str
        Of the robot's description.
    config : SafetyConfig
    period_s : float
        Of the cycle.
    bridged : int
        Cycles without a frame that driver and drives bridge by extrapolation.
    lead_s : float
        How far set positions are sent ahead, as `DriverInfo.lead_s`; where frames were lost they lie on a line then.
    pace : float
        Seconds of the arm's cycles a second.
    bounds : CommandBounds, optional
        Of the driver.

    Attributes
    ----------
    limits : SafetyLimits
    state : SafetyState
    guiding : Guidance or None
        To be set where the arm can be guided.

    Raises
    ------
    SafetyError
        The limits do not suit the robot.
    """

    def __init__(
        self,
        model: RobotModel,
        sha256: str,
        config: SafetyConfig,
        period_s: float,
        bridged: int = 0,
        lead_s: float = 0.0,
        pace: float = 1.0,
        bounds: CommandBounds | None = None,
    ) -> None:
        limits = safety_limits(model, config)
        # Set positions of a gap lie on a line where they are sent ahead: a stop comes that much later there, too.
        blind_s = bridged_cycles(period_s, bridged, lead_s) * period_s
        self.limits = replace(limits if bounds is None else narrowed(limits, bounds), blind_s=blind_s)
        self.state = SafetyState(config.heartbeat_s, config.silence_s)
        self.guiding: Guidance | None = None
        self._following = Following(
            model, sha256, self.limits, self.state, config.approach, period_s, bridged, lead_s, pace, bounds
        )
        self._feedback = FeedbackWatch(self.limits, config.overload_s)
        self._model, self._config, self._period_s, self._lead_s = model, config, period_s, lead_s
        self._on = False  # drives have been told to be
        self._arming_until_s = 0.0
        self._seq: int | None = None
        self._frame_s = self._whole_s = 0.0  # of the last frame, and of the last with values of all joints
        self._look_s = 0.0
        self._behind = np.full(self.limits.n, np.nan)  # following error at the beginning of a stop, where it is known
        self._found: set[tuple[str, str]] = set()  # joint and quantity, since the arm was armed; so nothing tells twice

    @property
    def run(self) -> Run | None:
        """The last run."""
        return self._following.run

    @property
    def _activities(self) -> tuple[Activity, ...]:
        return (self._following,) if self.guiding is None else (self._following, self.guiding)

    @property
    def _activity(self) -> Activity:
        """What moves the arm, if anything does."""
        guided = self.guiding is not None and self.guiding.moving
        return self.guiding if guided and self.guiding is not None else self._following

    @property
    def busy(self) -> bool:
        """Whether something is being prepared, waits for its client, or settles after its end."""
        return any(activity.busy for activity in self._activities)

    # ------------------------------------------------------------ what is asked for

    def arm(self, token: str, now_s: float, for_s: float, driver: Commandable) -> None:
        """Switch the drives on and grant a permit; it may be used when `state.phase` is "armed".

        Raises
        ------
        SafetyError
            The robot states no limits, the time is too long, or the arm moves.
        DriverError
            The drives may not be switched on.
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
            self._frame_s = self._whole_s = now_s
            self._arming_until_s, self._look_s = now_s + ARMING_S, now_s + _LOOK_S
        try:
            driver.enable()
        except DriverError as error:
            self.state.off(str(error))
            raise
        self._on = True

    def start(
        self, trajectory: Trajectory, token: str, now_s: float, *, periods: int, hold: bool, name: str, changed: bool
    ) -> Run:
        """Begin to check a run; its `outcome` says what came of it.  When it is checked, a heartbeat begins it.

        Raises
        ------
        SafetyError, TrajectoryError
            The permit is not good for it, or the trajectory is not for this arm.
        """
        self.check_permit(token, now_s)
        return self._following.start(
            trajectory, token, now_s, periods=periods, hold=hold, name=name, changed=changed
        )  # fmt: skip

    def check_permit(self, token: str, now_s: float) -> None:
        """Raise `PermitError` unless something may be prepared with `token` now."""
        self.state.check_permit(token, now_s)
        if self.busy:
            raise PermitError("another run or guiding is under way")

    def beat(self, token: str, now_s: float) -> None:
        """Take note that the client is there, and begin what is prepared for it.

        Raises
        ------
        SafetyError
            For another's token, unless it is that of something that has ended, whose client asks what came of it.
        """
        state = self.state
        mine = [activity for activity in self._activities if activity.token == token]
        if mine and not state.moving and (state.permit is None or state.permit.token != token):
            return
        state.beat(token, now_s)
        for activity in mine:
            activity.begin(now_s)

    def stop(self, reason: str, driver: Commandable) -> None:
        """Stop within the acceleration limits if anything moves; switch the drives off, whoever switched them on."""
        if self.state.phase == "stopping" and self.guiding is not None and self.guiding.free:
            self.guiding.hasten(reason)
        self.state.stop(reason)
        if self.state.phase == "disarmed":
            self._switch_off(driver)

    def off(self, reason: str) -> None:
        """Take note that the drives are switched off by somebody else."""
        self.state.off(reason)
        self._on = False
        self._close()

    # ------------------------------------------------------------ frame by frame

    def step(self, frame: JointFrame, driver: Commandable, now_s: float) -> None:
        """Judge `frame`, and give the drives what they are to do next, if there is anything."""
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
        """Judge that no frame has come: nothing can be commanded, the drives have to stop by themselves."""
        left_s = self.state.silence_s - (now_s - self._frame_s)
        if left_s < 0.0 and self.state.phase != "disarmed":
            self.state.off(self._with_failure(f"no frame for more than {self.state.silence_s:g} s", driver))
        else:
            self._watch_time(now_s)
        if self.state.phase == "disarmed" and self._on:
            self._switch_off(driver)  # for when they hear again

    def _switch_off(self, driver: Commandable) -> None:
        self._on = False
        self._close()
        driver.disable()

    def _await_drives(self, frame: JointFrame | None, driver: Commandable, now_s: float) -> None:
        """See whether the drives are on; `frame` is None if not all joints have values in it."""
        if driver.enabled and frame is not None:
            here = frame.q if frame.setpoint is None else frame.setpoint
            if here is not None and np.isfinite(here).all():
                self._following.stand(here)
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
                guiding.hasten(str(found))
        elif new or found.what != "temperature":  # a drive that was hot before can hold for as long as it takes
            guiding.hasten(str(found))
            self.state.off(str(found))

    def _watch_stop(self, frame: JointFrame) -> None:
        """See whether the arm follows the set positions of a stop: where it does not, drives brake by themselves."""
        if frame.q is None:
            return
        apart = np.abs(frame.q - self._reference(frame))
        told = np.isfinite(apart) if frame.valid is None else np.isfinite(apart) & frame.valid
        self._behind = np.where(np.isnan(self._behind) & told, apart, self._behind)
        most = self._behind + self.limits.following_error
        behind = told & (apart > most)
        if behind.any():
            joint = int(np.argmax(behind))
            self.state.give_up(str(self.limits.violation("following error", joint, apart[joint], most[joint])))

    def _watch_time(self, now_s: float) -> None:
        """Stop where frames, the permit or the client fail; a slow end of guiding becomes a quick one."""
        free = self.guiding is not None and self.guiding.free
        reason = self.state.overdue(now_s, self._whole_s, stopping=free)
        if not reason:
            return
        new = ("", "time") not in self._found
        self._found.add(("", "time"))
        if self.state.phase != "stopping":
            self.state.stop(reason)
        elif new and self.guiding is not None:
            self.guiding.hasten(reason)

    def _reference(self, frame: JointFrame) -> FloatArray:
        """Position that the drives were to be at in this cycle."""
        guiding = self.guiding if self.guiding is not None and self.guiding.moving else None
        if guiding is not None and guiding.free and frame.q is not None:
            return frame.q  # the hand says where
        if guiding is not None and guiding.position is not None:
            return guiding.position
        return self._following.position if frame.setpoint is None else frame.setpoint

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
        """What of a trajectory is not judged ahead, in words."""
        return self._following.unchecked

    def report(self, now_s: float) -> dict[str, Any]:
        """State, permit, and what was done last, as plain values."""
        state = self.state
        return {
            "state": state.phase,
            "reason": state.reason,
            "permit_left_s": None if state.permit is None or state.permit.used else state.permit.left_s(now_s),
            "run": self._following.report(),
            "guiding": None if self.guiding is None else self.guiding.report(),
        }
