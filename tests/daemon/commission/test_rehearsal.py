"""A complete commissioning of a simulated arm from its robot file: interrupted, killed and finished."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from drivers.files.recordings.recording import read_recording
from drivers.files.robots.file import load_robot
from service.models.document import load_model
from tests.lab.command_line import ROOT, thetad
from tests.lab.daemon.ethercat_rig import JOINTS, write_robot

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
BRIEF = (
    *("--speeds", "0.05", "0.2", "--sweep", "1", "--first-speed", "1", "--period", "3", "--harmonics", "3"),
    *("--periods", "2", "--validation-periods", "1", "--set", "iterations=40"),
)
DEADLINE_S = 240.0


def arguments(folder: Path, *more: str) -> tuple[str, ...]:
    robot = folder / "arm3.toml"
    described = robot if robot.exists() else write_robot(folder)
    return ("commission", str(described), "-o", str(folder / "out"), *BRIEF, *more)


@pytest.fixture(scope="module")
def finished(folder: Path) -> Path:
    """The folder after the commissioning; what is tried once more alone has to do it first."""
    if not (folder / "out" / "result.json").exists():
        assert thetad(*arguments(folder)).code == 0
    return folder


def begin(folder: Path) -> subprocess.Popen[str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "service.cli.main", *arguments(folder)]
    return subprocess.Popen(
        command, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def await_while(process: subprocess.Popen[str], still: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while still():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def times(folder: Path) -> dict[str, str]:
    files = sorted((folder / "out").glob("0*.json"))
    return {file.name: json.loads(file.read_text(encoding="utf-8"))["time"] for file in files}


def test_1_an_interrupted_one_leaves_what_it_has_found(folder: Path) -> None:
    with begin(folder) as process:
        await_while(process, lambda: not (folder / "out" / "02_signals.json").exists())
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60.0)
    assert (process.returncode, out) == (130, ""), err
    assert "Traceback" not in err
    assert list(times(folder)) == ["01_robot.json", "02_signals.json"]


def test_2_a_killed_one_leaves_no_daemon(folder: Path) -> None:
    before = times(folder)
    with begin(folder) as process:
        caller = psutil.Process(process.pid)
        # supervisor, gateway, acquisition, recorder, ...
        await_while(process, lambda: len(caller.children(recursive=True)) < 6)
        children = caller.children(recursive=True)
        process.kill()
        process.communicate(timeout=60.0)
    assert psutil.wait_procs(children, timeout=30.0)[1] == []
    assert times(folder) == before


def test_3_the_same_command_goes_on_to_a_validated_model(folder: Path) -> None:
    before = times(folder)
    done = thetad(*arguments(folder, "--json")).ok()
    said = done.json
    assert (said["validated"], said["failed"], list(said["R"])) == (True, None, JOINTS)
    assert min(said["R"].values()) > 0.97
    assert [step["state"] for step in said["steps"]] == ["done"] * 4 + ["skipped"] + ["done"] * 4
    assert {name: times(folder)[name] for name in before} == before
    assert "3/9 joints" in done.err
    assert "2/9 signals" not in done.err
    assert result(folder, "result.json") == said


def test_4_every_check_of_a_right_arm_is_fine_or_says_that_it_cannot_tell(finished: Path) -> None:
    checks = result(finished, "03_joints.json")["checks"]
    gravity = {check["joint_name"]: check["verdict"] for check in checks if check["check"] == "gravity as described"}
    assert gravity[JOINTS[0]] == "cannot_tell"  # its axis is vertical, which no gravity shows
    assert "wrong" not in gravity.values()
    others = [check["verdict"] for check in checks if check["check"] != "gravity as described"]
    assert others == ["ok"] * 4 * len(JOINTS)
    assert JOINTS[0] in result(finished, "result.json")["open"][0]


def test_5_friction_is_that_of_the_simulated_arm_and_not_of_its_description(finished: Path) -> None:
    truth, described = (load_robot(finished / name).model.dynamics for name in ("out/simulated.toml", "arm3.toml"))
    for j, row in enumerate(result(finished, "04_friction.json")["joints"]):
        speed, friction, std = (np.array(row[key]) for key in ("speed", "friction", "friction_std"))
        wanted = truth.coulomb[j] + truth.viscous[j] * speed
        assert (np.abs(friction - wanted) < 5.0 * std + 2e-3 * wanted).all(), (friction, wanted, std)
        assert (np.abs(friction - described.coulomb[j] - described.viscous[j] * speed) > 4.0 * std).any()


def test_6_the_model_is_kept_by_the_daemon_and_is_not_drawn_to_the_description(finished: Path) -> None:
    found = result(finished, "08_identify.json")
    model = load_model(Path(found["model"]))
    assert (found["job"], found["verdict"]) == (1, "ok")
    assert model.robot.sha256 == load_robot(finished / "arm3.toml").sha256
    truth, described = (load_robot(finished / name).model.dynamics for name in ("out/simulated.toml", "arm3.toml"))
    rows = {row["name"]: row for row in model.document["parameters"]}
    for j in range(3):
        row = rows[f"fc{j + 1}"]
        assert abs(row["value"] - truth.coulomb[j]) < 5.0 * row["std"] < abs(row["value"] - described.coulomb[j])


def test_7_what_it_leaves_can_be_read(finished: Path) -> None:
    out = finished / "out"
    html = (out / "report.html").read_text(encoding="utf-8")
    assert html.count("data:image/png;base64,") == 2
    assert "http://" not in html
    for name in (
        "design/report.html", "design/trajectory.json", "identification/report.html", "validation/report.html",
    ):  # fmt: skip
        assert (out / name).stat().st_size > 1000
    runs = result(finished, "07_run.json")
    assert list(runs["excitation"]) == ["recording", "periods", "period_s"]
    assert read_recording(Path(runs["excitation"]["recording"])).duration_s > 6.0


def result(folder: Path, name: str) -> dict[str, Any]:
    found = json.loads((folder / "out" / name).read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found
