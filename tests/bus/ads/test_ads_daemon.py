"""The daemon and `thetad ads` with a simulated PLC: refusals, values, and recovery from faults."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.client import Control, FrameMessage, Subscriber
from service.config.load import ConfigError
from sim_backend.plc._plc import SimulatedPlc
from tests.lab.ads.configs import NET_ID, axis_tables
from tests.lab.ads.plcs import RunningPlc, new_address, running_plc
from tests.lab.command_line import ROOT, Outcome, thetad
from tests.lab.daemon.daemons import await_status, config, start

pytestmark = pytest.mark.slow
ARM = "arm"


@pytest.fixture(scope="module")
def plc() -> Iterator[RunningPlc]:
    with running_plc(heartbeat_ms=1000) as running:
        yield running


def arm(address: str, name: str = ARM, **driver: Any) -> dict[str, Any]:
    source = {"kind": "ads", "net_id": NET_ID, "host": address, "axis": axis_tables()} | driver
    return {"name": name, "robot": "space6", "driver": source, "state": {"resume": False}}


def serve(folder: Path, table: dict[str, Any]) -> Outcome:
    """`thetad serve` as a user starts it, which is to fail; in a process, since it would otherwise go on."""
    path = folder / "config.json"
    ports = dict.fromkeys(("frames_port", "estimates_port", "control_port"), 0) | {"http": False}
    path.write_text(json.dumps({"daemon": {"state_dir": str(folder / "s"), **ports}, "arm": [table]}), encoding="utf-8")
    command = [sys.executable, "-m", "service.cli.main", "serve", "-c", str(path)]
    began = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60.0)
    print(f"{time.monotonic() - began:.1f} s: {done.stderr.splitlines()[-1]}")
    return Outcome(done.returncode, done.stdout, done.stderr)


def test_a_wrong_address_is_refused(plc: RunningPlc, tmp_path: Path) -> None:
    """Each way in which a start fails, at the driver: test_ads_start.py."""
    serve(tmp_path, arm(plc.address, net_id="1.2.3.4.5.6")).refused("does not know this Net ID", "net_id", code=3)


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


def test_a_written_value_is_read_back(plc: RunningPlc) -> None:
    target = (NET_ID, "--host", plc.address)
    found = thetad("ads", "symbols", *target, "--match", "MAIN.*", "--json").json["symbols"]
    name = next(symbol["name"] for symbol in found if symbol["type"] == "LREAL")
    written = thetad("ads", "write", *target, name, "2.5", "--json").json
    assert written["value"] == thetad("ads", "read", *target, name, "--json").json["value"] == 2.5
    thetad("ads", "write", *target, name, "much").refused(name)


def test_the_daemon_outlives_faults_of_the_controller(tmp_path: Path) -> None:
    """A dropped connection loses nothing; a restart of the PLC is a gap that is counted; nobody restarts a process."""
    with running_plc(heartbeat_ms=1000, blocks=512) as running:  # 5 s: a slow machine takes its time to connect again
        settings = config(tmp_path, arm(running.address))
        with start(settings, tmp_path) as daemon, Control(daemon.endpoints["control"]) as control:
            with Subscriber(daemon.endpoints["frames"], [f"{ARM}/frame"], timeout_s=30.0) as stream:
                before = frame(stream)
                running.do(SimulatedPlc.drop_connections)
                numbers = [before] + [frame(stream) for _ in range(3000)]
                assert [b - a for a, b in itertools.pairwise(numbers)] == [1] * 3000
                running.do(lambda one: one.restart(0.3))
                while (after := frame(stream)) == numbers[-1] + 1:
                    numbers.append(after)
                assert after > numbers[-1] + 1
            gap = after - numbers[-1] - 1
            arms = await_status(control, lambda found: found[f"{ARM}/estimator"]["info"].get("lost", 0) >= gap)
            assert {process["restarts"] for process in arms.values()} == {0}


def frame(stream: Subscriber) -> int:
    """Number of the next frame."""
    message = stream.receive()
    assert isinstance(message, FrameMessage)
    return message.frame.seq


def test_an_address_of_nobody() -> None:
    line = thetad("ads", "info", NET_ID, "--host", new_address()).refused("no connection")
    assert "48898" in line
