"""Runs on EtherCAT drives: completed, aborted, and stopped by faults of drive and bus."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from service.client import ControlError
from tests.lab.daemon import ethercat_rig as rig
from tests.lab.daemon.daemons import config, start
from tests.lab.daemon.runs import Client, series, trajectory

pytestmark = pytest.mark.slow
CYCLE_HZ = 250  # a machine that is elsewhere for some milliseconds, again and again, keeps this rate
BRIDGE = 40
#: A machine that is busy with other things loses cycles; what is tested is what stops a run besides.
SAFETY = {"silence_s": 1.5, "permit_s": 300.0, "permit_max_s": 300.0, "heartbeat_s": 3.0, "following_error": 0.1}

#: So slow that it goes on over some lost cycles.
SLOW = series(size=0.1)


@dataclass
class Rig:
    """A running daemon, its drives, and a client of the arm."""

    drives: rig.Drives
    client: Client

    def moving(self, periods: int = 20) -> None:
        """Arm, run, and wait until the arm is in the middle of its trajectory."""
        self.client.arm()
        self.client.frames()
        self.client.run(trajectory(series=SLOW), periods)
        while not (0.3 < (said := self.client.safety())["run"]["t_s"] % 2.0 < 1.7) or said["state"] != "running":
            assert said["state"] in ("approach", "running"), said

    def off(self) -> None:
        """Wait until no drive has torque."""
        self.drives.until(lambda states: all(state not in ("ENABLED", "QUICK_STOP") for _, _, state in states))

    def refuses(self) -> None:
        """Nothing moves the arm before it is armed again."""
        with pytest.raises(ControlError, match="arm it first"):
            self.client.run()
        frames = self.client.next_frames(300)
        assert np.ptp([frame.q for frame in frames[100:]], axis=0).max() < 1e-3
        self.off()


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Rig]:
    table = rig.arm(folder, enable=False, cycle_hz=CYCLE_HZ, bridge_cycles=BRIDGE, watchdog_ms=500.0)
    del table["motion"]
    settings = config(folder, table | {"safety": SAFETY})
    with rig.network(), rig.Drives(rig.write_segment(folder, bridge_cycles=BRIDGE)) as drives:
        daemon = start(settings, folder)
        try:
            with Client(daemon.endpoints, rig.ARM) as client:
                yield Rig(drives, client)
        finally:
            daemon.stop()
            drives.safe()


@pytest.fixture
def one(running: Rig) -> Iterator[Rig]:
    yield running
    running.drives.tell("heal")
    running.client.ask("disarm")
    running.client.until("disarmed")
    running.drives.until(lambda states: all(al == 8 for al, _, _ in states))


@pytest.mark.smoke
def test_a_run_to_its_end(one: Rig) -> None:
    one.client.arm()
    one.client.frames()
    one.client.run(trajectory(series=SLOW), 2)
    done = one.client.until("disarmed")
    assert (done["run"]["outcome"], done["reason"]) == ("completed", "the run is complete")
    frames = one.client.frames()
    q = np.array([frame.setpoint for frame in frames])
    wanted = SLOW.sample(np.array([0.5, 1.0, 1.5]))[0]
    for point in wanted:  # it came by
        assert np.abs(q - point).max(axis=1).min() < 1e-3
    np.testing.assert_allclose(q[-1], SLOW.sample(0.0)[0], atol=0.01)
    one.refuses()


def test_a_bus_that_falls_silent(one: Rig) -> None:
    """Nobody can tell the drives to stop: their watchdogs do."""
    one.moving()
    one.drives.fault("cut", after=0)
    done = one.client.until("disarmed")
    assert done["run"]["outcome"] == "stopped"
    assert "no frame for more than 1.5 s" in done["reason"]
    states = one.drives.until(lambda states: all(state != "ENABLED" for _, _, state in states))
    assert [al for al, _, _ in states] == [4] * rig.N
    one.drives.fault("mend")
    one.drives.until(lambda states: all(al == 8 for al, _, _ in states))
    one.client.next_frames(500)
    one.refuses()
    one.client.arm()  # when whoever has looked says so
    one.client.ask("disarm")


def test_a_long_trajectory_is_checked_while_the_drives_hold(one: Rig) -> None:
    """It is judged in slices between frames: otherwise the watchdogs of the drives, of 0.5 s, would stop them."""
    one.client.arm()
    q = series().sample(np.arange(201) / 100.0)[0]
    q[120:150, 1] += 0.3
    with pytest.raises(ControlError, match="joint_2: its position jumps"):
        one.client.run(trajectory(series=None, table=q, rate_hz=100.0))
    assert one.client.safety()["state"] == "armed"
    held = np.array([frame.setpoint for frame in one.client.next_frames(300)])
    assert np.ptp(held, axis=0).max() == 0.0
    slow = series(size=0.2, f0_hz=0.02)  # about 3 s of checks
    one.client.run(trajectory(series=slow))
    assert one.client.safety()["state"] in ("approach", "running")
    one.client.ask("abort")
    assert one.client.until("disarmed")["reason"] == "aborted by request"
