"""Runs in a daemon: permits, refusals before motion, and stops."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from service.client import Control, ControlError, Runs
from service.protocol.control import VERBS
from service.supervisor.launch import DaemonProcess
from tests.lab.daemon.daemons import await_status
from tests.lab.daemon.ethercat_rig import JOINTS, N
from tests.lab.daemon.runs import (
    RATE_HZ,
    START,
    Client,
    accelerations,
    commanded,
    never_again,
    refused,
    series,
    setpoints,
    trajectory,
)
from tests.lab.daemon.shared import Keeper

pytestmark = pytest.mark.slow


@pytest.fixture
def daemon(keeper: Keeper) -> DaemonProcess:
    return keeper.get(commanded).daemon


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[Client]:
    with Client(daemon.endpoints, "good") as one:
        yield one
        one.ask("disarm")
        one.until("disarmed")


def test_a_run_from_the_permit_to_the_end(client: Client) -> None:
    here = client.next_frames(1)[0].q
    assert "'disarmed'" in refused(
        client, "unavailable", "run_trajectory", permit="x", trajectory=trajectory().as_message()
    )
    client.arm()
    said = client.run(periods=2)
    assert said["state"] == "approach"
    assert said["unchecked"] == ["collisions"]
    assert (said["run"]["periods"], said["run"]["duration_s"]) == (2, 4.0)
    other = Control(client.control.endpoint)  # whoever asks, there is one run at a time
    with other, pytest.raises(ControlError, match="arm: the arm is in state"):
        other.request("arm", arm="good")
    done = client.until("disarmed")
    assert (done["run"]["outcome"], done["reason"]) == ("completed", "the run is complete")
    assert done["run"]["t_s"] == pytest.approx(4.0)
    q = setpoints(client.frames())
    assert accelerations(q).max() <= 1.0 + 1e-5
    wanted = series().sample(np.arange(0, 1001) / RATE_HZ)[0]
    np.testing.assert_allclose(q[-1001:], wanted, atol=1e-9)
    np.testing.assert_allclose(q[0], here, atol=2e-3)
    never_again(client)
    events = [e["kind"] for e in client.control.request("events", arm="good")["events"] if e["kind"].startswith("run")]
    assert events[-2:] == ["run_started", "run_completed"]


def bad(**changes: Any) -> dict[str, Any]:
    message = trajectory().as_message()
    return message | changes


def jumping() -> dict[str, Any]:
    q = series().sample(np.arange(201) / 100.0)[0]
    q[120:150, 1] += 0.3
    return trajectory(series=None, table=q, rate_hz=100.0).as_message()


def degrees() -> dict[str, Any]:
    q = np.degrees(series().sample(np.arange(201) / 100.0)[0])
    return trajectory(series=None, table=q, rate_hz=100.0).as_message()


BAD: list[tuple[dict[str, Any], str]] = [
    (bad(a=[[float("nan")] * 4] * N), "must be finite"),
    (bad(joints=[JOINTS[1], JOINTS[0], JOINTS[2]]), "in another order"),
    (bad(units=["deg"] * N), "in degrees"),
    (bad(robot="ur10"), "'ur10'"),
    (jumping(), "joint_2: its position jumps by 0.2997 rad at 1.2 s"),
    (degrees(), "taken for degrees"),
    (trajectory(series=replace(series(), q0=START + 2.5)).as_message(), "position"),
    (trajectory(series=series(size=1.0, f0_hz=2.0)).as_message(), "acceleration"),
    ({}, "expected a list of texts"),
]


def test_what_must_not_be_run_is_refused_and_nothing_moves(client: Client) -> None:
    client.arm()
    client.frames()
    for message, words in BAD:
        assert words in refused(client, "bad_argument", "run_trajectory", permit=client.permit, trajectory=message)
    said = refused(client, "bad_argument", "zero_force", permit=client.permit)
    assert "add the table [arm.guiding]" in said
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


@pytest.mark.parametrize("verb", ["abort", "disarm", "disable"])
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
    client.arm(for_s=2.0)
    assert "arm for longer" in refused(
        client, "unavailable", "run_trajectory", permit=client.permit, trajectory=bad(), periods=50
    )
    assert "not the permit" in refused(client, "unavailable", "run_trajectory", permit="x", trajectory=bad())
    done = client.until("disarmed")
    assert done["reason"] == "the permit has expired"
    never_again(client)
    client.arm()
    client.run(periods=1, hold=True)
    client.until("running")
    assert client.until("armed")["run"]["outcome"] in ("moving", "completed")
    assert "served for a run" in refused(
        client, "unavailable", "run_trajectory", permit=client.permit, trajectory=bad()
    )


def test_a_permit_has_to_last_for_the_time_that_a_slow_simulation_takes(daemon: DaemonProcess) -> None:
    """One that expires in motion all the same stops the arm: tests/unit/service/motion/test_motion_controller.py."""
    with Client(daemon.endpoints, "slow") as client:
        client.arm(for_s=6.0)
        with pytest.raises(ControlError, match=r"takes 10\.\d s and the permit is good for \d"):
            client.run(periods=2)
        client.ask("disarm")


def test_an_arm_that_moves_by_itself_has_no_runs(daemon: DaemonProcess) -> None:
    with Control(daemon.endpoints["control"]) as control:
        for verb in ("arm", "disarm", "abort", "heartbeat", "run_trajectory"):
            with pytest.raises(ControlError, match=r'no drives .*set mode = "csp"'):
                control.request(verb, arm="itself")


def test_an_arm_with_a_planned_motion_follows_it_and_has_no_runs(daemon: DaemonProcess) -> None:
    with Control(daemon.endpoints["control"]) as control:
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


def test_a_long_trajectory_is_checked_to_its_end(client: Client) -> None:
    """Its checks take more than 12 s, longer than other answers may."""
    client.arm(for_s=300.0)
    client.frames()
    long = trajectory(series=series(size=0.1, f0_hz=0.005)).as_message()
    said = client.control.request("run_trajectory", 60.0, arm="good", permit=client.permit, trajectory=long)
    assert (said["run"]["outcome"], said["run"]["duration_s"]) == ("checked", pytest.approx(200.0))
    assert client.safety()["state"] == "approach"


def test_a_trajectory_that_takes_too_long_to_check_is_refused_at_once(daemon: DaemonProcess) -> None:
    """On an arm of 125 cycles a second, a slice in each."""
    with Client(daemon.endpoints, "slow") as client:
        client.arm(for_s=590.0)
        client.frames()
        long = trajectory(series=series(size=0.1, f0_hz=0.002))
        with pytest.raises(ControlError, match="more than 400 s of motion takes too long; choose a shorter period"):
            Runs(client.control, "slow").run(long.as_message(), client.permit)
        assert client.safety()["state"] == "armed"
        assert np.ptp(setpoints(client.frames()), axis=0).max() == 0.0
        client.ask("disarm")


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
