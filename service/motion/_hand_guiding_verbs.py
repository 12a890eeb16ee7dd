"""The verb `zero_force`: hand guiding of an armed arm.

The model comes from the arm's estimator, which is asked every half second whether it still holds. The request is
answered when the session is ready; the first heartbeat begins it.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from rt_core.model.ranges import IdentifiedRanges, checked_speeds
from rt_core.model.robot import RobotModel
from rt_core.safety import PermitError
from rt_core.settings import ZeroForceSettings
from rt_core.types import FloatArray
from service.config.load import ArmConfig
from service.models.hand_guiding_arrays import guiding_model
from service.motion._hand_guiding import HandGuiding, Session
from service.motion._motion_controller import MotionController
from service.motion._request_fields import token_of
from service.protocol.control import ControlError
from service.worker.worker import Worker

#: Time between two checks of the model's validity, and silence of the estimator that ends guiding.
_ASK_S = 0.5
_SILENT_S = 5.0
_SETTINGS = ("friction_share", "damping_time_s", "speed_share")
_GIVEN = {"theta", "constants", "robot", "name"}
_OPTIONAL = {"temperatures", "speeds"}
#: Guiding ends when the remaining friction comes so near to its compensated share.
_FRICTION_MARGIN = 0.05
_CHANNELS = {"dq": "velocity, which is observed from positions", "tau": "torque, which drives are assumed to give"}


class HandGuidingRequests:
    """Requests for hand guiding of one arm, and their events; `driver` has the drives that change their mode."""

    def __init__(
        self, worker: Worker, arm: ArmConfig, robot: RobotModel, driver: Any, controller: MotionController,
        guiding: HandGuiding,
    ) -> None:  # fmt: skip
        self._worker, self._arm, self._robot, self._driver = worker, arm, robot, driver
        self._controller, self._guiding = controller, guiding
        self._request: int | None = None  # waits for its session to be ready
        self._refused = "unavailable"  # type of its error
        self._given: dict[str, Any] = {}  # the model that came with the request
        self._started: list[float] | None = None  # temperatures of the compensated friction
        self._speeds: FloatArray | None = None  # that the model's friction was identified up to
        self._asked_s = self._heard_s = 0.0
        self._reported = ("", "")

    # ------------------------------------------------------------ requests

    def on_zero_force(self, args: dict[str, Any], now_s: float) -> None:
        """Begin to prepare a session; the reply follows later."""
        config = self._arm.guiding
        assert config is not None
        token, for_s = token_of(args, "zero_force"), args.get("for_s")
        if for_s is not None:
            for_s = _number("for_s", for_s)
            if not for_s > 0.0:
                raise ControlError("bad_argument", f"zero_force: for_s is {for_s:g}: expected seconds above 0")
        model = args.get("model")
        whole = isinstance(model, dict) and _GIVEN <= set(model) <= _GIVEN | _OPTIONAL and None not in model.values()
        if model is not None and not whole:
            raise ControlError(
                "bad_argument",
                "zero_force: model: expected a map of theta, constants, robot, name, and temperatures where friction "
                "follows them; or null",
            )
        changes = {name: _number(name, args[name]) for name in _SETTINGS if args.get(name) is not None}
        settings = _settings(config, changes)
        try:
            self._controller.check_permit(token, now_s)
            session = self._guiding.prepare(token, now_s, settings, for_s)
        except PermitError as error:
            raise ControlError("unavailable", f"zero_force: {error}") from error
        self._request, self._refused, self._given = self._worker.request_id, "unavailable", model or {}
        self._started = None

        def answered(result: Mapping[str, Any] | None, error: ControlError | None) -> None:
            self._take_model(session, result, error)

        self._worker.ask("guiding_model", {"arm": self._arm.name, **(model or {})}, answered)

    def _take_model(self, session: Session, result: Mapping[str, Any] | None, error: ControlError | None) -> None:
        if session is not self._guiding.session or session.outcome != "preparing":
            return  # it was aborted meanwhile
        if error is not None or result is None:
            self._refused = "failed" if error is None else error.type
            self._guiding.refuse("the estimator has no answer" if error is None else error.message)
            return
        try:
            model = guiding_model(self._robot, result.get("values"))
            self._speeds = checked_speeds(result.get("speeds"), self._robot.n)
        except Exception as problem:  # noqa: BLE001 - numbers can fail in any way
            self._guiding.refuse(str(problem) or type(problem).__name__)
            return
        self._started = result.get("temperature")
        self._guiding.set_model(model, str(result.get("model")), time.monotonic(), str(result.get("digest")))

    # ------------------------------------------------------------ while the arm is guided

    def watch(self, now_s: float) -> None:
        """Check now and then that the model still holds; stop if it does not, or if the estimator is silent."""
        session = self._guiding.session
        if session is None or not self._guiding.free or (self._given and self._started is None):
            self._asked_s = self._heard_s = now_s
            return
        if now_s - self._heard_s > _SILENT_S:
            reason = f"for {_SILENT_S:g} s the estimator has not said whether the model holds"
            self._controller.stop(reason, self._driver)
        elif now_s - self._asked_s >= _ASK_S:
            self._asked_s = now_s

            def answered(result: Mapping[str, Any] | None, error: ControlError | None) -> None:
                if error is None and result is not None and session is self._guiding.session:
                    self._heard_s = now_s
                    self._judge(session, result)

            about = {"arm": self._arm.name, "started": self._started, **self._given}
            self._worker.ask("validity", about, answered)

    def _judge(self, session: Session, validity: Mapping[str, Any]) -> None:
        reason = ""
        if validity["model"] != session.model:
            now = f"{validity['model']:.20}" if validity["model"] else "none"
            reason = f"the active model has changed: it was {session.model:.20}, and is {now}"
        elif validity["digest"] != session.digest:
            reason = f"the active model has changed: {session.model:.20} has other values than when guiding began"
        elif validity["doubt"]:
            reason = f"the estimator says that the model is not valid: {validity['doubt']}"
        elif validity.get("friction", np.inf) < session.settings.compensated_share + _FRICTION_MARGIN:
            reason = (
                f"friction has fallen with temperature to {100 * validity['friction']:.0f} % of what it was at the "
                "start: more compensation would drive the arm; begin again"
            )
        if reason and self._guiding.free:
            self._controller.stop(reason, self._driver)

    # ------------------------------------------------------------ answers

    def reported(self) -> tuple[str, str]:
        """Return outcome and phase of the last session, which are reported when they change."""
        session = self._guiding.session
        return ("", "") if session is None else (f"{session.number} {session.outcome}", self._guiding.phase)

    def report_change(self) -> None:
        """Answer the request for a session, and report its events."""
        session, before, reported = self._guiding.session, self._reported, self.reported()
        if session is None or reported == before:
            return
        self._reported = reported
        self._worker.log.info(
            "guiding_" + session.outcome, number=session.number, phase=reported[1], reason=session.reason
        )
        if reported[0] != before[0]:
            self._answer(session)
        facts: dict[str, Any] = {"session": session.number, "model": session.model}
        outcome, what = session.outcome, f"guiding {session.number}"
        if outcome == "guiding" and reported[0] != before[0]:
            self._worker.event("guiding_started", f"{what} began by model {session.model:.20}", **facts)
        elif outcome == "guiding" and reported[1] == "guiding":
            self._worker.event("guiding_free", f"{what}: the arm may be pushed", **facts)
        elif outcome == "stopping" and reported[0] != before[0]:
            report = self._guiding.report() or {}
            facts |= {key: report[key] for key in ("t_s", "residual", "margin", "reason")}
            self._worker.event("guiding_hold", f"{what} goes to its hold: {report['reason']}", **facts)
        elif outcome in ("completed", "stopped") and reported[0] != before[0]:
            reason = session.reason
            self._worker.event(f"guiding_{outcome}", f"{what} has ended: {reason}", reason=reason, **facts)

    def _answer(self, session: Session) -> None:
        if self._request is None or session.outcome == "preparing":
            return
        id, self._request = self._request, None
        if session.outcome == "refused":
            self._worker.refuse(id, ControlError(self._refused, f"zero_force: {session.reason}"))
            return
        channels = self._driver.info.channels
        unchecked = [
            f"{what}: the source does not deliver {name}" for name, what in _CHANNELS.items() if name not in channels
        ]
        unchecked += ["whether the model holds: it came with the request"] if self._given else []
        unchecked += self._too_fast(session.settings.speed_share)
        report = self._controller.report(time.monotonic())
        settings = asdict(session.settings)
        self._worker.reply(
            id, {"arm": self._arm.name, **report, "settings": settings, "unchecked": ["collisions", *unchecked]}
        )

    def _too_fast(self, speed_share: float) -> list[str]:
        """Return what is not known of the friction at the speed limits of a session."""
        if self._speeds is None:
            return []
        limits = speed_share * np.array([joint.velocity for joint in self._robot.joints])
        seen = IdentifiedRanges(self._speeds, np.zeros(self._robot.n))
        return [f"friction at speed: {note}" for note in seen.speed_notes(self._robot, limits, "may move")]


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ControlError("bad_argument", f"zero_force: {name} is {value!r:.80}: expected a finite number")
    return float(value)


def _settings(config: ZeroForceSettings, changes: dict[str, Any]) -> ZeroForceSettings:
    """Return the settings of a session; a request may lower the configured speed, not raise it."""
    if changes.get("speed_share", 0.0) > config.speed_share:
        raise ControlError(
            "bad_argument",
            f"zero_force: speed_share is {changes['speed_share']:g}: at most guiding.speed_share = "
            f"{config.speed_share:g} of the configuration may be asked for",
        )
    try:
        return replace(config, **changes)
    except ValueError as error:
        raise ControlError("bad_argument", f"zero_force: {error}") from error
