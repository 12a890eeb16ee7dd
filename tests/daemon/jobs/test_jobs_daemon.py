"""Jobs, recorder and saved state of a daemon on a full disk; the commands of docs/jobs.md print what it shows."""

import errno
import json
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from drivers.files.recordings.recording import read_recording
from service.client import Control, ControlError, Jobs
from service.config.load import Config, parse_config
from service.io.state_file import FILE_NAME as FILE_NAME_OF_STATE
from service.supervisor.launch import DaemonProcess
from tests.lab.command_line import simulate, thetad
from tests.lab.console import check_page, surroundings
from tests.lab.daemon.daemons import await_status, config, log_lines, processes, start
from tests.lab.daemon.ethercat_rig import ROOT, network
from tests.lab.jobs.small_disk import fill, small_disk
from tests.lab.web.http_client import await_answer, scrape, value

LEAVE = 700_000  # bytes on a disk: room for some submissions, and for no run
QUICK = {"robot": "space6", "methods": ["ols"], "seconds": 2.0, "seeds": 1}


def settings(path: Path, more: dict[str, Any] | None = None, **daemon: Any) -> Config:
    """Return the configuration of a simulated arm."""
    arm = {"name": "arm", "robot": "space6", "driver": {"kind": "sim", "settings": {"rate_hz": 200.0}}} | (more or {})
    return config(path, arm, **daemon)


def goes_on(control: Control) -> None:
    """Check that the estimator receives frames, none is lost, and nothing was restarted."""
    before = processes(control)["arm/estimator"]["info"].get("received", 0)
    found = await_status(control, lambda all_: all_["arm/estimator"]["info"].get("received", 0) > before + 100)
    assert found["arm/estimator"]["info"]["lost"] == 0
    assert sum(process["restarts"] for process in found.values()) == 0


def alarms(url: str) -> tuple[float, float]:
    """Return the metrics of a failed recording and of an unsaved state."""
    families = scrape(url)
    return value(families, "thetad_recorder_failed", arm="arm"), value(families, "thetad_state_unsaved", arm="arm")


def recorder_and_state_say_so(daemon: DaemonProcess, control: Control, disk: Path, log: Path) -> None:
    """Fill the disk during recording, free it, and check that recording and saving of the state go on."""
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
        filler = fill(disk, leave=LEAVE)
        kept: list[int] = []
        refused: ControlError | None = None
        while refused is None:
            try:
                kept.append(jobs.submit("compare", QUICK).id)
            except ControlError as error:
                refused = error
        assert refused.type == "unavailable"
        assert str(disk) in refused.message
        info = await_status(control, lambda found: bool(found["jobs"]["info"]["trouble"]))["jobs"]["info"]
        assert str(disk) in info["trouble"]
        filler.unlink()
        for id in kept[1:]:
            jobs.cancel(id)
        assert jobs.wait(kept[0], 120.0).state == "succeeded"
        goes_on(control)


def test_jobs_are_done_as_the_page_shows(tmp_path: Path) -> None:
    """On the default ports; as root in a network name space, where these are free."""
    recording = simulate(tmp_path / "rec.mcap", "space6", seconds=20.0)
    for name, span in (("a", "0:0.5"), ("b", "0.5:1")):
        thetad("identify", recording, "--robot", "space6", "--span", span, "-o", tmp_path / f"{name}.yaml").ok()
    arm = {"name": "lab", "robot": "space6", "driver": {"kind": "sim", "settings": {"rate_hz": 250.0}}}
    with ExitStack() as stack:
        if os.geteuid() == 0:
            stack.enter_context(network())
        runtime = stack.enter_context(tempfile.TemporaryDirectory(prefix="thetad-doc-"))  # short, for its sockets
        daemon = {"state_dir": str(tmp_path / "state"), "runtime_dir": runtime, "http": False}
        table = {"daemon": daemon, "jobs": {"priority": "normal"}, "arm": [arm]}
        config = parse_config(table, "test", tmp_path)
        stack.enter_context(DaemonProcess(config, tmp_path / "log").start(timeout_s=240.0))
        check_page(ROOT / "docs" / "jobs.md", tmp_path, surroundings())
