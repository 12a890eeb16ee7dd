"""Jobs as clients are told of them, with times as text."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import asdict

from service.jobs._job_storage import JobStorage
from service.jobs.execution.backend import log_tail
from service.jobs.execution.executor import Executor
from service.jobs.execution.progress import left_by_history, left_by_parts
from service.jobs.queue import state
from service.jobs.queue.queue import Queue
from service.jobs.queue.state import Job
from service.protocol.job_replies import JobDetail, JobSummary, OutcomeEntry, PartCounts, PartEntry, ResultEntry


def iso(t_ns: int) -> str | None:
    """Return the ISO 8601 text of a time [ns since 1970], UTC; None for 0."""
    return None if not t_ns else datetime.fromtimestamp(t_ns * 1e-9, UTC).isoformat(timespec="milliseconds")


def summary(job: Job, queue: Queue, executor: Executor | None, trouble: str) -> JobSummary:
    """Return a job's entry in a list."""
    outcome: Mapping[str, Any] = job.outcome or {}
    counts = queue.part_counts(job.id) if job.parts else {}
    states = [counts.get(name, 0) for name in ("succeeded", "running", "failed")]
    share, doing, left_s = _progress(job, counts, queue, executor)
    return JobSummary(
        id=job.id, kind=job.kind, arm=job.arm, state=job.state, origin=job.origin, priority=job.priority,
        created=iso(job.created_ns), due=iso(job.due_ns), started=iso(job.started_ns), finished=iso(job.finished_ns),
        attempts=job.attempts, interruptions=job.interruptions, after=list(job.after),
        waits=_waiting_reason(job, counts, queue, trouble) if job.state == "queued" else "", share=share,
        doing=doing, left_s=left_s, reason=job.reason, verdict=outcome.get("verdict"), summary=outcome.get("summary"),
        parts=PartCounts(job.parts, *states) if job.parts else None,
    )  # fmt: skip


def details(job: Job, storage: JobStorage, executor: Executor | None, trouble: str) -> JobDetail:
    parts = storage.queue.parts(job.id) if job.parts else []
    held = None if executor is None else executor.held.get(job.id)
    fields = asdict(summary(job, storage.queue, executor, trouble)) | {
        "parameters": dict(job.parameters), "inputs": dict(job.inputs),
        "limits": {"time_s": job.limits.seconds, "memory_mb": job.limits.memory_mb},
        "log": job.log if held is None else log_tail(held.run.folder), "outcome": _outcome(job, storage),
        "partial": [part.outcome["part"] for part in parts if part.state == "succeeded" and part.outcome],
        "parts": [PartEntry(p.part or 0, p.id, p.state, p.reason, p.attempts) for p in parts],
    }  # fmt: skip
    return JobDetail(**fields)


def _outcome(job: Job, storage: JobStorage) -> OutcomeEntry | None:
    def entry(result: Mapping[str, Any]) -> ResultEntry:
        return ResultEntry(result["sha256"], result["bytes"], str(storage.artifacts.place(result["sha256"])))

    if job.outcome is None:
        return None
    found, results = job.outcome.get, job.outcome.get("results") or {}
    return OutcomeEntry(
        found("verdict", ""), found("summary", ""), found("metrics", {}),
        {name: entry(result) for name, result in results.items()}, found("code", {}),
        log=entry(job.outcome["log"]) if found("log") else None, part=found("part"),
    )  # fmt: skip


def _progress(
    job: Job, counts: Mapping[str, int], queue: Queue, executor: Executor | None
) -> tuple[float | None, str, tuple[float, float] | None]:
    """Return share done, present step, and shortest and longest time left [s]."""
    held = {} if executor is None else executor.held
    now = time.monotonic()
    if job.id in held:
        run = held[job.id].run
        elapsed = now - run.began
        left = run.pace.left_s(elapsed) or left_by_history(elapsed, queue.durations(job.kind) if not job.parts else [])
        return run.pace.share, run.pace.what, left
    if not counts or job.finished or not job.started_ns:
        return None, "", None
    done = counts.get("succeeded", 0)
    running = [one.run.pace.share for one in held.values() if one.job.parent == job.id]
    share = (done + sum(running)) / job.parts
    doing = f"{done} of {job.parts} parts done, {len(running)} running"
    left = left_by_parts(job.parts, queue.part_seconds(job.id), running) if running else None
    return share, doing, left


def _waiting_reason(job: Job, counts: Mapping[str, int], queue: Queue, trouble: str) -> str:
    """Return why a queued job does not run yet."""
    now_ns = queue.clock()
    if job.due_ns > now_ns:
        return f"until {iso(job.due_ns)}" + (f", after a failure: {job.reason}" if job.attempts else "")
    with queue.store.read() as tx:
        states = tx.states(job.after)
    for other in job.after:
        if states.get(other) != "succeeded":
            return f"for job {other}, which is {states.get(other, 'gone')}"
    if counts.get("queued") or counts.get("running"):
        return trouble or "for its parts"
    again = f", again: {job.reason} (attempt {job.attempts + 1} of {state.MAX_ATTEMPTS})" if job.reason else ""
    return trouble or f"for its turn{again}"
