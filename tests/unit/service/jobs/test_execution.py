"""Starting jobs, where what is wrong with one holds up no other, and the time that is left."""

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from service.io.log import get_log
from service.jobs._job_storage import JobStorage
from service.jobs.execution.backend import LocalBackend
from service.jobs.execution.executor import Executor
from service.jobs.execution.progress import Pace, left_by_history, left_by_parts
from service.jobs.queue.queue import Submission
from service.jobs.queue.state import MAX_ATTEMPTS

OUTCOME = {"verdict": "ok", "summary": "fine"}


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[JobStorage]:
    opened = JobStorage.open(tmp_path / "jobs")
    yield opened
    opened.close()


@pytest.fixture
def executor(storage: JobStorage) -> Iterator[Executor]:
    backend = LocalBackend(1, frozenset(os.sched_getaffinity(0)), "normal")
    one = Executor(storage, backend, 60.0, 0.0, get_log("test"), lambda _: None, {})
    yield one
    one.stop()
    backend.close()


def test_an_input_that_cannot_be_read_is_a_failed_attempt_of_its_job_alone(
    tmp_path: Path, storage: JobStorage, executor: Executor
) -> None:
    queue = storage.queue
    queue.submit(Submission("test", {}))
    held = queue.claim("me", 60.0)
    (tmp_path / "model").write_bytes(b"a model")
    made: dict[str, dict[str, Any]] = {"model.yaml": {"sha256": storage.artifacts.put(tmp_path / "model"), "bytes": 7}}
    queue.finish(held.id, held.token, OUTCOME | {"results": made})
    place = storage.artifacts.path(made["model.yaml"]["sha256"])
    place.unlink()
    place.symlink_to("/proc/self/mem")  # to read it is an input/output error
    (user, other) = queue.submit(
        Submission("validate", {"model": "job:1", "recording": "r"}, inputs={"model": {"job": 1}}, priority=1),
        Submission("compare", {"robot": "emps", "methods": ["ols"], "seconds": 3.0, "seeds": 1}),
    )
    executor.step()
    assert queue.job(other.id).state == "running"
    found = queue.job(user.id)
    assert (found.state, found.attempts) == ("queued", 1)
    assert found.due_ns > time.time_ns() - 10**9
    assert "Input/output error" in found.reason
    executor.stop()
    for attempt in range(1, MAX_ATTEMPTS):
        later_ns = time.time_ns() + attempt * 60 * 10**9
        queue.clock = partial(int, later_ns)
        executor.wake()
        executor.step()
        executor.stop()
    assert (queue.job(user.id).state, queue.job(user.id).attempts) == ("failed", MAX_ATTEMPTS)


TOTAL_S = 200.0


def follow(steps: int, pause: float) -> list[tuple[float, tuple[float, float] | None]]:
    """What is said at a steady pace, `pause` of the way to the next report after each of `steps` reports."""
    pace, said = Pace(), []
    for step in range(1, steps):
        pace.report(TOTAL_S * step / steps, step / steps, "work")
        now_s = TOTAL_S * (step + pause) / steps
        said.append((now_s, pace.left_s(now_s)))
    return said


@pytest.mark.parametrize("steps", [3, 100, 5000])
@pytest.mark.parametrize("pause", [0.0, 0.99])
def test_a_steady_pace_is_within(steps: int, pause: float) -> None:
    known = 0
    for now_s, left in follow(steps, pause):
        if left is None:
            assert now_s < max(2.0, (0.02 + 1.0 / steps) * TOTAL_S)  # two per cent have not been reported
            continue
        known += 1
        low, high = left
        assert 0.0 <= low <= TOTAL_S - now_s + 1e-6 <= high + 2e-6
        assert high - low <= TOTAL_S * 52.0 * pause / steps + 1e-6  # the first pace is of 2 % of the way
    assert known >= 0.9 * (steps - 1)


def test_silence_makes_it_longer_and_never_negative() -> None:
    pace = Pace()
    pace.report(10.0, 0.5, "work")
    lows, highs = zip(*(pace.left_s(at) or (-1.0, -1.0) for at in (10.0, 15.0, 30.0, 1e6)), strict=True)
    assert lows == (10.0, 5.0, 0.0, 0.0)
    assert list(highs) == sorted(highs)
    assert highs[-1] >= 1e6


def test_parts() -> None:
    assert left_by_parts(10, [4.0], [0.5]) is None  # too little
    assert left_by_parts(10, [4.0, 6.0], []) is None  # nothing runs
    # 5 parts of 5 s, two at a time
    assert left_by_parts(10, [4.0, 6.0] * 2, [0.5, 0.5]) == pytest.approx((12.5 / 1.5, 12.5 * 1.5))
    assert left_by_parts(6, [5.0] * 4, [1.0, 1.0]) == (0.0, 0.0)


def test_history() -> None:
    durations = [10.0, 40.0, 20.0, 30.0, 25.0, 22.0, 24.0, 23.0]  # the middle half: 22 to 30
    assert left_by_history(0.0, durations[:3]) is None
    assert left_by_history(0.0, durations) == (22.0, 30.0)
    assert left_by_history(25.0, durations) == (0.0, 5.0)
    assert left_by_history(30.5, durations) is None
