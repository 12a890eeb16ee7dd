"""Small recordings and daemons to test with."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from drivers.files.recordings.recording import RecordingMeta, RecordingWriter
from drivers.frame import JointFrame
from service.client import Control, Message, Subscriber
from service.config.load import Config, parse_config
from service.supervisor.launch import DaemonProcess

DEADLINE_S = 60.0
JOBS = {"priority": "normal", "least_free_mb": 1.0}


def make_recording(path: Path, n: int = 1, rate_hz: float = 1000.0, seconds: float = 2.0) -> Path:
    """Write a recording of smooth motion, the torque a mix of inertia, friction and offset."""
    rng = np.random.default_rng(5)
    omega = 2.0 * np.pi * rng.uniform(0.4, 1.6, n)
    unit = "m" if n == 1 else "rad"
    meta = RecordingMeta("arm", tuple(f"joint_{i + 1}" for i in range(n)), (unit,) * n, rate_hz)
    t = np.arange(round(rate_hz * seconds))[:, np.newaxis] / rate_hz
    noise = 0.01 * rng.normal(size=(t.size, n))
    q, dq = np.sin(omega * t), omega * np.cos(omega * t)
    tau = -3.0 * omega**2 * q + 2.0 * dq + np.sign(dq) + 0.5 + noise
    with RecordingWriter(path, meta) as writer:
        for k in range(t.size):
            writer.write(JointFrame(k, round(t[k, 0] * 1e9), 0, q=q[k], tau=tau[k]))
    return path


def config(tmp_path: Path, *arms: dict[str, Any], **daemon: Any) -> Config:
    """Return a configuration with free ports, all files below `tmp_path`, and jobs that run on a busy machine."""
    ports = dict.fromkeys(("frames_port", "estimates_port", "control_port"), 0) | {"http": False}
    table = {"daemon": {"state_dir": str(tmp_path / "state"), **ports, **daemon}, "jobs": JOBS, "arm": list(arms)}
    return parse_config(table, "test", tmp_path)


def replayed(recording: Path, name: str = "axis", robot: str = "emps", **more: Any) -> dict[str, Any]:
    """Return the table of an arm that replays a recording."""
    keys = ("speed", "span", "loop")
    driver = {"kind": "replay", "recording": str(recording)} | {key: more.pop(key) for key in keys if key in more}
    return {"name": name, "robot": robot, "driver": driver, **more}


def start(settings: Config, tmp_path: Path) -> DaemonProcess:
    """Start a daemon whose log goes to `tmp_path / "log"`."""
    return DaemonProcess(settings, tmp_path / "log").start(timeout_s=240.0)


def log_lines(tmp_path: Path) -> str:
    return (tmp_path / "log").read_text(encoding="utf-8")


def processes(control: Control) -> dict[str, dict[str, Any]]:
    """Return the processes that `status` reports, by name."""
    return {process["name"]: process for process in control.request("status")["processes"]}


def await_status(
    control: Control, done: Callable[[dict[str, dict[str, Any]]], bool], deadline_s: float = DEADLINE_S
) -> dict[str, dict[str, Any]]:
    """Request the status until `done` returns true; returns the processes by name."""
    deadline = time.monotonic() + deadline_s
    while not done(found := processes(control)):
        assert time.monotonic() < deadline, found
        time.sleep(0.02)  # a client with a key may ask 200 times a second
    return found


def drained(control: Control, *names: str, besides: int = 0) -> dict[str, dict[str, Any]]:
    """Await that these processes have taken in all that is replayed, in another process than that with id `besides`."""

    def done(one: dict[str, Any]) -> bool:
        return one["state"] == "ready" and one["info"].get("state") == "drained" and one["pid"] != besides

    return await_status(control, lambda found: all(done(found[name]) for name in names))


def await_message(
    stream: Subscriber, done: Callable[[Message], bool] = lambda message: True, deadline_s: float = DEADLINE_S
) -> Message:
    """Receive messages until `done` returns true for one; returns that one."""
    deadline = time.monotonic() + deadline_s
    while True:
        message = stream.receive(max(0.0, deadline - time.monotonic()))
        if done(message):
            return message
