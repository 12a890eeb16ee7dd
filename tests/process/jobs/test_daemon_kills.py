"""`kill -9` of workers, of the jobs process, of the supervisor and of everything: no job is lost, results are the same.

Every job that was acknowledged must be there after each restart, and end with the results that it has when nobody
disturbs it.
"""

import contextlib
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from msgspec import to_builtins

from service.client import Control, Jobs
from service.supervisor.launch import DaemonProcess
from tests.lab.daemon.daemons import await_status, processes
from tests.lab.jobs.jobs_process import FINISHED, configuration
from tests.lab.jobs.recipes import KILLS, Recipe, again, chain, essence, recipes, undisturbed

LIVES = max(KILLS // 3, 2)  # of daemons; in each of them a worker, the jobs process, and then the supervisor are killed
SEED = int(os.environ.get("THETAD_SEED", "20261122"))
WAITING = 4  # jobs unfinished at any time; three of them are a chain at first


def workers(daemon: DaemonProcess) -> list[psutil.Process]:
    """Processes of runs."""
    found = []
    for process in psutil.Process(daemon.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "service.jobs.execution.runner" in process.cmdline():
                found.append(process)
    return found


def strike_jobs(control: Control, running: list[psutil.Process], rng: np.random.Generator) -> None:
    """Kill the jobs process; its workers die with it, also one that is stopped, and the supervisor starts another."""
    pid = processes(control)["jobs"]["pid"]
    for worker in running:
        if rng.random() < 0.5:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.suspend()
    psutil.Process(pid).kill()
    _, alive = psutil.wait_procs(running, timeout=10.0)
    assert not alive
    await_status(control, lambda found: found["jobs"]["pid"] != pid and found["jobs"]["state"] == "ready")


def strike(daemon: DaemonProcess, victim: str, rng: np.random.Generator) -> None:
    """Kill the supervisor, or all processes in any order; none may outlive it."""
    supervisor = psutil.Process(daemon.pid)
    everyone = supervisor.children(recursive=True)
    doomed = [supervisor] if victim == "supervisor" else [supervisor, *everyone]
    for k in rng.permutation(len(doomed)):
        with contextlib.suppress(psutil.NoSuchProcess):
            doomed[k].kill()
    _, alive = psutil.wait_procs(everyone, timeout=10.0)
    assert not alive
    daemon.stop()


@pytest.mark.slow
@pytest.mark.timeout(max(1800, 20 * KILLS))
def test_kills_of_the_supervisor_and_of_everything(tmp_path: Path, arm2: Path, arm2_recording: Path) -> None:
    rng = np.random.default_rng(SEED)
    kinds = recipes(arm2_recording)
    expected = [undisturbed(recipe, arm2, tmp_path / str(k)) for k, recipe in enumerate(kinds)]
    driver = {"kind": "sim", "settings": {"rate_hz": 50.0}}  # which takes little time
    whole = configuration(tmp_path / "state", str(arm2), {"driver": driver}, workers=2, lease_s=2.0)
    known: dict[int, int] = {}  # jobs that were acknowledged, and which recipe they follow
    links: list[int] = []
    for life in range(LIVES):
        daemon = DaemonProcess(whole, tmp_path / "log").start(120.0)
        try:
            with Control(daemon.endpoints["control"]) as control:
                jobs = Jobs(control)
                if not links:
                    links = chain(partial(_submit, jobs), arm2_recording)
                    known |= dict.fromkeys(links, len(kinds))
                busy = partial(_busy, daemon, jobs, kinds, known, rng)
                running = busy()
                with contextlib.suppress(psutil.NoSuchProcess):
                    running[int(rng.integers(len(running)))].kill()
                strike_jobs(control, busy(), rng)
                busy()
            strike(daemon, ("supervisor", "everything")[life % 2], rng)
        finally:
            daemon.stop()
    with DaemonProcess(whole, tmp_path / "log") as daemon, Control(daemon.endpoints["control"]) as control:
        jobs = Jobs(control)
        done = [_finish(jobs, id) for id in known]
        assert {job.id for job in jobs.list(limit=1000)} == set(known)
        history = jobs.models()["arm"].history
        told = [event.job for event in jobs.events(limit=5000) if event.kind == "model_promoted"]
    print(f"{3 * LIVES} kills, {len(known)} jobs, {sum(job['interruptions'] for job in done)} interruptions")
    assert any(job["interruptions"] for job in done)
    for job in done:
        assert job["state"] == "succeeded", job
        if job["id"] not in links:
            assert essence(job) == expected[known[job["id"]]]
    assert [entry.job for entry in history] == told == links[-1:]  # once, whatever was killed
    assert not list((tmp_path / "state" / "jobs" / "runs").iterdir())


def _submit(jobs: Jobs, kind: str, parameters: dict[str, Any]) -> int:
    return jobs.submit(kind, parameters).id


def _fill(jobs: Jobs, kinds: list[Recipe], known: dict[int, int]) -> None:
    """Check what survived, and submit jobs until enough are unfinished."""
    found = {job.id: job for job in jobs.list(limit=1000)}
    assert set(known) == set(found), "a job was lost, or nobody asked for it"
    states = [job.state for job in found.values()]
    assert set(states) <= {"queued", "running", *FINISHED}
    for _ in range(WAITING - sum(state not in FINISHED for state in states)):
        which = len(known) % len(kinds)
        known[jobs.submit(*kinds[which]).id] = which


def _busy(
    daemon: DaemonProcess, jobs: Jobs, kinds: list[Recipe], known: dict[int, int], rng: np.random.Generator
) -> list[psutil.Process]:
    """Wait for a random moment at which jobs run; returns the workers."""
    while True:
        _fill(jobs, kinds, known)
        time.sleep(float(rng.uniform(0.0, 1.5)))
        if found := workers(daemon):
            return found


def _finish(jobs: Jobs, id: int) -> Any:
    """Wait for the end; a job whose worker was killed too often has failed, says so, and is tried again."""
    job = to_builtins(jobs.wait(id, 300.0))
    if again(job):
        jobs.retry(id)
        return to_builtins(jobs.wait(id, 300.0))
    return job
