"""What jobs mean to the arms: which model is active, and when an arm is identified again by itself."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from service.config.jobs import ReidentifyConfig
from service.config.load import ArmConfig, Config
from service.jobs._background import BackgroundWork
from service.jobs._job_storage import Holdings
from service.jobs._triggers import Trigger
from service.jobs.kinds import find_kind
from service.jobs.queue.artifacts import ArtifactError
from service.jobs.queue.queue import Submission
from service.jobs.queue.state import Limits
from service.jobs.queue.store import Event, StoreError
from service.jobs.references import file_input, is_large
from service.operations.workspace import JobError
from service.protocol.control import ControlError
from service.worker.worker import Worker

#: Between the frames that a model is fitted to and those that it is judged on [s]: longer than the filters see.
GAP_S = 2.0
_RETRY_S = 5.0
_PATIENCE_S = 30.0
_UNTOLD_S = 600.0  # that a change is waited for to be told
_TOLD = (  # kinds of `rt_core.online.monitors.change_report`, which this light process does not import
    "payload_attached",
    "payload_released",
    "payload_moved",
    "friction_changed",
    "friction_drift",
    "sensor_fault",
    "sensor_recovered",
    "ambiguous",
)
_EXPLAINED = 0.5  # of an ambiguous change, and a sensor may be the cause
_CALL_OFF_S = 1.0  # between two looks for jobs that a faulty sensor forbids
_HISTORY = 1000  # events that are looked at for reports that are not over
_SCHEDULED = "reidentify_scheduled"  # event by which the beginning of a schedule is known after a restart
_LATER = ("unavailable", "timeout")  # refusals of an estimator that is not ready: it is asked again

Answer = Callable[[Any, ControlError | None], None]


class Arms:
    """The arms of a daemon, as the jobs process deals with them.

    Parameters
    ----------
    child : Child
    config : Config
    """

    def __init__(self, child: Worker, config: Config) -> None:
        self.child, self.config = child, config
        self.aside = BackgroundWork()
        self.triggers: dict[str, Trigger] = {}
        self._to_tell: dict[str, float] = {}  # arms whose estimator is to be told its active model, and when
        self._told: dict[str, int] = {}  # how often something was to be told: an answer counts for the newest only
        self._to_note: list[Event] = []
        self._windows = 0
        self._next_call_off: dict[str, float] = {}
        self._sensor_ns: dict[str, int] = {}  # when a sensor was told faulty first, or that it may be
        self._stuck_s: dict[str, float] = {}  # when it was last told that an encoder sticks
        self._spoiled: dict[str, tuple[int, int]] = {}  # jobs of this time are of frames from an encoder that stuck

    def open(self, holdings: Holdings) -> None:
        """Begin with a queue that has been opened."""
        now_ns, now = time.time_ns(), time.monotonic()
        for arm in self.config.arm:
            self._to_tell[arm.name] = 0.0
            if arm.reidentify is None or arm.name in self.triggers:
                continue
            recent = holdings.queue.recent(arm=arm.name, kind="identify", limit=1000)
            last = next((job for job in recent if job.origin != "request"), None)
            since_ns = last.created_ns if last else self._schedule_began(arm.name, arm.reidentify, holdings, now_ns)
            ago_s = (now_ns - since_ns) * 1e-9
            self.triggers[arm.name] = Trigger(arm.reidentify, now - max(ago_s, 0.0), fired=last is not None)
            for event in holdings.queue.events(arm=arm.name, limit=_HISTORY):
                self.on_event(event)  # what was reported before a restart is not forgotten

    def _schedule_began(self, arm: str, settings: ReidentifyConfig, holdings: Holdings, now_ns: int) -> int:
        """Return when the schedule of an arm began that nothing has been done by yet [ns since 1970].

        That is written down: a daemon that never runs for `every_h` at a time would else begin anew at each start.
        """
        if settings.every_h is None:
            return now_ns
        began = holdings.queue.newest_event(arm, _SCHEDULED)
        if began is not None and began.data.get("every_h") == settings.every_h:
            return began.t_ns
        text = f"to be identified again every {settings.every_h:g} h"
        self._to_note.append(Event(now_ns, _SCHEDULED, text, arm, data={"every_h": settings.every_h}))
        return now_ns

    # ------------------------------------------------------------ active models

    def tell(self, arm: str) -> None:
        """Have the estimator of an arm told which model is active."""
        self._to_tell[arm] = 0.0
        self._told[arm] = self._told.get(arm, 0) + 1

    def promoted(self, arm: str) -> None:
        """Take notice of a new active model: what was told of the one before is over."""
        self.tell(arm)
        trigger = self.triggers.get(arm)
        if trigger is not None:
            trigger.clear("drift")

    def _tell_some(self, holdings: Holdings) -> None:
        now = time.monotonic()
        for name, at in list(self._to_tell.items()):
            if now < at:
                continue
            try:
                self._tell(self.config.find(name), holdings)
            except (ArtifactError, OSError, ValueError, KeyError) as error:
                self._not_told(name, str(error))

    def _tell(self, arm: ArmConfig, holdings: Holdings) -> None:
        history = holdings.queue.history.promotions(arm.name)
        if not history:
            del self._to_tell[arm.name]  # it keeps what its configuration says
            return
        active = history[-1].model
        values: Mapping[str, Any] = {"theta": None, "constants": None}
        if active is not None:
            made = [entry.data["values"] for entry in history if entry.model == active and entry.data.get("values")]
            if made:
                values = json.loads(holdings.artifacts.verify(made[-1]).read_text(encoding="utf-8"))
            else:  # that entry was lost with a damaged queue
                values = _values_of(holdings.artifacts.verify(active))
        elif arm.model is not None:
            values = _values_of(arm.model)
        args = {**values, "arm": arm.name, "model": active, "adopt": values["theta"] is not None}

        generation = self._told.get(arm.name, 0)

        def answered(_result: Mapping[str, Any] | None, error: ControlError | None) -> None:
            if generation != self._told.get(arm.name, 0):
                return
            if error is not None and error.type in _LATER:
                self._to_tell[arm.name] = time.monotonic() + _RETRY_S
            elif error is not None:
                self._not_told(arm.name, error.message)
            else:
                self._to_tell.pop(arm.name, None)

        self.child.ask("activate", args, answered)
        self._to_tell[arm.name] = time.monotonic() + _PATIENCE_S  # an answer that is lost is asked for again

    def _not_told(self, arm: str, reason: str) -> None:
        """Say that the estimator does not work with the model that the history calls active."""
        self._to_tell.pop(arm, None)
        self.child.log.error("model_not_activated", arm=arm, reason=reason)
        self.child.event("model_not_activated", f"the active model is not in use: {reason}", arm=arm)

    # ------------------------------------------------------------ windows and triggers

    def set_aside(self, arm: str, seconds: float, holdings: Holdings, then: Answer) -> None:
        """Have the last `seconds` of an arm's frames written down; `then` gets the input that names them."""
        self._windows += 1
        path = holdings.windows / f"{arm}-{time.time_ns() // 1000}-{self._windows}.window"

        def answered(_result: Mapping[str, Any] | None, error: ControlError | None) -> None:
            if error is not None:
                then(None, error)
            elif not is_large(path):
                done(lambda: file_input(path, "recording"))
            else:
                try:
                    self.aside.begin(lambda: file_input(path, "recording"), done)
                except ControlError as problem:
                    then(None, problem)

        def done(result: Callable[[], dict[str, str]]) -> None:
            try:
                given = result()
            except JobError as problem:
                then(None, ControlError("failed", str(problem)))
            else:
                then(given, None)

        self.child.ask("set_aside", {"arm": arm, "seconds": seconds, "path": str(path)}, answered)

    def on_event(self, event: Event) -> None:
        """Take what an estimator reports."""
        trigger = self.triggers.get(event.arm or "")
        if trigger is None:
            return
        if event.kind in ("drift", "invalid"):
            trigger.report(event.kind, time.monotonic())
        elif event.kind in ("drift_cleared", "valid_again"):
            if event.kind == "drift_cleared":
                trigger.release()  # another model is compared with
            trigger.clear("drift" if event.kind == "drift_cleared" else "invalid")
        elif event.kind in ("model_adopted", "model_promoted"):
            trigger.clear("drift")
            trigger.release()
        elif event.kind == "encoder_stuck":
            self._take_back(trigger, event)
        else:
            before = "sensor" in trigger.held
            _hold(trigger, event)
            if not before and "sensor" in trigger.held:
                self._sensor_ns[event.arm or ""] = event.t_ns

    def _take_back(self, trigger: Trigger, event: Event) -> None:
        """Take word that the watch of an arm has gone back: what it has reported since was of wrong frames."""
        arm, still, now = event.arm or "", event.data.get("still", ()), time.monotonic()
        since_ns = event.t_ns - round(1e9 * float(event.data.get("back_s", 0.0)))
        for what in ("drift", "invalid"):
            if what in still:
                trigger.report(what, now)
            else:
                trigger.clear(what)
        trigger.release("change")
        for what, told_since in (("payload", True), ("sensor", self._sensor_ns.get(arm, 0) >= since_ns)):
            if what in still:
                trigger.hold(what)
            elif told_since:
                trigger.release(what)
        self._stuck_s[arm] = now
        since_ns = min(since_ns, self._spoiled.get(arm, (since_ns, 0))[0])
        self._spoiled[arm] = since_ns, event.t_ns

    def step(self, holdings: Holdings) -> None:
        """Tell estimators what is to be told, and queue what is due; raises `StoreError`."""
        if self._to_note:
            holdings.queue.note(*self._to_note)
            self._to_note.clear()
        self._tell_some(holdings)
        for name, trigger in self.triggers.items():
            now = time.monotonic()
            if "sensor" in trigger.held and now >= self._next_call_off.get(name, 0.0):
                self._next_call_off[name] = now + _CALL_OFF_S
                self._call_off(name, holdings)
            if (spoiled := self._spoiled.get(name)) is not None:
                self._call_off(name, holdings, *spoiled)
                del self._spoiled[name]
            why = trigger.due(now)
            if why is None:
                continue
            trigger.put_off(now)  # until the jobs are there, so that it is asked for once
            if self._at_it(name, holdings):
                continue
            self.child.log.info("reidentify", arm=name, reason=why)
            history = holdings.queue.history.promotions(name)
            # who has rolled back does not want to see the same model come back by itself
            promote = trigger.settings.promote and not (history and history[-1].action == "rolled_back")
            self.reidentify(name, why, promote, holdings, self._queued(name, trigger, holdings))

    def _call_off(self, arm: str, holdings: Holdings, since_ns: int = 0, until_ns: int | None = None) -> None:
        """Cancel what the daemon has queued by itself: no model of frames from a faulty sensor may become active.

        Where the times are known [ns since 1970], that which was queued then.
        """
        for job in holdings.queue.recent(("queued", "running"), arm=arm, limit=1000):
            then = job.created_ns >= since_ns and (until_ns is None or job.created_ns <= until_ns)
            if then and job.origin != "request" and not job.cancel:
                holdings.queue.cancel(job.id)

    def _at_it(self, arm: str, holdings: Holdings) -> bool:
        """Tell whether jobs that the daemon has queued by itself for an arm are still under way."""
        waiting = holdings.queue.recent(("queued", "running"), arm=arm, limit=1000)
        return any(job.origin != "request" for job in waiting)

    def _queued(self, arm: str, trigger: Trigger, holdings: Holdings) -> Answer:
        def then(_jobs: Any, error: ControlError | None) -> None:
            if error is None:
                trigger.fire(time.monotonic())
                return
            self.child.log.warning("not_reidentified", arm=arm, reason=error.message)
            try:
                holdings.queue.note(Event(time.time_ns(), "not_reidentified", error.message, arm))
            except StoreError as problem:
                self.child.log.warning("event_not_kept", reason=str(problem))

        return then

    def reidentify(self, arm: str, origin: str, promote: bool, holdings: Holdings, then: Answer) -> None:
        """Queue what identifies an arm from its last frames, validates and promotes; `then` gets the jobs' numbers."""
        settings = self.config.find(arm).reidentify or ReidentifyConfig()
        asked_s = time.monotonic()

        def window(given: dict[str, str] | None, error: ControlError | None) -> None:
            if error is None and origin != "request" and self._stuck_s.get(arm, -1.0) >= asked_s:
                error = ControlError("failed", "an encoder stuck while the frames were set aside")
            if given is None or error is not None:
                then(None, error)
                return
            try:
                jobs = holdings.queue.submit(*self._chain(arm, origin, promote, given), chained=True)
            except (StoreError, RuntimeError, ValueError, OSError) as problem:
                then(None, ControlError("failed", str(problem)))
            else:
                then([job.id for job in jobs], None)

        self.set_aside(arm, settings.window_s, holdings, window)

    def _chain(self, name: str, origin: str, promote: bool, window: dict[str, str]) -> list[Submission]:
        arm = self.config.find(name)
        settings = arm.reidentify or ReidentifyConfig()
        cut_s = (1.0 - settings.holdout) * settings.window_s
        fit = f"0:{(cut_s - GAP_S / 2) / settings.window_s:.6f}"
        test = f"{(cut_s + GAP_S / 2) / settings.window_s:.6f}:1"
        robot = robot_text(arm, self.config)
        kinds: list[tuple[str, dict[str, Any]]] = [
            ("identify", {"robot": robot, "method": settings.method, "span": fit}),
            ("validate", {"model": "job:0", "span": test}),
        ]
        if promote:
            kinds.append(("promote", {"robot": robot, "model": "job:0", "span": test}))
        limits = Limits(self.config.jobs.time_s, self.config.jobs.memory_mb)
        chain = []
        for kind, parameters in kinds:
            checked = find_kind(kind).read({"recording": window["path"], **parameters}).model_dump(mode="json")
            inputs: dict[str, Any] = {"recording": window}
            if "model" in parameters:
                inputs["model"] = {"chain": 0}
            chain.append(Submission(kind, checked, name, inputs, origin=origin, limits=limits))
        return chain


def _hold(trigger: Trigger, event: Event) -> None:
    """Take what a sudden change of the arm means for identifying it by itself (docs/drift.md)."""
    if event.kind == "change":
        trigger.hold("change", time.monotonic() + _UNTOLD_S)
        return
    if event.kind not in _TOLD:
        return
    trigger.release("change")
    sensor = any(
        str(each["cause"]).startswith("sensor") and each["explained"] >= _EXPLAINED
        for each in event.data.get("candidates", ())
    )
    if event.kind == "sensor_fault" or sensor:
        trigger.hold("sensor")
    elif event.kind == "sensor_recovered":
        trigger.release("sensor")
    elif event.kind.startswith("payload"):
        if event.data.get("payload") is None:
            trigger.release("payload")
        else:
            trigger.hold("payload")


def robot_text(arm: ArmConfig, config: Config) -> str:
    """Return the whole description of an arm's robot, so that a job does not depend on what becomes of its file."""
    from service.config.arm_robot import load_arm_robot

    return json.dumps(load_arm_robot(arm, config.base).source)


def _values_of(path: Path) -> dict[str, Any]:
    """Return what an estimator takes over from a model file."""
    from service.models.document import load_model

    model = load_model(path)
    return {
        "theta": model.theta.tolist(),
        "constants": model.base.layout.shape[:, 0].tolist(),
        "covariance": model.covariance.tolist(),
        "robot": model.robot.sha256,
        **model.temperature_limits,
    }
