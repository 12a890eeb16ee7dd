"""The life of a job as pure functions: what is allowed, what is refused, and what holds whatever happens."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from service.jobs.queue import state
from service.jobs.queue.state import (
    FIRST_DELAY_NS,
    MAX_ATTEMPTS,
    MAX_INTERRUPTIONS,
    Job,
    JobStateError,
    StaleTokenError,
)

NOW, LEASE = 5_000, 700
STATES: tuple[state.State, ...] = ("queued", "running", "succeeded", "failed", "cancelled")
GOOD = {"verdict": "ok", "summary": "fine"}
BAD = {"verdict": "not_better", "summary": "no gain", "accepted": False}


def job(at: state.State = "queued", **more: object) -> Job:
    """A job in some state, claimed twice so far."""
    held = {"owner": "me", "lease_ns": 900} if at == "running" else {}
    ended = {"finished_ns": 77} if at in state.FINISHED else {}
    return replace(Job(12, "identify", {"a": 1}, 10, token=2, state=at), **(held | ended | more))  # type: ignore[arg-type]


STEPS: dict[str, tuple[Callable[[Job, int, int], Job], dict[state.State, str]]] = {
    # what is done with a token at a time, and where it leads from where it is allowed
    "claim": (lambda j, _, now: state.claim(j, "you", now, LEASE), {"queued": "running"}),
    "renew": (lambda j, token, now: state.renew(j, token, now, LEASE), {"running": "running"}),
    "finish": (lambda j, token, now: state.finish(j, token, now, GOOD, "log"), {"running": "succeeded"}),
    "finish unaccepted": (lambda j, token, now: state.finish(j, token, now, BAD, "log"), {"running": "failed"}),
    "fail": (lambda j, token, now: state.fail(j, token, now, "why", "log", final=False), {"running": "queued"}),
    "fail for good": (lambda j, token, now: state.fail(j, token, now, "why", "log", final=True), {"running": "failed"}),
    "hand back": (lambda j, token, now: state.hand_back(j, token, "why", now), {"running": "queued"}),
    "interrupt": (lambda j, token, now: state.interrupt(j, token, now, "why"), {"running": "queued"}),
    "cancel": (lambda j, _, now: state.request_cancel(j, now), {"queued": "cancelled", "running": "running"}),
    "give up": (lambda j, _, now: state.give_up(j, now, "why"), {"queued": "cancelled"}),
    "fail queued": (lambda j, _, now: state.fail_queued(j, now, "why", "log"), {"queued": "failed"}),
    "redo": (lambda j, _token, _now: state.redo(j, "why"), {"succeeded": "queued"}),
    "retry": (lambda j, _, now: state.retry(j, now), {"failed": "queued", "cancelled": "queued"}),
}
TOKEN_STEPS = ("renew", "finish", "finish unaccepted", "fail", "fail for good", "hand back", "interrupt")


@pytest.mark.parametrize("before", STATES)
@pytest.mark.parametrize("name", STEPS)
def test_each_step_from_each_state(name: str, before: state.State) -> None:
    step, leads = STEPS[name]
    if before not in leads:
        with pytest.raises(JobStateError, match=f"job 12 (is|has) {before}"):
            step(job(before), 2, NOW)
        return
    after = step(job(before), 2, NOW)
    assert after.state == leads[before]
    assert (after.owner != "") == (after.lease_ns != 0) == (after.state == "running")
    assert (after.finished_ns != 0) == after.finished == (after.state in ("succeeded", "failed", "cancelled"))
    assert after.token == (3 if name == "claim" else 2)


@pytest.mark.parametrize("token", [1, 3])
@pytest.mark.parametrize("name", TOKEN_STEPS)
def test_only_the_holder_of_a_job_may_report(name: str, token: int) -> None:
    with pytest.raises(StaleTokenError, match=f"job 12 is running with token {token}: the run with token 2 does not"):
        STEPS[name][0](job("running", token=token), 2, NOW)


def test_a_failure_is_tried_again_later_each_time_and_then_is_one() -> None:
    now, one = NOW, job()
    waiting_reason = []
    for _ in range(MAX_ATTEMPTS):
        one = state.claim(one, "me", now, LEASE)
        one = state.fail(one, one.token, now, "no memory", "the log", final=False)
        waiting_reason.append(one.due_ns - now)
        now = max(now, one.due_ns)
    assert waiting_reason[: MAX_ATTEMPTS - 1] == [FIRST_DELAY_NS * 10**k for k in range(MAX_ATTEMPTS - 1)]
    assert (one.state, one.attempts, one.log) == ("failed", MAX_ATTEMPTS, "the log")
    assert one.reason == f"no memory ({MAX_ATTEMPTS} attempts)"
    again = state.retry(one, now)
    assert (again.attempts, again.due_ns, again.reason, again.token) == (0, now, "", one.token)


def test_interruptions_do_not_count_as_failures_and_end_too() -> None:
    one = job()
    for count in range(1, MAX_INTERRUPTIONS + 1):
        assert one.state == "queued"
        one = state.claim(one, "me", NOW, LEASE)
        one = state.interrupt(one, one.token, NOW, "the power failed")
        assert (one.attempts, one.interruptions) == (0, count)
    assert one.state == "failed"
    assert one.reason == f"interrupted {MAX_INTERRUPTIONS} times, the last time: the power failed"


def test_what_no_disk_has_room_for_is_repeated_as_slowly_as_what_fails() -> None:
    ends = [state.interrupt(job("running", interruptions=n), 2, NOW, "no room", later=True) for n in (0, 1, 5)]
    assert [(one.due_ns - NOW) / state.FIRST_DELAY_NS for one in ends] == [1, 10, 10]
    assert state.interrupt(job("running"), 2, NOW, "the power failed").due_ns <= NOW


def test_reasons_are_not_endless() -> None:
    steps: tuple[Callable[[], Job], ...] = (
        lambda: state.fail(job("running"), 2, NOW, "x" * 10**6, "", final=True),
        lambda: state.finish(job("running"), 2, NOW, BAD | {"summary": "x" * 10**6}, ""),
        lambda: state.interrupt(job("running", interruptions=MAX_INTERRUPTIONS - 1), 2, NOW, "x" * 10**6),
    )
    for step in steps:
        assert len(step().reason) < 2100
