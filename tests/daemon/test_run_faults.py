"""Faults of an arm in a run, and daemons that begin and end while the drives are on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.files.recordings.recording import read_recording
from service.client import Control, ControlError
from service.supervisor.launch import DaemonProcess
from tests.lab.daemon.daemons import config, start
from tests.lab.daemon.runs import RATE_HZ, Client, accelerations, arm, never_again, setpoints, trajectory

pytestmark = pytest.mark.slow
FAULTS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "torque": ({"kind": "jam", "joint": "joint_2", "value": 900.0}, {"following_error": 3.0}, "joint_2: torque 1"),
    "lag": (
        {"kind": "jam", "joint": "joint_2", "value": 900.0},
        {"following_error": 0.02, "effort_fraction": 1.0},
        "joint_2 is 0.02",
    ),
    "encoder": ({"kind": "encoder_jump", "joint": "joint_1", "value": 0.4}, {}, "joint_1 is 0.4"),
    "heat": ({"kind": "heat", "joint": "joint_3", "value": 95.0}, {}, "joint_3: temperature 95 degC"),
}


def test_an_arm_that_is_held_is_not_switched_on(tmp_path: Path) -> None:
    """Nobody watches it yet; what is on by its configuration, anybody may switch off."""
    settings = {"rate_hz": RATE_HZ, "channels": ["q", "tau", "setpoint"]}
    table = arm(tmp_path, "good", driver={"enable": True, "settings": settings}) | {"hold": True}
    with start(config(tmp_path, table), tmp_path) as daemon, Control(daemon.endpoints["control"]) as control:
        for verb, args in (("arm", {}), ("run_trajectory", {"permit": "x", "trajectory": trajectory().as_message()})):
            with pytest.raises(ControlError, match="thetad control start"):
                control.request(verb, arm="good", **args)
        assert control.request("disarm", arm="good")["state"] == "disarmed"
        control.request("start", arm="good")
        with Client(daemon.endpoints, "good") as client:
            assert not setpoints(client.next_frames(100)).size
            client.arm()
            assert len(setpoints(client.next_frames(20)))
            unchecked = client.run()["unchecked"]
            assert [text.split(":")[0] for text in unchecked] == [
                "collisions", "velocity while it moves", "temperature while it moves",
            ]  # fmt: skip
            client.ask("disarm")


def test_a_daemon_that_is_told_to_stop_brings_the_arm_to_rest_first(tmp_path: Path) -> None:
    recorder = {"directory": str(tmp_path / "rec")}
    settings = config(tmp_path, arm(tmp_path, "good", recorder=recorder))
    with start(settings, tmp_path) as daemon, Client(daemon.endpoints, "good") as client:
        client.arm()
        client.run(periods=5)
        while client.safety()["run"]["t_s"] < 0.6:
            time.sleep(0.02)
    (path,) = (tmp_path / "rec").glob("*.mcap")
    recording = read_recording(path)
    q = recording.channels["setpoint"]
    speed = np.abs(np.diff(q, axis=0)) * RATE_HZ
    assert speed.max() > 0.1
    assert accelerations(q[200:]).max() <= 1.0 + 1e-5
    assert speed[-1].max() < 0.05


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    path = tmp_path_factory.mktemp("faulty")
    arms = [arm(path, name, fault | {"after_s": 1.3}, safety=safety) for name, (fault, safety, _) in FAULTS.items()]
    arms += [
        arm(path, "drive", {"kind": "drive_fault", "joint": "joint_2", "after_s": 1.3}),
        arm(path, "bus", {"kind": "silence", "duration_s": 2.0, "after_s": 1.3}, safety={"silence_s": 0.5}),
    ]
    with start(config(path, *arms), path) as running:
        yield running


@pytest.mark.parametrize("name", FAULTS)
def test_a_limit_that_is_not_kept_stops_the_arm(faulty: DaemonProcess, name: str) -> None:
    with Client(faulty.endpoints, name) as client:
        client.arm()
        client.frames()
        client.run(periods=5)
        done = client.until("disarmed")
        assert done["run"]["outcome"] == "stopped"
        assert FAULTS[name][2] in done["reason"]
        assert accelerations(setpoints(client.frames())).max() <= 1.0 + 1e-5
        never_again(client)
        client.arm()  # whoever has looked may go on
        client.ask("disarm")


@pytest.mark.parametrize(
    ("name", "words"),
    [("drive", "no longer enabled (drive of joint_2 in state 'fault')"), ("bus", "no frame for more than")],
)
def test_what_the_drives_have_to_stop_by_themselves(faulty: DaemonProcess, name: str, words: str) -> None:
    with Client(faulty.endpoints, name) as client:
        client.arm()
        client.run(periods=5)
        done = client.until("disarmed")
        assert done["run"]["outcome"] == "stopped"
        assert words in done["reason"]
        never_again(client)
