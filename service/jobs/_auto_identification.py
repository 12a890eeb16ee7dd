"""Active models of arms, and their identification by the daemon itself."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from service.config.arm_tables import ReidentifyConfig
from service.config.load import ArmConfig, Config
from service.jobs._background import BackgroundWork
from service.jobs._job_storage import JobStorage
from service.jobs._triggers import Trigger
from service.jobs.kinds import find_kind
from service.jobs.kinds.promote import estimator_values
from service.jobs.queue.artifacts import ArtifactError
from service.jobs.queue.queue import Submission
from service.jobs.queue.state import Limits
from service.jobs.queue.store import Event, StoreError
from service.jobs.references import file_input, is_large
from service.operations.errors import OperationError
from service.protocol.control import ControlError
from service.worker.worker import Worker

#: Gap between the frames that a model is fitted to and those that it is judged on [s]: longer than the filters' memory.
GAP_S = 2.0
_RETRY_S = 5.0
_PATIENCE_S = 30.0
_UNREPORTED_S = 600.0  # longest wait for the classification of a change
_CHANGE_KINDS = (  # kinds of `rt_core.online.monitors.change_report`, which this light process does not import
    "payload_attached", "payload_released", "payload_moved", "friction_changed", "friction_drift", "sensor_fault",
    "sensor_recovered", "ambiguous",
)  # fmt: skip
_EXPLAINED = 0.5  # share of an ambiguous change from which a sensor may be the cause
_CANCEL_EVERY_S = 1.0  # between two searches for jobs that a faulty sensor forbids
_HISTORY = 1000  # events that are read after a restart for reports that still hold
_SCHEDULED = "reidentify_scheduled"  # event that keeps the beginning of a schedule over restarts
_LATER = ("unavailable", "timeout")  # errors of an estimator that is not ready: a retry follows

Answer = Callable[[Any, ControlError | None], None]


class AutoIdentification:
    """Activates models in the estimators, and identifies arms again on triggers."""

    def __init__(self, worker: Worker, config: Config) -> None:
        self.worker, self.config = worker, config
        self.background = BackgroundWork()
        self.triggers: dict[str, Trigger] = {}
        self._to_activate: dict[str, float] = {}  # when to send an arm's estimator its active model
        self._generation: dict[str, int] = {}  # count of requested activations: a reply counts for the latest only
        self._unwritten_events: list[Event] = []
        self._windows = 0
        self._next_cancel: dict[str, float] = {}
        self._sensor_ns: dict[str, int] = {}  # when a sensor was first reported faulty, or possibly faulty
        self._stuck_s: dict[str, float] = {}  # when a stuck encoder was last reported
        self._spoiled: dict[str, tuple[int, int]] = {}  # jobs created in this time use frames of a stuck encoder

    def open(self, storage: JobStorage) -> None:
        """Begin with an open queue."""
        now_ns, now = time.time_ns(), time.monotonic()
        for arm in self.config.arm:
            self._to_activate[arm.name] = 0.0
            if arm.reidentify is None or arm.name in self.triggers:
                continue
            recent = storage.queue.recent(arm=arm.name, kind="identify", limit=1000)
            last = next((job for job in recent if job.origin != "request"), None)
            since_ns = last.created_ns if last else self._schedule_began(arm.name, arm.reidentify, storage, now_ns)
            ago_s = (now_ns - since_ns) * 1e-9
            self.triggers[arm.name] = Trigger(arm.reidentify, now - max(ago_s, 0.0), fired=last is not None)
            for event in storage.queue.events(arm=arm.name, limit=_HISTORY):
                self.on_event(event)  # reports from before a restart still hold

    def _schedule_began(self, arm: str, settings: ReidentifyConfig, storage: JobStorage, now_ns: int) -> int:
        """Return when an arm's schedule began that has queued nothing yet [ns since 1970].

        An event keeps it: a daemon that never runs for `every_h` would otherwise begin anew at each start.
        """
        if settings.every_h is None:
            return now_ns
        began = storage.queue.newest_event(arm, _SCHEDULED)
        if began is not None and began.data.get("every_h") == settings.every_h:
            return began.t_ns
        text = f"to be identified again every {settings.every_h:g} h"
        self._unwritten_events.append(Event(now_ns, _SCHEDULED, text, arm, data={"every_h": settings.every_h}))
        return now_ns

    # ------------------------------------------------------------ active models

    def activate(self, arm: str) -> None:
        """Have the active model sent to the estimator of an arm."""
        self._to_activate[arm] = 0.0
        self._generation[arm] = self._generation.get(arm, 0) + 1

    def promoted(self, arm: str) -> None:
        """Handle a new active model: reports about the one before are over."""
        self.activate(arm)
        trigger = self.triggers.get(arm)
        if trigger is not None:
            trigger.clear("drift")

    def _activate_due(self, storage: JobStorage) -> None:
        now = time.monotonic()
        for name, at in list(self._to_activate.items()):
            if now < at:
                continue
            try:
                self._send_model(self.config.find(name), storage)
            except (ArtifactError, OSError, ValueError, KeyError) as error:
                self._on_not_activated(name, str(error))

    def _send_model(self, arm: ArmConfig, storage: JobStorage) -> None:
        history = storage.queue.history.promotions(arm.name)
        if not history:
            del self._to_activate[arm.name]  # it keeps the configured model
            return
        active = history[-1].model
        values: Mapping[str, Any] = {"theta": None, "constants": None}
        if active is not None:
            made = [entry.data["values"] for entry in history if entry.model == active and entry.data.get("values")]
            if made:
                values = json.loads(storage.artifacts.verify(made[-1]).read_text(encoding="utf-8"))
            else:  # that entry was lost with a damaged queue
                values = _values_of(storage.artifacts.verify(active))
        elif arm.model is not None:
            values = _values_of(arm.model)
        args = {**values, "arm": arm.name, "model": active, "adopt": values["theta"] is not None}

        generation = self._generation.get(arm.name, 0)

        def answered(_result: Mapping[str, Any] | None, error: ControlError | None) -> None:
            if generation != self._generation.get(arm.name, 0):
                return
            if error is not None and error.type in _LATER:
                self._to_activate[arm.name] = time.monotonic() + _RETRY_S
            elif error is not None:
                self._on_not_activated(arm.name, error.message)
            else:
                self._to_activate.pop(arm.name, None)

        self.worker.ask("activate", args, answered)
        self._to_activate[arm.name] = time.monotonic() + _PATIENCE_S  # retried if the reply is lost

    def _on_not_activated(self, arm: str, reason: str) -> None:
        """Report that the estimator does not use the model that the history calls active."""
        self._to_activate.pop(arm, None)
        self.worker.log.error("model_not_activated", arm=arm, reason=reason)
        self.worker.event("model_not_activated", f"the active model is not in use: {reason}", arm=arm)

    # ------------------------------------------------------------ windows and triggers

    def save_window(self, arm: str, seconds: float, storage: JobStorage, then: Answer) -> None:
        """Have the last `seconds` of an arm's frames saved; `then` gets the input that names them."""
        self._windows += 1
        path = storage.windows / f"{arm}-{time.time_ns() // 1000}-{self._windows}.window"

        def answered(_result: Mapping[str, Any] | None, error: ControlError | None) -> None:
            if error is not None:
                then(None, error)
            elif not is_large(path):
                done(lambda: file_input(path, "recording"))
            else:
                try:
                    self.background.begin(lambda: file_input(path, "recording"), done)
                except ControlError as problem:
                    then(None, problem)

        def done(result: Callable[[], dict[str, str]]) -> None:
            try:
                given = result()
            except OperationError as problem:
                then(None, ControlError("failed", str(problem)))
            else:
                then(given, None)

        self.worker.ask("set_aside", {"arm": arm, "seconds": seconds, "path": str(path)}, answered)

    def on_event(self, event: Event) -> None:
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
            self._on_encoder_stuck(trigger, event)
        else:
            before = "sensor" in trigger.held
            _hold(trigger, event)
            if not before and "sensor" in trigger.held:
                self._sensor_ns[event.arm or ""] = event.t_ns

    def _on_encoder_stuck(self, trigger: Trigger, event: Event) -> None:
        """Process the rollback of an estimator: what it has reported meanwhile came from wrong frames."""
        arm, still, now = event.arm or "", event.data.get("still", ()), time.monotonic()
        since_ns = event.t_ns - round(1e9 * float(event.data.get("back_s", 0.0)))
        for what in ("drift", "invalid"):
            if what in still:
                trigger.report(what, now)
            else:
                trigger.clear(what)
        trigger.release("change")
        for what, reported_since in (("payload", True), ("sensor", self._sensor_ns.get(arm, 0) >= since_ns)):
            if what in still:
                trigger.hold(what)
            elif reported_since:
                trigger.release(what)
        self._stuck_s[arm] = now
        since_ns = min(since_ns, self._spoiled.get(arm, (since_ns, 0))[0])
        self._spoiled[arm] = since_ns, event.t_ns

    def step(self, storage: JobStorage) -> None:
        """Activate models that are due, and queue jobs that are due; raises `StoreError`."""
        if self._unwritten_events:
            storage.queue.note(*self._unwritten_events)
            self._unwritten_events.clear()
        self._activate_due(storage)
        for name, trigger in self.triggers.items():
            now = time.monotonic()
            if "sensor" in trigger.held and now >= self._next_cancel.get(name, 0.0):
                self._next_cancel[name] = now + _CANCEL_EVERY_S
                self._cancel_own_jobs(name, storage)
            if (spoiled := self._spoiled.get(name)) is not None:
                self._cancel_own_jobs(name, storage, *spoiled)
                del self._spoiled[name]
            why = trigger.due(now)
            if why is None:
                continue
            trigger.put_off(now)  # so that the frames are requested once
            if self._has_own_jobs(name, storage):
                continue
            self.worker.log.info("reidentify", arm=name, reason=why)
            history = storage.queue.history.promotions(name)
            # after a rollback by a user, the daemon promotes no model by itself
            promote = trigger.settings.promote and not (history and history[-1].action == "rolled_back")
            self.reidentify(name, why, promote, storage, self._queued(name, trigger, storage))

    def _cancel_own_jobs(self, arm: str, storage: JobStorage, since_ns: int = 0, until_ns: int | None = None) -> None:
        """Cancel jobs queued by the daemon itself (created between times [ns since 1970]), whose sensor was faulty."""
        for job in storage.queue.recent(("queued", "running"), arm=arm, limit=1000):
            then = job.created_ns >= since_ns and (until_ns is None or job.created_ns <= until_ns)
            if then and job.origin != "request" and not job.cancel:
                storage.queue.cancel(job.id)

    def _has_own_jobs(self, arm: str, storage: JobStorage) -> bool:
        """Return whether jobs that the daemon queued by itself for an arm are under way."""
        waiting = storage.queue.recent(("queued", "running"), arm=arm, limit=1000)
        return any(job.origin != "request" for job in waiting)

    def _queued(self, arm: str, trigger: Trigger, storage: JobStorage) -> Answer:
        def then(_jobs: Any, error: ControlError | None) -> None:
            if error is None:
                trigger.fire(time.monotonic())
                return
            self.worker.log.warning("not_reidentified", arm=arm, reason=error.message)
            try:
                storage.queue.note(Event(time.time_ns(), "not_reidentified", error.message, arm))
            except StoreError as problem:
                self.worker.log.warning("event_not_kept", reason=str(problem))

        return then

    def reidentify(self, arm: str, origin: str, promote: bool, storage: JobStorage, then: Answer) -> None:
        """Queue jobs that identify an arm from its last frames, validate and promote; `then` gets their numbers."""
        settings = self.config.find(arm).reidentify or ReidentifyConfig()
        asked_s = time.monotonic()

        def window(given: dict[str, str] | None, error: ControlError | None) -> None:
            if error is None and origin != "request" and self._stuck_s.get(arm, -1.0) >= asked_s:
                error = ControlError("failed", "an encoder stuck while the frames were saved")
            if given is None or error is not None:
                then(None, error)
                return
            try:
                jobs = storage.queue.submit(*self._chain(arm, origin, promote, given), chained=True)
            except (StoreError, RuntimeError, ValueError, OSError) as problem:
                then(None, ControlError("failed", str(problem)))
            else:
                then([job.id for job in jobs], None)

        self.save_window(arm, settings.window_s, storage, window)

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
            given = {"robot": robot, "model": "job:0", "span": test, "springs": springs_of(arm)}
            kinds.append(("promote", given))
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
    """Hold or release automatic identification after a sudden change of the arm (docs/drift.md)."""
    if event.kind == "change":
        trigger.hold("change", time.monotonic() + _UNREPORTED_S)
        return
    if event.kind not in _CHANGE_KINDS:
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


def springs_of(arm: ArmConfig) -> list[str] | None:
    """Return the elastic joints of an arm that start from its active model; None if none is estimated."""
    return [spring.joint for spring in arm.elastic if spring.model is None] if arm.elastic else None


def robot_text(arm: ArmConfig, config: Config) -> str:
    """Return the whole description of an arm's robot, so that a job does not depend on the file."""
    from service.config.arm_robot import load_arm_robot

    return json.dumps(load_arm_robot(arm, config.base).source)


def _values_of(path: Path) -> dict[str, Any]:
    """Return the values of a model file that an estimator adopts."""
    from service.models.document import load_model

    return estimator_values(load_model(path))
