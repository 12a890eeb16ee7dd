"""Faults during a run, and daemons that start and stop while drives are on."""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from drivers.files.recordings.recording import read_recording
from service.client import ControlError
from tests.lab.command_line import thetad
from tests.lab.daemon.ethercat_rig import N
from tests.lab.daemon.runs import RATE_HZ, Client, accelerations, arm, never_again, setpoints, trajectory, write_design
from tests.lab.daemon.shared import Site
from tests.lab.daemon.shared import site as running

pytestmark = pytest.mark.slow
JUMP = {"kind": "encoder_jump", "joint": "joint_1", "value": 0.4, "after_s": 1.3}
TRIP = {"kind": "drive_fault", "joint": "joint_2", "after_s": 1.3}


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[Site]:
    """One arm for each way in which a run ends, and one that is held, and on by its configuration."""
    held = {"enable": True, "settings": {"rate_hz": RATE_HZ, "channels": ["q", "tau", "setpoint"]}}
    arms = [
        arm(folder, "encoder", JUMP, torque_range=[1e-12] * N),
        arm(folder, "drive", TRIP),
        arm(folder, "held", driver=held, hold=True, recorder={"enabled": False, "directory": str(folder / "rec")}),
    ]
    with running(folder, *arms) as found:
        yield found


def test_a_limit_that_is_not_kept_stops_the_arm(site: Site) -> None:
    """Although all torques are at the end of their range, so that no published frame is valid.

    Each limit by itself: tests/unit/service/motion/test_motion_controller.py.
    """
    with Client(site.endpoints, "encoder") as client:
        client.arm()
        client.frames()
        client.run(periods=5)
        done = client.until("disarmed")
        frames = client.frames()
        assert done["run"]["outcome"] == "stopped"
        assert "joint_1 is 0.4" in done["reason"]
        assert accelerations(setpoints(frames)).max() <= 1.0 + 1e-5
        marked = [frame for frame in frames if frame.valid is not None]
        assert len(marked) > 200
        assert not any(frame.valid[0] for frame in marked if frame.valid is not None)
        never_again(client)
        client.arm()  # whoever has looked may go on
        client.ask("disarm")


def test_a_run_that_is_stopped_says_why(site: Site) -> None:
    """By the command; drives that have tripped stop by themselves."""
    design = write_design(site.path)
    with Client(site.endpoints, "drive") as client:
        permit = client.arm()
        done = thetad(
            "run", "drive", design, "--permit", permit, "--periods", 5, "--control", site.endpoints["control"]
        )
        assert (done.code, done.out) == (1, "")
        assert "is not recorded" in done.err
        assert "drive: stopped after" in done.err
        assert "no longer enabled (drive of joint_2 in state 'fault')" in done.err
        never_again(client)


def test_an_arm_that_is_held_is_not_switched_on(site: Site) -> None:
    """Nobody watches it yet; what is on by its configuration, anybody may switch off."""
    with site.control() as control:
        for verb, args in (("arm", {}), ("run_trajectory", {"permit": "x", "trajectory": trajectory().as_message()})):
            with pytest.raises(ControlError, match="thetad control start"):
                control.request(verb, arm="held", **args)
        assert control.request("disarm", arm="held")["state"] == "disarmed"
        control.request("start", arm="held")
    with Client(site.endpoints, "held") as client:
        assert not setpoints(client.next_frames(100)).size
        client.arm()
        assert len(setpoints(client.next_frames(20)))
        unchecked = client.run()["unchecked"]
        assert [text.split(":")[0] for text in unchecked] == [
            "collisions", "velocity while it moves", "temperature while it moves",
        ]  # fmt: skip
        client.ask("disarm")
        client.until("disarmed")


def test_a_daemon_that_is_told_to_stop_brings_the_arm_to_rest_first(site: Site) -> None:
    with Client(site.endpoints, "held") as client:
        client.arm()
        client.ask("record", action="start")
        client.run(periods=5)
        while client.safety()["run"]["t_s"] < 0.6:
            time.sleep(0.02)
        site.daemon.stop()
    (path,) = (site.path / "rec").glob("*.mcap")
    q = read_recording(path).channels["setpoint"]
    speed = np.abs(np.diff(q, axis=0)) * RATE_HZ
    assert speed.max() > 0.1
    assert accelerations(q).max() <= 1.0 + 1e-5
    assert speed[-1].max() < 0.05
