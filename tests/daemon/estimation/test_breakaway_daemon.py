"""Breakaway friction in a daemon: in status, meta and snapshot, after a kill, and with `thetad replay`."""

import os
import signal
from pathlib import Path

import pytest

from drivers.files.recordings.recording import write_recording
from service.client import BodyMessage, Control, Subscriber
from tests.lab.arms.starting import JOINTS, robot, started
from tests.lab.daemon.daemons import await_message, config, drained, replayed, start


def test_it_is_told_and_kept(tmp_path: Path) -> None:
    write_recording(tmp_path / "starts.mcap", started("ground"))
    arm = replayed(tmp_path / "starts.mcap", name="lab", robot="space6_stribeck", speed="max", state={"every_s": 0.1})
    model = robot("ground").model
    names = [joint.name for joint in model.joints]
    daemon = start(config(tmp_path, {**arm, "hold": True}), tmp_path)
    try:
        with (
            Control(daemon.endpoints["control"]) as control,
            Subscriber(daemon.endpoints["estimates"], ["lab/status", "lab/meta"]) as stream,
        ):
            first = await_message(
                stream, lambda m: isinstance(m, BodyMessage) and m.envelope.src == "estimator" and m.kind == "status"
            )
            said = first.body["breakaway"]
            assert list(said) == names
            assert {found["reason"] for found in said.values()} == {"no start from rest has shown it yet"}
            meta = await_message(stream, lambda m: m.kind == "meta")
            assert meta.body["breakaway"] == {"parameters": [f"fb{k + 1}" for k in range(6)], "units": ["N*m"] * 6}
            control.request("start")
            pid = drained(control, "lab/estimator")["lab/estimator"]["pid"]
            last = control.request("snapshot")["breakaway"]
            for name, truth in list(zip(names, model.dynamics.breakaway, strict=True))[:JOINTS]:
                assert last[name]["status"] == "estimated"
                assert last[name]["lower"] < truth < last[name]["upper"]
            os.kill(pid, signal.SIGKILL)
            drained(control, "lab/estimator", besides=pid)
            again = control.request("snapshot")["breakaway"]
            for name in names:
                for key in ("value", "std", "lower", "upper", "starts", "seen", "left_out", "changes"):
                    assert again[name][key] == pytest.approx(last[name][key]), (name, key)
    finally:
        daemon.stop()
