"""What a queue promises to those who share it: dependents, parts, models."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.jobs.queue import queue as queue_module
from service.jobs.queue.queue import PromotionConflictError, Queue, QueueFullError, Submission
from service.jobs.queue.retention import needed_files, purge
from service.jobs.queue.state import Job, JobStateError, StaleTokenError
from service.jobs.queue.store import Model, Promotion, Store

GOOD = {"verdict": "ok", "summary": "fine"}


class Clock:
    now_ns = 10**18

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(tmp_path: Path, clock: Clock) -> Iterator[Queue]:
    store = Store(tmp_path / "queue.db")
    yield Queue(store, clock)
    store.close()


def submit(queue: Queue, **more: object) -> Job:
    (job,) = queue.submit(Submission("test", {}, **more))  # type: ignore[arg-type]
    return job


def claim(queue: Queue) -> Job:
    job = queue.claim("me", 60.0)
    assert job is not None
    return job


def work(queue: Queue) -> list[int]:
    """Run all there is, in order."""
    done = []
    while (job := queue.claim("me", 60.0)) is not None:
        queue.finish(job.id, job.token, GOOD)
        done.append(job.id)
    return done


# ---------------------------------------------------------------- in and out


def test_too_many_are_refused_all_or_none(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "MAX_WAITING", 5)
    queue.submit(Submission("test", {}), Submission("test", {}, parts=[{}, {}]))  # parts count as well
    with pytest.raises(QueueFullError, match="more than 5"):
        queue.submit(Submission("test", {}), Submission("test", {}))
    assert len(list(queue.recent())) == 2
    last = submit(queue)
    with pytest.raises(QueueFullError):
        submit(queue)
    queue.cancel(last.id)
    submit(queue)


def test_chained_submissions(queue: Queue) -> None:
    outer = submit(queue)
    chain = queue.submit(
        Submission("identify", {}, priority=-1),
        Submission("validate", {}, inputs={"model": {"chain": 0}, "recording": {"path": "/a", "sha256": "b"}}),
        Submission(
            "promote", {}, inputs={"model": {"chain": 0}, "report": {"chain": 1}}, after=(outer.id,), priority=5
        ),
        chained=True,
    )
    assert [job.after for job in chain] == [(), (2,), (1, 3)]
    assert chain[1].inputs == {"model": {"job": 2}, "recording": {"path": "/a", "sha256": "b"}}
    assert chain[2].inputs == {"model": {"job": 2}, "report": {"job": 3}}
    assert [job.parameters for job in chain[1:]] == [{"model": "job:2"}, {"model": "job:2", "report": "job:3"}]
    assert work(queue) == [1, 2, 3, 4]


def test_order_is_by_priority_then_age_and_parts_come_with_their_parent(queue: Queue) -> None:
    for priority, parts in ((0, 0), (0, 2), (0, 0), (1, 1), (-1, 0)):
        submit(queue, priority=priority, parts=[{}] * parts)
    # numbers: 1; 2 with 3, 4; 5; 6 with 7; 8
    assert work(queue) == [7, 6, 1, 3, 4, 2, 5, 8]


def test_after_names_whole_jobs_that_are_there(queue: Queue) -> None:
    submit(queue, parts=[{}])
    with pytest.raises(JobStateError, match="after: there is no job 77"):
        submit(queue, after=(77,))
    with pytest.raises(JobStateError, match="after: job 2 is part 0 of job 1: name that one"):
        submit(queue, after=(2,))
    assert len(list(queue.recent())) == 1


# ---------------------------------------------------------------- divided jobs


def test_a_part_that_fails_fails_the_whole_and_stops_the_others(queue: Queue) -> None:
    whole = submit(queue, parts=[{}] * 4)
    running, failing, done = (claim(queue) for _ in range(3))
    queue.finish(done.id, done.token, GOOD)
    queue.fail(failing.id, failing.token, "no memory", "the log", final=True)
    after = queue.job(whole.id)
    assert (after.state, after.reason, after.log) == ("failed", "part 1: no memory", "the log")
    assert [part.state for part in queue.parts(whole.id)] == ["running", "failed", "succeeded", "cancelled"]
    assert queue.renew({running.id: running.token}, 60.0) == {running.id: "cancelled"}
    with pytest.raises(JobStateError, match="1 parts of job 1 are still being stopped"):
        queue.retry(whole.id)
    queue.hand_back(running.id, running.token, "stopped")
    assert queue.job(whole.id) == after  # one end
    queue.retry(whole.id)
    assert work(queue) == [2, 3, 5, 1]  # not the one that had succeeded
    assert [event.kind for event in queue.events(job=whole.id)].count("job_failed") == 1


# ---------------------------------------------------------------- models


def promote(queue: Queue, model: str, arm: str = "arm") -> None:
    submit(queue)
    job = claim(queue)
    previous = queue.history.active(arm)
    queue.finish(job.id, job.token, GOOD, promotion=Promotion(1, arm, model, previous, "promoted", job.id, "better"))


def test_a_model_that_was_compared_with_another_is_not_promoted(queue: Queue) -> None:
    promote(queue, "A")
    submit(queue)
    job = claim(queue)
    late = Promotion(1, "arm", "B", None, "promoted", job.id)  # nothing was active when it began
    events = queue.events()
    with pytest.raises(PromotionConflictError, match="arm arm: another model became active meanwhile"):
        queue.finish(job.id, job.token, GOOD, model=Model("B", "arm", 1, job.id), promotion=late)
    assert queue.job(job.id) == job  # nothing has changed: it can be handed back
    assert queue.history.models() == []
    assert queue.events() == events
    assert queue.hand_back(job.id, job.token, "again").state == "queued"


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_model_is_kept_with_the_success_and_not_without(queue: Queue, cancelled: bool) -> None:
    submit(queue)
    job = claim(queue)
    if cancelled:
        queue.cancel(job.id)
    model = Model("B", "arm", 1, job.id)
    outcome = GOOD if cancelled else GOOD | {"accepted": False}
    queue.finish(job.id, job.token, outcome, model=model, promotion=Promotion(1, "arm", "B", None, "promoted"))
    assert queue.history.models() == []
    assert queue.history.active("arm") is None


def test_purging_keeps_what_is_in_use(queue: Queue, clock: Clock) -> None:
    for model in ("active", "before", "never"):
        submit(queue)
        job = claim(queue)
        promotion = None
        if model != "never":
            promotion = Promotion(1, "arm", model, queue.history.active("arm"), "promoted", job.id)
        queue.finish(job.id, job.token, GOOD, model=Model(model, "arm", 1, job.id), promotion=promotion)
    maker = submit(queue)
    held = claim(queue)
    queue.finish(held.id, held.token, GOOD)
    user = submit(queue, inputs={"model": {"job": maker.id}}, due_ns=clock.now_ns + 10**18)
    divided = submit(queue, parts=[{}, {}])
    running, failed = claim(queue), claim(queue)
    queue.fail(failed.id, failed.token, "why", final=True)
    clock.now_ns += 10**17
    assert purge(queue.store, queue.clock(), 1.0, 1000) == 3
    assert {job.id for job in queue.recent()} == {maker.id, user.id, divided.id}
    assert {model.id for model in queue.history.models()} == {"active", "before"}
    queue.hand_back(running.id, running.token, "stopped")
    assert purge(queue.store, queue.clock(), 1.0, 1000) == 1
    with pytest.raises(StaleTokenError, match="has been deleted"):
        queue.finish(running.id, running.token, GOOD)
    assert submit(queue).id == 9  # numbers are not used again


def test_files_that_are_needed(queue: Queue) -> None:
    given = {"recording": {"path": "/w/1.window", "sha256": "aa"}, "model": {"job": 1}}
    submit(queue)
    submit(queue, inputs=given)
    job = claim(queue)
    results = {"model.yaml": {"sha256": "bb", "bytes": 3}}
    outcome = GOOD | {"results": results, "log": {"sha256": "cc", "bytes": 1}}
    promotion = Promotion(1, "arm", "dd", None, "promoted", data={"values": "ee"})
    queue.finish(job.id, job.token, outcome, model=Model("dd", "arm", 1), promotion=promotion)
    files = needed_files(queue.store)
    assert files.artifacts == {"aa", "bb", "cc", "dd", "ee"}
    assert files.paths == {"/w/1.window"}
