"""The verbs of motion: `arm`, `disarm`, `run_trajectory`, `zero_force`, `heartbeat`, `abort`.

`arm`, `run_trajectory` and `zero_force` are answered some frames later, when they have taken effect or were refused.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from drivers.ads.config import AdsConfig
from drivers.driver import Commandable, Driver, DriverError, DriverInfo, ModeChanging
from drivers.ethercat.config import EthercatConfig
from drivers.files.robots.file import RobotFile
from drivers.frame import JointFrame
from rt_core.safety import PermitError, SafetyError
from service.config.arm_tables import NOT_GUIDED
from service.config.load import ArmConfig
from service.io.trajectory_file import MAX_PERIODS, Trajectory
from service.motion._request_fields import token_of
from service.motion._safety_limits import CommandBounds, command_bounds
from service.protocol.control import ControlError
from service.worker.worker import FatalError, Handler, Worker

if TYPE_CHECKING:
    from service.motion._hand_guiding_verbs import HandGuidingRequests
    from service.motion._motion_controller import MotionController

VERBS = ("arm", "disarm", "run_trajectory", "zero_force", "heartbeat", "abort")
_TOKEN_BYTES = 8
_MAX_NAME = 200
#: Channels that monitor a motion, where the source has them.
_WATCHED = {"dq": "velocity", "tau": "torque", "temperature": "temperature"}


def make_runs(
    worker: Worker, arm: ArmConfig, robot: RobotFile, driver: Driver, rate_hz: float, bridged: int = 0,
    lead_s: float = 0.0,
) -> RunRequests | None:  # fmt: skip
    """Return the handlers of an arm's runs; None if its drives do not follow set positions, or `[arm.motion]` moves it.

    Raises `FatalError` if `[arm.safety]` does not suit the robot.
    """
    if not isinstance(driver, Commandable) or getattr(arm.driver, "mode", None) != "csp" or arm.motion is not None:
        return None
    from service.motion._motion_controller import MotionController  # other arms start without it

    pace = getattr(arm.driver, "pace", 1.0)
    if not isinstance(pace, (int, float)):  # as fast as possible: the source refuses commands
        pace = 1.0
    guiding = None
    try:
        bounds = bounds_of(arm.driver)
        controller = MotionController(
            robot.model, robot.sha256, arm.safety, 1.0 / rate_hz, bridged, lead_s, pace, bounds
        )
        if arm.guiding is not None and isinstance(driver, ModeChanging):
            from service.motion._hand_guiding import HandGuiding  # imports the kernels of a controller

            model, period_s = robot.model, 1.0 / rate_hz
            guiding = HandGuiding(model, controller.limits, controller.state, arm.guiding, period_s, pace)
            controller.guiding = guiding
    except SafetyError as error:
        raise FatalError(f"arm {arm.name}: {error}") from error
    if worker.restarts:
        controller.state.reason = "the acquisition was restarted"
    if guiding is None:
        return RunRequests(worker, arm, driver, controller)
    from service.motion._hand_guiding_verbs import HandGuidingRequests

    requests = HandGuidingRequests(worker, arm, robot.model, driver, controller, guiding)
    return RunRequests(worker, arm, driver, controller, requests)


def bounds_of(driver: object) -> CommandBounds | None:
    """Return the command limits in a driver's configuration; None if it has none."""
    if isinstance(driver, EthercatConfig):
        return command_bounds(driver.drive)
    return command_bounds(driver.axis) if isinstance(driver, AdsConfig) else None


def refusing(arm: ArmConfig, driver: Driver, info: DriverInfo) -> Mapping[str, Handler]:
    """Return handlers that refuse with the reason why an arm has no runs."""
    if not isinstance(driver, Commandable):
        words = f"a {info.source} source has no drives that take commands"
        words += ': set mode = "csp" in [arm.driver]' if info.source == "sim" else ""
    elif arm.motion is not None:
        words = "[arm.motion] moves this arm: take the table out of its configuration"
    else:
        words = 'runs and guiding need drives that follow positions: set mode = "csp" in [arm.driver]'

    def refuse(_args: dict[str, Any]) -> None:
        raise ControlError("bad_argument", f"arm {arm.name}: {words}")

    return dict.fromkeys(VERBS, refuse)


class CommandedArm(Driver, Commandable, Protocol):
    """A source whose drives can be commanded."""


class RunRequests:
    """Requests concerning the motion of one arm; `guiding` are those of an arm that can be guided."""

    def __init__(
        self, worker: Worker, arm: ArmConfig, driver: CommandedArm, controller: MotionController,
        guiding: HandGuidingRequests | None = None,
    ) -> None:  # fmt: skip
        self._worker, self._arm, self._driver, self._controller = worker, arm, driver, controller
        self._guiding = guiding
        self._arming: tuple[int, str] | None = None  # request that waits for the drives, and its token
        self._starting: int | None = None  # request that waits for the checks of a trajectory
        self._reported = ("disarmed", "", "", "")
        self._watched = False  # frames are monitored; before, nothing is switched on
        self.handlers: Mapping[str, Handler] = {
            "arm": self._on_arm, "disarm": partial(self._on_stop, "disarmed by request"),
            "run_trajectory": self._on_run, "zero_force": self._on_zero_force, "heartbeat": self._on_heartbeat,
            "abort": partial(self._on_stop, "aborted by request"),
        }  # fmt: skip

    @property
    def moving(self) -> bool:
        """Whether the arm is being moved."""
        return self._controller.state.moving

    @property
    def guided(self) -> bool:
        """Whether the arm is guided by hand, or on its way to the hold after that."""
        guiding = self._controller.guiding
        return guiding is not None and guiding.moving

    def report(self) -> dict[str, Any]:
        """Return state, permit and last run, as plain values."""
        return self._controller.report(time.monotonic())

    def step(self, frame: JointFrame) -> bool:
        """Process a frame; return whether something has changed that should be published at once."""
        self._watched = True
        now_s = time.monotonic()
        if self._guiding is not None:
            self._guiding.watch(now_s)
        self._controller.step(frame, self._driver, now_s)
        return self._answer()

    def silent(self) -> bool:
        """Process a missing frame; return whether something has changed."""
        self._watched = True
        self._controller.silent(self._driver, time.monotonic())
        return self._answer()

    def stop(self, reason: str) -> None:
        """Stop what moves, and switch the drives off."""
        self._controller.stop(reason, self._driver)

    def off(self, reason: str) -> None:
        """Note that the drives were switched off by another request."""
        self._controller.off(reason)

    # ------------------------------------------------------------ requests

    def _on_arm(self, args: dict[str, Any]) -> None:
        for_s = args.get("for_s", self._arm.safety.permit_s)
        if not isinstance(for_s, (int, float)) or isinstance(for_s, bool) or not for_s == for_s:
            raise ControlError("bad_argument", f"arm: for_s is {for_s!r}: expected seconds")
        self._check_watched("arm")
        if "q" not in self._driver.info.channels:
            raise ControlError("bad_argument", "arm: the source delivers no q: an arm is not moved without")
        token = secrets.token_hex(_TOKEN_BYTES)
        try:
            self._controller.arm(token, time.monotonic(), float(for_s), self._driver)
        except (PermitError, DriverError) as error:
            raise ControlError("unavailable", f"arm: {error}") from error
        except SafetyError as error:
            raise ControlError("bad_argument", f"arm: {error}") from error
        if self._arming is not None:
            self._worker.refuse(self._arming[0], ControlError("unavailable", "arm: another permit has been granted"))
        self._arming = (self._worker.request_id, token)

    def _on_stop(self, reason: str, args: dict[str, Any]) -> dict[str, Any]:
        self._controller.stop(reason, self._driver)
        return {"arm": args["arm"], **self.report()}

    def _on_heartbeat(self, args: dict[str, Any]) -> dict[str, Any]:
        try:
            self._controller.heartbeat(token_of(args, "heartbeat"), time.monotonic())
        except SafetyError as error:
            raise ControlError("unavailable", f"heartbeat: {error}") from error
        return {"arm": args["arm"], **self.report()}

    def _check_watched(self, verb: str) -> None:
        if not self._watched:
            raise ControlError(
                "unavailable",
                f"{verb}: the arm is held, or waits for its estimator and recorder: `thetad control start` lets a held "
                "arm begin, `thetad status` says what it waits for",
            )

    def _on_run(self, args: dict[str, Any]) -> None:
        self._check_watched("run_trajectory")
        token, periods = token_of(args, "run_trajectory"), args.get("periods", 1)
        if type(periods) is not int or not 1 <= periods <= MAX_PERIODS:
            raise ControlError("bad_argument", f"run_trajectory: periods is {periods!r}: expected 1 to {MAX_PERIODS}")
        name = args.get("name", "")
        if type(name) is not str or len(name) > _MAX_NAME:
            raise ControlError(
                "bad_argument", f"run_trajectory: name: expected a text of at most {_MAX_NAME} characters"
            )
        hold, changed = args.get("hold", False), args.get("changed_robot", False)
        if type(hold) is not bool or type(changed) is not bool:
            raise ControlError("bad_argument", "run_trajectory: hold and changed_robot are true or false")
        now_s = time.monotonic()
        try:
            trajectory = Trajectory.from_message(args.get("trajectory"))
            self._controller.start(trajectory, token, now_s, periods=periods, hold=hold, name=name, changed=changed)
        except PermitError as error:
            raise ControlError("unavailable", f"run_trajectory: {error}") from error
        except Exception as error:  # numbers can fail in any way
            raise ControlError("bad_argument", f"run_trajectory: {error}") from error
        self._starting = self._worker.request_id

    def _on_zero_force(self, args: dict[str, Any]) -> None:
        if self._guiding is None:
            kind = self._arm.driver.kind
            why = NOT_GUIDED.get(kind, "it is not guided: add the table [arm.guiding] to its configuration")
            raise ControlError("bad_argument", f"zero_force: arm {self._arm.name}: {why}")
        self._check_watched("zero_force")
        self._guiding.on_zero_force(args, time.monotonic())

    # ------------------------------------------------------------ answers

    def _answer(self) -> bool:
        state, run = self._controller.state, self._controller.run
        if self._arming is not None and state.phase != "arming":
            (id, token), self._arming = self._arming, None
            if state.phase == "armed" and state.permit is not None and state.permit.token == token:
                left_s = state.permit.left_s(time.monotonic())
                self._worker.reply(id, {"arm": self._arm.name, "permit": token, "for_s": left_s})
            else:
                self._worker.refuse(id, ControlError("failed", f"arm: {state.reason}"))
        reported = (
            state.phase,
            "" if run is None else f"{run.number} {run.outcome}",
            *(("", "") if self._guiding is None else self._guiding.reported()),
        )
        if reported == self._reported:
            return False
        before, self._reported = self._reported, reported
        if reported[:2] != before[:2]:
            self._worker.log.info("safety_" + state.phase, reason=state.reason, run=reported[1])
        if run is not None and reported[1] != before[1]:
            self._report_run(run.outcome, run.reason or state.reason)
        if self._guiding is not None:
            self._guiding.report_change()
        return True

    def _report_run(self, outcome: str, reason: str) -> None:
        """Answer the request for a run, and report its events."""
        run = self._controller.run
        assert run is not None
        if self._starting is not None and outcome != "checking":  # "checked": a heartbeat lets it begin
            id, self._starting = self._starting, None
            if outcome == "refused":
                self._worker.refuse(id, ControlError("bad_argument", f"run_trajectory: {reason}"))
            else:
                unchecked = self._controller.unchecked + [
                    f"{what} while it moves: the source does not deliver {channel}"
                    for channel, what in _WATCHED.items()
                    if channel not in self._driver.info.channels
                ]
                self._worker.reply(id, {"arm": self._arm.name, **self.report(), "unchecked": unchecked})
        facts = {"run": run.number, "trajectory": run.name, "periods": run.periods}
        if outcome == "moving":
            self._worker.event("run_started", f"run {run.number} of {run.name or 'a trajectory'} began", **facts)
        elif outcome == "completed":
            self._worker.event("run_completed", f"run {run.number} is complete", **facts)
        elif outcome == "stopped":
            self._worker.event("run_stopped", f"run {run.number} was stopped: {reason}", reason=reason, **facts)
