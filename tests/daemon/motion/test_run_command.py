"""`thetad run`: output, recording, queued job, interruption."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.files.recordings.recording import read_recording
from drivers.files.robots.file import load_robot
from service.cli._common import CliError
from service.cli.motion.run import _run as run_command
from service.client import Control, ControlError, Jobs
from service.io.trajectory_file import read_trajectory
from service.supervisor.launch import DaemonProcess
from tests.lab.command_line import ROOT, thetad
from tests.lab.daemon.runs import RATE_HZ, Client, accelerations, commanded, series, setpoints, stands, trajectory
from tests.lab.daemon.shared import Keeper, Site

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(keeper: Keeper) -> Site:
    return keeper.get(commanded)


@pytest.fixture
def daemon(site: Site) -> DaemonProcess:
    return site.daemon


@pytest.fixture(scope="module")
def folder(site: Site) -> Path:
    return site.path


@pytest.fixture(scope="module")
def design(folder: Path) -> Path:
    """File of a trajectory as a design writes it for this robot."""
    robot = load_robot(folder / "arm3.toml")
    document = trajectory().as_message() | {
        "format": "thetad-excitation/1",
        "robot": {"name": robot.model.name, "sha256": robot.sha256},
    }
    path = folder / "trajectory.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def armed(daemon: DaemonProcess, name: str, for_s: float = 60.0) -> str:
    said = thetad("control", "arm", f"arm={name}", f"for_s={for_s:g}", "--control", daemon.endpoints["control"])
    assert said.code == 0, said
    return str(said.json["permit"])


def run(daemon: DaemonProcess, *arguments: object) -> Any:
    return thetad("run", *arguments, "--control", daemon.endpoints["control"])


@pytest.mark.smoke
def test_a_run_is_recorded_and_identified(daemon: DaemonProcess, design: Path, folder: Path) -> None:
    permit = armed(daemon, "good")
    done = run(daemon, "good", design, "--permit", permit, "--periods", 2, "--average", "--json")
    assert done.code == 0, done
    said = done.json
    assert (said["outcome"], said["periods"], said["duration_s"]) == ("completed", 2, 4.0)
    assert said["unchecked"] == ["collisions"]
    assert "approach" in done.err
    assert "period 2 of 2" in done.err
    recording = read_recording(Path(said["recording"]))
    assert Path(said["recording"]).parent == folder / "rec"
    q = recording.channels["setpoint"]
    wanted = series().sample(np.arange(2 * 500 + 1) / RATE_HZ)[0]
    begin = next(k for k in range(len(q) - 1000) if np.allclose(q[k : k + 1001], wanted, atol=1e-9))
    assert begin > 100  # with the approach before it
    with Control(daemon.endpoints["control"]) as control:
        job = Jobs(control).wait(said["identify"], 120.0)
    assert job["kind"] == "identify"
    assert job["state"] == "succeeded", job["reason"]
    assert (job["parameters"]["method"], job["parameters"]["period_s"]) == ("wls", 2.0)
    outcome = job["outcome"]
    assert outcome is not None
    assert job["inputs"]["recording"]["path"] == said["recording"]


def test_text_and_no_identification(daemon: DaemonProcess, design: Path) -> None:
    done = run(daemon, "good", design, "--permit", armed(daemon, "good"), "--identify", "none", "--no-record")
    assert done.code == 0, done
    assert done.out == "good: trajectory.json completed, 1 x 2 s\n"
    assert done.err.count("not judged: collisions\n") == 1
    assert done.err.index("not judged") < done.err.index("period 1")


def test_what_is_wrong_is_one_line_and_nothing_moves(daemon: DaemonProcess, design: Path, folder: Path) -> None:
    with Client(daemon.endpoints, "good") as client:
        assert run(daemon, "good", folder / "none.json", "--permit", "x").refused("cannot be read")
        spoilt = json.loads(design.read_text(encoding="utf-8")) | {"units": ["deg"] * 3}
        (folder / "degrees.json").write_text(json.dumps(spoilt), encoding="utf-8")
        assert run(daemon, "good", folder / "degrees.json", "--permit", "x").refused("degrees.json", "in degrees")
        fast = json.loads(design.read_text(encoding="utf-8")) | {"f0_hz": 2.0}
        (folder / "fast.json").write_text(json.dumps(fast), encoding="utf-8")
        done = run(daemon, "good", design, "--permit", "x")
        assert (done.code, done.out) == (3, "")
        assert "arm it first" in done.err
        permit = armed(daemon, "good")
        assert run(daemon, "good", folder / "fast.json", "--permit", permit).refused("fast.json", "acceleration")
        assert run(daemon, "leg", design, "--permit", permit).refused("no arm 'leg'")
        assert run(daemon, "good", design, "--permit", permit, "--periods", 0).refused("periods")
        assert run(daemon, "good", design, "--permit", permit, "--average").refused("--periods 2")
        other = json.loads(design.read_text(encoding="utf-8"))
        other["robot"]["sha256"] = "0" * 64
        (folder / "other.json").write_text(json.dumps(other), encoding="utf-8")
        assert run(daemon, "good", folder / "other.json", "--permit", permit).refused("another version", "other.json")
        assert stands(client.next_frames(100))
        assert run(daemon, "good", folder / "other.json", "--permit", permit, "--changed-robot").code == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_an_interrupted_command_stops_the_arm(
    daemon: DaemonProcess, design: Path, number: signal.Signals, code: int
) -> None:
    with Client(daemon.endpoints, "good") as client:
        permit = armed(daemon, "good")
        client.frames()
        command = [sys.executable, "-m", "service.cli.main", "run", "good", str(design), "--permit", permit]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        with subprocess.Popen(
            [*command, "--periods", "20", "--control", daemon.endpoints["control"]],
            cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stderr is not None
            assert any("period 1" in line for line in iter(process.stderr.readline, ""))
            client.next_frames(150)
            process.send_signal(number)
            _, err = process.communicate(timeout=30.0)
            assert process.returncode == code
        if number == signal.SIGINT:
            assert "aborted by request" in err
        done = client.watch()
        assert done["run"]["outcome"] == "stopped"
        reason = "aborted by request" if number == signal.SIGINT else "the client has not been heard of"
        assert reason in done["reason"]
        assert accelerations(setpoints(client.frames())).max() <= 1.0 + 1e-5
        assert stands(client.next_frames(100)[50:])
        client.ask("record", action="stop")


class Interrupted(Control):
    """A client that is interrupted before the daemon has heard of its run."""

    def request(self, verb: str, *args: Any, **more: Any) -> dict[str, Any]:
        if verb == "run_trajectory":
            raise KeyboardInterrupt
        return super().request(verb, *args, **more)


class WithoutJobs(Control):
    """A client of a daemon that takes no jobs."""

    def request(self, verb: str, *args: Any, **more: Any) -> dict[str, Any]:
        if verb == "submit":
            raise ControlError("unavailable", "the disk is full")
        return super().request(verb, *args, **more)


def given(design: Path, permit: str) -> argparse.Namespace:
    return argparse.Namespace(
        arm="good", file=design, permit=permit, periods=1, hold=False, no_record=False, identify="wls", average=False,
        changed_robot=False, json=True,
    )  # fmt: skip


def test_a_run_before_is_not_taken_for_one_that_was_interrupted(daemon: DaemonProcess, design: Path) -> None:
    message = read_trajectory(design).as_message()
    args = given(design, armed(daemon, "good"))
    with Interrupted(daemon.endpoints["control"]) as control, pytest.raises(CliError, match="before anything") as error:
        run_command(args, control, message)
    assert error.value.exit_code == 130


def test_a_run_is_complete_also_where_nothing_can_be_queued(
    daemon: DaemonProcess, design: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = given(design, armed(daemon, "good"))
    with WithoutJobs(daemon.endpoints["control"]) as control:
        assert run_command(args, control, read_trajectory(design).as_message()) == 0
    told = capsys.readouterr()
    said = json.loads(told.out)
    assert (said["outcome"], said["identify"]) == ("completed", None)
    assert "the identification was not queued: " in told.err
    assert "the disk is full" in told.err
