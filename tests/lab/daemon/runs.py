"""Commanded arms of a daemon, and a client that runs trajectories on them."""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from drivers.frame import JointFrame
from rt_core.excitation.fourier import FourierSeries, rest_basis
from rt_core.types import FloatArray
from service.client import ClientTimeoutError, Control, ControlError, FrameMessage, Subscriber
from service.io.trajectory_file import Trajectory
from tests.lab.closing import Closing
from tests.lab.daemon.daemons import await_status
from tests.lab.daemon.ethercat_rig import JOINTS, N, write_robot
from tests.lab.daemon.shared import Site, site

RATE_HZ = 250.0
START = np.array([0.3, 0.4, -0.2])
DEADLINE_S = 60.0
ENABLED = 0x0237
SAFETY = {"silence_s": 3.0, "permit_s": 120.0, "heartbeat_s": 1.5}  # of a machine that is busy with other things


def arm(
    folder: Path, name: str, *faults: dict[str, Any], safety: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """Table of an arm of three joints that is commanded."""
    driver = {
        "kind": "sim", "mode": "csp", "start": START.tolist(),
        "settings": {"rate_hz": RATE_HZ, "torque_noise": 0.0, "velocity_noise": 0.0}, "faults": list(faults),
    }  # fmt: skip
    changes = more.pop("driver", {})
    return {
        "name": name, "robot": str(write_robot(folder)), "driver": driver | changes, "safety": SAFETY | (safety or {}),
        "state": {"resume": False}, **more,
    }  # fmt: skip


@contextlib.contextmanager
def commanded(path: Path) -> Iterator[Site]:
    """Arms of every kind: commanded, moving by itself, and with a planned motion."""
    recorder = {"enabled": False, "directory": str(path / "rec")}
    alone = {"mode": None, "start": None, "faults": []}
    moving = alone | {"motion": {"seed": 3, "candidates": 1, "base_frequency_hz": 0.2}}
    arms = [
        arm(path, "good", recorder=recorder),
        arm(path, "itself", driver=moving, recorder=recorder),
        arm(path, "planned", driver={"enable": True}, motion={"candidates": 1, "amplitude": 0.2, "approach": 0.5}),
    ]
    with site(path, *arms, http=True, http_port=0, http_role="motion") as found:
        yield found


def wire(joint: int, channel: str, factor: float = 1.0, source: int | None = None) -> dict[str, Any]:
    entry = {"joint": f"joint_{joint}", "channel": channel, "factor": factor}
    return entry if source is None else entry | {"source": f"joint_{source}"}


@contextlib.contextmanager
def commissionable(path: Path) -> Iterator[Site]:
    """Arms that are wired wrongly, one that is right, and one that is mounted wrongly, held and not recorded."""
    recorder = {"enabled": False, "directory": str(path / "rec")}
    swapped = [wire(1, "q", source=3), wire(3, "q", source=1), wire(1, "dq", source=3), wire(3, "dq", source=1)]
    degrees = [wire(3, "q", 180.0 / np.pi), wire(3, "dq", 180.0 / np.pi)]
    arms = [
        arm(path, "degrees", driver={"wiring": degrees}, recorder=recorder),
        arm(path, "swapped", driver={"wiring": swapped}, recorder=recorder),
        arm(path, "right", recorder=recorder),
        arm(path, "bare", hold=True),
    ]
    hung = (path / "arm3.toml").read_text(encoding="utf-8").replace('gravity = "floor"', 'gravity = "ceiling"')
    (path / "hung.toml").write_text(hung, encoding="utf-8")
    arms[-1]["driver"]["robot"] = str(path / "hung.toml")
    with site(path, *arms) as found:
        yield found


def series(size: float = 0.4, f0_hz: float = 0.5, seed: int = 2) -> FourierSeries:
    """A series about the arm's first posture, from rest to rest; `size` is the largest velocity [rad/s]."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(N, 3)) @ rest_basis(np.ones(4)).T
    b = rng.normal(size=(N, 3)) @ rest_basis(np.arange(1.0, 5.0)).T
    shape = FourierSeries(f0_hz, START, a, b)
    speed = np.abs(shape.sample(np.arange(0.0, 1.0 / f0_hz, 0.001))[1]).max(axis=0)
    return shape.shrunk(size / speed)


def trajectory(**changes: Any) -> Trajectory:
    return Trajectory(**{"joints": tuple(JOINTS), "units": ("rad",) * N, "series": series()} | changes)


def write_design(folder: Path) -> Path:
    """Write a trajectory as a design writes it for the arm of three joints."""
    robot = load_robot(folder / "arm3.toml")
    origin = {"format": "thetad-excitation/1", "robot": {"name": robot.model.name, "sha256": robot.sha256}}
    path = folder / "trajectory.json"
    path.write_text(json.dumps(trajectory().as_message() | origin), encoding="utf-8")
    return path


class Client(Closing):
    """Arms the arm `name` of a daemon, runs trajectories with heartbeats, and collects the arm's frames."""

    def __init__(self, endpoints: dict[str, str], name: str) -> None:
        self.name = name
        self.control = Control(endpoints["control"])
        self.stream = Subscriber(endpoints["frames"], [f"{name}/frame"], timeout_s=DEADLINE_S)
        self.permit = ""
        self.stream.receive()

    def ask(self, verb: str, **args: Any) -> dict[str, Any]:
        return self.control.request(verb, 20.0, arm=self.name, **args)

    def arm(self, **args: Any) -> str:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                self.permit = self.ask("arm", **args)["permit"]
            except ControlError as error:
                if "still stopping" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)  # after the run before
            else:
                return self.permit

    def run(self, what: Trajectory | dict[str, Any] | None = None, periods: int = 2, **args: Any) -> dict[str, Any]:
        message = what if isinstance(what, dict) else (what or trajectory()).as_message()
        said = self.ask("run_trajectory", permit=self.permit, trajectory=message, periods=periods, **args)
        return said | self.safety()  # which lets it begin

    def safety(self) -> dict[str, Any]:
        return self.ask("heartbeat", permit=self.permit or "nobody")

    def until(self, *states: str) -> dict[str, Any]:
        """Send heartbeats until the arm is in one of these states."""
        deadline = time.monotonic() + DEADLINE_S
        while (found := self.safety())["state"] not in states:
            assert time.monotonic() < deadline, found
            time.sleep(0.02)
        return found

    def frames(self) -> list[JointFrame]:
        """Return the frames that arrived since the last call."""
        found = []
        try:
            while isinstance(message := self.stream.receive(0.0 if found else 1.0), FrameMessage):
                found.append(message.frame)
        except ClientTimeoutError:
            return found
        return found

    def next_frames(self, count: int) -> list[JointFrame]:
        """Return as many new frames."""
        self.frames()
        found: list[JointFrame] = []
        while len(found) < count:
            found.append(self.stream.receive().frame)
        return found

    def watch(self) -> dict[str, Any]:
        """Wait until the arm is disarmed, without sending heartbeats."""
        name = f"{self.name}/acquisition"
        await_status(self.control, lambda found: found[name]["info"].get("safety") == "disarmed")
        return self.ask("abort")  # has nothing to stop, and returns the state

    def close(self) -> None:
        self.control.close()
        self.stream.close()


def setpoints(frames: list[JointFrame]) -> FloatArray:
    """Set positions while the drives were on."""
    on = [frame for frame in frames if frame.status_word is not None and frame.status_word[0] == ENABLED]
    return np.array([frame.setpoint for frame in on])


def accelerations(q: FloatArray) -> FloatArray:
    """Largest acceleration of set positions over its limit, for each joint."""
    limit = 5.0 * np.array([joint.velocity for joint in load_robot("arm7").model.joints[:N]])
    return np.asarray(np.abs(np.diff(q, 2, axis=0)).max(axis=0) * RATE_HZ**2 / limit)


def stands(frames: list[JointFrame]) -> bool:
    """Whether nothing moves."""
    q = np.array([frame.q for frame in frames])
    return bool(np.abs(np.diff(q, axis=0)).max() < 1e-5)


def refused(client: Client, kind: str, verb: str, **args: Any) -> str:
    with pytest.raises(ControlError) as error:
        client.ask(verb, **args)
    assert error.value.type == kind, error.value
    return str(error.value)


def never_again(client: Client) -> None:
    """Check that nothing moves the arm, and that the old permit has ended."""
    assert "arm it first" in refused(
        client, "unavailable", "run_trajectory", permit=client.permit, trajectory=trajectory().as_message()
    )
    frames = client.next_frames(200)
    assert stands(frames[50:])
    assert not setpoints(frames[50:]).size
