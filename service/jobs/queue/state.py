"""The life of a job, as pure functions: a job and what happens to it in, the job as it is then out.

    queued -> running -> succeeded
      ^          |-----> queued    (failed and to be tried again, interrupted, or handed back)
      |          |-----> failed    (for good: wrong input, tried too often, interrupted too often)
      |          '-----> cancelled
      '-- failed, cancelled  (by `retry`)

Who claims a job gets a lease and a *fencing token*, a number that grows with each claim.  Everything that is said of
a running job carries the token; word with an older one comes from somebody whose lease ran out and whose job has been
given to another since, and is refused (`StaleTokenError`).  A lease that has run out counts until then: its holder
may still finish.

A *failure* is the job's own: it raised, crashed, or ran into a limit.  An *interruption* is not: the daemon or the
machine stopped.  They are counted apart, so that a job is not given up because of power cuts, nor tried for ever if it
is what brings the machine down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from service.protocol.job_state import FINISHED, State

MAX_ATTEMPTS = 3
MAX_INTERRUPTIONS = 20
FIRST_DELAY_NS = 1_000_000_000  # before the second attempt; ten times that before the third
_TEXT = 2000  # characters of a reason


class JobStateError(RuntimeError):
    """What was asked for does not suit the job's state; the message says why."""


class StaleTokenError(JobStateError):
    """The word of somebody who does not hold the job any more."""


@dataclass(frozen=True)
class Limits:
    """What one attempt may use: time [s] and memory [10^6 bytes]."""

    seconds: float = 3600.0
    memory_mb: float = 4000.0


@dataclass(frozen=True)
class Job:
    """A job; times are nanoseconds since 1970.

    Attributes
    ----------
    parameters : mapping
        As the kind's type has checked them.
    inputs : mapping
        By parameter the file that it refers to, `{"path", "sha256"}`, or `{"job": id}` for what another job makes.
    after : tuple of int
        Jobs that must have succeeded before.
    parent, part : int or None
        Of a part of a divided job: whose, and the part's place.
    parts : int
        Of a divided job: how many; it runs, to gather their results, when all have succeeded.
    origin : str
        "request", "schedule", "drift", "invalid", or "part".
    attempts, interruptions : int
        Failures and interruptions so far.
    token : int
        Of the newest claim.
    outcome : mapping or None
        What the last run came to.
    """

    id: int
    kind: str
    parameters: Mapping[str, Any]
    created_ns: int
    arm: str | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    priority: int = 0
    due_ns: int = 0
    after: tuple[int, ...] = ()
    parent: int | None = None
    part: int | None = None
    parts: int = 0
    origin: str = "request"
    limits: Limits = field(default_factory=Limits)
    state: State = "queued"
    attempts: int = 0
    interruptions: int = 0
    token: int = 0
    owner: str = ""
    lease_ns: int = 0
    cancel: bool = False
    started_ns: int = 0
    finished_ns: int = 0
    reason: str = ""
    log: str = ""
    outcome: Mapping[str, Any] | None = None

    @property
    def finished(self) -> bool:
        """Whether nothing more happens to it by itself."""
        return self.state in FINISHED


def ready(job: Job, now_ns: int, states: Mapping[int, State], parts_done: int) -> bool:
    """Tell whether a job can be claimed, given the states of the jobs it comes after."""
    return (
        job.state == "queued"
        and job.due_ns <= now_ns
        and parts_done >= job.parts
        and all(states.get(other) == "succeeded" for other in job.after)
    )


def hopeless(job: Job, states: Mapping[int, State]) -> str | None:
    """Say why a queued job can never run, if so: one that it needs did not succeed, or has been deleted."""
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
    """Take the outcome of a run: it succeeded, or ran through and must not be used (`accepted` is false)."""
    _held(job, token)
    if job.cancel:
        return _end(job, "cancelled", now_ns, "cancelled while it ran", log)
    if not outcome.get("accepted", True):
        return _end(job, "failed", now_ns, f"{outcome['verdict']}: {outcome['summary']}", log, outcome)
    return _end(job, "succeeded", now_ns, "", log, outcome)


def fail(job: Job, token: int, now_ns: int, reason: str, log: str, *, final: bool) -> Job:
    """Take a failure: another attempt follows, later each time, unless it is `final` or was the last."""
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
    """Put back a job whose run stopped in order, because it was cancelled or the daemon stops; this is not counted."""
    _held(job, token)
    return _end(job, "cancelled", now_ns, "cancelled while it ran", job.log) if job.cancel else _queued(job, reason)


def interrupt(job: Job, token: int, now_ns: int, reason: str) -> Job:
    """Take notice that the holder of a running job is gone."""
    _held(job, token)
    job = replace(job, interruptions=job.interruptions + 1)
    if job.cancel:
        return _end(job, "cancelled", now_ns, "cancelled while it ran", job.log)
    if job.interruptions >= MAX_INTERRUPTIONS:
        return _end(job, "failed", now_ns, f"interrupted {job.interruptions} times, the last time: {reason}", job.log)
    return _queued(job, reason)


def request_cancel(job: Job, now_ns: int) -> Job:
    """Cancel a queued job, or ask for a running one to be stopped."""
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
    """Queue a part again that succeeded and cannot be used together with the others."""
    if job.state != "succeeded":
        raise JobStateError(f"job {job.id} is {job.state}")
    return replace(_queued(job, reason), finished_ns=0, outcome=None)


def retry(job: Job, now_ns: int) -> Job:
    """Queue a job again that failed or was cancelled, as if it had never been tried."""
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
