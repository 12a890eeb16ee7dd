"""Anything that can be done with a queue, in any order, against a model in a few maps; the file is reopened at will."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from service.jobs.queue.queue import PromotionConflictError, Queue, Submission
from service.jobs.queue.retention import purge
from service.jobs.queue.state import JobStateError, StaleTokenError
from service.jobs.queue.store import Promotion, Store

SECOND, DAY = 10**9, 86_400 * 10**9
LEASE_S = 20.0
GOOD = {"verdict": "ok", "summary": "fine"}
BAD = {"verdict": "bad", "summary": "no use", "accepted": False}
DONE = ("succeeded", "failed", "cancelled")
RETRIES_S = {1: 1, 2: 10}  # after so many failures


@dataclass
class Known:
    """What the model knows of a job."""

    id: int
    priority: int
    due: int
    after: tuple[int, ...]
    parts: int = 0
    parent: int | None = None
    state: str = "queued"
    token: int = 0
    lease: int = 0
    cancel: bool = False
    attempts: int = 0
    interruptions: int = 0
    finished: int = 0
    reason: str = ""


ids = st.integers(0, 30)


class QueueMachine(RuleBasedStateMachine):
    """`held` are the claims, old ones too: (job, token)."""

    held = Bundle("held")

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "queue.db"
        self.now = 10_000 * DAY
        self.jobs: dict[int, Known] = {}
        self.gone: set[int] = set()
        self.last = 0
        self.steps: list[str | None] = [None]  # models, as rolling back goes through them
        self.open()

    def open(self) -> None:
        self.store = Store(self.path)
        self.queue = Queue(self.store, lambda: self.now)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.folder.cleanup()

    def pick(self, number: int, *, whole: bool = False) -> Known | None:
        some = [job for job in self.jobs.values() if not (whole and job.parent)]
        return some[number % len(some)] if some else None

    def parts_of(self, id: int) -> list[Known]:
        return [job for job in self.jobs.values() if job.parent == id]

    # ------------------------------------------------------------ what the model does

    def end(self, job: Known, state: str, reason: str = "") -> None:
        job.state, job.cancel, job.lease, job.finished, job.reason = state, False, 0, self.now, reason
        if state == "failed" and job.parent is not None and self.jobs[job.parent].state == "queued":
            self.end(self.jobs[job.parent], "failed")
            self.stop_parts(job.parent)

    def again(self, job: Known) -> None:
        job.state, job.cancel, job.lease, job.finished = "queued", False, 0, 0

    def stop_parts(self, id: int) -> None:
        for part in self.parts_of(id):
            if part.state == "queued":
                self.end(part, "cancelled")
            elif part.state == "running":
                part.cancel = True

    def interrupted(self, job: Known) -> None:
        job.interruptions += 1
        if job.cancel:
            self.end(job, "cancelled")
        elif job.interruptions == 20:
            self.end(job, "failed")
        else:
            self.again(job)

    def holds(self, claim: tuple[int, int]) -> Known | None:
        job = self.jobs.get(claim[0])
        return job if job is not None and job.state == "running" and job.token == claim[1] else None

    # ------------------------------------------------------------ in and out

    @rule(
        priority=st.integers(-1, 1), due_s=st.sampled_from([0, 0, 0, 5, 100]),
        parts=st.sampled_from([0, 0, 0, 1, 2, 3]), after=st.lists(ids, max_size=2),
    )  # fmt: skip
    def submit(self, priority: int, due_s: int, parts: int, after: list[int]) -> None:
        others = [job for number in after if (job := self.pick(number)) is not None]
        due = self.now + due_s * SECOND
        submission = Submission(
            "test", {}, "arm", {}, priority, due, tuple(job.id for job in others), parts=[{}] * parts
        )  # fmt: skip
        if any(job.parent is not None or job.state in ("failed", "cancelled") for job in others):
            with pytest.raises(JobStateError, match="after: job "):
                self.queue.submit(submission)
            return
        (new,) = self.queue.submit(submission)
        assert new.id == self.last + 1
        names = tuple(dict.fromkeys(other.id for other in others))
        self.jobs[new.id] = Known(new.id, priority, due, names, parts)
        for number in range(1, parts + 1):
            self.jobs[new.id + number] = Known(new.id + number, priority, due, names, parent=new.id)
        self.last = new.id + parts

    def to_claim(self) -> Known | None:
        """Give up what can never run, until there is one that can."""
        waiting = [job for job in self.jobs.values() if job.state == "queued" and job.due <= self.now]
        for job in sorted(waiting, key=lambda job: (-job.priority, job.parent or job.id, job.id)):
            if job.state != "queued":
                continue
            states = [self.jobs[other].state for other in job.after]
            if "failed" in states or "cancelled" in states:
                self.end(job, "cancelled", "needs")
                self.stop_parts(job.id)
                continue
            if all(state == "succeeded" for state in states) and all(
                part.state == "succeeded" for part in self.parts_of(job.id)
            ):
                return job
        return None

    @rule(target=held, owner=st.sampled_from("abc"))
    def claim(self, owner: str) -> object:
        want = self.to_claim()
        got = self.queue.claim(owner, LEASE_S)
        assert (got.id if got else None) == (want.id if want else None)
        if got is None or want is None:
            return multiple()
        want.state, want.token, want.lease = "running", want.token + 1, self.now + round(LEASE_S * SECOND)
        want.reason = ""
        assert (got.owner, got.token) == (owner, want.token)
        return (got.id, got.token)

    @rule(seconds=st.sampled_from([1, 3, 15, 30, 100, 86_400 * 3]))
    def wait(self, seconds: int) -> None:
        self.now += seconds * SECOND

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.open()

    # ------------------------------------------------------------ word of who holds, or held, a job

    @rule(claim=held, how=st.sampled_from(["good", "good", "good", "bad", "fail", "final", "interrupt", "hand back"]))
    def ended(self, claim: tuple[int, int], how: str) -> None:
        id, token = claim
        job = self.holds(claim)
        calls = {
            "good": lambda: self.queue.finish(id, token, GOOD),
            "bad": lambda: self.queue.finish(id, token, BAD),
            "fail": lambda: self.queue.fail(id, token, "why", final=False),
            "final": lambda: self.queue.fail(id, token, "why", final=True),
            "interrupt": lambda: self.queue.interrupt(id, token, "why"),
            "hand back": lambda: self.queue.hand_back(id, token, "why"),
        }
        if job is None:
            with pytest.raises(StaleTokenError):
                calls[how]()
            return
        calls[how]()
        cancelled = job.cancel
        if how in ("fail", "final"):
            job.attempts += 1
        if how == "interrupt":
            self.interrupted(job)
        elif cancelled:
            self.end(job, "cancelled")
        elif how == "good":
            self.end(job, "succeeded")
        elif how in ("bad", "final") or job.attempts == 3:
            self.end(job, "failed")
        else:
            self.again(job)
            if how == "fail":
                job.due = self.now + RETRIES_S[job.attempts] * SECOND

    @rule(claim=held)
    def renew(self, claim: tuple[int, int]) -> None:
        job = self.holds(claim)
        stop = self.queue.renew({claim[0]: claim[1]}, LEASE_S)
        assert (claim[0] in stop) == (job is None or job.cancel)
        if job is not None:
            job.lease = self.now + round(LEASE_S * SECOND)

    @rule(claim=held, which=st.sets(st.integers(0, 2)))
    def redo(self, claim: tuple[int, int], which: set[int]) -> None:
        job = self.holds(claim)
        if job is None or not job.parts or job.cancel:
            return
        again = [part for number, part in enumerate(self.parts_of(job.id)) if number in which]
        self.queue.redo_parts(job.id, claim[1], [part.id for part in again], "other version")
        self.again(job)
        for part in again:
            self.again(part)

    @rule(everything=st.sampled_from([False, False, False, True]))
    def expire(self, everything: bool) -> None:
        late = [job for job in self.jobs.values() if job.state == "running" and (everything or job.lease < self.now)]
        taken = self.queue.expire(everything=everything)
        assert {job.id for job in taken} == {job.id for job in late}
        for job in late:
            self.interrupted(job)

    # ------------------------------------------------------------ requests

    @rule(number=ids)
    def cancel(self, number: int) -> None:
        job = self.pick(number)
        if job is None:
            return
        if job.parent is not None or job.state in DONE:
            with pytest.raises(JobStateError, match="is part" if job.parent is not None else "already"):
                self.queue.cancel(job.id)
            return
        self.queue.cancel(job.id)
        if job.state == "queued":
            self.end(job, "cancelled")
        else:
            job.cancel = True
        self.stop_parts(job.id)

    @rule(number=ids)
    def retry(self, number: int) -> None:
        job = self.pick(number)
        if job is None:
            return
        parts = self.parts_of(job.id)
        states = [self.jobs[other].state if other in self.jobs else "gone" for other in job.after]
        if (
            job.parent is not None or job.state not in ("failed", "cancelled")
            or {"failed", "cancelled", "gone"} & set(states) or any(part.state == "running" for part in parts)
        ):  # fmt: skip
            with pytest.raises(JobStateError):
                self.queue.retry(job.id)
            return
        self.queue.retry(job.id)
        for one in (job, *parts):
            if one.state in ("failed", "cancelled"):
                self.again(one)
                one.attempts, one.interruptions, one.due, one.reason = 0, 0, self.now, ""

    @rule(days=st.sampled_from([1.0, 10.0]), keep=st.sampled_from([1, 3, 100]))
    def purge(self, days: float, keep: int) -> None:
        active = [job for job in self.jobs.values() if job.state not in DONE]
        needed = {other for job in active for other in (*job.after, job.parent)}
        finished = sorted((job.id for job in self.jobs.values() if not job.parent and job.state in DONE), reverse=True)
        old = {
            id
            for place, id in enumerate(finished)
            if id not in needed and (place >= keep or self.jobs[id].finished < self.now - days * DAY)
        }
        assert purge(self.queue.store, self.queue.clock(), days, keep) == len(old)
        for id in [id for id, job in self.jobs.items() if id in old or job.parent in old]:
            del self.jobs[id]
            self.gone.add(id)

    # ------------------------------------------------------------ models

    @rule(claim=held, seen=st.booleans())
    def promote(self, claim: tuple[int, int], seen: bool) -> None:
        """The candidate was compared with the active model, or with one that was active before."""
        job = self.holds(claim)
        if job is None or job.parent is not None or job.cancel:
            return
        model = f"{job.id}.{job.token}"
        promotion = Promotion(self.now, "arm", model, self.steps[-1] if seen else "another", "promoted", job.id)
        if not seen:
            with pytest.raises(PromotionConflictError, match="arm arm: another model became active"):
                self.queue.finish(*claim, GOOD, promotion=promotion)
            return
        self.queue.finish(*claim, GOOD, promotion=promotion)
        self.end(job, "succeeded")
        self.steps.append(model)

    @rule()
    def roll_back(self) -> None:
        if len(self.steps) == 1:
            with pytest.raises(JobStateError, match="no model is active"):
                self.queue.history.roll_back("arm", "")
            return
        left = self.steps.pop()
        entry = self.queue.history.roll_back("arm", "")
        assert (entry.previous, entry.model) == (left, self.steps[-1])

    # ------------------------------------------------------------ what holds always

    @invariant()
    def is_as_the_model_says(self) -> None:
        if not hasattr(self, "store"):
            return
        with self.store.read() as tx:
            there = {job.id: job for job in tx.jobs()}
        assert set(there) == set(self.jobs)  # nothing is lost, nothing comes back
        for id, known in self.jobs.items():
            job = there[id]
            assert (job.state, job.token, job.cancel) == (known.state, known.token, known.cancel)
            assert (job.attempts, job.interruptions) == (known.attempts, known.interruptions)
            assert (job.due_ns, job.lease_ns, job.finished_ns) == (known.due, known.lease, known.finished)
            assert (job.owner != "") == (job.state == "running")
            if known.reason == "needs":
                assert "which it needs" in job.reason
        assert self.queue.history.active("arm") == self.steps[-1]

    @invariant()
    def no_job_runs_before_what_it_needs(self) -> None:
        for job in getattr(self, "jobs", {}).values():
            if job.state == "running":
                assert all(self.jobs[other].state == "succeeded" for other in job.after if other in self.jobs)
                if job.parts and not job.cancel:
                    assert all(part.state == "succeeded" for part in self.parts_of(job.id))
            if job.parent is not None and job.state == "queued":
                assert self.jobs[job.parent].state == "queued"


@pytest.mark.slow
def test_any_use_of_a_queue() -> None:
    run_state_machine_as_test(QueueMachine, settings=settings(max_examples=150, stateful_step_count=40))
