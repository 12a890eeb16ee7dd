"""`kill -9` of the acquisition while the arm moves: the drives stop by themselves, and start again when asked."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from service.client import Control
from tests.lab.daemon.daemons import await_status, config, processes, start
from tests.lab.daemon.ethercat_rig import ARM, Drives, N, Watcher, arm, following, network, operational, write_segment

pytestmark = pytest.mark.slow
_WATCHDOG = 0x001B  # AL status code


def test_a_killed_acquisition_stops_the_arm_and_comes_back(tmp_path: Path) -> None:
    runtime = tmp_path / "r"
    faults = '[[fault]]\nkind = "emergency"\ncycle = 100\nslave = "joint_2"\ncode = 0x7121\n'
    with network(), Drives(write_segment(tmp_path, faults)) as drives:
        daemon = start(config(tmp_path, arm(tmp_path), runtime_dir=str(runtime)), tmp_path)
        try:
            with Watcher(daemon.endpoints["frames"], runtime) as watch, Control(daemon.endpoints["control"]) as control:
                watch.status(following)
                assert watch.ask()["source"]["last_emergencies"][0]["code"] == 0x7121  # that of the file
                drives.tell("history")
                before = processes(control)
                os.kill(before[f"{ARM}/acquisition"]["pid"], signal.SIGKILL)
                found = await_status(
                    control,
                    lambda found: (
                        found[f"{ARM}/acquisition"]["restarts"] == 1 and found[f"{ARM}/acquisition"]["state"] == "ready"
                    ),
                )
                # Before anybody spoke to them again.
                fallen = next(states for states in drives.tell("history") if all(al == 4 for al, _, _ in states))
                assert [code for _, code, _ in fallen] == [_WATCHDOG] * N
                assert found[f"{ARM}/estimator"]["pid"] == before[f"{ARM}/estimator"]["pid"]
                began = len(watch.statuses)
                body = watch.status(lambda body: operational(body) and body["state"] == "running", began)
                assert body["motion"]["state"] == "stopped"
                assert "restarted" in body["motion"]["reason"]
                assert drives.tell("speed") < 1e-3
                control.request("enable")
                watch.status(following, len(watch.statuses))
                drives.await_motion()
        finally:
            daemon.stop()
        drives.safe()
