"""The jobs process: opens the queue, runs its jobs, and answers requests about them.

Without a usable queue (full disk, read-only file system, damaged or locked file) it keeps running, refuses requests
with the reason, and tries to open the queue again. Estimation does not depend on it.
"""

import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from typing import Any

from service.config.load import Config
from service.jobs._auto_identification import AutoIdentification
from service.jobs._job_storage import JobStorage
from service.jobs._path_policy import PathPolicy
from service.jobs._requests import Requests
from service.jobs.budget import recordings_of, to_delete
from service.jobs.execution.backend import Backend, LocalBackend
from service.jobs.execution.executor import Executor
from service.jobs.queue.retention import needed_files
from service.jobs.queue.salvage import Salvaged
from service.jobs.queue.store import Event, Promotion, StoreCorruptError, StoreError
from service.protocol import worker_messages
from service.worker.worker import Worker

POLL_MS = 50
REOPEN_S = 2.0
PURGE_S = 3600.0
BUDGET_S = 30.0  # between two checks of the recordings' budget
_EVENTS = 10_000  # kept while the queue cannot be written


class Dispatcher:
    """The jobs process."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.config = worker.config
        self.auto_identification = AutoIdentification(worker, self.config)
        self.requests = Requests(worker, self.config, self.auto_identification)
        self.backend = make_backend(self.config)
        self.trouble = ""
        self._events: deque[Event] = deque(maxlen=_EVENTS)
        self._open_at = self._purge_at = self._budget_at = 0.0
        self._logged = (0, 0)  # changes of the file, and number of the latest event, that are logged

    @property
    def storage(self) -> JobStorage | None:
        """The storage, while it can be used."""
        return self.requests.storage

    def run(self) -> None:
        """Work until stopped."""
        self._guard(self._open)
        self.worker.ready()
        while not self.worker.stopping:
            self.worker.socket.poll(POLL_MS)
            if self.storage is None:
                if time.monotonic() >= self._open_at:
                    self._guard(self._open)
            else:
                self._guard(self._step)
            self.worker.serve(self.requests.handlers, self._on_event)
            self.requests.background.step()
            now_ns = time.monotonic_ns()
            if self.worker.heartbeat_due(now_ns):
                self.worker.heartbeat(now_ns, self._status())

    def _guard(self, step: Callable[[], None]) -> None:
        """Run a step; a problem of the queue is reported once, and does not end the process."""
        try:
            step()
        except StoreError as error:
            if str(error) != self.trouble:
                self.trouble = str(error)
                self.worker.log.error("queue_unusable", reason=self.trouble)
            if isinstance(error, StoreCorruptError):
                self._abandon_queue()  # it is opened again, and salvaged
            self.requests.reason = self.trouble
            self._open_at = time.monotonic() + REOPEN_S
        else:
            if self.trouble and self.storage is not None:
                self.worker.log.info("queue_usable_again")
                self.trouble = ""

    # ------------------------------------------------------------ the queue

    def _open(self) -> None:
        storage = JobStorage.open(self.config.state_dir / "jobs", PathPolicy.of(self.config))
        if storage.salvaged is not None:  # first: what follows may fail and be tried again
            self._report_salvaged(storage.salvaged)
        try:
            with storage.queue.store.read() as tx:
                self._logged = -1, tx.last_numbers().get("events", 0)
            taken = storage.queue.expire(everything=True)
            storage.clear_runs()
            for job in taken:
                self.worker.log.warning("job_interrupted", job=job.id, kind=job.kind)
            self.auto_identification.open(storage)
        except BaseException:
            storage.close()
            raise
        jobs, log = self.config.jobs, self.worker.log
        models = {arm.name: arm.model for arm in self.config.arm}
        self.requests.storage, self.requests.executor = (
            storage,
            Executor(storage, self.backend, jobs.lease_s, jobs.least_free_mb, log, self._on_promoted, models),
        )

    def _report_salvaged(self, found: Salvaged) -> None:
        rows = ", ".join(f"{count} {table}" for table, count in found.rows.items()) or "nothing"
        missing = f"; not readable: jobs {', '.join(map(str, found.missing))}" if found.missing else ""
        text = f"the queue was damaged and is kept as {found.damaged.name}; recovered: {rows}{missing}"
        self.worker.log.error("queue_salvaged", reason=text, kept_as=str(found.damaged))
        self._events.append(Event(time.time_ns(), "queue_salvaged", text, data={"rows": found.rows}))

    def _abandon_queue(self) -> None:
        """Close a damaged queue; its runs are ended, and their jobs run again."""
        executor, storage = self.requests.executor, self.requests.storage
        self.requests.storage = self.requests.executor = None
        if executor is not None:
            for held in executor.held.values():
                held.run.kill()
        if storage is not None:
            storage.close()

    def _step(self) -> None:
        storage, executor = self.requests.storage, self.requests.executor
        if storage is None or executor is None:
            return
        if self.requests.corrupt:
            found, self.requests.corrupt = self.requests.corrupt, ""
            raise StoreCorruptError(found)
        if self._events:
            storage.queue.note(*self._events)
            self._events.clear()
        executor.step()
        self.auto_identification.step(storage)
        self._log_events(storage)
        if time.monotonic() >= self._purge_at and not self.requests.backing_up:
            self._purge_at = time.monotonic() + PURGE_S
            if gone := storage.purge(self.config.jobs):
                self.worker.log.info("jobs_purged", count=gone)
        if time.monotonic() >= self._budget_at:
            self._budget_at = time.monotonic() + BUDGET_S
            self._keep_budgets(storage)

    def _keep_budgets(self, storage: JobStorage) -> None:
        """Delete recordings beyond their arm's budget."""
        for arm in self.config.arm:
            limits = arm.recorder
            if limits is None or (limits.max_gb is None and limits.keep_days is None):
                continue
            found = recordings_of(arm.name, self.config.recording_dir(arm))
            needed = needed_files(storage.queue.store, unfinished=True).paths if found else set()
            for one in to_delete(found, time.time(), limits.keep_days, limits.max_gb, needed):
                try:
                    one.path.unlink(missing_ok=True)
                except OSError as error:
                    self.worker.log.error("recording_not_deleted", path=str(one.path), reason=error.strerror)
                    break
                self.worker.log.info("recording_deleted", path=str(one.path), bytes=one.bytes)

    # ------------------------------------------------------------ what happens

    def _log_events(self, storage: JobStorage) -> None:
        """Log events of jobs; the supervisor logs the others."""
        changes, newest = self._logged
        if storage.queue.store.changes == changes:
            return
        changes = storage.queue.store.changes
        for event in storage.queue.events(after=newest) if newest else storage.queue.events():
            newest = event.id
            if event.job is not None:
                told = {"event_kind": event.kind, "text": event.text, "arm": event.arm, "job": event.job}
                model = {"model": event.data["model"]} if "model" in event.data else {}
                self.worker.log.info("event", **told, number=event.id, **model)
        self._logged = changes, newest

    def _on_event(self, message: worker_messages.Event) -> None:
        event = Event(message.t_ns, message.event, message.text, message.arm, data=message.data)
        self._events.append(event)
        self.auto_identification.on_event(event)

    def _on_promoted(self, promotion: Promotion) -> None:
        self.auto_identification.promoted(promotion.arm)

    def _status(self) -> dict[str, Any]:
        executor, storage = self.requests.executor, self.requests.storage
        counts: dict[str, int] = {}
        by_kind: dict[str, dict[str, int]] = {}
        waiting_reason = ""
        if storage is not None and executor is not None:
            waiting_reason = executor.waiting_reason
            try:
                counts = storage.queue.counts()
                by_kind = storage.queue.counts_by_kind()
            except StoreError as error:
                self.trouble = str(error)
        running = 0 if executor is None else len(executor.held)
        state = "trouble" if self.trouble else "running" if running else "idle"
        return {"state": state, "trouble": self.trouble or waiting_reason, "running": running, "jobs": counts,
                "by_kind": by_kind, "backend": self.backend.label}  # fmt: skip

    def close(self) -> None:
        """End the runs, hand their jobs back, close the queue."""
        executor, storage = self.requests.executor, self.requests.storage
        try:
            if executor is not None:
                executor.stop()
        except StoreError as error:
            self.worker.log.error("jobs_not_handed_back", reason=str(error))
        finally:
            self.requests.background.close()
            self.backend.close()
            if storage is not None:
                storage.close()


def make_backend(config: Config) -> Backend:
    """Make the configured backend."""
    jobs = config.jobs
    if jobs.backend == "dask" and jobs.scheduler is not None and jobs.workers > 0:
        from service.jobs.dask.backend import DaskBackend

        return DaskBackend(jobs.scheduler)
    return LocalBackend(jobs.workers, processors_for(config), jobs.priority)


def processors_for(config: Config) -> frozenset[int]:
    """Return the processors for jobs: as configured, or the last ones that no acquisition reserves."""
    available = os.sched_getaffinity(0)
    if config.jobs.processors is not None:
        return frozenset(config.jobs.processors) & available or frozenset(available)
    taken = {p for arm in config.arm if arm.realtime is not None for p in arm.realtime.processors or ()}
    free = sorted(available - taken) or sorted(available)
    return frozenset(free[-min(config.jobs.workers or 1, max(1, len(free) // 2)) :])


def main(worker: Worker) -> None:
    """Run the jobs process."""
    with closing(Dispatcher(worker)) as dispatcher:
        dispatcher.run()
