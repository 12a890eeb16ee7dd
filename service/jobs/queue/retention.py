"""Retention: finished jobs are kept for a while, and files as long as jobs and models need them."""

import time
from dataclasses import dataclass, field

from service.jobs.queue.state import Job
from service.jobs.queue.store import Store

DAY_S = 86_400.0
_BEGAN_NS = time.time_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def age_clock_ns(keep_s: float) -> int:
    """Return the time since 1970 [ns] by which something is older than `keep_s`, or is not.

    A clock that is set forward, by mistake or to correct one, makes nothing old: time passes as this process has run,
    until it has run for `keep_s`.
    """
    ran_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - _BEGAN_NS[1]
    return time.time_ns() if ran_ns >= keep_s * 1e9 else min(time.time_ns(), _BEGAN_NS[0] + ran_ns)


@dataclass
class Files:
    """Files that are needed: artifacts by hash, and others by path."""

    artifacts: set[str] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)


def purge(store: Store, now_ns: int, keep_days: float, keep_jobs: int) -> int:
    """Delete finished jobs older than `keep_days`, or beyond the newest `keep_jobs`, and old events.

    Jobs that others still wait for stay, and those whose parts are being stopped. Returns the number of deleted jobs.
    """
    before_ns = now_ns - round(keep_days * DAY_S * 1e9)
    with store.write() as tx:
        finished = tx.jobs("parent IS NULL AND state IN ('succeeded', 'failed', 'cancelled')", order="id DESC")
        active = tx.jobs("state IN ('queued', 'running')")
        needed = {other for job in active for other in (*_needs(job), job.parent)}
        old = [
            job.id
            for place, job in enumerate(finished)
            if job.id not in needed and (place >= keep_jobs or job.finished_ns < before_ns)
        ]
        for id in old:
            tx.delete_jobs(part.id for part in tx.jobs("parent = ?", (id,)))
        tx.delete_jobs(old)
        tx.delete_events(before_ns)
        tx.delete_models_without_use()
    store.tidy()
    return len(old)


def needed_files(store: Store, *, unfinished: bool = False) -> Files:
    """Return the files that models and jobs need; with `unfinished`, only queued and running jobs."""
    needed = Files()
    with store.read() as tx:
        needed.artifacts |= {model.id for model in tx.models()}
        for promotion in tx.promotions():
            needed.artifacts |= {sha for sha in (promotion.model, promotion.data.get("values")) if sha}
        for job in tx.jobs("state IN ('queued', 'running')" if unfinished else "1"):
            outcome = job.outcome or {}
            results = outcome.get("results") or {}
            needed.artifacts |= {result["sha256"] for result in (*results.values(), outcome.get("log")) if result}
            needed.artifacts |= {given["sha256"] for given in job.inputs.values() if "sha256" in given}
            needed.paths |= {given["path"] for given in job.inputs.values() if "path" in given}
    return needed


def _needs(job: Job) -> list[int]:
    return [*job.after, *(given["job"] for given in job.inputs.values() if "job" in given)]
