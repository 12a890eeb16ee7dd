"""Running jobs: take one from the queue, start a run, keep its lease, and put down how it ended."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from service.io.atomic_files import write_text
from service.io.log import Log
from service.jobs._job_storage import Holdings
from service.jobs.execution.backend import LOG, RESULTS, SPEC, Backend, BackendBusyError, Ended, Run
from service.jobs.execution.spec import FORMAT
from service.jobs.kinds import find_kind
from service.jobs.kinds.promote import ACTIVE
from service.jobs.queue.artifacts import ArtifactError
from service.jobs.queue.queue import PromotionConflictError
from service.jobs.queue.state import Job, StaleTokenError
from service.jobs.queue.store import Model, Promotion, StoreError
from service.jobs.references import MODEL, file_input
from service.operations.workspace import JobError

_IDLE_S = 0.5  # between two looks for jobs that have become due
_SETTLE_AGAIN_S = 2.0
_START_AGAIN_S = 5.0  # after a run could not be started
_RENEWALS = 3.0  # of a lease before it would run out


@dataclass
class Held:
    """A job that this process holds, and its run.

    `ended` once that is over and not yet written down, which is tried again at `settle_at`; `active` is the arm's
    active model when the run began.
    """

    job: Job
    run: Run
    active: str | None = None
    ended: Ended | None = None
    settle_at: float = 0.0


class Execution:
    """Runs the queue's jobs on a backend.

    Parameters
    ----------
    holdings : Holdings
    backend : Backend
    lease_s : float
    least_free_mb : float
        With less room on the disk no job is started.
    log : Log
    on_promoted : callable
        Called with each promotion after it has been written down.
    configured : mapping
        The model files that the configuration names, by arm.
    """

    def __init__(
        self,
        holdings: Holdings,
        backend: Backend,
        lease_s: float,
        least_free_mb: float,
        log: Log,
        on_promoted: Callable[[Promotion], None],
        configured: Mapping[str, Path | None],
    ) -> None:
        self.holdings, self.backend = holdings, backend
        self.held: dict[int, Held] = {}
        self.waits = ""  # why no job is started, if so
        self._lease_s, self._least_free_mb = lease_s, least_free_mb
        self._log, self._on_promoted, self._configured = log, on_promoted, configured
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{time.time_ns() // 1000}"
        self._renew_at = self._look_at = 0.0

    def look_now(self) -> None:
        """Look for jobs at the next step: something has changed."""
        self._look_at = 0.0

    def step(self) -> None:
        """Look after the runs, start new ones; raises `StoreError`, after which it can be called again."""
        now = time.monotonic()
        for held in self.held.values():
            held.ended = held.ended or held.run.poll()
        problem: StoreError | None = None
        for held in list(self.held.values()):
            if held.ended is not None and now >= held.settle_at:
                try:
                    self._settle(held, held.ended)
                except StoreError as error:  # one that cannot be written down must not keep the others from it
                    problem, held.settle_at = error, now + _SETTLE_AGAIN_S
        if self.held and now >= self._renew_at:
            self._renew()
            self._renew_at = now + self._lease_s / _RENEWALS
        if now >= self._look_at:
            self._look_at = now + _IDLE_S
            self.holdings.queue.expire({id: held.job.token for id, held in self.held.items()})
            self._start_some()
        if problem is not None:
            raise problem

    def stop(self) -> None:
        """End all runs and hand their jobs back; raises `StoreError`."""
        held, self.held = list(self.held.values()), {}
        for one in held:
            one.run.kill()
        for one in held:
            try:
                self.holdings.queue.hand_back(one.job.id, one.job.token, "the daemon was stopped")
            except StaleTokenError:
                continue
            shutil.rmtree(one.run.folder, ignore_errors=True)

    # ------------------------------------------------------------ starting

    def _start_some(self) -> None:
        self.waits = self.backend.trouble
        if not self.waits and (free_mb := self.holdings.free_mb()) < self._least_free_mb:
            self.waits = (
                f"{free_mb:.0f} MB are free on the disk of {self.holdings.directory}, and jobs start with "
                f"{self._least_free_mb:g} MB (jobs.least_free_mb): make room"
            )
        if self.waits:
            return
        while self.backend.free() > 0:
            job = self.holdings.queue.claim(self._owner, self._lease_s)
            if job is None:
                return
            self._start(job)
            if self.waits:
                return

    def _start(self, job: Job) -> None:
        if (old := self.held.get(job.id)) is not None:  # another holder had it meanwhile
            old.run.kill()
            self._forget(old)
        if job.parts and (others := self._of_other_versions(job)):
            self._redo(job, others)
            return
        active = None if job.arm is None else self.holdings.queue.history.active(job.arm)
        folder = self.holdings.runs / f"{job.id}-{job.token}"
        try:
            spec = self._spec(job, active)
        except JobError as error:
            self.holdings.queue.fail(job.id, job.token, str(error), final=True)
            return
        except OSError as error:  # of this job's inputs alone: the others must not wait for it
            reason = f"an input cannot be read: {error.filename or ''}: {error.strerror or error}"
            self._log.error("run_not_started", job=job.id, reason=reason)
            self.holdings.queue.fail(job.id, job.token, reason, final=False)
            return
        try:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700)
            write_text(folder / SPEC, json.dumps(spec))
            run = self.backend.start(folder.name, folder, job.limits)
        except (OSError, BackendBusyError) as error:  # not the job's fault
            reason = f"no run can be started: {getattr(error, 'strerror', None) or error}"
            self._log.error("run_not_started", job=job.id, reason=reason)
            self.holdings.queue.hand_back(job.id, job.token, reason)
            self.waits, self._look_at = reason, time.monotonic() + _START_AGAIN_S
            return
        else:
            self.held[job.id] = Held(job, run, active)
            self._log.info("run_started", job=job.id, kind=job.kind, part=job.part, token=job.token)

    def _redo(self, job: Job, parts: list[int]) -> None:
        reason = "were computed by another version of the program"
        self._log.warning("parts_redone", job=job.id, count=len(parts), reason=reason)
        self.holdings.queue.redo_parts(job.id, job.token, parts, reason)

    def _of_other_versions(self, job: Job) -> list[int]:
        """Return the parts that were done before the program changed: their results do not belong together."""
        parts = self.holdings.queue.parts(job.id)
        versions = {part.id: _version(part.outcome or {}) for part in parts}
        newest = max(parts, key=lambda part: part.finished_ns)
        return [id for id, version in versions.items() if version != versions[newest.id]]

    def _spec(self, job: Job, active: str | None) -> dict[str, Any]:
        """Make what the runner reads; raises `JobError`."""
        kind = find_kind(job.kind)
        inputs = self.holdings.references.at_start(job)
        if kind.uses_active and job.arm is not None:
            self._check_wanted(job, job.arm)
            configured = self._configured.get(job.arm)
            if active is not None:
                inputs["present"] = self.holdings.references.artifact(active, "present")
            elif configured is not None:  # what the estimator predicts by until a model has been promoted
                inputs["present"] = file_input(configured, "present")
        spec: dict[str, Any] = {
            "format": FORMAT,
            "kind": job.kind,
            "parameters": dict(job.parameters),
            "arm": job.arm,
            "created": datetime.fromtimestamp(job.created_ns // 1_000_000_000, UTC).isoformat(),
            "inputs": inputs,
            "limits": {"seconds": job.limits.seconds, "memory_mb": job.limits.memory_mb},
        }
        if job.part is not None and kind.fan_out is not None:
            spec["part"] = list(kind.fan_out.split(kind.read(job.parameters)))[job.part]
        elif job.parts:
            spec["parts"] = [(part.outcome or {})["part"] for part in self.holdings.queue.parts(job.id)]
        return spec

    def _check_wanted(self, job: Job, arm: str) -> None:
        """Refuse to promote by itself after somebody has rolled back."""
        history = self.holdings.queue.history.promotions(arm)
        if job.origin != "request" and history and history[-1].action == "rolled_back":
            raise JobError("somebody has rolled back to an earlier model: a new one is promoted on request only")

    # ------------------------------------------------------------ holding

    def _renew(self) -> None:
        tokens = {id: held.job.token for id, held in self.held.items()}
        for id, why in self.holdings.queue.renew(tokens, self._lease_s).items():
            held = self.held[id]
            if why == "cancelled":
                held.run.stop()
            else:  # nobody waits for this run any more
                self._log.warning("run_dropped", job=id, reason=why)
                held.run.kill()
                self._forget(held)

    def cancel(self, id: int) -> None:
        """Tell the run of a job to stop, and those of its parts; the queue has been told."""
        for held in self.held.values():
            if id in (held.job.id, held.job.parent):
                held.run.stop()

    # ------------------------------------------------------------ ending

    def _settle(self, held: Held, ended: Ended) -> None:
        """Write down how a run ended; after a `StoreError` it is tried again."""
        job, queue = held.job, self.holdings.queue
        try:
            if ended.how == "outcome":
                self._finish(held, ended)
            elif ended.how == "cancelled":
                queue.hand_back(job.id, job.token, "its run stopped by itself")
            elif ended.how == "interrupted":
                queue.interrupt(job.id, job.token, ended.reason)
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
        self.look_now()

    def _finish(self, held: Held, ended: Ended) -> None:
        job, queue, folder = held.job, self.holdings.queue, held.run.folder
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
        """Put a run's results and log where they stay; raises `ArtifactError` if one is not what the outcome says."""
        for name, said in (outcome.get("results") or {}).items():
            if self.holdings.artifacts.put(folder / RESULTS / name) != said["sha256"]:
                raise ArtifactError(f"result {name} is not what the run says it wrote")
        log = folder / LOG
        if log.exists() and log.stat().st_size:
            outcome["log"] = {"sha256": self.holdings.artifacts.put(log), "bytes": log.stat().st_size}

    def _promotion(self, held: Held, outcome: Mapping[str, Any]) -> Promotion:
        """Make the entry of the history."""
        return Promotion(
            time.time_ns(),
            str(held.job.arm),
            outcome["metrics"]["candidate"]["model"],
            held.active,
            "promoted",
            held.job.id,
            str(outcome["summary"]),
            {"values": outcome["results"][ACTIVE]["sha256"]},
        )

    def _model(self, job: Job, metrics: Mapping[str, Any], sha256: str) -> Model:
        return Model(
            sha256,
            str(job.arm),
            time.time_ns(),
            job.id,
            str(metrics.get("method", "")),
            str(metrics.get("verdict", "")),
            metrics.get("relative_error"),
            f"job {job.id}",
        )


def _version(outcome: Mapping[str, Any]) -> str:
    """Return the version of the program that a run was done by; kinds of processors may differ from part to part."""
    code = dict(outcome.get("code") or {})
    code.pop("cpu", None)
    return json.dumps(code, sort_keys=True)
