"""Faults of bus and drives under a running daemon: frames, status, stop and recovery.

Each fault by itself, at the driver: test_faults.py.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from drivers.frame import JointFrame
from rt_core.online import OnlineEstimator
from service.client import Control, ControlError
from service.config.arm_robot import online_settings
from service.config.load import Config
from service.estimator.process import Inputs
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

pytestmark = pytest.mark.slow
ALL, NONE = [True] * N, [False] * N
IMPATIENT_S = 5.0
WATCHDOG = 0x001B  # AL status code


@dataclass
class Rig:
    """A running daemon, its drives, and what it says."""

    drives: Drives
    watch: Watcher
    control: Control
    config: Config
    began: int = 0  # frames before the test
    said: int = 0  # statuses before the test
    patience_s: float = DEADLINE_S  # until the drives follow; where they did not for so long, the next tests wait less

    @property
    def frames(self) -> list[JointFrame]:
        """Frames since the test began."""
        return self.watch.frames[self.began :]

    def masks(self) -> list[list[bool]]:
        """Which validity masks those frames have had, each once, in the order of their first frames."""
        seen: list[list[bool]] = []
        for frame in self.frames:
            mask = ALL if frame.valid is None else [bool(valid) for valid in frame.valid]
            if mask not in seen:
                seen.append(mask)
        return seen

    def news(self, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait for a status since the test began that `done` says yes of."""
        return self.watch.status(done, self.said)

    def stopped(self) -> dict[str, Any]:
        """Wait until the motion has stopped and all drives are off; returns the status that says so."""
        self.drives.until(lambda states: all(state != "ENABLED" for _, _, state in states))
        return self.news(lambda body: body["motion"]["state"] == "stopped")

    def back(self, what: str) -> dict[str, Any]:
        """Wait until the bus is whole again, and tell how long its frames were not."""
        body = self.watch.status(operational, len(self.watch.statuses))
        frames = list(self.frames)
        assert whole(frames[-1])
        good = [frame for frame in frames if whole(frame)]
        longest = max(next_.t_host_ns - last.t_host_ns for last, next_ in pairwise(good))
        recoveries = body["source"]["last_recoveries"][-N:]
        print(f"\n{what}: no whole frame for {longest * 1e-6:.1f} ms; {recoveries}")
        return body

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

    def motion(self, count: int) -> None:
        """Wait for so many more frames."""
        enough = len(self.frames) + count
        self.watch.status(lambda _: len(self.frames) >= enough)

    def missing(self) -> int:
        """Return how many cycles of those frames have none."""
        seqs = [frame.seq for frame in self.frames]
        return seqs[-1] - seqs[0] + 1 - len(seqs)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    path = tmp_path_factory.mktemp("faults")
    settings = config(path, arm(path), runtime_dir=str(path / "r"))
    with network(), Drives(write_segment(path)) as drives:
        daemon = start(settings, path)
        try:
            with (
                Watcher(daemon.endpoints["frames"], path / "r") as watch,
                Control(daemon.endpoints["control"]) as control,
            ):
                yield Rig(drives, watch, control, settings)
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
    seqs = np.array([frame.seq for frame in rig.frames])
    assert np.all(np.diff(seqs) > 0)
    assert np.all(np.diff([frame.t_bus_ns for frame in rig.frames]) > 0)
    body = watch.statuses[-1]
    source = body["source"]
    assert source["frames"] + source["lost_cycles"] + source["overruns"] == body["after_seq"] + 1  # all accounted for
    found = processes(rig.control)
    assert {name: process["pid"] for name, process in found.items()} == pids
    assert all(process["restarts"] == 0 for process in found.values())


# ---------------------------------------------------------------- frames that are lost or late


def test_lost_frames_are_missing_cycles_and_the_motion_goes_on(rig: Rig) -> None:
    before = rig.watch.ask()["source"]
    for _ in range(5):
        rig.drives.fault("lost_frame", count=2)
        rig.watch.ask()
    after = rig.back("lost frames")["source"]
    assert after["unanswered_exchanges"] > before["unanswered_exchanges"]
    assert after["lost_cycles"] > before["lost_cycles"]
    assert rig.missing() > 0
    assert rig.masks() == [ALL]
    assert after["recoveries"] == before["recoveries"]
    assert rig.watch.statuses[-1]["motion"]["state"] == "running"


def test_late_answers_are_missing_cycles_and_the_motion_goes_on(rig: Rig) -> None:
    before = rig.watch.ask()["source"]
    rig.drives.fault("slow_reply", ns=5_000_000, frames=3)
    rig.watch.ask()
    after = rig.back("late answers")["source"]
    assert after["lost_cycles"] > before["lost_cycles"]
    assert rig.missing() > 0
    assert rig.masks() == [ALL]
    assert rig.watch.statuses[-1]["motion"]["state"] == "running"


# ---------------------------------------------------------------- slaves that are lost


def test_slaves_behind_a_broken_cable_are_masked_and_taken_back(rig: Rig) -> None:
    after = 1
    rig.drives.fault("cut", after=after)
    body = rig.news(lambda body: body["source"]["state"] == "recovering")
    beyond = [k >= after for k in range(N)]
    rig.stopped()
    body = rig.watch.ask()
    assert [drive["al_state"] == "not answering" for drive in body["source"]["drives"]] == beyond
    assert rig.frames[-1].valid is not None
    assert rig.frames[-1].valid.tolist() == [not away for away in beyond]
    rig.drives.fault("mend")
    rig.back(f"cable cut behind {after}")
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
    rig.back("cable pulled at the master")
    assert rig.missing() > 0
    assert rig.stopped()["motion"]["reason"]


def test_a_drive_that_was_without_power_is_configured_again(rig: Rig) -> None:
    rig.drives.fault("power_off", slave="joint_3")
    rig.stopped()
    assert rig.frames[-1].valid is not None
    assert rig.frames[-1].valid.tolist() == [True, True, False]
    rig.drives.fault("power_on", slave="joint_3")
    after = rig.back("power")
    assert after["source"]["last_recoveries"][-1]["position"] == 2
    assert after["motion"]["state"] == "stopped"


def test_enable_is_refused_while_a_slave_does_not_come_back(rig: Rig) -> None:
    rig.drives.fault("refuse_op", slave=1)
    rig.drives.fault("al_error", slave=1, code=0x001B)
    rig.news(lambda body: body["source"]["state"] == "recovering")
    with pytest.raises(ControlError, match=r"cannot be enabled: joint 'joint_2' .*SAFE-OP") as error:
        rig.control.request("enable")
    assert error.value.type == "unavailable"
    assert rig.masks()[0] == ALL
    rig.drives.fault("refuse_op", slave=1, refuse=False)
    after = rig.back("OP refused for a while")
    assert after["source"]["last_recoveries"][-1]["failures"] > 0


# ---------------------------------------------------------------- drives and encoders


def test_an_emergency_is_published_and_the_motion_goes_on(rig: Rig) -> None:
    before = rig.watch.ask()["source"]["emergencies"]
    rig.drives.fault("emergency", slave=1, code=0x7121)
    body = rig.news(lambda body: body["source"]["emergencies"] > before)
    message = body["source"]["last_emergencies"][-1]
    assert (message["position"], message["code"]) == (1, 0x7121)
    assert rig.masks() == [ALL]
    assert body["motion"]["state"] == "running"


@pytest.mark.parametrize(
    ("fault", "code"), [({"kind": "drive_fault", "code": 0x3210}, 0x3210), ({"kind": "sto"}, 0x5441)]
)
def test_a_drive_that_trips_stops_the_arm(rig: Rig, fault: dict[str, Any], code: int) -> None:
    rig.drives.fault(**fault, slave=1)
    rig.stopped()
    body = rig.watch.ask()
    drive = body["source"]["drives"][1]
    assert (drive["state"], drive["dropped_out"], drive["error_code"]) == ("fault", True, code)
    assert code in [message["code"] for message in body["source"]["last_emergencies"]]
    assert not any(drive["enabled"] for drive in body["source"]["drives"])
    assert rig.masks() == [ALL]  # what it measures is as good as before
    if fault["kind"] == "sto":
        rig.drives.fault("sto", slave=1, active=False)
        assert not rig.watch.ask()["source"]["enabled"]  # not again by itself


def test_a_stuck_encoder_stops_the_arm(rig: Rig) -> None:
    """Nothing on the bus tells: frames stay valid, until drive or motion notices that the joint does not follow."""
    rig.drives.fault("stuck_encoder", slave=0)
    stopped = rig.stopped()
    noticed = stopped["source"]["drives"][0]["dropped_out"] or JOINTS[0] in stopped["motion"]["reason"]
    assert noticed, stopped
    assert rig.masks() == [ALL]
    rig.drives.fault("stuck_encoder", slave=0, stuck=False)


def test_an_encoder_that_jumps_stops_the_arm(rig: Rig) -> None:
    counts = 5_000_000  # 0.3 rad of the joint
    rig.drives.fault("encoder_jump", slave=1, counts=counts)
    assert "joint_2 is 0." in rig.stopped()["motion"]["reason"]
    assert rig.masks() == [ALL]
    rig.drives.fault("encoder_jump", slave=1, counts=-counts)


# ---------------------------------------------------------------- clocks


def test_a_drifting_clock_is_followed(rig: Rig) -> None:
    before = rig.watch.ask()["source"]["clock_drift_ppm"]
    rig.drives.fault("clock_drift", slave=0, ppm=300.0)
    body = rig.news(lambda body: body["source"]["clock_drift_ppm"] > before + 200.0)
    assert body["source"]["clock_steps"] == 0
    assert body["motion"]["state"] == "running"
    assert rig.masks() == [ALL]
    rig.drives.fault("clock_drift", slave=0, ppm=0.0)


@pytest.mark.parametrize(("slave", "steps"), [(0, 1), (1, 0)])
def test_a_clock_that_jumps(rig: Rig, slave: int, steps: int) -> None:
    """That of the reference slave moves the bus's time, and is reported; another is brought back by its slave."""
    before = rig.watch.ask()["source"]["clock_steps"]
    rig.drives.fault("clock_step", slave=slave, ns=70_000_000)
    body = rig.watch.ask()
    assert body["source"]["clock_steps"] == before + steps
    assert body["motion"]["state"] == "running"
    assert rig.masks() == [ALL]


# ---------------------------------------------------------------- the estimator


def estimate(rig: Rig, frames: list[JointFrame]) -> OnlineEstimator:
    """Feed an estimator with frames, as the daemon's does."""
    table = rig.config.find(ARM)
    robot = load_robot(table.robot, Path())
    inputs = Inputs(robot.model, has_dq=True)
    estimator = OnlineEstimator(robot.model, online_settings(table, robot, "test"), 1000.0, has_dq=True)
    for frame in frames:
        values = inputs(frame)
        assert values is not None
        estimator.step(frame.t_bus_ns, frame.seq, *values)
    return estimator


def spoilt(frame: JointFrame, rng: np.random.Generator) -> JointFrame:
    """Return the frame with all its values replaced by nonsense."""
    q, dq, tau = rng.normal(scale=1e6, size=(3, N))
    return replace(frame, q=q, dq=dq, tau=tau)


def test_invalid_frames_have_no_influence_on_the_estimate(rig: Rig) -> None:
    """Bit for bit, whatever their values are; whereas valid frames have."""
    for kind, keys, undo in (
        ("wkc_drop", {"slave": 1, "frames": 1}, None),
        ("power_off", {"slave": 2}, "power_on"),
        ("cut", {"after": 1}, "mend"),
    ):
        rig.motion(2000)
        rig.drives.fault(kind, **keys)
        rig.watch.ask()
        if undo is not None:
            rig.drives.fault(undo, **({} if undo == "mend" else keys))
            rig.settle()
    # cycles without a frame, of which a busy machine makes many, are left out: filters want rows of frames in sequence
    frames = [replace(frame, seq=k, t_bus_ns=k * 1_000_000) for k, frame in enumerate(rig.frames)]
    rng = np.random.default_rng(1)
    masked = sum(not whole(frame) for frame in frames)
    assert 10 < masked < len(frames) / 2
    plain = estimate(rig, frames).report()
    other = estimate(rig, [frame if whole(frame) else spoilt(frame, rng) for frame in frames]).report()
    assert plain.masked == other.masked >= masked
    assert plain.used > 5
    assert np.count_nonzero(plain.theta) > 10
    for name in ("theta", "std", "lam", "innovation", "sigma"):
        assert getattr(plain, name).tobytes() == getattr(other, name).tobytes(), name
    assert plain.used == other.used
    touched = [spoilt(frame, rng) if whole(frame) and k % 500 == 250 else frame for k, frame in enumerate(frames)]
    assert estimate(rig, touched).report().theta.tobytes() != plain.theta.tobytes()


# ---------------------------------------------------------------- the acquisition


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
    control.request("enable")
    watch.status(following, len(watch.statuses))
    drives.await_motion()
