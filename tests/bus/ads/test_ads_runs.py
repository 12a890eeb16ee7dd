"""Runs on axes of a PLC with set positions sent ahead: completed, aborted, and stopped by faults."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.excitation.fourier import FourierSeries, rest_basis
from rt_core.types import FloatArray
from service.client import ControlError
from service.io.trajectory_file import Trajectory
from sim_backend.plc._plc import SimulatedPlc
from tests.lab.ads.configs import NET_ID, axis_tables
from tests.lab.ads.plcs import RunningPlc, running_plc
from tests.lab.daemon.daemons import config, start
from tests.lab.daemon.runs import Client

pytestmark = pytest.mark.slow
ARM = "arm"
RATE_HZ = 1000.0
MODEL = load_robot("space6").model
N = MODEL.n
ON = 0x1237
SAFETY = {"silence_s": 1.0, "permit_s": 300.0, "permit_max_s": 300.0, "heartbeat_s": 3.0, "approach": 0.3}
LIMIT = 5.0 * np.array([joint.velocity for joint in MODEL.joints])


def trajectory(about: FloatArray) -> Trajectory:
    rng = np.random.default_rng(3)
    a = rng.normal(size=(N, 3)) @ rest_basis(np.ones(4)).T
    b = rng.normal(size=(N, 3)) @ rest_basis(np.arange(1.0, 5.0)).T
    shape = FourierSeries(0.5, about, a, b)
    speed = np.abs(shape.sample(np.arange(0.0, 2.0, 0.001))[1]).max(axis=0)
    joints = tuple(joint.name for joint in MODEL.joints)
    return Trajectory(joints, ("rad",) * N, series=shape.shrunk(0.1 * LIMIT / 5.0 / speed))


@pytest.fixture(scope="module")
def plc() -> Iterator[RunningPlc]:
    with running_plc(heartbeat_ms=1000) as running:
        yield running


@pytest.fixture(scope="module")
def client(plc: RunningPlc, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    path = tmp_path_factory.mktemp("runs")
    # PLC and client share an interpreter here: what is sent arrives later than at a PLC of its own.
    driver = {"kind": "ads", "net_id": NET_ID, "host": plc.address, "axis": axis_tables(), "lead_ms": 190.0}
    table = {"name": ARM, "robot": "space6", "driver": driver, "state": {"resume": False}, "safety": SAFETY}
    with start(config(path, table), path) as daemon, Client(daemon.endpoints, ARM) as one:
        yield one


def begin(client: Client, periods: int = 20) -> Trajectory:
    """Arm and run, about where the arm stands."""
    q = client.next_frames(1)[0].q
    assert q is not None
    what = trajectory(q)
    client.arm()
    client.frames()
    client.run(what, periods)
    return what


def in_motion(client: Client) -> None:
    while not (0.3 < (said := client.safety())["run"]["t_s"] % 2.0 < 1.7) or said["state"] != "running":
        assert said["state"] in ("approach", "running"), said


def stays(client: Client, plc: RunningPlc) -> None:
    """The axes are off, stand, and nothing moves them before they are armed again."""
    frames = client.next_frames(1500)
    words = np.array([frame.status_word for frame in frames[1000:]])
    assert not (words == ON).any()
    assert np.ptp([frame.q for frame in frames[1000:]], axis=0).max() < 1e-4
    assert not plc.do(lambda p: p.machine.power)
    with pytest.raises(ControlError, match="arm it first"):
        client.run(trajectory(np.zeros(N)))


@pytest.mark.smoke
def test_a_run_to_its_end(client: Client, plc: RunningPlc) -> None:
    what = begin(client, 2)
    done = client.until("disarmed")
    assert (done["run"]["outcome"], done["reason"]) == ("completed", "the run is complete")
    frames = client.frames()
    q = np.array([frame.setpoint for frame in frames])
    wanted = what.positions(np.arange(2001) / RATE_HZ)
    begun = int(np.argmin(np.abs(q - wanted[700]).max(axis=1)[: len(q) - 3000])) - 700
    np.testing.assert_allclose(q[begun : begun + 2001], wanted, atol=2e-5)  # the PLC plays what was sent, in its units
    np.testing.assert_allclose(q[begun + 2000 : begun + 4001], wanted, atol=2e-5)
    stays(client, plc)


def test_abort_comes_to_rest_before_the_axes_go_off(client: Client, plc: RunningPlc) -> None:
    begin(client)
    in_motion(client)
    client.ask("abort")
    assert client.until("disarmed")["reason"] == "aborted by request"
    frames = client.frames()
    on = [frame for frame in frames if frame.status_word is not None and (frame.status_word == ON).all()]
    q = np.array([frame.setpoint for frame in on])
    change = np.abs(np.diff(q, 2, axis=0)) * RATE_HZ**2 / LIMIT
    assert change[:-2].max() <= 1.01
    assert np.abs(np.diff(q, axis=0))[-3:-1].max() * RATE_HZ < 1e-3
    stays(client, plc)


def test_a_connection_that_breaks(client: Client, plc: RunningPlc) -> None:
    """Nobody can tell the axes to stop: the PLC does, when its points run out or the heartbeat is missing."""
    begin(client)
    in_motion(client)
    plc.do(SimulatedPlc.drop_connections)
    done = client.until("disarmed")
    assert done["run"]["outcome"] == "stopped"
    assert done["reason"]
    stays(client, plc)
    client.arm()  # when whoever has looked says so
    client.ask("disarm")
    client.until("disarmed")


def test_a_plc_that_is_stopped(client: Client, plc: RunningPlc) -> None:
    begin(client)
    in_motion(client)
    plc.do(lambda p: p.stop())
    done = client.until("disarmed")
    assert done["run"]["outcome"] == "stopped"
    plc.do(lambda p: p.run())
    stays(client, plc)
