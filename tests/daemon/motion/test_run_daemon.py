"""Runs in a daemon: permits, refusals before motion, and stops; and the command that runs a trajectory."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from drivers.files.recordings.recording import read_recording
from service.client import Control, ControlError, Jobs, Runs
from service.protocol.control import VERBS
from service.supervisor.launch import DaemonProcess
from tests.lab.command_line import ROOT, thetad
from tests.lab.daemon.daemons import await_status
from tests.lab.daemon.runs import (
    RATE_HZ,
    Client,
    accelerations,
    commanded,
    never_again,
    refused,
    series,
    setpoints,
    stands,
    trajectory,
    write_design,
)
from tests.lab.daemon.shared import Keeper

pytestmark = pytest.mark.slow


def test_what_must_not_be_run_is_refused_and_nothing_moves(client: Client) -> None:
    client.arm()
    client.frames()
    fast = trajectory(series=series(size=1.0, f0_hz=2.0)).as_message()
    assert "acceleration" in refused(client, "bad_argument", "run_trajectory", permit=client.permit, trajectory=fast)
    assert "add the table [arm.guiding]" in refused(client, "bad_argument", "zero_force", permit=client.permit)
    assert client.safety()["state"] == "armed"
    assert np.ptp(setpoints(client.next_frames(100)), axis=0).max() == 0.0


def test_a_client_that_falls_silent_stops_the_arm(client: Client) -> None:
    client.arm()
    client.frames()
    client.run(periods=5)
    with Client({"control": client.control.endpoint, "frames": client.stream.endpoint}, "good") as watcher:
        stopped = watcher.watch()
    assert stopped["run"]["outcome"] == "stopped"
    assert "the client has not been heard of for 1.5" in stopped["reason"]
    assert accelerations(setpoints(client.frames())).max() <= 1.0 + 1e-5
    never_again(client)


@pytest.mark.parametrize("verb", ["abort", "disable"])
def test_anybody_may_stop_a_run(client: Client, verb: str) -> None:
    client.arm()
    client.frames()
    client.run(periods=5)
    client.until("running")
    with Control(client.control.endpoint) as other:
        other.request(verb, arm="good")
    done = client.until("disarmed")
    assert done["run"]["outcome"] == "stopped"
    assert "by request" in done["reason"]
    if verb != "disable":
        assert accelerations(setpoints(client.frames())).max() <= 1.0 + 1e-5
    never_again(client)


def test_the_permit_is_good_for_so_long_and_for_one_run(client: Client) -> None:
    assert "at most safety.permit_max_s" in refused(client, "bad_argument", "arm", for_s=1e5)
    assert "for_s" in refused(client, "bad_argument", "arm", for_s="long")
    asked = {"trajectory": trajectory().as_message()}
    earlier = client.arm(for_s=60.0)
    client.arm(for_s=2.0)  # as another client may
    said = refused(client, "unavailable", "run_trajectory", permit=client.permit, periods=50, **asked)
    assert "arm for longer" in said
    assert "not the permit" in refused(client, "unavailable", "run_trajectory", permit=earlier, **asked)
    assert client.until("disarmed")["reason"] == "the permit has expired"
    never_again(client)
    client.arm()
    client.run(periods=1, hold=True)
    client.until("running")
    assert client.until("armed")["run"]["outcome"] in ("moving", "completed")
    assert "served for a run" in refused(client, "unavailable", "run_trajectory", permit=client.permit, **asked)


def test_an_arm_that_moves_by_itself_or_has_a_planned_motion_has_no_runs(daemon: DaemonProcess) -> None:
    with Control(daemon.endpoints["control"]) as control:
        for verb in ("arm", "disarm", "abort", "heartbeat", "run_trajectory"):
            with pytest.raises(ControlError, match=r'no drives .*set mode = "csp"'):
                control.request(verb, arm="itself")
        await_status(control, lambda found: found["planned/acquisition"]["info"].get("motion") == "running")
        with pytest.raises(ControlError, match=r"\[arm\.motion\] moves this arm"):
            control.request("arm", arm="planned")
        control.request("disable", arm="planned")
        await_status(control, lambda found: found["planned/acquisition"]["info"].get("motion") == "stopped")


def test_a_killed_acquisition_comes_back_disarmed(client: Client, daemon: DaemonProcess) -> None:
    client.arm()
    with ThreadPoolExecutor(1) as pool, Control(daemon.endpoints["control"]) as control:
        told = pool.submit(Runs(control, "good").run, trajectory().as_message(), client.permit, periods=5)
        name = "good/acquisition"
        await_status(client.control, lambda found: found[name]["info"].get("safety") == "running")
        pid = await_status(client.control, lambda found: found[name]["state"] == "ready")[name]["pid"]
        os.kill(pid, signal.SIGKILL)
        await_status(client.control, lambda found: found[name]["state"] == "ready" and found[name]["pid"] != pid)
        with pytest.raises(ControlError, match="run_trajectory: it was lost: "):
            told.result(60.0)
    assert client.safety()["reason"] == "the acquisition was restarted"
    client.next_frames(1)  # its estimator and recorder are there again
    never_again(client)


def test_a_run_whose_checks_are_not_answered_is_aborted() -> None:
    """Its state is unknown."""
    asked = []

    class Silent:
        def request(self, verb: str, timeout_s: float, **_: Any) -> dict[str, Any]:
            asked.append(verb)
            if verb == "abort":
                return {"state": "disarmed"}
            assert timeout_s > VERBS[verb].within_s
            raise ControlError("timeout", "no answer within 60 s")

    with pytest.raises(ControlError, match="no answer"):
        Runs(cast(Control, Silent()), "good").run(trajectory().as_message(), "x")
    assert asked == ["run_trajectory", "abort"]


# ---------------------------------------------------------------- by `thetad run`


@pytest.fixture(scope="module")
def folder(keeper: Keeper) -> Path:
    return keeper.get(commanded).path


@pytest.fixture(scope="module")
def design(folder: Path) -> Path:
    return write_design(folder)


def armed(daemon: DaemonProcess, name: str, for_s: float = 60.0) -> str:
    said = thetad("control", "arm", f"arm={name}", f"for_s={for_s:g}", "--control", daemon.endpoints["control"]).ok()
    return str(said.json["permit"])


def run(daemon: DaemonProcess, *arguments: object) -> Any:
    return thetad("run", *arguments, "--control", daemon.endpoints["control"])


@pytest.mark.smoke
def test_a_run_is_recorded_and_identified(daemon: DaemonProcess, design: Path, folder: Path) -> None:
    permit = armed(daemon, "good")
    done = run(daemon, "good", design, "--permit", permit, "--periods", 2, "--average", "--json").ok()
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
    assert job.kind == "identify"
    assert job.state == "succeeded", job.reason
    assert (job.parameters["method"], job.parameters["period_s"]) == ("wls", 2.0)
    assert job.outcome is not None
    assert job.inputs["recording"]["path"] == said["recording"]


def test_an_interrupted_command_stops_the_arm(daemon: DaemonProcess, design: Path) -> None:
    with Client(daemon.endpoints, "good") as client:
        permit = armed(daemon, "good")
        client.frames()
        command = [sys.executable, "-m", "service.cli.main", "run", "good", str(design), "--permit", permit]
        command += ["--periods", "20", "--control", daemon.endpoints["control"]]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as process:
            assert any("period 1" in line for line in iter(process.stderr.readline, ""))
            client.next_frames(150)
            process.send_signal(signal.SIGINT)
            assert "aborted by request" in process.stderr.read()
            assert process.wait(30.0) == 130
        done = client.watch()
        assert (done["run"]["outcome"], done["reason"]) == ("stopped", "aborted by request")
        assert accelerations(setpoints(client.frames())).max() <= 1.0 + 1e-5
        assert stands(client.next_frames(100)[50:])
        client.ask("record", action="stop")
