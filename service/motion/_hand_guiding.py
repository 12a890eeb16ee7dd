r"""Hand guiding: from a hold by the drives into torque mode, and back to a hold.

`rt_core.hand_guiding` computes the torque for every sample and decides when guiding has to end. The drives then follow
positions again, from the arm's position and velocity, along a stop within its acceleration limits.

    preparing -> checked -> guiding -> stopping -> completed, or stopped
             \-> refused
"""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from drivers.driver import DriverError, ModeChanging
from drivers.frame import JointFrame
from rt_core.hand_guiding import GuidingModel, GuidingState, ZeroForceController, ZeroForceSettings
from rt_core.model.robot import RobotModel
from rt_core.safety import SafetyError, SafetyLimits, SafetyState, brake
from rt_core.types import FloatArray
from service.models.hand_guiding_arrays import still_model

Outcome = Literal["preparing", "refused", "checked", "guiding", "stopping", "completed", "stopped"]

#: Time left of a permit at the end of guiding, at least; and time that the drives hold before they are switched off.
_SPARE_S = 1.0
_SETTLE_S = 0.2
#: Time to come to rest in the hold, as far as the acceleration limits allow.
_BRAKE_S = 0.1
_MIN_BRAKE = 1e-3  # [rad/s^2 or m/s^2]
#: Longest time that the drives hold an arm that does not come to rest.
_UNREST_S = 2.0


@dataclass
class Session:
    """A session of hand guiding; times `.._ns` are of the frames' own clock."""

    number: int  # counts the sessions of this process
    token: str  # of the permit
    settings: ZeroForceSettings
    for_s: float | None  # duration; None: until it is stopped
    model: str = ""  # as far as it is known
    digest: str = ""  # of the values of the model
    outcome: Outcome = "preparing"
    reason: str = ""  # why it was refused, or has ended
    later: list[str] = field(default_factory=list)  # faults on the way to the hold, besides those of the controller
    began_ns: int | None = None  # the first sample
    stopped_ns: int | None = None  # where the way to the hold began
    at_once_ns: int | None = None  # where it became quick; None if it was slow
    t_s: float = 0.0  # since the first sample, up to the end of the hold
    over: bool = False  # its time is over, and nothing else has ended it


class HandGuiding:
    """Hand guiding of one arm; an `Activity` of `service.motion._motion_controller`.

    Everything that a session calls is compiled when it is made. `state` is shared with whatever else may move the arm;
    `pace` are seconds of the arm's cycles a second; `session` is the last one. Raises `SafetyError` if settings, limits
    and cycle do not go together.
    """

    def __init__(
        self, model: RobotModel, limits: SafetyLimits, state: SafetyState, config: ZeroForceSettings, period_s: float,
        pace: float = 1.0,
    ) -> None:  # fmt: skip
        try:
            check_limits(model, config)
            ZeroForceController(still_model(model), effective(config, model, limits), period_s)
        except ValueError as error:
            raise SafetyError(f"guiding: {error}") from error
        self._model = model
        self.session: Session | None = None
        self._limits, self._state, self._period_s, self._pace = limits, state, period_s, pace
        self._controller: ZeroForceController | None = None
        self._sessions = 0
        self._begin_until_s = 0.0  # deadline for the client's heartbeat after the checks
        self._held: tuple[FloatArray, FloatArray] | None = None  # set position and its velocity, back in the hold
        self._stop = limits  # with the deceleration of the present stop
        self._settle_until_s = self._unrest_until_s = 0.0
        self._settle_at: FloatArray | None = None  # position when the arm last began to settle
        self._uncommanded = False  # drives hold by themselves, because no set position may be commanded

    @property
    def token(self) -> str:
        """Permit of the last session; empty before the first."""
        return "" if self.session is None else self.session.token

    @property
    def busy(self) -> bool:
        """Whether a session is being prepared, or waits for its client."""
        return self.session is not None and self.session.outcome in ("preparing", "checked")

    @property
    def moving(self) -> bool:
        """Whether the arm is being guided, or brought to its hold."""
        return self.session is not None and self.session.outcome in ("guiding", "stopping")

    @property
    def free(self) -> bool:
        """Whether drives follow torques, and positions the hand."""
        return self.moving and self._held is None

    @property
    def position(self) -> FloatArray | None:
        """Commanded position after torque mode; None before."""
        return None if self._held is None else self._held[0]

    @property
    def phase(self) -> str:
        """Phase of the last session, in one word; empty before it has begun."""
        if self._controller is None or self.session is None or self.session.began_ns is None:
            return ""
        if self._held is not None or self._controller.state is GuidingState.HOLD_REQUESTED:
            return "hold" if self.moving else "ended"
        return self._controller.state.value

    # ------------------------------------------------------------ what is asked for

    def prepare(self, token: str, now_s: float, settings: ZeroForceSettings, for_s: float | None) -> Session:
        """Begin a session that waits for its model; raises `PermitError` if the permit does not suffice."""
        self._state.check_permit(token, now_s, self._duration_s(settings, for_s))
        settings = effective(settings, self._model, self._limits)
        self._sessions += 1
        self._controller = self._held = None
        self.session = Session(self._sessions, token, settings, for_s)
        return self.session

    def set_model(self, model: GuidingModel, name: str, now_s: float, digest: str = "") -> None:
        """Set the model of a session in preparation, and its digest; a heartbeat then begins it."""
        session = self.session
        if session is None or session.outcome != "preparing":
            return
        session.model, session.digest = name, digest
        try:
            self._controller = ZeroForceController(model, session.settings, self._period_s)
        except ValueError as error:
            self.refuse(str(error))
        else:
            session.outcome = "checked"
            self._begin_until_s = now_s + self._state.heartbeat_s

    def refuse(self, reason: str) -> None:
        """Refuse a session that has not begun."""
        session = self.session
        if session is not None and session.outcome in ("preparing", "checked"):
            session.outcome, session.reason = "refused", reason

    def begin(self, now_s: float) -> None:
        """Begin the session if it is checked: its client has sent a heartbeat."""
        session = self.session
        if session is None or session.outcome != "checked":
            return
        try:
            self._state.begin(session.token, now_s, self._duration_s(session.settings, session.for_s), "guiding")
        except SafetyError as error:
            self.refuse(str(error))
        else:
            session.outcome = "guiding"

    def _duration_s(self, settings: ZeroForceSettings, for_s: float | None) -> float:
        """Return the time that a permit has to last."""
        return 0.0 if for_s is None else (for_s + settings.ramp_s) / self._pace + _SPARE_S

    def wait(self, _frame: JointFrame, now_s: float) -> None:
        """Refuse a checked session whose client is silent."""
        if self.session is not None and self.session.outcome == "checked" and now_s > self._begin_until_s:
            self.refuse(f"the client has not been heard of for {self._state.heartbeat_s:g} s after the answer")

    # ------------------------------------------------------------ cycle by cycle

    def hold_at_once(self, reason: str) -> None:
        """Record a fault on the way to the hold, and make that a quick one."""
        session = self.session
        if session is None or not self.moving or reason in (self._state.reason, session.reason, *session.later):
            return
        if session.over and self._held is None:
            session.over, session.reason = False, reason
        else:
            session.later.append(reason)

    def command(self, frame: JointFrame, driver: ModeChanging, now_s: float, lost: int) -> None:
        """Give the drives their next torque, or on the way to the hold their next position."""
        session, controller, state = self.session, self._controller, self._state
        assert session is not None
        assert controller is not None
        if session.began_ns is None:
            session.began_ns = frame.t_bus_ns
        session.t_s = 1e-9 * (frame.t_bus_ns - session.began_ns)
        if self._held is not None:
            self._brake(frame, driver, now_s, lost)
            return
        if session.for_s is not None and session.t_s >= session.for_s and state.phase == "guiding":
            session.over = True
            state.stop(f"the {session.for_s:g} s are over")
        if state.phase == "stopping":
            controller.stop(state.reason, at_once=not session.over)
        torque = controller.step(frame)
        if controller.state in (GuidingState.ALARM, GuidingState.HOLD_REQUESTED):
            self._end(controller)
        self._note(session, frame)
        if controller.state is GuidingState.HOLD_REQUESTED:
            self._hold(frame, driver, now_s)
            return
        if controller.state is GuidingState.WAITING:  # no torque is known yet: the drives go on holding
            return
        try:
            if driver.mode != "cst":
                driver.change_mode("cst")
            driver.command(torque)
        except DriverError as error:
            if state.phase == "stopping":
                self.hold_at_once(str(error))
            state.stop(str(error))
            session.over = False
            self._note(session, frame)
            self._hold(frame, driver, now_s)

    def _note(self, session: Session, frame: JointFrame) -> None:
        """Record the frame where the way to the hold begins, and the one where it becomes quick."""
        if self._state.phase != "stopping":
            return
        if session.outcome == "guiding":
            session.outcome, session.stopped_ns = "stopping", frame.t_bus_ns
        if not session.over and session.at_once_ns is None:
            session.at_once_ns = frame.t_bus_ns

    def _end(self, controller: ZeroForceController) -> None:
        """Record that the controller ends, by its own decision or because it was stopped."""
        status = controller.status
        if self._state.phase == "guiding":
            self._state.stop(status.reason)
        elif self.session is not None and self.session.over and status.reason != self._state.reason:
            self.session.over, self.session.reason = False, status.reason  # found on the way to the hold

    def _hold(self, frame: JointFrame, driver: ModeChanging, now_s: float) -> None:
        """Have the drives hold again at the arm's position; if that is unknown, have them stop by themselves."""
        controller, state = self._controller, self._state
        assert controller is not None
        q, holds, v = frame.q, controller.holds, controller.status.velocity
        controller.end()
        known = q is not None and np.isfinite(q).all() and (frame.valid is None or frame.valid.all())
        if driver.mode == "csp" or not (holds and known):  # they never were in torque mode, or brakes have to close
            state.off(state.reason)
            return
        assert q is not None
        v = np.nan_to_num(v)
        self._held, self._stop, self._uncommanded = self._stopping_place(q, v)
        if self._uncommanded and (np.abs(v) > self._model.standstill_velocity).any():
            state.off(state.reason)  # no set position is allowed, and without one all joints would stop at once
            return
        try:
            driver.change_mode("csp")
        except DriverError as error:
            state.off(str(error))
            return
        self._settle_at, self._settle_until_s = None, now_s + _SETTLE_S
        self._unrest_until_s = now_s + _UNREST_S
        self._brake(frame, driver, now_s, 0)

    def _stopping_place(self, q: FloatArray, v: FloatArray) -> tuple[tuple[FloatArray, FloatArray], SafetyLimits, bool]:
        """Return set position and velocity where a stop begins, its limits, and whether none may be commanded.

        A joint comes to rest within its position limits, as far as its acceleration allows. Drives that were pushed
        further beyond them than a set position may step back hold at their position by themselves.
        """
        limits = self._limits
        here = np.clip(q, limits.lower, limits.upper)
        if (np.abs(here - q) > 0.5 * limits.velocity * self._period_s).any():
            return (q.copy(), np.zeros_like(q)), limits, True
        v = np.clip(v, -limits.velocity, limits.velocity)
        room = np.where(v > 0.0, limits.upper - here, here - limits.lower)
        v = np.where((room > 0.0) & (here == q), v, 0.0)
        slower = np.maximum(np.abs(v) / _BRAKE_S, 0.5 * v * v / np.where(room > 0.0, room, 1.0))
        stop = replace(limits, acceleration=np.clip(slower, _MIN_BRAKE, limits.acceleration))
        return (here, v), stop, False

    def _brake(self, frame: JointFrame, driver: ModeChanging, now_s: float, lost: int) -> None:
        """Bring the set position to rest; switch the drives off when the arm rests too."""
        assert self._held is not None
        q, v = self._held
        if lost:  # meanwhile the drives have stopped at their last set position
            v = np.zeros_like(v)
        if not self._uncommanded:
            q, v = brake(self._stop, self._period_s, q, v)
            within = np.clip(q, self._limits.lower, self._limits.upper)
            q, v = within, np.where(within == q, v, 0.0)
            try:
                driver.command(q)
            except DriverError as error:
                self._state.off(str(error))
                return
        self._held = q, v
        if v.any() or not self._rests(frame):
            self._settle_until_s = now_s + _SETTLE_S
        if now_s >= self._settle_until_s:
            self._state.off(self._state.reason)
        elif now_s >= self._unrest_until_s:
            self.hold_at_once(f"the arm has not come to rest in its hold within {_UNREST_S:g} s")
            self._state.off(self._state.reason)

    def _rests(self, frame: JointFrame) -> bool:
        """Return whether the arm is where it began to settle, within what a joint at standstill may move."""
        q, at = frame.q, self._settle_at
        if q is None or not np.isfinite(q).all() or not (frame.valid is None or frame.valid.all()):
            return False
        if at is not None and (np.abs(q - at) <= self._model.standstill_velocity * _SETTLE_S).all():
            return True
        self._settle_at = q.copy()
        return False

    # ------------------------------------------------------------ what came of it

    def close(self) -> None:
        """Finish a session that has come to its end."""
        session, reason = self.session, self._state.reason
        if session is None or not self.moving:
            self.refuse(reason)
            return
        session.outcome, session.reason = "completed" if session.over else "stopped", session.reason or reason
        if self._controller is not None:
            self._controller.end()

    def report(self) -> dict[str, Any] | None:
        """Return the last session as plain values; None before the first."""
        session = self.session
        if session is None:
            return None
        status = None if self._controller is None else self._controller.status
        return {
            "number": session.number, "model": session.model, "digest": session.digest, "outcome": session.outcome,
            "reason": session.reason or (self._state.reason if session.outcome == "stopping" else ""),
            "later": [*([] if status is None else status.later), *session.later], "phase": self.phase,
            "t_s": session.t_s, "for_s": session.for_s, "friction_share": session.settings.compensated_share,
            "residual": [] if status is None else status.residual.tolist(),
            "margin": [] if status is None else status.margin.tolist(),
            "residual_time_s": [] if status is None else status.residual_time_s.tolist(), "began_ns": session.began_ns,
            "stopped_ns": session.stopped_ns, "at_once_ns": session.at_once_ns,
        }  # fmt: skip


def check_limits(robot: RobotModel, settings: ZeroForceSettings) -> None:
    """Raise `ValueError`, which names joint and limit, if a configured value is larger than the robot's limit."""
    for name, given, stated in (
        ("speed_limit", settings.speed_limit, "velocity"),
        ("torque_limit", settings.torque_limit, "effort"),
    ):
        for joint, value in zip(robot.joints, given or (), strict=False):
            if value > getattr(joint, stated):
                raise ValueError(
                    f"{name} of {joint.name} is {value:g}: at most {getattr(joint, stated):g}, the {stated} limit of "
                    "the robot file"
                )


def effective(settings: ZeroForceSettings, robot: RobotModel, limits: SafetyLimits) -> ZeroForceSettings:
    """Return `settings` with the limits of each joint, including those of runs of this arm.

    A list that is missing or has the wrong length stays, for the controller to refuse.
    """
    velocity = np.array([joint.velocity for joint in robot.joints])
    effort = np.array([joint.effort for joint in robot.joints])
    lists = (settings.speed_limit, settings.torque_limit)
    if any(given is not None and len(given) != robot.n for given in lists):
        return settings
    speed = np.minimum(settings.speed_share * velocity, limits.velocity)
    if settings.speed_limit is not None:
        speed = np.minimum(speed, settings.speed_limit)
    torque = settings.torque_share * effort if settings.torque_limit is None else np.array(settings.torque_limit)
    torque = np.minimum(torque, limits.effort)
    if np.isfinite(speed).all():
        settings = replace(settings, speed_limit=tuple(speed.tolist()))
    return replace(settings, torque_limit=tuple(torque.tolist())) if np.isfinite(torque).all() else settings
