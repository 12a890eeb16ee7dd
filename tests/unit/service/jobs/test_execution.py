"""Starting jobs: what is wrong with one of them does not hold up the others."""

from __future__ import annotations

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
    assert held is not None
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
