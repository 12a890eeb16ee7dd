"""Jobs in a whole daemon: estimation goes on whatever happens to them, and they survive the daemon."""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from drivers.files.recordings.recording import read_recording
from service.client import Control, ControlError, Jobs
from service.config.load import Config
from service.io.state_file import FILE_NAME as FILE_NAME_OF_STATE
from service.jobs.queue.store import FILE_NAME
from service.supervisor.launch import DaemonProcess
from tests.lab.daemon.daemons import await_status, config, log_lines, processes, start
from tests.lab.jobs.small_disk import fill, small_disk
from tests.lab.web.http_client import await_answer, scrape, value

LEAVE = 700_000  # bytes on a disk: room for some submissions, and for no run
QUICK = {"robot": "space6", "methods": ["ols"], "seconds": 2.0, "seeds": 1}


def settings(path: Path, more: dict[str, Any] | None = None, **daemon: Any) -> Config:
    """A simulated arm, and jobs that do not wait for an idle machine."""
    arm = {"name": "arm", "robot": "space6", "driver": {"kind": "sim", "settings": {"rate_hz": 200.0}}} | (more or {})
    whole = config(path, arm, **daemon)
    jobs = whole.jobs.model_copy(update={"priority": "normal", "least_free_mb": 1.0})
    return whole.model_copy(update={"jobs": jobs})


def goes_on(control: Control) -> None:
    """Frames arrive and are estimated from, none is lost, nothing was restarted."""
    before = processes(control)["arm/estimator"]["info"].get("received", 0)
    found = await_status(control, lambda all_: all_["arm/estimator"]["info"].get("received", 0) > before + 100)
    assert found["arm/estimator"]["info"]["lost"] == 0
    assert sum(process["restarts"] for process in found.values()) == 0


def alarms(url: str) -> tuple[float, float]:
    """What the metrics say: whether recording has failed, and whether the estimator's state is not saved."""
    families = scrape(url)
    return value(families, "thetad_recorder_failed", arm="arm"), value(families, "thetad_state_unsaved", arm="arm")


def recorder_and_state_say_so(daemon: DaemonProcess, control: Control, disk: Path, log: Path) -> None:
    """Fill the disk while the arm is recorded and its state saved; make room, and both are taken up again."""
    url, state = daemon.endpoints["http"], disk / "state" / "arm" / FILE_NAME_OF_STATE
    await_status(control, lambda found: state.exists() and found["arm/recorder"]["info"].get("bytes", 0) > 10_000)
    assert alarms(url) == (0.0, 0.0)
    filler = fill(disk)
    found = await_status(
        control,
        lambda found: bool(found["arm/recorder"]["info"]["error"] and found["arm/estimator"]["info"]["save_error"]),
    )
    recorder, unsaved = found["arm/recorder"]["info"], found["arm/estimator"]["info"]["save_error"]
    assert recorder["state"] == "off"
    assert os.strerror(errno.ENOSPC) in recorder["error"]
    assert recorder["path"] in recorder["error"]
    assert os.strerror(errno.ENOSPC) in unsaved
    assert str(state) in unsaved
    await_answer(url, "/healthz", lambda _: alarms(url) == (1.0, 1.0))
    told = [json.loads(line) for line in log_lines(log).splitlines() if line.startswith("{")]
    reasons = {event["event"]: event["reason"] for event in told if "reason" in event}
    assert reasons["recording_failed"] == recorder["error"]
    assert reasons["state_not_saved"] == unsaved
    goes_on(control)
    saved = state.stat().st_mtime_ns
    filler.unlink()
    control.request("record", arm="arm", action="start")
    found = await_status(
        control,
        lambda found: (
            state.stat().st_mtime_ns > saved
            and not found["arm/estimator"]["info"]["save_error"]
            and found["arm/recorder"]["info"]["state"] == "recording"
            and found["arm/recorder"]["info"]["written"] > recorder["written"] + 100
            and not found["jobs"]["info"]["trouble"]
        ),
    )
    await_answer(url, "/healthz", lambda _: alarms(url) == (0.0, 0.0))
    path = control.request("record", arm="arm", action="stop")["path"]
    assert path != recorder["path"]
    assert read_recording(path).samples > 100
    goes_on(control)


def test_estimation_goes_on_when_the_disk_is_full(tmp_path: Path) -> None:
    more = {"recorder": {}, "state": {"every_s": 1.0}}
    with (
        small_disk(tmp_path / "disk", 32) as disk,
        start(settings(tmp_path, more, state_dir=str(disk / "state"), http=True, http_port=0), tmp_path) as daemon,
        Control(daemon.endpoints["control"]) as control,
    ):
        recorder_and_state_say_so(daemon, control, disk, tmp_path)
        jobs = Jobs(control)
        first = jobs.submit("compare", QUICK)["id"]
        assert jobs.wait(first, 120.0)["state"] == "succeeded"
        filler = fill(disk, leave=LEAVE)
        kept: list[int] = []
        refused: ControlError | None = None
        while refused is None:
            try:
                kept.append(jobs.submit("compare", QUICK)["id"])
            except ControlError as error:
                refused = error
        assert kept
        assert refused.type == "unavailable"
        assert str(disk) in refused.message
        goes_on(control)
        info = await_status(control, lambda found: bool(found["jobs"]["info"]["trouble"]))["jobs"]["info"]
        assert str(disk) in info["trouble"]
        filler.unlink()
        for id in kept[1:]:
            jobs.cancel(id)
        later = jobs.submit("compare", QUICK)["id"]
        assert [jobs.wait(id, 120.0)["state"] for id in (kept[0], later)] == ["succeeded"] * 2
        assert jobs.job(first)["state"] == "succeeded"
        goes_on(control)


def test_a_damaged_queue_does_not_keep_the_daemon_from_starting(tmp_path: Path) -> None:
    queue = tmp_path / "state" / "jobs" / FILE_NAME
    queue.parent.mkdir(parents=True)
    queue.write_text("this is no database\n" * 100)
    with start(settings(tmp_path), tmp_path) as daemon, Control(daemon.endpoints["control"]) as control:
        goes_on(control)
        jobs = Jobs(control)
        assert jobs.wait(jobs.submit("compare", QUICK)["id"], 120.0)["state"] == "succeeded"
        assert any(event["kind"] == "queue_salvaged" for event in jobs.events())
    assert (queue.parent / f"{FILE_NAME}.bad1").read_text().startswith("this is no database")


def test_a_job_survives_the_whole_daemon(tmp_path: Path) -> None:
    """The supervisor is killed in the middle of a job; nothing outlives it, and the next daemon ends the job."""
    whole = settings(tmp_path)
    daemon = start(whole, tmp_path)
    with Control(daemon.endpoints["control"]) as control:
        jobs = Jobs(control)
        id = jobs.submit("compare", {**QUICK, "seeds": 3})["id"]
        await_status(control, lambda found: found["jobs"]["info"]["running"] > 0)
        below = psutil.Process(daemon.pid).children(recursive=True)
        assert any("service.jobs.execution.runner" in process.cmdline() for process in below)
    os.kill(daemon.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(below, timeout=10.0)
    assert not alive
    daemon.stop()
    with start(whole, tmp_path) as again, Control(again.endpoints["control"]) as control:
        jobs = Jobs(control)
        job = jobs.wait(id, 180.0)
        assert job["state"] == "succeeded"
        assert [part["state"] for part in job["parts"]] == ["succeeded"] * 3
        events = [event["kind"] for event in jobs.events(job=id)]
        assert events[0] == "job_submitted"
        assert events.count("job_succeeded") == 1


@pytest.mark.parametrize(
    ("verb", "args", "word"),
    [
        ("submit", {"kind": "compare", "parameters": {"seeds": 10**9}}, "seeds"),
        ("submit", {"kind": "compare", "parameters": {"seconds": float("nan")}}, "seconds"),
        ("submit", {"kind": "nothing"}, "identify, validate"),
        ("submit", {"kind": "compare", "after": [2**61]}, "there is no job"),
        ("submit", {"kind": "compare", "after": [-1]}, "after"),
        ("submit", {"kind": "identify", "parameters": {"recording": "/proc/self/mem"}}, "recording"),
        ("submit", {"kind": "identify", "parameters": {"recording": "/a\0b"}}, "recording"),
        ("submit", {"kind": "identify", "parameters": {"recording": "live:1e9"}}, "live"),
        ("submit", {"kind": "identify", "parameters": {"recording": "x", "robot": "nobody"}}, "robot"),
        ("submit", {"kind": "compare", "memory_mb": -1.0}, "memory_mb"),
        ("submit", {"kind": "compare", "arm": "none"}, "there is no 'none'"),
        ("job", {"id": 0}, "id"),
        ("job", {"id": 2**61}, "no job"),
        ("cancel", {"id": "one"}, "id"),
        ("events", {"job": -5}, "job"),
        ("rollback", {}, "no model is active"),
        ("backup", {"directory": "relative"}, "whole path"),
        ("backup", {"directory": "/proc/nowhere"}, "directory"),
        ("backup", {"directory": "/tmp/a\0b"}, "null byte"),
        ("set_aside", {"seconds": 1.0, "path": "a" * 300}, "path"),
        ("set_aside", {"seconds": 1.0, "path": "jobs/queue.db"}, "path"),
    ],
)
def test_nonsense_is_refused_and_harms_nothing(nonsense: Control, verb: str, args: dict[str, Any], word: str) -> None:
    with pytest.raises(ControlError) as refused:
        nonsense.request(verb, 30.0, **args)
    assert refused.value.type in ("bad_argument", "failed")
    assert word in refused.value.message
    assert processes(nonsense)["jobs"]["restarts"] == 0
    assert processes(nonsense)["arm/estimator"]["restarts"] == 0


@pytest.fixture(scope="module")
def nonsense(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("nonsense")
    with start(settings(path), path) as daemon, Control(daemon.endpoints["control"]) as control:
        yield control
