"""`thetad jobs`, `events` and `models` against a daemon."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.client import Control, ControlError, Jobs, UnreachableError
from service.operations.inputs import read_window
from service.protocol.job_replies import MAX_EVENTS, MAX_JOBS
from service.supervisor.launch import DaemonProcess
from tests.lab.command_line import ROOT, Outcome, thetad
from tests.lab.daemon.daemons import config, make_recording, processes, start

NOBODY = "tcp://127.0.0.1:1"
LONG_S = 120.0


@pytest.fixture(scope="module")
def recording(folder: Path) -> Path:
    return make_recording(folder / "rec.mcap", seconds=20.0)


@pytest.fixture(scope="module")
def daemon(folder: Path) -> Iterator[DaemonProcess]:
    """A daemon with a simulated linear axis."""
    text = (ROOT / "configs/robots/emps.toml").read_text(encoding="utf-8")
    robot = folder / "axis.toml"
    robot.write_text(text + "mass = 95.0\ncoulomb = 20.0\nviscous = 200.0\noffset = -3.0\n")
    table = {"window_s": 20.0, "when": []}
    arm = {"name": "axis", "robot": str(robot), "driver": {"kind": "sim"}, "reidentify": table}
    with start(config(folder, arm), folder) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def jobs(daemon: DaemonProcess) -> Iterator[Jobs]:
    with Control(daemon.endpoints["control"]) as control:
        yield Jobs(control)


@pytest.fixture
def ask(daemon: DaemonProcess) -> Any:
    """Run a command with the daemon's control endpoint."""

    def run(*arguments: object) -> Outcome:
        return thetad(*arguments, "--control", daemon.endpoints["control"])

    return run


@pytest.fixture(scope="module")
def fitted(jobs: Jobs, recording: Path) -> int:
    """Number of a job that has identified the arm from the first 60 % of the recording."""
    queued = jobs.submit("identify", {"recording": recording, "span": "0:0.6"}, arm="axis")
    job = jobs.wait(queued.id, LONG_S)
    assert job.state == "succeeded", job
    return job.id


@pytest.fixture(scope="module")
def waiting(jobs: Jobs, recording: Path) -> Iterator[int]:
    """Number of a job that does not run for an hour."""
    queued = jobs.submit("identify", {"recording": recording}, arm="axis", due_s=3600.0)
    yield queued.id
    jobs.cancel(queued.id)


# Submitting, waiting, results ----------------------------------------------------------------------


def test_a_job_gives_what_the_command_gives(
    ask: Any, recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(recording.parent)  # the daemon is in another directory: the path has to be made whole
    options = ("--arm", "axis", "--wait", "--json")
    job = (
        ask("jobs", "submit", "identify", "recording=rec.mcap", "robot=emps", *options, "span=0:0.6", "essential=true")
        .ok()
        .json
    )
    assert (job["state"], job["kind"], job["arm"]) == ("succeeded", "identify", "axis")
    assert job["parameters"]["recording"] == str(recording)

    assert ask("jobs", "show", job["id"], "--output", tmp_path).code == 0
    for name, result in job["outcome"]["results"].items():
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() == result["sha256"]
    model = tmp_path / "direct.yaml"
    assert thetad("identify", recording, "--robot", "emps", "--span", "0:0.6", "--essential", "-o", model).code == 0
    theta = [yaml.safe_load(path.read_text())["theta"] for path in (model, tmp_path / "model.yaml")]
    assert theta[0] == theta[1]

    (tmp_path / "model.yaml").write_text("mine\n")
    ask("jobs", "show", job["id"], "--output", tmp_path).refused("model.yaml", "already there")
    assert (tmp_path / "model.yaml").read_text() == "mine\n"


def test_a_job_that_fails_says_why(ask: Any, recording: Path, fitted: int, tmp_path: Path) -> None:
    done = ask("jobs", "submit", "validate", f"model=job:{fitted}", f"recording={recording}", "span=50s:60s", "--wait")
    assert done.code == 1
    assert "span 50s:60s: the recording ends at" in done.out
    number = re.findall(r"^job (\d+) validate \(axis\): failed: ", done.out, re.M)[0]
    assert ask("jobs", "show", number).code == 1
    assert "the recording ends at" in ask("jobs", "log", number).out
    refused = ask("jobs", "show", number, "--output", tmp_path / "none")
    assert (refused.code, refused.out) == (1, "")
    assert "no results to copy" in refused.err
    assert not (tmp_path / "none").exists()


def test_jobs_that_wait_are_listed_cancelled_and_queued_again(ask: Any, recording: Path, waiting: int) -> None:
    options = ("--after", waiting, "--priority", "3", "--time", "10m", "--memory", "900")
    number = ask("jobs", "submit", "validate", *options, "model=active", f"recording={recording}", "--arm", "axis")
    number.refused("no active model")
    number = ask("jobs", "submit", "identify", *options, f"recording={recording}", "--arm", "axis", "--json").json["id"]
    job = ask("jobs", "show", number, "--json").json
    assert (job["after"], job["priority"]) == ([waiting], 3)
    table = ask("jobs", "list", "--state", "queued", "running", "--arm", "axis", "--kind", "identify").out.splitlines()
    assert re.fullmatch(rf" *{number}  identify  axis  queued  .* waits for job {waiting}, which is queued", table[1])
    listed = ask("jobs", "list", "--limit", "1", "--json").json["jobs"]
    assert [row["id"] for row in listed] == [number]

    done = ask("jobs", "cancel", number, 10**9)
    assert (done.code, done.out) == (2, f"job {number} identify (axis): cancelled\n")
    assert done.err == "thetad: there is no job 1000000000\n"
    assert ask("jobs", "wait", number).code == 1
    assert ask("jobs", "retry", number, "--json").json["jobs"][0]["state"] == "queued"
    assert ask("jobs", "cancel", number, "--json").json["jobs"][0]["state"] == "cancelled"


def test_waiting_may_end_before_the_job(ask: Any, waiting: int) -> None:
    done = ask("jobs", "wait", waiting, "--timeout", "0.2")
    assert (done.code, done.out) == (3, "")
    assert f"job {waiting} is still queued after 0.2 s" in done.err


def test_waiting_outlasts_a_kill_of_the_jobs_process(jobs: Jobs, recording: Path) -> None:
    killed: list[int] = []

    def kill_once(job: Any) -> None:
        if job.state == "running" and not killed:
            killed.append(processes(jobs.control)["jobs"]["pid"])
            os.kill(killed[0], signal.SIGKILL)

    parameters = {"robot": "space6", "methods": ["ols"], "seeds": 1, "seconds": 20.0}
    job = jobs.wait(jobs.submit("compare", parameters).id, LONG_S, kill_once)
    assert killed
    assert (job.state, job.interruptions, job.attempts) == ("succeeded", 1, 0)


def test_the_client_says_what_is_wrong(jobs: Jobs) -> None:
    with pytest.raises(ControlError, match="there is no job 123456789"):
        jobs.wait(123456789)
    with Control(NOBODY) as control, pytest.raises(UnreachableError, match="is the daemon running"):
        Jobs(control, timeout_s=0.2).wait(1, patience_s=60.0)
    for ask_for, most in ((jobs.list, MAX_JOBS), (jobs.events, MAX_EVENTS)):
        assert len(ask_for(limit=most)) > 0
        with pytest.raises(ControlError, match="limit"):
            ask_for(limit=most + 1)


def when_frames_are_there(ask: Any, *command: object) -> Outcome:
    """Run a command on live frames, and repeat it until there are enough of them."""
    deadline = time.monotonic() + LONG_S
    while (done := ask(*command)).code != 0 and "frames are there" in done.err:
        assert (done.code, done.out) == (3, "")  # it may be granted later
        assert time.monotonic() < deadline, done
    return done


def test_live_frames_are_set_aside(ask: Any) -> None:
    job = when_frames_are_there(ask, "jobs", "submit", "identify", "recording=live:15", "--wait", "--json").ok().json
    assert job["state"] == "succeeded"
    frames = read_window(Path(job["inputs"]["recording"]["path"])).t
    assert 14.5 < frames[-1] - frames[0] <= 15.01
    assert job["outcome"]["metrics"]["relative_error"] < 0.2


def test_what_cannot_be_done_now_is_no_wrong_input(ask: Any) -> None:
    done = ask("jobs", "submit", "identify", "recording=live:3600")
    assert (done.code, done.out) == (3, "")
    assert re.fullmatch(
        r"thetad: the last [\d.]+ s of frames are there, not 3600 s: wait, or ask for less.*\n", done.err
    )


# Events --------------------------------------------------------------------------------------------


def test_events_are_the_history_of_a_job(ask: Any, fitted: int) -> None:
    events = ask("events", "--job", fitted, "--json").json["events"]
    assert [event["kind"] for event in events] == ["job_submitted", "job_started", "job_succeeded"]
    for line, event in zip(ask("events", "--job", fitted).out.splitlines(), events, strict=True):
        local = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event["t_ns"] // 10**9))
        assert line.startswith(f"{local}  {event['kind']} ")
    assert ask("events", "--arm", "axis", "--limit", "2").out.count("\n") == 2


def test_events_are_followed(daemon: DaemonProcess, jobs: Jobs, recording: Path) -> None:
    command = [sys.executable, "-m", "service.cli.main", "events", "--follow", "--json", "--limit", "1"]
    process = subprocess.Popen(
        [*command, "--control", daemon.endpoints["control"]],
        env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        last = json.loads(process.stdout.readline())
        number = jobs.submit("identify", {"recording": recording}, arm="axis", due_s=3600.0).id
        jobs.cancel(number)
        followed = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30.0)
    finally:
        process.kill()
    assert [event["job"] for event in followed] == [number] * 2
    assert [event["kind"] for event in followed] == ["job_submitted", "job_cancelled"]
    assert last["id"] < followed[0]["id"] < followed[1]["id"]
    assert (process.returncode, errors) == (130, "")


# Models --------------------------------------------------------------------------------------------


def test_a_model_is_promoted_and_rolled_back(ask: Any, fitted: int, recording: Path, tmp_path: Path) -> None:
    listed = ask("models", "list", "--arm", "axis", "--json").json["arms"]["axis"]
    assert listed["active"] is None
    (model,) = [entry["id"] for entry in listed["models"] if entry["job"] == fitted]
    none = ask("models", "show", "active")
    assert (none.code, none.err) == (1, "thetad: active: arm axis has no active model\n")
    done = ask("models", "promote", model[:8], "--recording", recording, "--span", "0.7:1", "--json").ok()
    assert (done.json["kind"], done.json["state"]) == ("promote", "succeeded")
    listed = ask("models", "list", "--json").json["arms"]["axis"]
    assert (listed["active"], listed["history"][-1]["action"]) == (model, "promoted")
    path = next(entry["path"] for entry in listed["models"] if entry["id"] == model)
    shown = {name: ask("models", "show", name, "--json").json for name in ("active", model[:6], f"job:{fitted}", path)}
    assert len({json.dumps(document, sort_keys=True) for document in shown.values()}) == 1
    assert ask("models", "export", "active", "--format", "python", "-o", tmp_path / "axis.py").code == 0
    back = ask("models", "rollback", "--arm", "axis", "--reason", "a test")
    assert (back.code, back.out) == (0, f"axis: no model is active again, instead of {model[:12]}\n")
    assert ask("models", "list", "--json").json["arms"]["axis"]["history"][-1]["reason"] == "a test"
    ask("models", "rollback").refused("axis", "no model")
    ask("models", "rollback", "--arm", "other").refused("other", "axis")
    ask("models", "show", "0000ffff").refused("0000ffff")
