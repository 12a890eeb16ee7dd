"""Execution of queued jobs: claim, start a run, keep the lease, store the end."""

import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from drivers.files.atomic_write import write_text
from service.io.log import Log
from service.jobs._job_storage import JobStorage
from service.jobs.execution.backend import Backend, BackendBusyError, Ended, Run
from service.jobs.execution.spec import FORMAT, LOG_FILE, RESULTS_FOLDER, SPEC_FILE
from service.jobs.kinds import find_kind
from service.jobs.kinds.promote import ACTIVE
from service.jobs.queue.artifacts import ArtifactError
from service.jobs.queue.queue import PromotionConflictError
from service.jobs.queue.state import FIRST_DELAY_NS, Job, StaleTokenError
from service.jobs.queue.store import Model, Promotion, StoreError
from service.jobs.references import MODEL, file_input
from service.operations.errors import OperationError

_IDLE_S = 0.5  # between two searches for jobs that have become due
_SETTLE_AGAIN_S = 2.0
_START_AGAIN_S = 5.0  # after a run could not be started
_RENEWALS = 3.0  # per lease


@dataclass
class Held:
    """A claimed job and its run.

    `ended` is set when the run is over and not stored yet, which is tried again at `settle_at`; `active` is the arm's
    active model at the start.
    """

    job: Job
    run: Run
    active: str | None = None
    ended: Ended | None = None
    settle_at: float = 0.0


class Executor:
    """Runs the queue's jobs on a backend.

    With less than `least_free_mb` of free disk space no job is started. `on_promoted` is called with each stored
    promotion; `configured` are the configured model files, by arm.
    """

    def __init__(
        self, storage: JobStorage, backend: Backend, lease_s: float, least_free_mb: float, log: Log,
        on_promoted: Callable[[Promotion], None], configured: Mapping[str, Path | None],
    ) -> None:  # fmt: skip
        self.storage, self.backend = storage, backend
        self.held: dict[int, Held] = {}
        self.waiting_reason = ""  # why no job is started, if so
        self._lease_s, self._least_free_mb = lease_s, least_free_mb
        self._log, self._on_promoted, self._configured = log, on_promoted, configured
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{time.time_ns() // 1000}"
        self._renew_at = self._look_at = 0.0
        self._ahead_ns = _ahead_ns()

    def wake(self) -> None:
        """Search for jobs at the next step."""
        self._look_at = 0.0

    def step(self) -> None:
        """Check on the runs and start new ones; raises `StoreError`, after which it can be called again."""
        now = time.monotonic()
        for held in self.held.values():
            held.ended = held.ended or held.run.poll()
        problem: StoreError | None = None
        for held in list(self.held.values()):
            if held.ended is not None and now >= held.settle_at:
                try:
                    self._settle(held, held.ended)
                except StoreError as error:  # one that cannot be stored must not block the others
                    problem, held.settle_at = error, now + _SETTLE_AGAIN_S
        if self.held and now >= self._renew_at:
            self._renew()
            self._renew_at = now + self._lease_s / _RENEWALS
        if now >= self._look_at:
            self._look_at = now + _IDLE_S
            self._follow_clock()
            self.storage.queue.expire({id: held.job.token for id, held in self.held.items()})
            self._start_some()
        if problem is not None:
            raise problem

    def _follow_clock(self) -> None:
        """Bring forward what is due by a clock that has been set back, by more than the shortest wait of a job."""
        ahead_ns = _ahead_ns()
        if self._ahead_ns - ahead_ns > FIRST_DELAY_NS:
            self.storage.queue.bring_forward(self._ahead_ns - ahead_ns)
        self._ahead_ns = ahead_ns

    def stop(self) -> None:
        """End all runs and hand their jobs back; raises `StoreError`."""
        held, self.held = list(self.held.values()), {}
        for one in held:
            one.run.kill()
        for one in held:
            try:
                self.storage.queue.hand_back(one.job.id, one.job.token, "the daemon was stopped")
            except StaleTokenError:
                continue
            shutil.rmtree(one.run.folder, ignore_errors=True)

    # ------------------------------------------------------------ starting

    def _start_some(self) -> None:
        self.waiting_reason = self.backend.trouble
        if not self.waiting_reason and (free_mb := self.storage.free_mb()) < self._least_free_mb:
            self.waiting_reason = (
                f"{free_mb:.0f} MB are free on the disk of {self.storage.directory}, and jobs start with "
                f"{self._least_free_mb:g} MB (jobs.least_free_mb): make room"
            )
        if self.waiting_reason:
            return
        while self.backend.free() > 0:
            job = self.storage.queue.claim(self._owner, self._lease_s)
            if job is None:
                return
            self._start(job)
            if self.waiting_reason:
                return

    def _start(self, job: Job) -> None:
        if (old := self.held.get(job.id)) is not None:  # another holder had it meanwhile
            old.run.kill()
            self._forget(old)
        if job.parts and (others := self._of_other_versions(job)):
            self._redo(job, others)
            return
        active = None if job.arm is None else self.storage.queue.history.active(job.arm)
        folder = self.storage.runs / f"{job.id}-{job.token}"
        try:
            spec = self._spec(job, active)
        except OperationError as error:
            self.storage.queue.fail(job.id, job.token, str(error), final=True)
            return
        except OSError as error:  # of this job's inputs alone: the others must not wait for it
            reason = f"an input cannot be read: {error.filename or ''}: {error.strerror or error}"
            self._log.error("run_not_started", job=job.id, reason=reason)
            self.storage.queue.fail(job.id, job.token, reason, final=False)
            return
        try:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700)
            write_text(folder / SPEC_FILE, json.dumps(spec))
            run = self.backend.start(folder.name, folder, job.limits)
        except (OSError, BackendBusyError) as error:  # not the job's fault
            reason = f"no run can be started: {getattr(error, 'strerror', None) or error}"
            self._log.error("run_not_started", job=job.id, reason=reason)
            self.storage.queue.hand_back(job.id, job.token, reason)
            self.waiting_reason, self._look_at = reason, time.monotonic() + _START_AGAIN_S
            return
        self.held[job.id] = Held(job, run, active)
        self._log.info("run_started", job=job.id, kind=job.kind, part=job.part, token=job.token)

    def _redo(self, job: Job, parts: list[int]) -> None:
        reason = "were computed by another version of the program"
        self._log.warning("parts_redone", job=job.id, count=len(parts), reason=reason)
        self.storage.queue.redo_parts(job.id, job.token, parts, reason)

    def _of_other_versions(self, job: Job) -> list[int]:
        """Return the parts that another version of the program has run: their results cannot be combined."""
        parts = self.storage.queue.parts(job.id)
        versions = {part.id: _version(part.outcome or {}) for part in parts}
        newest = max(parts, key=lambda part: part.finished_ns)
        return [id for id, version in versions.items() if version != versions[newest.id]]

    def _spec(self, job: Job, active: str | None) -> dict[str, Any]:
        """Return the specification for the runner; raises `OperationError`."""
        kind = find_kind(job.kind)
        inputs = self.storage.references.at_start(job)
        if kind.uses_active and job.arm is not None:
            self._check_wanted(job, job.arm)
            configured = self._configured.get(job.arm)
            if active is not None:
                inputs["present"] = self.storage.references.artifact(active, "present")
            elif configured is not None:  # the estimator's model until one has been promoted
                inputs["present"] = file_input(configured, "present")
        spec: dict[str, Any] = {
            "format": FORMAT, "kind": job.kind, "parameters": dict(job.parameters), "arm": job.arm,
            "created": datetime.fromtimestamp(job.created_ns // 1_000_000_000, UTC).isoformat(), "inputs": inputs,
            "limits": asdict(job.limits),
        }  # fmt: skip
        if job.part is not None and kind.fan_out is not None:
            spec["part"] = list(kind.fan_out.split(kind.read(job.parameters)))[job.part]
        elif job.parts:
            spec["parts"] = [(part.outcome or {})["part"] for part in self.storage.queue.parts(job.id)]
        return spec

    def _check_wanted(self, job: Job, arm: str) -> None:
        """Refuse an automatic promotion after a rollback by a user."""
        history = self.storage.queue.history.promotions(arm)
        if job.origin != "request" and history and history[-1].action == "rolled_back":
            raise OperationError("an earlier model was restored by a rollback: a new one is promoted on request only")

    # ------------------------------------------------------------ holding

    def _renew(self) -> None:
        tokens = {id: held.job.token for id, held in self.held.items()}
        for id, why in self.storage.queue.renew(tokens, self._lease_s).items():
            held = self.held[id]
            if why == "cancelled":
                held.run.stop()
            else:  # the lease is lost
                self._log.warning("run_dropped", job=id, reason=why)
                held.run.kill()
                self._forget(held)

    def cancel(self, id: int) -> None:
        """Stop the run of a cancelled job, and those of its parts."""
        for held in self.held.values():
            if id in (held.job.id, held.job.parent):
                held.run.stop()

    # ------------------------------------------------------------ ending

    def _settle(self, held: Held, ended: Ended) -> None:
        """Store how a run ended; retried after a `StoreError`."""
        job, queue = held.job, self.storage.queue
        try:
            if ended.how == "outcome":
                self._finish(held, ended)
            elif ended.how == "cancelled":
                queue.hand_back(job.id, job.token, "its run stopped by itself")
            elif ended.how in ("interrupted", "put_off"):
                queue.interrupt(job.id, job.token, ended.reason, later=ended.how == "put_off")
            else:
                queue.fail(job.id, job.token, ended.reason, ended.log, final=ended.how == "final")
        except StaleTokenError as error:
            self._log.warning("run_too_late", job=job.id, reason=str(error))
        except PromotionConflictError as error:
            queue.hand_back(job.id, job.token, str(error))
        self._log.info("run_ended", job=job.id, kind=job.kind, how=ended.how, reason=ended.reason)
        self._forget(held)

    def _forget(self, held: Held) -> None:
        del self.held[held.job.id]
        shutil.rmtree(held.run.folder, ignore_errors=True)
        self.wake()

    def _finish(self, held: Held, ended: Ended) -> None:
        job, queue, folder = held.job, self.storage.queue, held.run.folder
        outcome = dict(ended.outcome)
        try:
            self._keep(folder, outcome)
        except (ArtifactError, FileNotFoundError) as error:
            queue.fail(job.id, job.token, f"its results are not there any more: {error}", ended.log, final=False)
            return
        except OSError as error:
            raise StoreError(f"{error.filename or folder}: results cannot be kept: {error.strerror}") from error
        model = promotion = None
        results: Mapping[str, Any] = outcome.get("results") or {}
        accepted = bool(outcome.get("accepted", True))
        if job.parts:
            parts = queue.parts(job.id)
            if any(_version(part.outcome or {}) != _version(outcome) for part in parts):
                self._redo(job, [part.id for part in parts])
                return
        if job.kind == "promote" and job.arm is not None and accepted:
            promotion = self._promotion(held, outcome)
            model = self._model(job, outcome["metrics"]["candidate"], str(promotion.model))
        elif MODEL in results and job.arm is not None:
            model = self._model(job, outcome["metrics"], results[MODEL]["sha256"])
        finished = queue.finish(job.id, job.token, outcome, ended.log, model=model, promotion=promotion)
        if promotion is not None and finished.state == "succeeded":
            self._on_promoted(promotion)

    def _keep(self, folder: Path, outcome: dict[str, Any]) -> None:
        """Store a run's results and log; raises `ArtifactError` if one does not match the outcome."""
        for name, stated in (outcome.get("results") or {}).items():
            if self.storage.artifacts.put(folder / RESULTS_FOLDER / name) != stated["sha256"]:
                raise ArtifactError(f"result {name} is not what the run says it wrote")
        log = folder / LOG_FILE
        if log.exists() and log.stat().st_size:
            outcome["log"] = {"sha256": self.storage.artifacts.put(log), "bytes": log.stat().st_size}

    def _promotion(self, held: Held, outcome: Mapping[str, Any]) -> Promotion:
        """Return the entry for the history."""
        job, model = held.job, outcome["metrics"]["candidate"]["model"]
        summary, values = str(outcome["summary"]), {"values": outcome["results"][ACTIVE]["sha256"]}
        return Promotion(time.time_ns(), str(job.arm), model, held.active, "promoted", job.id, summary, values)

    def _model(self, job: Job, metrics: Mapping[str, Any], sha256: str) -> Model:
        method, verdict = str(metrics.get("method", "")), str(metrics.get("verdict", ""))
        error, origin = metrics.get("relative_error"), f"job {job.id}"
        return Model(sha256, str(job.arm), time.time_ns(), job.id, method, verdict, error, origin)


def _ahead_ns() -> int:
    """Return the time since 1970 less that of a clock that nobody sets."""
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _version(outcome: Mapping[str, Any]) -> str:
    """Return the program version of a run; processors may differ from part to part."""
    code = dict(outcome.get("code") or {})
    code.pop("cpu", None)
    return json.dumps(code, sort_keys=True)
