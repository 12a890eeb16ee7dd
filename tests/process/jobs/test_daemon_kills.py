"""`kill -9` of the supervisor, alone or with all its processes, while jobs run: the next daemon goes on with them."""

from __future__ import annotations

import contextlib
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from service.client import Control, Jobs
from service.config.load import Config
from service.supervisor.launch import DaemonProcess
from tests.lab.jobs.jobs_process import FINISHED, configuration
from tests.lab.jobs.recipes import KILLS, again, chain, essence, recipes, undisturbed

_KILLS = max(KILLS // 8, 2)  # the others are of workers and of the jobs process, in test_kills.py
SEED = 20261122
WAITING = 4  # jobs unfinished at any time; three of them are a chain at first


def settings(state: Path, robot: Path) -> Config:
    """A daemon with one arm that takes little time."""
    driver = {"kind": "sim", "settings": {"rate_hz": 50.0}}
    return configuration(state, str(robot), {"driver": driver}, workers=2, lease_s=2.0)


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
@pytest.mark.timeout(1200)
def test_kills_of_the_supervisor_and_of_everything(tmp_path: Path, arm2: Path, arm2_recording: Path) -> None:
    rng = np.random.default_rng(SEED)
    kinds = recipes(arm2_recording)
    expected = [undisturbed(recipe, arm2, tmp_path / str(k)) for k, recipe in enumerate(kinds)]
    whole = settings(tmp_path / "state", arm2)
    known: dict[int, int] = {}  # jobs that were acknowledged, and which recipe they follow
    links: list[int] = []
    killed = {"supervisor": 0, "everything": 0}
    while sum(killed.values()) < _KILLS:
        daemon = DaemonProcess(whole, tmp_path / "log").start(120.0)
        try:
            with Control(daemon.endpoints["control"]) as control:
                jobs = Jobs(control)
                if not links:
                    links = chain(partial(_submit, jobs), arm2_recording)
                    known |= dict.fromkeys(links, len(kinds))
                _fill(jobs, kinds, known)
                while not any(job["state"] == "running" for job in jobs.list(limit=1000)):
                    time.sleep(0.1)
                    _fill(jobs, kinds, known)
                time.sleep(float(rng.uniform(0.0, 2.0)))
            victim = min(killed, key=killed.__getitem__)
            strike(daemon, victim, rng)
            killed[victim] += 1
        finally:
            daemon.stop()
    with DaemonProcess(whole, tmp_path / "log") as daemon, Control(daemon.endpoints["control"]) as control:
        jobs = Jobs(control)
        done = [_finish(jobs, id) for id in known]
        assert {job["id"] for job in jobs.list(limit=1000)} == set(known)
        history = jobs.models()["arm"]["history"]
        told = [event["job"] for event in jobs.events(limit=5000) if event["kind"] == "model_promoted"]
    print(f"{killed} kills, {len(known)} jobs, {sum(job['interruptions'] for job in done)} interruptions")
    assert any(job["interruptions"] for job in done)
    for job in done:
        assert job["state"] == "succeeded", job
        if job["id"] not in links:
            assert essence(job) == expected[known[job["id"]]]
    assert [entry["job"] for entry in history] == told == links[-1:]  # once, whatever was killed
    assert not list((tmp_path / "state" / "jobs" / "runs").iterdir())


def _submit(jobs: Jobs, kind: str, parameters: dict[str, Any]) -> int:
    return int(jobs.submit(kind, parameters)["id"])


def _fill(jobs: Jobs, kinds: list[tuple[str, dict[str, Any]]], known: dict[int, int]) -> None:
    """Check what survived, and submit jobs until enough are unfinished."""
    found = {job["id"]: job for job in jobs.list(limit=1000)}
    assert set(known) == set(found), "a job was lost, or nobody asked for it"
    states = [job["state"] for job in found.values()]
    assert set(states) <= {"queued", "running", *FINISHED}
    for _ in range(WAITING - sum(state not in FINISHED for state in states)):
        which = len(known) % len(kinds)
        known[jobs.submit(*kinds[which])["id"]] = which


def _finish(jobs: Jobs, id: int) -> Any:
    """Wait for the end; a job whose worker was killed too often has failed, says so, and is tried again."""
    job = jobs.wait(id, 300.0)
    if again(job):
        jobs.retry(id)
        job = jobs.wait(id, 300.0)
    return job
