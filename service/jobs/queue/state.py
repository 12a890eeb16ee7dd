"""States of a job, as pure functions from a job and an event to the new job.

    queued -> running -> succeeded
      ^          |-----> queued    (failed and to be tried again, interrupted, or handed back)
      |          |-----> failed    (for good: wrong input, tried too often, interrupted too often)
      |          '-----> cancelled
      '-- failed, cancelled  (by `retry`)

A claim comes with a lease and a *fencing token*, a number that grows with each claim. Every report about a running job
carries the token; one with an older token comes from a holder whose lease ran out and whose job was claimed again, and
is refused (`StaleTokenError`). Until then a holder may finish after its lease has run out.

A *failure* is the job's own: it raised, crashed, or ran into a limit. An *interruption* is not: the daemon or the
machine stopped. They are counted separately, so that power cuts do not fail a job, and a job that brings the machine
down is not tried forever.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from service.protocol.job_replies import FINISHED, State

MAX_ATTEMPTS = 3
MAX_INTERRUPTIONS = 20
FIRST_DELAY_NS = 1_000_000_000  # before the second attempt; ten times that before the third
_TEXT = 2000  # characters of a reason


class JobStateError(RuntimeError):
    """The request does not suit the job's state; the message has the reason."""


class StaleTokenError(JobStateError):
    """A report from a process that does not hold the job any more."""


@dataclass(frozen=True)
class Limits:
    """Limits of one attempt: time [s], enforced by the queue, and memory [10^6 bytes], enforced by the runner."""

    seconds: float = 3600.0
    memory_mb: float = 4000.0


@dataclass(frozen=True)
class Job:
    """A job; times are nanoseconds since 1970."""

    id: int
    kind: str
    parameters: Mapping[str, Any]  # as checked by the kind
    created_ns: int
    arm: str | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)  # by parameter, {"path", "sha256"} or {"job": id}
    priority: int = 0
    due_ns: int = 0
    after: tuple[int, ...] = ()  # jobs that must have succeeded before
    parent: int | None = None  # of a part: the divided job
    part: int | None = None  # of a part: its index
    parts: int = 0  # of a divided job; it runs itself, to gather their results, when all have succeeded
    origin: str = "request"  # or "schedule", "drift", "invalid", "part"
    limits: Limits = field(default_factory=Limits)
    state: State = "queued"
    attempts: int = 0  # that failed
    interruptions: int = 0
    token: int = 0  # of the latest claim
    owner: str = ""
    lease_ns: int = 0
    cancel: bool = False
    started_ns: int = 0
    finished_ns: int = 0
    reason: str = ""
    log: str = ""
    outcome: Mapping[str, Any] | None = None  # of the last run

    @property
    def finished(self) -> bool:
        """Whether it has reached a final state."""
        return self.state in FINISHED


def ready(job: Job, now_ns: int, states: Mapping[int, State], parts_done: int) -> bool:
    """Return whether a job can be claimed, given the states of the jobs it comes after."""
    return (
        job.state == "queued"
        and job.due_ns <= now_ns
        and parts_done >= job.parts
        and all(states.get(other) == "succeeded" for other in job.after)
    )


def hopeless(job: Job, states: Mapping[int, State]) -> str | None:
    """Return why a queued job can never run, if so: a job that it needs did not succeed, or was deleted."""
    for other in job.after:
        state = states.get(other)
        if state is None:
            return f"job {other}, which it needs, has been deleted"
        if state in ("failed", "cancelled"):
            return f"job {other}, which it needs, {'failed' if state == 'failed' else 'was cancelled'}"
    return None


def claim(job: Job, owner: str, now_ns: int, lease_ns: int) -> Job:
    """Give a queued job to `owner`."""
    if job.state != "queued":
        raise JobStateError(f"job {job.id} is {job.state}: only a queued job can be claimed")
    began_ns = job.started_ns if job.parts and job.started_ns else now_ns  # a divided job begins with its first part
    return replace(
        job, state="running", token=job.token + 1, owner=owner, lease_ns=now_ns + lease_ns, started_ns=began_ns,
        reason="",
    )  # fmt: skip


def renew(job: Job, token: int, now_ns: int, lease_ns: int) -> Job:
    """Extend the lease."""
    _held(job, token)
    return replace(job, lease_ns=now_ns + lease_ns)


def finish(job: Job, token: int, now_ns: int, outcome: Mapping[str, Any], log: str) -> Job:
    """Finish with an outcome: succeeded, or not to be used (`accepted` is false)."""
    _held(job, token)
    if job.cancel:
        return _end(job, "cancelled", now_ns, "cancelled while it ran", log)
    if not outcome.get("accepted", True):
        return _end(job, "failed", now_ns, f"{outcome['verdict']}: {outcome['summary']}", log, outcome)
    return _end(job, "succeeded", now_ns, "", log, outcome)


def fail(job: Job, token: int, now_ns: int, reason: str, log: str, *, final: bool) -> Job:
    """Fail an attempt: another one follows, later each time, unless it is `final` or was the last."""
    _held(job, token)
    job = replace(job, attempts=job.attempts + 1)
    if job.cancel:
        return _end(job, "cancelled", now_ns, "cancelled while it ran", log)
    if final or job.attempts >= MAX_ATTEMPTS:
        often = "" if final else f" ({MAX_ATTEMPTS} attempts)"
        return _end(job, "failed", now_ns, _short(reason) + often, log)
    due_ns = now_ns + FIRST_DELAY_NS * 10 ** (job.attempts - 1)
    return replace(_queued(job, reason), due_ns=due_ns, log=log)


def hand_back(job: Job, token: int, reason: str, now_ns: int) -> Job:
    """Put back a job whose run was stopped in order, by a cancellation or the end of the daemon; not counted."""
    _held(job, token)
    return _end(job, "cancelled", now_ns, "cancelled while it ran", job.log) if job.cancel else _queued(job, reason)


def interrupt(job: Job, token: int, now_ns: int, reason: str, *, later: bool = False) -> Job:
    """Interrupt a running job whose holder is gone; `later`: not to run again before a failed one would."""
    _held(job, token)
    job = replace(job, interruptions=job.interruptions + 1)
    if job.cancel:
        return _end(job, "cancelled", now_ns, "cancelled while it ran", job.log)
    if job.interruptions >= MAX_INTERRUPTIONS:
        return _end(job, "failed", now_ns, f"interrupted {job.interruptions} times, the last time: {reason}", job.log)
    due_ns = now_ns + FIRST_DELAY_NS * 10 ** (min(job.interruptions, MAX_ATTEMPTS - 1) - 1) if later else job.due_ns
    return replace(_queued(job, reason), due_ns=due_ns)


def request_cancel(job: Job, now_ns: int) -> Job:
    """Cancel a queued job, or request the end of a running one."""
    if job.finished:
        raise JobStateError(f"job {job.id} has {job.state} already" if job.state != "cancelled" else
                            f"job {job.id} is cancelled already")  # fmt: skip
    if job.state == "queued":
        return _end(job, "cancelled", now_ns, "cancelled before it ran", job.log)
    return replace(job, cancel=True)


def give_up(job: Job, now_ns: int, reason: str) -> Job:
    """Cancel a queued job that can never run, for `reason`."""
    if job.state != "queued":
        raise JobStateError(f"job {job.id} is {job.state}")
    return _end(job, "cancelled", now_ns, reason, job.log)


def fail_queued(job: Job, now_ns: int, reason: str, log: str) -> Job:
    """Fail a divided job of which a part failed."""
    if job.state != "queued":
        raise JobStateError(f"job {job.id} is {job.state}")
    return _end(job, "failed", now_ns, reason, log)


def redo(job: Job, reason: str) -> Job:
    """Queue a succeeded part again whose result cannot be combined with the others."""
    if job.state != "succeeded":
        raise JobStateError(f"job {job.id} is {job.state}")
    return replace(_queued(job, reason), finished_ns=0, outcome=None)


def retry(job: Job, now_ns: int) -> Job:
    """Queue a failed or cancelled job again, with its counts reset."""
    if job.state not in ("failed", "cancelled"):
        raise JobStateError(f"job {job.id} is {job.state}: only one that failed or was cancelled can be tried again")
    return replace(
        _queued(job, ""), attempts=0, interruptions=0, due_ns=now_ns, started_ns=0, finished_ns=0, outcome=None
    )


def _held(job: Job, token: int) -> None:
    if job.state != "running" or job.token != token:
        raise StaleTokenError(
            f"job {job.id} is {job.state} with token {job.token}: the run with token {token} does not hold it any more"
        )


def _queued(job: Job, reason: str) -> Job:
    return replace(job, state="queued", owner="", lease_ns=0, cancel=False, reason=_short(reason))


def _end(job: Job, state: State, now_ns: int, reason: str, log: str, outcome: Mapping[str, Any] | None = None) -> Job:
    return replace(
        job, state=state, owner="", lease_ns=0, cancel=False, finished_ns=now_ns, reason=_short(reason), log=log,
        outcome=outcome,
    )  # fmt: skip


def _short(text: str) -> str:
    return text if len(text) <= _TEXT else text[: _TEXT - 3] + "..."
