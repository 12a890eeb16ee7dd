"""A disk that is read-only, a queue that is damaged or locked, a lease that ran out; jobs that loop or crash."""

import contextlib
import os
import re
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.jobs.queue.queue import Queue
from service.jobs.queue.store import FILE_NAME, Store
from service.protocol.control import ControlError
from tests.lab.jobs.jobs_process import FINISHED, JobsProcess, configuration
from tests.lab.jobs.small_disk import remount, small_disk

QUICK = {"methods": ["ols"], "seconds": 2.0, "seeds": 1}


@pytest.mark.slow
def test_a_read_only_disk(tmp_path: Path, arm2: Path) -> None:
    with small_disk(tmp_path / "disk", 16) as disk:
        config = configuration(disk / "state", str(arm2))
        with JobsProcess(config, tmp_path / "log") as process:
            first = process.submit("compare", _due_s=3600.0, **QUICK)
            process.stop()
            remount(disk, "ro")
            process.start()  # it is ready, and says why it takes no jobs
            assert process.await_beat(lambda info: bool(info["trouble"]))["state"] == "trouble"
            with pytest.raises(ControlError, match="ead-only"):
                process.submit("compare", **QUICK)
            remount(disk, "rw")
            process.await_beat(lambda info: not info["trouble"])
            assert process.request("job", id=first)["state"] == "queued"
            process.submit("compare", **QUICK)
            process.await_runners()


def test_a_damaged_queue_is_set_aside(tmp_path: Path, arm2: Path) -> None:
    config = configuration(tmp_path / "state", str(arm2))
    queue = tmp_path / "state" / "jobs" / FILE_NAME
    with JobsProcess(config, tmp_path / "log") as process:
        id = process.submit("compare", **QUICK)
        (before,) = process.wait(id)
        later = process.submit("compare", _due_s=3600.0, **QUICK)
        process.stop()
        damaged = bytearray(queue.read_bytes())
        damaged[:4096] = np.random.default_rng(1).bytes(4096)
        queue.write_bytes(damaged)
        process.start()
        jobs = {job["id"]: job["state"] for job in process.request("jobs")["jobs"]}
        assert jobs == {id: "succeeded", later: "queued"}
        assert process.request("job", id=id)["outcome"] == before["outcome"]
        assert (queue.parent / f"{FILE_NAME}.bad1").read_bytes() == bytes(damaged)
        events = process.request("events")["events"]
        assert "recovered" in next(event["text"] for event in events if event["kind"] == "queue_salvaged")
        assert process.submit("compare", **QUICK) > later
        process.await_runners()


@pytest.mark.slow
def test_an_event_that_is_damaged_while_the_queue_is_in_use(tmp_path: Path, arm2: Path) -> None:
    """It is lost, the history is readable without it, and a run is ended once, not at each look at the history."""
    config = configuration(tmp_path / "state", str(arm2))
    queue = tmp_path / "state" / "jobs" / FILE_NAME
    with JobsProcess(config, tmp_path / "log") as process:
        for _ in range(3):
            process.submit("compare", _due_s=3600.0, **QUICK)
        before = process.request("events")["events"]
        bad = before[1]["id"]
        running = process.submit("compare", **QUICK)
        process.await_runners()
        with contextlib.closing(sqlite3.connect(queue, isolation_level=None)) as other:
            other.execute("UPDATE events SET body = replace(body, 'job_', 'jab_') WHERE id = ?", (bad,))
        with pytest.raises(ControlError, match="cannot be read"):
            process.request("events")
        deadline = time.monotonic() + 60.0
        after: list[Any] = []
        while not after:
            assert time.monotonic() < deadline
            with contextlib.suppress(ControlError):
                after = process.request("events")["events"]
            process.pause(0.2)
        assert [event for event in before if event["id"] != bad] == after[: len(before) - 1]
        while (job := process.request("job", id=running))["state"] not in FINISHED:
            process.request("events")
            process.pause(0.2)
        kinds = [event["kind"] for event in process.request("events")["events"]]
    assert (job["state"], job["interruptions"]) == ("succeeded", 1)
    assert kinds.count("queue_salvaged") == 1


@pytest.mark.slow
def test_a_locked_queue(tmp_path: Path, arm2: Path) -> None:
    """Requests are refused at once, and a run that ends meanwhile is written down when the lock is gone."""
    config = configuration(tmp_path / "state", str(arm2))
    with JobsProcess(config, tmp_path / "log") as process:
        id = process.submit("compare", **QUICK)
        process.await_runners()
        other = sqlite3.connect(tmp_path / "state" / "jobs" / FILE_NAME, isolation_level=None)
        try:
            other.execute("PRAGMA busy_timeout = 30000")
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(ControlError, match="locked") as refused:
                process.submit("compare", **QUICK)
            assert refused.value.type == "unavailable"
            while process.runners():
                process.pause(0.1)
            process.pause(1.0)
            assert process.request("job", id=id)["state"] == "running"  # reading is possible
            other.execute("ROLLBACK")
        finally:
            other.close()
        (job,) = process.wait(id)
    assert (job["state"], job["attempts"], job["interruptions"]) == ("succeeded", 0, 0)


@pytest.mark.slow
def test_jobs_that_loop_eat_memory_or_crash_harm_nobody(
    tmp_path: Path, arm2: Path, arm2_recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")  # every run has something to log before it is stopped
    config = configuration(tmp_path / "state", str(arm2), workers=4)
    with JobsProcess(config, tmp_path / "log") as process:
        endless = process.submit("compare", methods=["ols"], seconds=3000.0, seeds=1, _time_s=4.0)
        hungry = process.submit("compare", methods=["ols"], seconds=50_000.0, seeds=1, _memory_mb=600.0)
        wrong = process.submit("identify", recording=str(arm2_recording), span="0:0.001")
        good = process.submit("identify", recording=str(arm2_recording), span="0:0.6")
        crashing = process.submit("compare", methods=["ols"], seconds=2000.0, seeds=1)
        for _ in range(3):  # every attempt is ended by a signal
            deadline = time.monotonic() + 120.0
            runner = None
            while runner is None:
                assert time.monotonic() < deadline
                process.pause(0.2)
                runs = {r.cmdline()[3].rpartition("/")[2].partition("-")[0]: r for r in process.runners()}
                runner = runs.get(str(crashing))
            os.kill(runner.pid, signal.SIGSEGV)
            runner.wait(10.0)
        jobs = process.wait(endless, hungry, wrong, good, crashing, timeout_s=240.0)
    slow, large, refused, fine, crashed = jobs
    assert [job["state"] for job in jobs] == ["failed", "failed", "failed", "succeeded", "failed"]
    assert "limit of 4 s" in slow["reason"]
    assert "600 MB" in large["reason"]
    assert re.search("span|rows|samples", refused["reason"])
    assert refused["attempts"] == 1  # to try again would not help
    assert "SIGSEGV" in crashed["reason"]
    assert crashed["attempts"] == 3
    for job in (slow, large):  # what was logged until then is kept; the third was killed as soon as it was seen
        assert re.search("^(import time: |MemoryError)", job["log"], re.MULTILINE), job
    assert refused["reason"] in refused["log"]
    assert fine["outcome"]["verdict"] in ("ok", "weak_excitation", "doubtful")


def test_a_worker_that_outlived_its_lease_cannot_write(tmp_path: Path, arm2: Path) -> None:
    """The jobs process stands still beyond the lease, another holder takes the job and finishes it first."""
    config = configuration(tmp_path / "state", str(arm2), workers=1, lease_s=1.0)
    with JobsProcess(config, tmp_path / "log") as process:
        id = process.submit("compare", **QUICK)
        process.await_runners()
        store = Store(tmp_path / "state" / "jobs" / FILE_NAME)
        try:
            with store.write():  # so that it does not stand still while it holds the file
                os.kill(process.process.pid, signal.SIGSTOP)
            other = _other_holder(Queue(store), id)
        finally:
            store.close()
            os.kill(process.process.pid, signal.SIGCONT)
        (job,) = process.wait(id)
        while not re.search("run_dropped|run_too_late", (tmp_path / "log").read_text(encoding="utf-8")):
            process.pause(0.1)
        (after,) = process.wait(id)
    assert other == job["outcome"]["summary"] == after["outcome"]["summary"] == "by another"
    assert after["interruptions"] == 1


def _other_holder(queue: Queue, id: int) -> str:
    """Wait for the lease to run out, take the job and finish it."""
    while not queue.expire():
        time.sleep(0.1)
    job = queue.claim("another", 60.0)
    assert job.id == id
    outcome = {"verdict": "ok", "summary": "by another", "metrics": {}, "results": {}}
    return str((queue.finish(id, job.token, outcome).outcome or {})["summary"])


@pytest.mark.slow
def test_jobs_are_handed_back_when_the_process_stops_and_cancel_leaves_others_alone(tmp_path: Path, arm2: Path) -> None:
    endless = {"methods": ["ols"], "seconds": 2000.0}
    with JobsProcess(configuration(tmp_path / "state", str(arm2), workers=3), tmp_path / "log") as process:
        id = process.submit("compare", **QUICK)
        (runner,) = process.await_runners()
        assert process.stop() == 0
        assert not runner.is_running()
        process.start()
        long = process.submit("compare", **endless, seeds=1)
        parts = process.submit("compare", **endless, seeds=3)
        process.await_runners(3)
        for each in (long, parts):
            process.request("cancel", id=each)
        job, *cancelled = process.wait(id, long, parts)
        assert [each["state"] for each in cancelled] == ["cancelled"] * 2
        assert (job["state"], job["attempts"], job["interruptions"]) == ("succeeded", 0, 0)
        process.await_beat(lambda heartbeat: heartbeat["running"] == 0)
        assert {part["state"] for part in process.request("job", id=parts)["parts"]} == {"cancelled"}
        with pytest.raises(ControlError, match="cancelled already"):
            process.request("cancel", id=long)
