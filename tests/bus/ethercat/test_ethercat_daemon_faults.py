"""Faults of bus and drives under a running daemon: frames, status, stop and recovery.

Each fault by itself, at the driver: test_faults.py.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.frame import JointFrame
from service.client import Control, ControlError
from service.supervisor.launch import DaemonProcess
from tests.lab.daemon.daemons import await_status, config, processes, start
from tests.lab.daemon.ethercat_rig import (
    ARM,
    DEADLINE_S,
    JOINTS,
    Drives,
    N,
    Watcher,
    arm,
    following,
    network,
    operational,
    whole,
    write_segment,
)
from tests.lab.ethercat.namespace import wait_until

pytestmark = pytest.mark.slow
IMPATIENT_S = 5.0
WATCHDOG = 0x001B  # AL status code


@dataclass
class Rig:
    """A running daemon, its drives, and what it says."""

    drives: Drives
    watch: Watcher
    control: Control
    restarted: Callable[[], DaemonProcess]  # stops the daemon, and starts another that is configured the same
    began: int = 0  # frames before the test
    said: int = 0  # statuses before the test
    patience_s: float = DEADLINE_S  # until the drives follow; where they did not for so long, the next tests wait less

    @property
    def frames(self) -> list[JointFrame]:
        """Frames since the test began."""
        return self.watch.frames[self.began :]

    def news(self, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait for a status since the test began that `done` says yes of."""
        return self.watch.status(done, self.said)

    def stopped(self) -> dict[str, Any]:
        """Wait until the motion has stopped and all drives are off; returns the status that says so."""
        self.drives.until(lambda states: all(state != "ENABLED" for _, _, state in states))
        return self.news(lambda body: body["motion"]["state"] == "stopped")

    def back(self) -> None:
        """Wait until the bus is whole again."""
        self.watch.status(operational, len(self.watch.statuses))
        assert whole(self.frames[-1])

    def settle(self) -> None:
        """Let the drives follow the motion, whatever has stopped it: the machine may have been elsewhere for long."""
        deadline = time.monotonic() + self.patience_s
        self.patience_s = IMPATIENT_S
        self.drives.tell("heal")
        refused = ""
        while not following(body := self.watch.ask()):
            assert time.monotonic() < deadline, f"{refused} {body}"  # a text, which is shown whole
            if operational(body) and body["motion"]["state"] == "stopped":
                try:
                    self.control.request("enable")
                except ControlError as error:  # a drive that has just dropped out again
                    refused = error.message
            time.sleep(0.05)
        self.patience_s = DEADLINE_S


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Rig]:
    settings = config(folder, arm(folder), runtime_dir=str(folder / "r"))
    with network(), Drives(write_segment(folder)) as drives:
        daemon = start(settings, folder)
        try:
            with (
                Watcher(daemon.endpoints["frames"], folder / "r") as watch,
                Control(daemon.endpoints["control"]) as control,
            ):
                yield Rig(drives, watch, control, lambda: (daemon.stop(), start(settings, folder))[1])
        finally:
            daemon.stop()
            drives.safe()


@pytest.fixture
def rig(running: Rig) -> Iterator[Rig]:
    """The daemon with all drives following the motion; after the test it is so again, and nothing was restarted."""
    rig, watch = running, running.watch
    pids = {name: process["pid"] for name, process in processes(rig.control).items()}
    rig.settle()
    rig.began, rig.said = len(watch.frames), len(watch.statuses)
    yield rig
    rig.settle()
    assert np.all(np.diff(np.array([frame.seq for frame in rig.frames])) > 0)
    assert np.all(np.diff([frame.t_bus_ns for frame in rig.frames]) > 0)
    body = watch.statuses[-1]
    source = body["source"]
    assert source["frames"] + source["lost_cycles"] + source["overruns"] == body["after_seq"] + 1  # all accounted for
    found = processes(rig.control)
    assert {name: process["pid"] for name, process in found.items()} == pids
    assert all(process["restarts"] == 0 for process in found.values())


def test_slaves_behind_a_broken_cable_are_masked_and_taken_back(rig: Rig) -> None:
    rig.drives.fault("cut", after=1)
    rig.news(lambda body: body["source"]["state"] == "recovering")
    rig.stopped()
    body = rig.watch.ask()
    assert [drive["al_state"] == "not answering" for drive in body["source"]["drives"]] == [False, True, True]
    assert np.array_equal(rig.frames[-1].valid, [True, False, False])  # type: ignore[arg-type]
    rig.drives.fault("mend")
    rig.back()
    assert rig.watch.ask()["motion"]["state"] == "stopped"


def test_a_bus_that_nobody_answers_on_has_no_frames_and_comes_back(rig: Rig) -> None:
    rig.drives.fault("cut", after=0)
    body = rig.news(lambda body: body["source"]["state"] == "no answer")
    assert [drive["al_state"] for drive in body["source"]["drives"]] == ["not answering"] * N
    assert not body["source"]["enabled"]
    # Nobody tells them to stop: their watchdogs do.
    states = rig.drives.until(lambda states: all(state != "ENABLED" for _, _, state in states))
    assert [al for al, _, _ in states] == [4] * N
    before = len(rig.watch.frames)
    assert rig.watch.ask()["timeouts"] > 0
    assert len(rig.watch.frames) == before
    rig.drives.fault("mend")
    rig.back()
    assert rig.stopped()["motion"]["reason"]
    told = {"bus_lost", "bus_recovered", "motion_stopped"}
    wait_until(lambda: rig.control.request("status")["events"].keys() >= told)


def test_a_drive_that_comes_back_elsewhere_does_not_count_until_it_is_confirmed(rig: Rig) -> None:
    rig.control.request("disable")
    rig.stopped()
    rig.drives.fault("encoder_jump", slave=2, counts=5_000_000)
    rig.news(lambda _: len(rig.frames) > 1000)
    rig.drives.fault("power_off", slave=2)
    rig.news(lambda body: body["source"]["state"] == "recovering")
    rig.drives.fault("power_on", slave=2)  # the encoder forgets that it has jumped
    rig.news(lambda body: body["unconfirmed"] == JOINTS[2:] and operational(body))
    assert np.array_equal(rig.frames[-1].valid, [True, True, False])  # type: ignore[arg-type]
    with pytest.raises(ControlError, match=r"joint_3 came back elsewhere.*confirm_positions"):
        rig.control.request("enable")
    assert rig.control.request("status")["events"]["position_unconfirmed"] == 1
    assert rig.control.request("confirm_positions")["confirmed"] == JOINTS[2:]
    rig.back()


def test_a_drive_that_trips_stops_the_arm(rig: Rig) -> None:
    rig.drives.fault("sto", slave=1)
    rig.stopped()
    body = rig.watch.ask()
    drive = body["source"]["drives"][1]
    assert (drive["state"], drive["dropped_out"], drive["error_code"]) == ("fault", True, 0x5441)
    assert 0x5441 in [message["code"] for message in body["source"]["last_emergencies"]]
    assert not any(drive["enabled"] for drive in body["source"]["drives"])
    assert all(map(whole, rig.frames))  # what it measures is as good as before
    rig.drives.fault("sto", slave=1, active=False)
    assert not rig.watch.ask()["source"]["enabled"]  # not again by itself


def test_a_stuck_encoder_stops_the_arm(rig: Rig) -> None:
    """Nothing on the bus tells: frames stay valid, until drive or motion notices that the joint does not follow."""
    rig.drives.fault("stuck_encoder", slave=0)
    stopped = rig.stopped()
    noticed = stopped["source"]["drives"][0]["dropped_out"] or JOINTS[0] in stopped["motion"]["reason"]
    assert noticed, stopped
    assert all(map(whole, rig.frames))
    rig.drives.fault("stuck_encoder", slave=0, stuck=False)


def test_an_encoder_that_jumps_stops_the_arm(rig: Rig) -> None:
    counts = 5_000_000  # 0.3 rad of the joint
    rig.drives.fault("encoder_jump", slave=1, counts=counts)
    assert "joint_2 is 0." in rig.stopped()["motion"]["reason"]
    assert all(map(whole, rig.frames))
    rig.drives.fault("encoder_jump", slave=1, counts=-counts)


def test_a_killed_acquisition_stops_the_arm_and_comes_back(running: Rig) -> None:
    """`kill -9` while the arm moves: the drives stop by themselves, and start again when asked."""
    drives, watch, control = running.drives, running.watch, running.control
    running.settle()
    drives.tell("history")
    name, before = f"{ARM}/acquisition", processes(control)
    os.kill(before[name]["pid"], signal.SIGKILL)
    found = await_status(control, lambda found: found[name]["restarts"] == 1 and found[name]["state"] == "ready")
    # Before anybody spoke to them again.
    fallen = next(states for states in drives.tell("history") if all(al == 4 for al, _, _ in states))
    assert [code for _, code, _ in fallen] == [WATCHDOG] * N
    assert found[f"{ARM}/estimator"]["pid"] == before[f"{ARM}/estimator"]["pid"]
    began = len(watch.statuses)
    body = watch.status(lambda body: operational(body) and body["state"] == "running", began)
    assert body["motion"]["state"] == "stopped"
    assert "restarted" in body["motion"]["reason"]
    assert drives.tell("speed") < 1e-3
    running.settle()
    drives.await_motion()


def test_restarts_forget_neither_where_joints_stood_nor_who_is_not_confirmed(running: Rig) -> None:
    """The daemon does not switch such drives on by itself either, as it is configured to at its start."""
    drives, watch, control, name = running.drives, running.watch, running.control, f"{ARM}/acquisition"

    def known(control: Control) -> None:
        """Wait until it is known where each joint stands, and all are confirmed."""
        rest = [(False, 0.0)] * N
        await_status(control, lambda all_: [(q is None, no) for q, no in all_[name]["info"].get("stood", ())] == rest)

    running.settle()
    control.request("disable")
    running.stopped()
    drives.fault("encoder_jump", slave=2, counts=5_000_000)
    known(control)
    os.kill(processes(control)[name]["pid"], signal.SIGKILL)
    for power in ("power_off", "power_on"):
        drives.fault(power, slave=2)  # the encoder forgets that it has jumped
    watch.status(lambda body: body["unconfirmed"] == JOINTS[2:] and operational(body), len(watch.statuses))
    for confirmed in (False, True):
        with (
            running.restarted() as daemon,
            Watcher(daemon.endpoints["frames"], watch.runtime) as again,
            Control(daemon.endpoints["control"]) as control,
        ):
            if confirmed:
                again.status(following)
                continue
            body = again.status(lambda body: body["state"] == "running" and operational(body))
            assert (body["unconfirmed"], body["source"]["enabled"]) == (JOINTS[2:], False)
            assert control.request("confirm_positions", joints=JOINTS[2:])["confirmed"] == JOINTS[2:]
            known(control)
            assert not again.ask()["source"]["enabled"]
            assert control.request("status")["events"]["not_enabled"] == 1
