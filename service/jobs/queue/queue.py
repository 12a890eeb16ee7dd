"""Operations on the queue, each in one transaction of the store; several processes may use one queue."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from service.jobs.queue import state
from service.jobs.queue._model_history import ModelHistory, active_model, asked, short
from service.jobs.queue.state import Job, JobStateError, Limits, StaleTokenError
from service.jobs.queue.store import Event, Model, Promotion, Store, Transaction

COUNT_NS = 5_000_000_000  # between two counts by kind, which read every job: 0.1 s for 10,000
MAX_WAITING = 10_000  # jobs and parts; more are refused


class QueueFullError(RuntimeError):
    """Too many jobs are waiting."""


class PromotionConflictError(RuntimeError):
    """A model would replace one that is not active any more."""


@dataclass(frozen=True)
class Submission:
    """A job to be submitted: its parameters have been checked, and its inputs exist."""

    kind: str
    parameters: Mapping[str, Any]
    arm: str | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    priority: int = 0
    due_ns: int = 0
    after: tuple[int, ...] = ()
    parts: Sequence[Mapping[str, Any]] = ()
    origin: str = "request"
    limits: Limits = field(default_factory=Limits)


class Queue:
    """The jobs in a store, and in `history` its models; `clock` returns nanoseconds since 1970.

    Every method may raise `StoreError`, after which nothing has changed.
    """

    def __init__(self, store: Store, clock: Callable[[], int] = time.time_ns) -> None:
        self.store, self.clock = store, clock
        self.history = ModelHistory(store, clock)
        self._by_kind: dict[str, dict[str, int]] = {}
        self._counted = (-1, 0)  # changes of the file at the last count, and its time

    # ------------------------------------------------------------ in and out

    def submit(self, *submissions: Submission, chained: bool = False) -> list[Job]:
        """Queue jobs, all or none; return them with their numbers.

        With `chained`, each comes after the one before, and an input `{"chain": k}` means the k-th of them; the
        parameter of that name becomes the reference to it, so that the job can be submitted again by itself.

        Raises `JobStateError` if a job that one shall come after does not exist, or did not succeed; `QueueFullError`.
        """
        now_ns = self.clock()
        jobs: list[Job] = []
        with self.store.write() as tx:
            more = sum(1 + len(given.parts) for given in submissions)
            if (waiting := tx.count("state = 'queued'")) + more > MAX_WAITING:
                raise QueueFullError(
                    f"{waiting} jobs and parts are waiting, and with these there were more than {MAX_WAITING}: cancel "
                    "some, or wait"
                )
            for given in submissions:
                after = given.after
                inputs, parameters = dict(given.inputs), dict(given.parameters)
                if chained and jobs:
                    after = (*after, jobs[-1].id)
                    for name in [name for name, value in inputs.items() if "chain" in value]:
                        maker = jobs[inputs[name]["chain"]].id
                        inputs[name], parameters[name] = {"job": maker}, f"job:{maker}"
                self._check_after(tx, after)
                job = tx.add(
                    Job(
                        0, given.kind, parameters, now_ns, given.arm, inputs, given.priority, given.due_ns,
                        tuple(dict.fromkeys(after)), parts=len(given.parts), origin=given.origin, limits=given.limits,
                    )
                )  # fmt: skip
                self._note(tx, job, "job_submitted", _where_from(job))
                for number in range(len(given.parts)):
                    tx.add(_part(job, number))
                jobs.append(job)
        return jobs

    def _check_after(self, tx: Transaction, after: Sequence[int]) -> None:
        for number in dict.fromkeys(after):
            other = tx.job(number)
            if other is None:
                raise JobStateError(f"after: there is no job {number}")
            if other.parent is not None:
                raise JobStateError(f"after: job {number} is part {other.part} of job {other.parent}: name that one")
            if other.state in ("failed", "cancelled"):
                raise JobStateError(f"after: job {number} is {other.state} and will not succeed; retry it first")

    def job(self, id: int) -> Job:
        """Return a job; raises `JobStateError` if there is none."""
        with self.store.read() as tx:
            return _existing(tx, id)

    part_counts = asked(Transaction.part_counts)
    counts = asked(Transaction.counts)
    events = asked(Transaction.events)
    newest_event = asked(Transaction.newest_event)

    def part_seconds(self, id: int) -> list[float]:
        """Return how long the parts of a divided job ran that succeeded [s]."""
        with self.store.read() as tx:
            return tx.seconds("parent = ? AND state = 'succeeded'", (id,))

    def parts(self, id: int) -> list[Job]:
        """Return the parts of a divided job, in order."""
        with self.store.read() as tx:
            return sorted(tx.jobs("parent = ?", (id,)), key=lambda part: part.part or 0)

    def recent(
        self, states: Sequence[str] = (), arm: str | None = None, kind: str | None = None, limit: int = 100
    ) -> Iterator[Job]:
        """Yield the newest jobs that are not parts, newest first.

        They are read one by one, because a job with its outcome may be large; deleted ones are skipped.
        """
        marks = ", ".join("?" * len(states))
        where = "parent IS NULL" + (f" AND state IN ({marks})" if states else "")
        where += (
            " AND (? IS NULL OR json_extract(body, '$.arm') = ?) AND (? IS NULL OR json_extract(body, '$.kind') = ?)"
        )
        with self.store.read() as tx:
            ids = tx.ids(where, (*states, arm, arm, kind, kind), order="id DESC", limit=limit)
        for id in ids:
            with self.store.read() as tx:
                job = tx.job(id)
            if job is not None:
                yield job

    def durations(self, kind: str, limit: int = 20) -> list[float]:
        """Return how long the newest jobs of a kind that succeeded ran [s]."""
        with self.store.read() as tx:
            return tx.seconds(
                "parent IS NULL AND state = 'succeeded' AND json_extract(body, '$.kind') = ? "
                "AND json_extract(body, '$.parts') = 0",
                (kind,), "id DESC", limit,
            )  # fmt: skip

    def counts_by_kind(self) -> dict[str, dict[str, int]]:
        """Return the number of jobs by kind and state, parts counted, at most `COUNT_NS` old."""
        changes, at_ns = self._counted
        now_ns = self.clock()
        if changes != self.store.changes and abs(now_ns - at_ns) >= COUNT_NS:
            with self.store.read() as tx:
                self._by_kind = tx.counts_by_kind()
            self._counted = self.store.changes, now_ns
        return self._by_kind

    def note(self, *events: Event) -> None:
        """Add events to the history."""
        with self.store.write() as tx:
            for event in events:
                tx.add(event)

    # ------------------------------------------------------------ running

    def claim(self, owner: str, lease_s: float) -> Job | None:
        """Claim the next job; None if there is none. Jobs that can never run are cancelled meanwhile.

        The highest priority comes first, then the oldest job; parts come before jobs submitted after their parent.
        """
        now_ns = self.clock()
        with self.store.read() as tx:  # most of the time there is nothing to do, and nothing is written
            if tx.count("state = 'queued' AND due_ns <= ?", (now_ns,)) == 0:
                return None
        with self.store.write() as tx:
            for id in tx.ids(
                "state = 'queued' AND due_ns <= ?", (now_ns,), order="priority DESC, coalesce(parent, id), id"
            ):
                job = _existing(tx, id)
                if job.state != "queued":
                    continue  # cancelled just now, with its parent
                states = tx.states(job.after)
                if (reason := state.hopeless(job, states) or _torn(tx, job)) is not None:
                    self._give_up(tx, job, now_ns, reason)
                    continue
                done = tx.count("parent = ? AND state = 'succeeded'", (job.id,)) if job.parts else 0
                if state.ready(job, now_ns, states, done):
                    job = state.claim(job, owner, now_ns, round(lease_s * 1e9))
                    tx.put(job)
                    self._note_start(tx, job)
                    return job
        return None

    def _note_start(self, tx: Transaction, job: Job) -> None:
        """Record that a job has begun; a divided one begins with the first of its parts."""
        if job.parent is None:
            if not job.parts:
                self._note(tx, job, "job_started", _named(job))
        elif not (parent := _existing(tx, job.parent)).started_ns:
            parent = replace(parent, started_ns=job.started_ns)
            tx.put(parent)
            self._note(tx, parent, "job_started", _named(parent))

    def renew(self, held: Mapping[int, int], lease_s: float) -> dict[int, str]:
        """Extend the leases of jobs, given with their tokens.

        Returns the jobs to stop, with the reason: cancelled, or not held any more.
        """
        now_ns = self.clock()
        stop: dict[int, str] = {}
        with self.store.write() as tx:
            for id, token in held.items():
                job = tx.job(id)
                if job is None:
                    stop[id] = "deleted"
                    continue
                try:
                    job = state.renew(job, token, now_ns, round(lease_s * 1e9))
                except state.StaleTokenError as error:
                    stop[id] = str(error)
                    continue
                tx.put(job)
                if job.cancel:
                    stop[id] = "cancelled"
        return stop

    def finish(
        self, id: int, token: int, outcome: Mapping[str, Any], log: str = "", *, model: Model | None = None,
        promotion: Promotion | None = None,
    ) -> Job:  # fmt: skip
        """Store the outcome of a run, and in the same transaction the model that it made or promoted.

        Raises `StaleTokenError` if another process holds the job now; `PromotionConflictError` if the model that the
        new one was compared with is not active any more.
        """
        now_ns = self.clock()
        with self.store.write() as tx:
            job = state.finish(_held(tx, id), token, now_ns, outcome, log)
            tx.put(job)
            if job.state == "succeeded" and model is not None:
                tx.put(model)
            self._ended(tx, job, now_ns)
            if job.state == "succeeded" and promotion is not None:
                if promotion.previous != active_model(tx, promotion.arm):
                    raise PromotionConflictError(f"arm {promotion.arm}: another model became active meanwhile")
                tx.add(promotion)
                text = f"model {short(promotion.model)} promoted: {promotion.reason}"
                tx.add(Event(now_ns, "model_promoted", text, promotion.arm, id, {"model": promotion.model}))
        return job

    def fail(self, id: int, token: int, reason: str, log: str = "", *, final: bool) -> Job:
        """Store that a run failed; raises `StaleTokenError`."""
        return self._change(id, lambda job, now: state.fail(job, token, now, reason, log, final=final))

    def interrupt(self, id: int, token: int, reason: str, *, later: bool = False) -> Job:
        """Store that a run was interrupted; raises `StaleTokenError`."""
        return self._change(id, lambda job, now: state.interrupt(job, token, now, reason, later=later))

    def hand_back(self, id: int, token: int, reason: str) -> Job:
        """Put back a job whose run was stopped in order; raises `StaleTokenError`."""
        return self._change(id, lambda job, now: state.hand_back(job, token, reason, now))

    def redo_parts(self, id: int, token: int, parts: Sequence[int], reason: str) -> None:
        """Have parts of a divided job run again, and put the job back meanwhile; raises `StaleTokenError`."""
        now_ns = self.clock()
        with self.store.write() as tx:
            job = state.hand_back(_held(tx, id), token, reason, now_ns)
            tx.put(job)
            self._note(tx, job, "job_queued_again", f"{_named(job)}: {len(parts)} parts {reason}")
            if job.state == "queued":
                for part in parts:
                    tx.put(state.redo(_existing(tx, part), reason))

    def expire(self, held: Mapping[int, int] | None = None, *, everything: bool = False) -> list[Job]:
        """Take back jobs whose lease has run out; with `everything`, all running ones, whose holder is gone.

        Jobs `held` by the caller, given with their tokens, are exempt: its clock may have jumped.
        """
        mine = {} if held is None else held
        now_ns = self.clock()
        taken: list[Job] = []
        with self.store.read() as tx:  # most of the time there is nothing to do, and nothing is written
            running = tx.jobs("state = 'running'")
            if not any(everything or (job.lease_ns < now_ns and mine.get(job.id) != job.token) for job in running):
                return taken
        with self.store.write() as tx:
            for id in tx.ids("state = 'running'"):
                job = _existing(tx, id)  # a part before it may have failed its parent meanwhile
                if not everything and (job.lease_ns >= now_ns or mine.get(job.id) == job.token):
                    continue
                gone = "the daemon that ran it is gone" if everything else f"{job.owner} was not heard of in time"
                job = state.interrupt(job, job.token, now_ns, gone)
                tx.put(job)
                self._ended(tx, job, now_ns)
                taken.append(job)
        return taken

    def bring_forward(self, by_ns: int) -> None:
        """Have all that waits for its time run so much sooner: the clock was set back."""
        with self.store.write() as tx:
            for job in tx.jobs("state = 'queued' AND due_ns > ?", (self.clock(),)):
                tx.put(replace(job, due_ns=job.due_ns - by_ns))

    def _change(self, id: int, step: Callable[[Job, int], Job]) -> Job:
        now_ns = self.clock()
        with self.store.write() as tx:
            job = step(_held(tx, id), now_ns)
            tx.put(job)
            self._ended(tx, job, now_ns)
        return job

    def _ended(self, tx: Transaction, job: Job, now_ns: int) -> None:
        """Record how a run ended; a failed part fails its parent."""
        if job.parent is None:
            kind = {"queued": "job_queued_again"}.get(job.state, f"job_{job.state}")
            self._note(tx, job, kind, f"{_named(job)}: {job.reason or (job.outcome or {}).get('summary', '')}")
        elif job.state == "failed":
            parent = tx.job(job.parent)
            if parent is not None and parent.state == "queued":
                failed = state.fail_queued(parent, now_ns, f"part {job.part}: {job.reason}", job.log)
                tx.put(failed)
                self._note(tx, failed, "job_failed", f"{_named(failed)}: {failed.reason}")
                self._cancel_parts(tx, parent.id, now_ns, f"another part of job {parent.id} failed")

    # ------------------------------------------------------------ requests

    def cancel(self, id: int) -> Job:
        """Cancel a job and its parts; raises `JobStateError`."""
        now_ns = self.clock()
        with self.store.write() as tx:
            job = state.request_cancel(_whole(_existing(tx, id)), now_ns)
            tx.put(job)
            self._cancel_parts(tx, id, now_ns, "cancelled")
            self._note(tx, job, "job_cancelled" if job.finished else "job_cancelling", _named(job))
        return job

    def retry(self, id: int) -> Job:
        """Queue a failed or cancelled job again, with those of its parts that did not succeed.

        Parts that were lost with a damaged file are made again.
        """
        now_ns = self.clock()
        with self.store.write() as tx:
            job = state.retry(_whole(_existing(tx, id)), now_ns)
            self._check_after(tx, job.after)
            running = tx.count("parent = ? AND state = 'running'", (id,))
            if running:
                raise JobStateError(f"{running} parts of job {id} are still being stopped; try again in a moment")
            tx.put(job)
            for part in tx.jobs("parent = ? AND state IN ('failed', 'cancelled')", (id,)):
                tx.put(state.retry(part, now_ns))
            there = {part.part for part in tx.jobs("parent = ?", (id,))}
            for number in sorted(set(range(job.parts)) - there):
                tx.add(_part(job, number))
            self._note(tx, job, "job_retried", _named(job))
        return job

    def _cancel_parts(self, tx: Transaction, parent: int, now_ns: int, reason: str) -> None:
        for part in tx.jobs("parent = ? AND state IN ('queued', 'running')", (parent,)):
            waiting = part.state == "queued"
            tx.put(state.give_up(part, now_ns, reason) if waiting else state.request_cancel(part, now_ns))

    def _give_up(self, tx: Transaction, job: Job, now_ns: int, reason: str) -> None:
        job = state.give_up(job, now_ns, reason)
        tx.put(job)
        if job.parent is None:
            self._cancel_parts(tx, job.id, now_ns, reason)
            self._note(tx, job, "job_cancelled", f"{_named(job)}: {reason}")

    def _note(self, tx: Transaction, job: Job, kind: str, text: str) -> None:
        tx.add(Event(self.clock(), kind, text.strip(" :"), job.arm, job.id))


def _existing(tx: Transaction, id: int) -> Job:
    job = tx.job(id)
    if job is None:
        raise JobStateError(f"there is no job {id}")
    return job


def _held(tx: Transaction, id: int) -> Job:
    job = tx.job(id)
    if job is None:
        raise StaleTokenError(f"job {id} has been deleted: no run holds it any more")
    return job


def _part(job: Job, number: int) -> Job:
    # A part is defined by the parent's parameters, which split the same way each time.
    return replace(job, id=0, parent=job.id, part=number, parts=0, origin="part", token=0, started_ns=0, log="")


def _torn(tx: Transaction, job: Job) -> str | None:
    """Return why a queued job can never run because its parent or parts are lost, if so."""
    if job.parent is not None:
        parent = tx.states((job.parent,)).get(job.parent, "gone")
        return None if parent == "queued" else f"job {job.parent}, of which it is a part, is {parent}"
    lost = job.parts - tx.count("parent = ?", (job.id,)) if job.parts else 0
    return f"{lost} of its {job.parts} parts were lost when the queue was damaged; retry it" if lost > 0 else None


def _whole(job: Job) -> Job:
    if job.parent is not None:
        raise JobStateError(f"job {job.id} is part {job.part} of job {job.parent}: use that one")
    return job


def _named(job: Job) -> str:
    return f"job {job.id} ({job.kind}" + (f" of {job.arm})" if job.arm else ")")


def _where_from(job: Job) -> str:
    return _named(job) + {"request": "", "schedule": ", by schedule"}.get(job.origin, f", because of {job.origin}")
