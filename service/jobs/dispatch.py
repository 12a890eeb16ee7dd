"""The jobs process: it alone opens the queue, runs what is in it, and answers for it.

It works on without a queue that can be used (a full disk, a file system that is read-only, a damaged or locked file):
it says why, refuses requests with that reason, and tries to open it again.  Estimation does not depend on it.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from service.config.load import Config
from service.jobs._auto_identification import Arms
from service.jobs._job_storage import Holdings
from service.jobs._path_policy import Places
from service.jobs._requests import Requests
from service.jobs.budget import recordings_of, to_delete
from service.jobs.execution.backend import Backend, LocalBackend
from service.jobs.execution.executor import Execution
from service.jobs.queue.retention import needed_files
from service.jobs.queue.salvage import Salvaged
from service.jobs.queue.store import Event, Promotion, StoreCorruptError, StoreError
from service.worker.worker import Worker

POLL_MS = 50
REOPEN_S = 2.0
PURGE_S = 3600.0
BUDGET_S = 30.0  # between two looks at what recordings take
_EVENTS = 10_000  # kept while the queue cannot be written


class Dispatcher:
    """Everything that the jobs process does."""

    def __init__(self, child: Worker) -> None:
        self.child = child
        self.config = child.config
        self.arms = Arms(child, self.config)
        self.requests = Requests(child, self.config, self.arms)
        self.backend = make_backend(self.config)
        self.trouble = ""
        self._events: deque[Event] = deque(maxlen=_EVENTS)
        self._open_at = self._purge_at = self._budget_at = 0.0
        self._logged = (0, 0)  # changes of the file, and number of the newest event, that the log knows

    @property
    def holdings(self) -> Holdings | None:
        """The queue and what belongs to it, while it can be used."""
        return self.requests.holdings

    def run(self) -> None:
        """Work until told to stop."""
        self._guard(self._open)
        self.child.ready()
        while not self.child.stopping:
            self.child.socket.poll(POLL_MS)
            if self.holdings is None:
                if time.monotonic() >= self._open_at:
                    self._guard(self._open)
            else:
                self._guard(self._step)
            self.child.serve(self.requests.handlers, self._on_event)
            self.requests.aside.step()
            now_ns = time.monotonic_ns()
            if self.child.beat_due(now_ns):
                self.child.beat(now_ns, self._status())

    def _guard(self, step: Callable[[], None]) -> None:
        """Take a step; what is wrong with the queue is told once, and does not end the process."""
        try:
            step()
        except StoreError as error:
            if str(error) != self.trouble:
                self.trouble = str(error)
                self.child.log.error("queue_unusable", reason=self.trouble)
            if isinstance(error, StoreCorruptError):
                self._lay_down()  # it is opened again, and salvaged
            self.requests.reason = self.trouble
            self._open_at = time.monotonic() + REOPEN_S
        else:
            if self.trouble and self.holdings is not None:
                self.child.log.info("queue_usable_again")
                self.trouble = ""

    # ------------------------------------------------------------ the queue

    def _open(self) -> None:
        holdings = Holdings.open(self.config.state_dir / "jobs", Places.of(self.config))
        if holdings.salvaged is not None:  # first of all: what follows may fail and be tried again
            self._tell_salvaged(holdings.salvaged)
        try:
            with holdings.queue.store.read() as tx:
                self._logged = -1, tx.last_numbers().get("events", 0)
            taken = holdings.queue.expire(everything=True)
            holdings.clear_runs()
            for job in taken:
                self.child.log.warning("job_interrupted", job=job.id, kind=job.kind)
            self.arms.open(holdings)
        except BaseException:
            holdings.close()
            raise
        jobs = self.config.jobs
        execution = Execution(
            holdings,
            self.backend,
            jobs.lease_s,
            jobs.least_free_mb,
            self.child.log,
            self._on_promoted,
            {arm.name: arm.model for arm in self.config.arm},
        )
        self.requests.holdings, self.requests.execution = holdings, execution

    def _tell_salvaged(self, found: Salvaged) -> None:
        rows = ", ".join(f"{count} {table}" for table, count in found.rows.items()) or "nothing"
        missing = f"; not readable: jobs {', '.join(map(str, found.missing))}" if found.missing else ""
        text = f"the queue was damaged and is kept as {found.aside.name}; recovered: {rows}{missing}"
        self.child.log.error("queue_salvaged", reason=text, kept_as=str(found.aside))
        self._events.append(Event(time.time_ns(), "queue_salvaged", text, data={"rows": found.rows}))

    def _lay_down(self) -> None:
        """Close a queue that is damaged; its runs are ended, and their jobs run again."""
        execution, holdings = self.requests.execution, self.requests.holdings
        self.requests.holdings = self.requests.execution = None
        if execution is not None:
            for held in execution.held.values():
                held.run.kill()
        if holdings is not None:
            holdings.close()

    def _step(self) -> None:
        holdings, execution = self.requests.holdings, self.requests.execution
        if holdings is None or execution is None:
            return
        if self.requests.corrupt:
            found, self.requests.corrupt = self.requests.corrupt, ""
            raise StoreCorruptError(found)
        if self._events:
            holdings.queue.note(*self._events)
            self._events.clear()
        execution.step()
        self.arms.step(holdings)
        self._log_events(holdings)
        if time.monotonic() >= self._purge_at and not self.requests.backing_up:
            self._purge_at = time.monotonic() + PURGE_S
            if gone := holdings.purge(self.config.jobs):
                self.child.log.info("jobs_purged", count=gone)
        if time.monotonic() >= self._budget_at:
            self._budget_at = time.monotonic() + BUDGET_S
            self._keep_budgets(holdings)

    def _keep_budgets(self, holdings: Holdings) -> None:
        """Delete recordings beyond what their arm's recorder may keep."""
        for arm in self.config.arm:
            limits = arm.recorder
            if limits is None or (limits.max_gb is None and limits.keep_days is None):
                continue
            found = recordings_of(arm.name, self.config.recording_dir(arm))
            needed = needed_files(holdings.queue.store, unfinished=True).paths if found else set()
            for one in to_delete(found, time.time(), limits.keep_days, limits.max_gb, needed):
                try:
                    one.path.unlink(missing_ok=True)
                except OSError as error:
                    self.child.log.error("recording_not_deleted", path=str(one.path), reason=error.strerror)
                    break
                self.child.log.info("recording_deleted", path=str(one.path), bytes=one.bytes)

    # ------------------------------------------------------------ what happens

    def _log_events(self, holdings: Holdings) -> None:
        """Write what has happened to jobs to the log; the supervisor writes what happens elsewhere."""
        changes, newest = self._logged
        if holdings.queue.store.changes == changes:
            return
        changes = holdings.queue.store.changes
        for event in holdings.queue.events(after=newest) if newest else holdings.queue.events():
            newest = event.id
            if event.job is not None:
                model = {"model": event.data["model"]} if "model" in event.data else {}
                self.child.log.info(
                    "event",
                    event_kind=event.kind,
                    text=event.text,
                    arm=event.arm,
                    job=event.job,
                    number=event.id,
                    **model,
                )
        self._logged = changes, newest

    def _on_event(self, message: dict[str, Any]) -> None:
        event = Event(
            int(message["t_ns"]), message["event"], message["text"], message["arm"], data=message["data"] or {}
        )
        self._events.append(event)
        self.arms.on_event(event)

    def _on_promoted(self, promotion: Promotion) -> None:
        self.arms.promoted(promotion.arm)

    def _status(self) -> dict[str, Any]:
        execution, holdings = self.requests.execution, self.requests.holdings
        counts: dict[str, int] = {}
        by_kind: dict[str, dict[str, int]] = {}
        waits = ""
        if holdings is not None and execution is not None:
            waits = execution.waits
            try:
                counts = holdings.queue.counts()
                by_kind = holdings.queue.counts_by_kind()
            except StoreError as error:
                self.trouble = str(error)
        running = 0 if execution is None else len(execution.held)
        state = "trouble" if self.trouble else "running" if running else "idle"
        return {"state": state, "trouble": self.trouble or waits, "running": running, "jobs": counts,
                "by_kind": by_kind, "backend": self.backend.label}  # fmt: skip

    def close(self) -> None:
        """End the runs, hand their jobs back, close the queue."""
        execution, holdings = self.requests.execution, self.requests.holdings
        try:
            if execution is not None:
                execution.stop()
        except StoreError as error:
            self.child.log.error("jobs_not_handed_back", reason=str(error))
        finally:
            self.requests.aside.close()
            self.backend.close()
            if holdings is not None:
                holdings.close()


def make_backend(config: Config) -> Backend:
    """Make the place for runs that the configuration names."""
    jobs = config.jobs
    if jobs.backend == "dask" and jobs.scheduler is not None and jobs.workers > 0:
        from service.jobs.dask.backend import DaskBackend

        return DaskBackend(jobs.scheduler)
    return LocalBackend(jobs.workers, processors_for(config), jobs.priority)


def processors_for(config: Config) -> frozenset[int]:
    """Return the processors for jobs: as configured, or the last of those that no acquisition has for itself."""
    available = os.sched_getaffinity(0)
    if config.jobs.processors is not None:
        return frozenset(config.jobs.processors) & available or frozenset(available)
    taken = {p for arm in config.arm if arm.realtime is not None for p in arm.realtime.processors or ()}
    free = sorted(available - taken) or sorted(available)
    return frozenset(free[-min(config.jobs.workers or 1, max(1, len(free) // 2)) :])


def main(child: Worker) -> None:
    """Run the jobs process."""
    dispatcher = Dispatcher(child)
    try:
        dispatcher.run()
    finally:
        dispatcher.close()
