"""`kill -9` of workers, of the jobs process and of everything at random moments: no job is lost, results are the same.

The jobs process and its runners are the real ones.  Every job that was acknowledged must be there after each restart,
in exactly one state, and end with the results that it has when nobody disturbs it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from service.jobs.queue.queue import Queue
from service.jobs.queue.store import FILE_NAME, Store
from service.protocol.control import ControlError
from tests.lab.jobs.jobs_process import FINISHED, JobsProcess, configuration
from tests.lab.jobs.recipes import KILLS, again, chain, essence, recipes, undisturbed

_KILLS = KILLS - KILLS // 8  # the others are of whole daemons, in test_daemon_kills.py
SEED = 20251122
QUICK = {"methods": ["ols"], "seconds": 2.0, "seeds": 1}
STATES = {"queued", "running", *FINISHED}
VICTIMS = ("worker", "process", "everything")
PROMOTED = "model_promoted"
WAITING = 5  # jobs unfinished at any time, so that a kill hits something; three of them are a chain at first


def strike(process: JobsProcess, rng: np.random.Generator, victim: str) -> str:
    """Kill a worker, the jobs process, or all of them, in either order."""
    assert process.process is not None
    runners = process.runners()
    if victim == "worker":
        if not runners:
            return "nobody"
        with contextlib.suppress(psutil.NoSuchProcess):
            runners[int(rng.integers(len(runners)))].kill()
        return victim
    if victim == "everything":
        for runner in runners:
            with contextlib.suppress(psutil.NoSuchProcess):
                runner.send_signal(signal.SIGSTOP if rng.random() < 0.5 else signal.SIGKILL)
    process.kill()
    for runner in runners:  # they die with their parent, also one that is stopped
        runner.wait(10.0)
    process.start()
    return victim


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_kills_of_workers_and_of_the_jobs_process(tmp_path: Path, arm2: Path, arm2_recording: Path) -> None:
    rng = np.random.default_rng(SEED)
    kinds = recipes(arm2_recording)
    expected = [undisturbed(recipe, arm2, tmp_path / str(k)) for k, recipe in enumerate(kinds)]
    known: dict[int, int] = {}  # jobs that were acknowledged, and which recipe they follow
    killed = dict.fromkeys((*VICTIMS, "nobody"), 0)
    config = configuration(tmp_path / "state", str(arm2), workers=2, lease_s=2.0)
    with JobsProcess(config, tmp_path / "log") as process:
        links = chain(lambda kind, given: process.submit(kind, **given), arm2_recording)
        known |= dict.fromkeys(links, len(kinds))
        while sum(killed.values()) - killed["nobody"] < _KILLS:
            jobs = {job["id"]: job for job in process.request("jobs", limit=1000)["jobs"]}
            assert set(known) <= set(jobs), "a job was lost"
            assert all(job["state"] in STATES for job in jobs.values())
            known |= {id: len(kinds) for id in jobs if id not in known}  # one whose acknowledgement was cut off
            while sum(job["state"] not in FINISHED for job in jobs.values()) < WAITING:
                which = len(known) % len(kinds)
                kind, parameters = kinds[which]
                id = process.submit(kind, **parameters)
                known[id] = which
                jobs[id] = process.request("job", id=id)
            process.await_runners()
            process.pause(float(rng.uniform(0.02, 1.5)))
            missing = [each for each in VICTIMS if not killed[each]]
            victim = missing[0] if missing else str(rng.choice(VICTIMS, p=[0.5, 0.25, 0.25]))
            killed[strike(process, rng, victim)] += 1
        done = process.wait(*known, timeout_s=600.0)
        for job in sorted(done, key=lambda job: job["id"]):
            if again(job):
                process.request("retry", id=job["id"])
        done = process.wait(*known, timeout_s=600.0)
        history = process.request("models")["arms"]["arm"]["history"]
        told = [event["job"] for event in process.request("events", limit=5000)["events"] if event["kind"] == PROMOTED]
        assert not process.runners()
    print(f"{killed} kills, {len(known)} jobs, {sum(job['interruptions'] for job in done)} interruptions")
    assert min(killed[each] for each in VICTIMS) >= _KILLS // 8
    assert any(job["interruptions"] for job in done)
    for job in done:
        assert job["state"] == "succeeded", job
        if known[job["id"]] < len(kinds):
            assert essence(job) == expected[known[job["id"]]]
    assert [entry["job"] for entry in history] == told == links[-1:]  # once, whatever was killed
    (fitted,) = [job for job in done if job["id"] == links[0]]
    assert history[0]["model"] == fitted["outcome"]["results"]["model.yaml"]["sha256"]
    assert not list((tmp_path / "state" / "jobs" / "runs").iterdir())


def test_a_worker_that_outlived_its_lease_cannot_write(tmp_path: Path, arm2: Path) -> None:
    """The jobs process stands still beyond the lease, another holder takes the job and finishes it first."""
    config = configuration(tmp_path / "state", str(arm2), workers=1, lease_s=1.0)
    with JobsProcess(config, tmp_path / "log") as process:
        id = process.submit("compare", **QUICK)
        process.await_runners()
        assert process.process is not None
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
    assert job is not None
    assert job.id == id
    outcome = {"verdict": "ok", "summary": "by another", "metrics": {}, "results": {}}
    return str((queue.finish(id, job.token, outcome).outcome or {})["summary"])


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
