"""Jobs as plain maps for clients, with times as text."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from service.jobs._job_storage import JobStorage
from service.jobs.execution.backend import log_tail
from service.jobs.execution.executor import Executor
from service.jobs.execution.progress import left_by_history, left_by_parts
from service.jobs.queue import state
from service.jobs.queue.queue import Queue
from service.jobs.queue.state import Job


def iso(t_ns: int) -> str | None:
    """Return the ISO 8601 text of a time [ns since 1970], UTC; None for 0."""
    return None if not t_ns else datetime.fromtimestamp(t_ns * 1e-9, UTC).isoformat(timespec="milliseconds")


def summary(job: Job, queue: Queue, executor: Executor | None, trouble: str) -> dict[str, Any]:
    """Return a job's entry in a list."""
    outcome: Mapping[str, Any] = job.outcome or {}
    counts = queue.part_counts(job.id) if job.parts else {}
    share, doing, left_s = _progress(job, counts, queue, executor)
    return {
        "id": job.id, "kind": job.kind, "arm": job.arm, "state": job.state, "origin": job.origin,
        "priority": job.priority, "created": iso(job.created_ns), "due": iso(job.due_ns),
        "started": iso(job.started_ns), "finished": iso(job.finished_ns), "attempts": job.attempts,
        "interruptions": job.interruptions, "after": list(job.after),
        "waits": _waiting_reason(job, counts, queue, trouble) if job.state == "queued" else "", "share": share,
        "doing": doing, "left_s": left_s,
        "parts": {"total": job.parts} | {name: counts.get(name, 0) for name in ("succeeded", "running", "failed")}
        if job.parts
        else None,
        "reason": job.reason, "verdict": outcome.get("verdict"), "summary": outcome.get("summary"),
    }  # fmt: skip


def details(job: Job, storage: JobStorage, executor: Executor | None, trouble: str) -> dict[str, Any]:
    """Return all of a job."""
    parts = storage.queue.parts(job.id) if job.parts else []
    return summary(job, storage.queue, executor, trouble) | {
        "parameters": dict(job.parameters), "inputs": dict(job.inputs),
        "limits": {"time_s": job.limits.seconds, "memory_mb": job.limits.memory_mb},
        "log": job.log
        if executor is None or job.id not in executor.held
        else log_tail(executor.held[job.id].run.folder),
        "outcome": _outcome(job, storage),
        "partial": [part.outcome["part"] for part in parts if part.state == "succeeded" and part.outcome],
        "parts": [
            {"part": p.part, "id": p.id, "state": p.state, "reason": p.reason, "attempts": p.attempts} for p in parts
        ],
    }  # fmt: skip


def _outcome(job: Job, storage: JobStorage) -> dict[str, Any] | None:
    if job.outcome is None:
        return None
    outcome = {key: value for key, value in job.outcome.items() if key not in ("ok", "accepted")}
    outcome["results"] = {
        name: {**result, "path": str(storage.artifacts.place(result["sha256"]))}
        for name, result in (outcome.get("results") or {}).items()
    }
    if outcome.get("log"):
        outcome["log"] = {**outcome["log"], "path": str(storage.artifacts.place(outcome["log"]["sha256"]))}
    return outcome


def _progress(
    job: Job, counts: Mapping[str, int], queue: Queue, executor: Executor | None
) -> tuple[float | None, str, list[float] | None]:
    """Return share done, present step, and shortest and longest time left [s]."""
    held = {} if executor is None else executor.held
    now = time.monotonic()
    if job.id in held:
        run = held[job.id].run
        elapsed = now - run.began
        left = run.pace.left_s(elapsed) or left_by_history(elapsed, queue.durations(job.kind) if not job.parts else [])
        return run.pace.share, run.pace.what, None if left is None else list(left)
    if not counts or job.finished or not job.started_ns:
        return None, "", None
    done = counts.get("succeeded", 0)
    running = [one.run.pace.share for one in held.values() if one.job.parent == job.id]
    share = (done + sum(running)) / job.parts
    doing = f"{done} of {job.parts} parts done, {len(running)} running"
    left = left_by_parts(job.parts, queue.part_seconds(job.id), running) if running else None
    return share, doing, None if left is None else list(left)


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
