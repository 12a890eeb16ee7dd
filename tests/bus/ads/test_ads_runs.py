"""The daemon and `thetad ads` with a simulated PLC: runs with set positions sent ahead, refusals, values, faults."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.excitation.fourier import FourierSeries, rest_basis
from rt_core.types import FloatArray
from service.client import ControlError
from service.config.load import ConfigError
from service.io.trajectory_file import Trajectory
from sim_backend.plc._plc import SimulatedPlc
from tests.lab.ads.configs import NET_ID, axis_tables
from tests.lab.ads.plcs import RunningPlc, running_plc
from tests.lab.command_line import thetad
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
def client(plc: RunningPlc, folder: Path) -> Iterator[Client]:
    # PLC and client share an interpreter here: what is sent arrives later than at a PLC of its own.
    driver = {"kind": "ads", "net_id": NET_ID, "host": plc.address, "axis": axis_tables(), "lead_ms": 190.0}
    table = {"name": ARM, "robot": "space6", "driver": driver, "state": {"resume": False}, "safety": SAFETY}
    with start(config(folder, table), folder) as daemon, Client(daemon.endpoints, ARM) as one:
        yield one


def begin(client: Client, periods: int = 20) -> Trajectory:
    """Arm and run, about where the arm stands."""
    what = trajectory(client.next_frames(1)[0].q)
    client.arm()
    client.frames()
    client.run(what, periods)
    return what


def stays(client: Client, plc: RunningPlc) -> None:
    """The axes are off, stand, and nothing moves them before they are armed again."""
    frames = client.next_frames(1500)
    assert not (np.array([frame.status_word for frame in frames[1000:]]) == ON).any()
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


def test_a_connection_that_breaks(client: Client, plc: RunningPlc) -> None:
    """Nobody can tell the axes to stop: the PLC does, when its points run out or the heartbeat is missing."""
    begin(client)
    while not (0.3 < (said := client.safety())["run"]["t_s"] % 2.0 < 1.7) or said["state"] != "running":
        assert said["state"] in ("approach", "running"), said
    plc.do(SimulatedPlc.drop_connections)
    done = client.until("disarmed")
    assert done["run"]["outcome"] == "stopped"
    assert done["reason"]
    stays(client, plc)
    client.arm()  # when whoever has looked says so
    client.ask("disarm")
    client.until("disarmed")


def arm(address: str, name: str = ARM, **driver: Any) -> dict[str, Any]:
    source = {"kind": "ads", "net_id": NET_ID, "host": address, "axis": axis_tables()} | driver
    return {"name": name, "robot": "space6", "driver": source, "state": {"resume": False}}


def test_two_arms_on_one_controller_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"arms 'left' and 'right' are on one controller, 127\.0\.0\.9"):
        config(tmp_path, arm("127.0.0.9", "left"), arm("127.0.0.9", "right", port=852))


def test_commands(plc: RunningPlc, tmp_path: Path) -> None:
    target = (NET_ID, "--host", plc.address)
    facts = thetad("ads", "info", *target, "--json").json
    assert (facts["state"], facts["port"]) == ("run", 851)
    found = thetad("ads", "symbols", *target, "--match", "gvl_theta.st*", "--json").json["symbols"]
    assert {symbol["name"].rpartition(".")[2] for symbol in found} >= {"stInfo", "stHead", "stCommand", "stLatest"}
    assert thetad("ads", "read", *target, "GVL_Theta.stInfo.nAxes", "--json").json["value"] == 6
    assert thetad("ads", "read", *target, "gvl_theta.stinfo", "--json").json["value"]["nCycleNs"] == 1_000_000
    thetad("ads", "read", *target, "MAIN.nothing").refused("MAIN.nothing", "thetad ads symbols")
    thetad("ads", "info", "1.2.3").refused("AMS Net ID")
    thetad("ads", "info", f"{NET_ID}:x").refused("port")
    thetad("ads", "read", "-", "MAIN.nothing").refused("-c FILE")
    path = tmp_path / "arm.json"
    path.write_text(json.dumps({"arm": [arm(plc.address)]}), encoding="utf-8")
    assert thetad("ads", "read", "-", "GVL_Theta.stInfo.nAxes", "-c", path).out.startswith("GVL_Theta.stInfo.nAxes = 6")
    checked = thetad("ads", "check", "-c", path, "--seconds", "0.5", "--json").json
    assert checked["rate_hz"] == pytest.approx(1000.0, rel=0.05)
    name = "MAIN.fLreal"
    written = thetad("ads", "write", *target, name, "2.5", "--json").json
    assert written["value"] == thetad("ads", "read", *target, name, "--json").json["value"] == 2.5
    thetad("ads", "write", *target, name, "much").refused(name)
