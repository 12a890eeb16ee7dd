"""Arms of a running daemon that are wired wrongly: what is wrong is named before anything moves further."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.files.recordings.recording import read_recording
from service.client import Control
from service.supervisor.launch import DaemonProcess
from tests.lab.command_line import ROOT, Outcome, thetad
from tests.lab.daemon.daemons import config, start
from tests.lab.daemon.runs import START, Client, arm, stands

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
DEGREES = 180.0 / np.pi


def wire(joint: int, channel: str, factor: float = 1.0, source: int | None = None) -> dict[str, Any]:
    entry = {"joint": f"joint_{joint}", "channel": channel, "factor": factor}
    return entry if source is None else entry | {"source": f"joint_{source}"}


WIRED = {
    "torque": [wire(2, "tau", -1.0)],
    "inverted": [wire(1, "q", -1.0), wire(1, "dq", -1.0)],
    "degrees": [wire(3, "q", DEGREES), wire(3, "dq", DEGREES)],
    "swapped": [wire(1, "q", source=3), wire(3, "q", source=1), wire(1, "dq", source=3), wire(3, "dq", source=1)],
    "ceiling": [],
    "right": [],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


def wired(folder: Path, *names: str) -> list[dict[str, Any]]:
    """Tables of arms by their names in WIRED."""
    recorder = {"enabled": False, "directory": str(folder / "rec")}
    # at zero an inverted position agrees with itself, so that motion alone shows it
    begin = {"inverted": [0.0, 0.4, -0.2]}
    arms = []
    for name in names:
        driver: dict[str, Any] = {"wiring": WIRED[name], "start": begin.get(name, START.tolist())}
        arms.append(arm(folder, name, driver=driver, recorder=recorder))
        if name == "ceiling":
            hung = (folder / "arm3.toml").read_text(encoding="utf-8")
            (folder / "hung.toml").write_text(
                hung.replace('gravity = "floor"', 'gravity = "ceiling"'), encoding="utf-8"
            )
            arms[-1]["driver"]["robot"] = str(folder / "hung.toml")
    return arms


@pytest.fixture
def wrong(folder: Path, name: str) -> Iterator[DaemonProcess]:
    """A daemon with one arm: more at once keep a small machine from the cycles that the moving one wants."""
    with start(config(folder, *wired(folder, name)), folder) as running:
        yield running


@pytest.fixture(scope="module")
def daemon(folder: Path) -> Iterator[DaemonProcess]:
    with start(config(folder, *wired(folder, "ceiling", "right"), arm(folder, "bare")), folder) as running:
        yield running


def commissioned(daemon: DaemonProcess, folder: Path, name: str, *more: str) -> Outcome:
    return thetad(
        "commission", "--arm", name, "--yes", "-o", folder / f"out-{name}", "--json",
        "--control", daemon.endpoints["control"], *more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "step", "words"),
    [
        ("torque", "joints", ["joint_2", "friction would drive", "inverted"]),
        ("inverted", "joints", ["joint_1", "-1 times as much", "inverted"]),
        ("degrees", "signals", ["joint_3", "degrees"]),
        ("swapped", "joints", ["joint_1", "joint_3", "swapped"]),
        ("ceiling", "joints", ["joint_2", "mounted differently"]),
    ],
)
def test_what_is_wrong_is_named_before_anything_larger_moves(
    wrong: DaemonProcess, folder: Path, name: str, step: str, words: list[str]
) -> None:
    done = commissioned(wrong, folder, name)
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
    with Client(wrong.endpoints, name) as client:
        assert client.ask("abort")["state"] == "disarmed"
        assert stands(client.next_frames(50))


def test_arms_that_cannot_be_commissioned(daemon: DaemonProcess, folder: Path) -> None:
    commissioned(daemon, folder, "leg").refused("no arm 'leg'; it has ceiling, right, bare")
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
    """The axis of joint_1 is vertical: inverted in all signals it would tell the same."""
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
        said = control.request("robot", 10.0, arm="ceiling")
    assert said["arm"] == "ceiling"
    assert json.loads(said["robot"])["name"] == "arm3"
    assert json.loads(said["robot"])["gravity"] == "floor"  # what it should be, not what is simulated
