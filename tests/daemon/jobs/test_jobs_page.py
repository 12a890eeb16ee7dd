"""The commands of docs/jobs.md print what the page shows."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

from service.config.load import parse_config
from service.supervisor.launch import DaemonProcess
from tests.lab.command_line import simulate, thetad
from tests.lab.console import check_page, surroundings
from tests.lab.daemon.ethercat_rig import network

ROOT = Path(__file__).resolve().parents[3]


def test_jobs_are_done_as_the_page_shows(tmp_path: Path) -> None:
    """On the default ports; as root in a network name space, where these are free."""
    recording = simulate(tmp_path / "rec.mcap", "space6", seconds=20.0)
    for name, span in (("a", "0:0.5"), ("b", "0.5:1")):
        done = thetad("identify", recording, "--robot", "space6", "--span", span, "-o", tmp_path / f"{name}.yaml")
        assert done.code == 0, done
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
