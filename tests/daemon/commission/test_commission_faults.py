"""Commissioning of wrongly wired arms: the fault is named before the arm moves further."""

from __future__ import annotations

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
from tests.lab.daemon.shared import Keeper, Site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def running(keeper: Keeper) -> Site:
    return keeper.get(commissionable)


@pytest.fixture
def daemon(running: Site) -> DaemonProcess:
    return running.daemon


@pytest.fixture
def folder(running: Site) -> Path:
    return running.path


def commissioned(daemon: DaemonProcess, folder: Path, name: str, *more: str) -> Outcome:
    return thetad(
        "commission", "--arm", name, "--yes", "-o", folder / f"out-{name}", "--json",
        "--control", daemon.endpoints["control"], *more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "step", "words"),
    [
        ("degrees", "signals", ["joint_3", "degrees"]),
        ("swapped", "joints", ["joint_1", "joint_3", "swapped"]),
    ],
)
def test_what_is_wrong_is_named_before_anything_larger_moves(
    daemon: DaemonProcess, folder: Path, name: str, step: str, words: list[str]
) -> None:
    done = commissioned(daemon, folder, name)
    assert done.code == 1, done
    assert (done.json["failed"], done.json["validated"]) == (step, False)
    for word in words:
        assert word in done.json["reason"]
    assert f"thetad: {step}: {done.json['reason']}" in done.err
    assert done.json["reason"] in (folder / f"out-{name}" / "report.html").read_text(encoding="utf-8").replace(
        "&#39;", "'"
    )
    assert not (folder / f"out-{name}" / "04_friction.json").exists()
    file = folder / f"out-{name}" / "03_joints.json"
    recordings = json.loads(file.read_text(encoding="utf-8"))["recordings"] if file.exists() else []
    for path in recordings:
        setpoint = read_recording(Path(path)).channels["setpoint"]
        assert np.ptp(setpoint, axis=0).max() < 0.07
    with Client(daemon.endpoints, name) as client:
        assert client.ask("abort")["state"] == "disarmed"
        assert stands(client.next_frames(50))


def test_arms_that_cannot_be_commissioned(daemon: DaemonProcess, folder: Path) -> None:
    commissioned(daemon, folder, "leg").refused("no arm 'leg'; it has degrees, swapped, right, bare")
    commissioned(daemon, folder, "bare").refused("bare is not recorded", "[arm.recorder]")
    done = thetad("commission", "space6", "--arm", "right", "--yes", "--control", daemon.endpoints["control"])
    done.refused("space6", "is not the description")


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
        assert process.returncode == 130, err
        assert said == ""
        assert "Move joint_1 slowly by 0.35 degrees and back, the others stay? [y/N]" in err
        assert "declined" in err
        assert stands(client.frames()[-200:])
    assert (out / "02_signals.json").exists()
    assert not (out / "03_joints.json").exists()


def test_an_arm_whose_recorder_is_on_is_left_alone(daemon: DaemonProcess, folder: Path) -> None:
    with Control(daemon.endpoints["control"]) as control:
        control.request("record", 10.0, arm="right", action="start")
        try:
            Client(daemon.endpoints, "right").close()  # a frame later
            done = commissioned(daemon, folder, "right")
        finally:
            control.request("record", 10.0, arm="right", action="stop")
    assert done.code == 1, done
    assert "is on already" in done.json["reason"]


def test_unattended_an_arm_that_nobody_has_seen_moves_no_further(daemon: DaemonProcess, folder: Path) -> None:
    """The axis of joint_1 is vertical: inverted in all signals it would look the same."""
    done = commissioned(daemon, folder, "right")
    assert done.code == 1, done
    assert done.json["failed"] == "joints"
    assert "nobody has seen" in done.json["reason"]
    assert "joint_1" in done.json["reason"]
    assert not (folder / "out-right" / "04_friction.json").exists()
    assert any("gravity as described" in text for text in done.json["open"])
    found = json.loads((folder / "out-right" / "03_joints.json").read_text(encoding="utf-8"))
    ways = [np.ptp(read_recording(Path(path)).channels["setpoint"], axis=0)[0] for path in found["recordings"]]
    assert 0.005 < max(ways) < 0.0065  # a tenth of 3.5 degrees


def test_the_description_of_an_arm_is_told(daemon: DaemonProcess, folder: Path) -> None:
    with Control(daemon.endpoints["control"]) as control:
        said = control.request("robot", 10.0, arm="bare")
    assert said["arm"] == "bare"
    assert json.loads(said["robot"])["name"] == "arm3"
    assert json.loads(said["robot"])["gravity"] == "floor"  # what it should be, not what is simulated
