"""Commissioning of wrongly wired arms: the fault is named before the arm moves further."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from drivers.files.recordings.recording import read_recording
from service.client import Control
from service.supervisor.launch import DaemonProcess
from tests.lab.command_line import ROOT, Outcome, thetad
from tests.lab.daemon.runs import Client, commissionable, stands
from tests.lab.daemon.shared import Keeper

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture
def daemon(keeper: Keeper) -> DaemonProcess:
    return keeper.get(commissionable).daemon


@pytest.fixture
def folder(keeper: Keeper) -> Path:
    return keeper.get(commissionable).path


def commissioned(daemon: DaemonProcess, folder: Path, name: str, *more: str) -> Outcome:
    return thetad(
        "commission", "--arm", name, "--yes", "-o", folder / f"out-{name}", "--json",
        "--control", daemon.endpoints["control"], *more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "step", "words"),
    [("degrees", "signals", ["joint_3", "degrees"]), ("swapped", "joints", ["joint_1", "joint_3", "swapped"])],
)
def test_what_is_wrong_is_named_before_anything_larger_moves(
    daemon: DaemonProcess, folder: Path, name: str, step: str, words: list[str]
) -> None:
    done, out = commissioned(daemon, folder, name), folder / f"out-{name}"
    assert done.code == 1, done
    reason = done.json["reason"]
    assert (done.json["failed"], done.json["validated"]) == (step, False)
    assert [word for word in words if word not in reason] == []
    assert f"thetad: {step}: {reason}" in done.err
    assert reason in (out / "report.html").read_text(encoding="utf-8").replace("&#39;", "'")
    assert not (out / "04_friction.json").exists()
    file = out / "03_joints.json"
    recordings = json.loads(file.read_text(encoding="utf-8"))["recordings"] if file.exists() else []
    for path in recordings:
        assert np.ptp(read_recording(Path(path)).channels["setpoint"], axis=0).max() < 0.07
    with Client(daemon.endpoints, name) as client:
        assert client.ask("abort")["state"] == "disarmed"
        assert stands(client.next_frames(50))


def test_arms_that_cannot_be_commissioned(daemon: DaemonProcess, folder: Path) -> None:
    commissioned(daemon, folder, "leg").refused("no arm 'leg'; it has degrees, swapped, right, bare")
    commissioned(daemon, folder, "bare").refused("bare is not recorded", "[arm.recorder]")
    done = thetad("commission", "space6", "--arm", "right", "--yes", "--control", daemon.endpoints["control"])
    done.refused("space6", "is not the description")
    with Control(daemon.endpoints["control"]) as control:
        robot = json.loads(control.request("robot", 10.0, arm="bare")["robot"])
    assert (robot["name"], robot["gravity"]) == ("arm3", "floor")  # what it should be, not what is simulated


def test_nothing_moves_without_a_yes(daemon: DaemonProcess, folder: Path) -> None:
    out = folder / "out-asked"
    command = [sys.executable, "-m", "service.cli.main", "commission", "--arm", "right", "-o", str(out)]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    ours, theirs = pty.openpty()
    with Client(daemon.endpoints, "right") as client:
        try:
            with subprocess.Popen(
                [*command, "--control", daemon.endpoints["control"]], env=os.environ | {"PYTHONPATH": path},
                stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            ) as process:  # fmt: skip
                os.write(ours, b"\n")  # no answer is no
                said, err = process.communicate(timeout=120.0)
        finally:
            os.close(ours)
            os.close(theirs)
        assert (process.returncode, said) == (130, ""), err
        assert "Move joint_1 slowly by 0.35 degrees and back, the others stay? [y/N]" in err
        assert stands(client.frames()[-200:])
    assert (out / "02_signals.json").exists()
    assert not (out / "03_joints.json").exists()
