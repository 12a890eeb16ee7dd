"""The verbs of an arm that is moved: `arm`, `disarm`, `run_trajectory`, `zero_force`, `heartbeat`, `abort`.

`arm`, `run_trajectory` and `zero_force` are answered when what they ask for has come about or has been refused, some
frames later.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from drivers.ads.config import AdsConfig
from drivers.driver import Commandable, Driver, DriverError, DriverInfo, ModeChanging
from drivers.ethercat.config import EthercatConfig
from drivers.files.robots.file import RobotFile
from drivers.frame import JointFrame
from rt_core.safety import PermitError, SafetyError
from service.config.hand_guiding import UNABLE
from service.config.load import ArmConfig
from service.io.trajectory_file import MAX_PERIODS, Trajectory, TrajectoryError
from service.motion._request_fields import token_of
from service.motion._safety_limits import CommandBounds, command_bounds
from service.protocol.control import ControlError
from service.worker.worker import FatalError, Handler, Worker

if TYPE_CHECKING:
    from service.motion._hand_guiding_verbs import GuidingRequests
    from service.motion._motion_controller import Execution

VERBS = ("arm", "disarm", "run_trajectory", "zero_force", "heartbeat", "abort")
_TOKEN_BYTES = 8
_MAX_NAME = 200
#: Channels by which a motion is watched, where they are delivered.
_WATCHED = {"dq": "velocity", "tau": "torque", "temperature": "temperature"}


def make_runs(
    child: Worker,
    arm: ArmConfig,
    robot: RobotFile,
    driver: Driver,
    rate_hz: float,
    bridged: int = 0,
    lead_s: float = 0.0,
) -> RunRequests | None:
    """Return what serves the runs of an arm; None if its drives do not follow set positions, or something else's.

    Raises
    ------
    FatalError
        `[arm.safety]` does not suit the robot.
    """
    if not isinstance(driver, Commandable) or getattr(arm.driver, "mode", None) != "csp" or arm.motion is not None:
        return None
    from service.motion._motion_controller import Execution  # other arms start without it

    pace = getattr(arm.driver, "pace", 1.0)
    if not isinstance(pace, (int, float)):  # as fast as possible: the source refuses to be commanded
        pace = 1.0
    guiding = None
    try:
        bounds = bounds_of(arm.driver)
        execution = Execution(robot.model, robot.sha256, arm.safety, 1.0 / rate_hz, bridged, lead_s, pace, bounds)
        if arm.guiding is not None and isinstance(driver, ModeChanging):
            from service.motion._hand_guiding import Guiding  # brings the kernels of a controller

            model, period_s = robot.model, 1.0 / rate_hz
            guiding = Guiding(model, execution.limits, execution.state, arm.guiding, period_s, pace)
            execution.guiding = guiding
    except SafetyError as error:
        raise FatalError(f"arm {arm.name}: {error}") from error
    if child.restarts:
        execution.state.reason = "the acquisition was restarted"
    if guiding is None:
        return RunRequests(child, arm, driver, execution)
    from service.motion._hand_guiding_verbs import GuidingRequests

    requests = GuidingRequests(child, arm, robot.model, driver, execution, guiding)
    return RunRequests(child, arm, driver, execution, requests)


def bounds_of(driver: object) -> CommandBounds | None:
    """Return what the configuration of a driver allows its drives; None of one that knows no such limits."""
    if isinstance(driver, EthercatConfig):
        return command_bounds(driver.drive)
    return command_bounds(driver.axis) if isinstance(driver, AdsConfig) else None


def refusing(arm: ArmConfig, driver: Driver, info: DriverInfo) -> Mapping[str, Handler]:
    """Handlers that say why an arm has no runs."""
    if not isinstance(driver, Commandable):
        words = f"a {info.source} source has no drives that could be told where to go"
        words += ': set mode = "csp" in [arm.driver]' if info.source == "sim" else ""
    elif arm.motion is not None:
        words = "[arm.motion] moves this arm: take the table out of its configuration"
    else:
        words = 'runs and guiding need drives that follow positions: set mode = "csp" in [arm.driver]'

    def refuse(_args: dict[str, Any]) -> None:
        raise ControlError("bad_argument", f"arm {arm.name}: {words}")

    return dict.fromkeys(VERBS, refuse)


class CommandedArm(Driver, Commandable, Protocol):
    """A source whose drives are commanded."""


class RunRequests:
    """Requests concerning what moves one arm.

    Parameters
    ----------
    child : Child
    arm : ArmConfig
    driver : CommandedArm
    execution : Execution
    guiding : GuidingRequests, optional
        Of an arm that can be guided.
    """

    def __init__(
        self,
        child: Worker,
        arm: ArmConfig,
        driver: CommandedArm,
        execution: Execution,
        guiding: GuidingRequests | None = None,
    ) -> None:
        self._child, self._arm, self._driver, self._execution = child, arm, driver, execution
        self._guiding = guiding
        self._arming: tuple[int, str] | None = None  # request that waits for the drives, and its token
        self._starting: int | None = None  # request that waits for the checks of a trajectory
        self._told = ("disarmed", "", "", "")
        self._watched = False  # frames are judged; before, nothing is switched on
        self.handlers: Mapping[str, Handler] = {
            "arm": self._on_arm,
            "disarm": self._on_disarm,
            "run_trajectory": self._on_run,
            "zero_force": self._on_zero_force,
            "heartbeat": self._on_heartbeat,
            "abort": self._on_abort,
        }

    @property
    def moving(self) -> bool:
        """Whether the arm is being moved."""
        return self._execution.state.moving

    @property
    def guided(self) -> bool:
        """Whether a hand moves the arm, or it is being brought to its hold after that."""
        guiding = self._execution.guiding
        return guiding is not None and guiding.moving

    def report(self) -> dict[str, Any]:
        """State, permit and last run, as plain values."""
        return self._execution.report(time.monotonic())

    def step(self, frame: JointFrame) -> bool:
        """Work on a frame; True if something has changed that should be told at once."""
        self._watched = True
        now_s = time.monotonic()
        if self._guiding is not None:
            self._guiding.watch(now_s)
        self._execution.step(frame, self._driver, now_s)
        return self._answer()

    def silent(self) -> bool:
        """Take note that there is no frame; True if something has changed."""
        self._watched = True
        self._execution.silent(self._driver, time.monotonic())
        return self._answer()

    def stop(self, reason: str) -> None:
        """Stop whatever moves, and switch the drives off."""
        self._execution.stop(reason, self._driver)

    def off(self, reason: str) -> None:
        """Take note that the drives are switched off by another request."""
        self._execution.off(reason)

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
            self._execution.arm(token, time.monotonic(), float(for_s), self._driver)
        except (PermitError, DriverError) as error:
            raise ControlError("unavailable", f"arm: {error}") from error
        except SafetyError as error:
            raise ControlError("bad_argument", f"arm: {error}") from error
        if self._arming is not None:
            self._child.refuse(self._arming[0], ControlError("unavailable", "arm: another permit has been granted"))
        self._arming = (self._child.request_id, token)

    def _on_disarm(self, args: dict[str, Any]) -> dict[str, Any]:
        self._execution.stop("disarmed by request", self._driver)
        return {"arm": args["arm"], **self.report()}

    def _on_abort(self, args: dict[str, Any]) -> dict[str, Any]:
        self._execution.stop("aborted by request", self._driver)
        return {"arm": args["arm"], **self.report()}

    def _on_heartbeat(self, args: dict[str, Any]) -> dict[str, Any]:
        try:
            self._execution.beat(token_of(args, "heartbeat"), time.monotonic())
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
            self._execution.start(trajectory, token, now_s, periods=periods, hold=hold, name=name, changed=changed)
        except PermitError as error:
            raise ControlError("unavailable", f"run_trajectory: {error}") from error
        except (TrajectoryError, SafetyError, ArithmeticError, ValueError, MemoryError) as error:
            raise ControlError("bad_argument", f"run_trajectory: {error}") from error
        self._starting = self._child.request_id

    def _on_zero_force(self, args: dict[str, Any]) -> None:
        if self._guiding is None:
            kind = self._arm.driver.kind
            why = UNABLE.get(kind, "it is not guided: add the table [arm.guiding] to its configuration")
            raise ControlError("bad_argument", f"zero_force: arm {self._arm.name}: {why}")
        self._check_watched("zero_force")
        self._guiding.on_zero_force(args, time.monotonic())

    # ------------------------------------------------------------ answers

    def _answer(self) -> bool:
        state, run = self._execution.state, self._execution.run
        if self._arming is not None and state.phase != "arming":
            (id, token), self._arming = self._arming, None
            if state.phase == "armed" and state.permit is not None and state.permit.token == token:
                left_s = state.permit.left_s(time.monotonic())
                self._child.reply(id, {"arm": self._arm.name, "permit": token, "for_s": left_s})
            else:
                self._child.refuse(id, ControlError("failed", f"arm: {state.reason}"))
        told = (
            state.phase,
            "" if run is None else f"{run.number} {run.outcome}",
            *(("", "") if self._guiding is None else self._guiding.told()),
        )
        if told == self._told:
            return False
        before, self._told = self._told, told
        if told[:2] != before[:2]:
            self._child.log.info("safety_" + state.phase, reason=state.reason, run=told[1])
        if run is not None and told[1] != before[1]:
            self._tell(run.outcome, run.reason or state.reason)
        if self._guiding is not None:
            self._guiding.tell()
        return True

    def _tell(self, outcome: str, reason: str) -> None:
        """Answer who asked for the run, and write down what became of it."""
        run = self._execution.run
        assert run is not None
        if self._starting is not None and outcome != "checking":  # "checked": a heartbeat lets it begin
            id, self._starting = self._starting, None
            if outcome == "refused":
                self._child.refuse(id, ControlError("bad_argument", f"run_trajectory: {reason}"))
            else:
                unchecked = self._execution.unchecked + [
                    f"{what} while it moves: the source does not deliver {channel}"
                    for channel, what in _WATCHED.items()
                    if channel not in self._driver.info.channels
                ]
                self._child.reply(id, {"arm": self._arm.name, **self.report(), "unchecked": unchecked})
        facts = {"run": run.number, "trajectory": run.name, "periods": run.periods}
        if outcome == "moving":
            self._child.event("run_started", f"run {run.number} of {run.name or 'a trajectory'} began", **facts)
        elif outcome == "completed":
            self._child.event("run_completed", f"run {run.number} is complete", **facts)
        elif outcome == "stopped":
            self._child.event("run_stopped", f"run {run.number} was stopped: {reason}", reason=reason, **facts)
