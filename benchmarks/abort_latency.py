"""Latency of `abort` by load: from its arrival at the daemon to the first set position that decelerates.

    python benchmarks/abort_latency.py [--aborts 50] [--clients 20] [--per-client 0 25 500] [--json FILE]

A simulated arm at 1 kHz runs a trajectory in a daemon while other clients send heartbeats with a wrong permit, `ping`
and `status`, and read their answers. The abort is sent to a daemon on the same machine, so that its sending is counted
as its arrival. A set position decelerates where it first departs from the trajectory; its time is when its frame was
received from the source (`t_host_ns`), just before the set position was commanded. For other transports give the table
of an arm (`--arm FILE`, JSON) whose bus or PLC runs, simulated by `thetad sim` or real.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import zmq

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from drivers.files.robots.file import load_robot
from drivers.frame import JointFrame
from rt_core.excitation.fourier import FourierSeries, rest_basis
from rt_core.types import FloatArray
from service.client import ClientTimeoutError, Control, ControlError, FrameMessage, Subscriber
from service.config.load import parse_config
from service.io.trajectory_file import Trajectory
from service.protocol.control import Request, decode_reply, encode_request
from service.supervisor.launch import DaemonProcess

VERBS = (("heartbeat", {"permit": "wrong"}), ("heartbeat", {"permit": "wrong"}), ("ping", {}), ("status", {}))
SPEED_RAD_S, F0_HZ, HARMONICS = 0.5, 0.5, 4
IN_FLIGHT = 90  # requests of a client


def chatter(endpoint: str, clients: int, per_s: float, results: Any, done: Any) -> None:
    """Send requests at a rate from so many clients until `done`; report what was answered."""
    counts: Counter[str] = Counter()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    sockets = []
    for _ in range(clients):
        socket = context.socket(zmq.DEALER)
        socket.linger = 0
        socket.connect(endpoint)
        sockets.append(socket)
    began, sent, open_ = time.monotonic(), 0, [0] * clients
    data = [encode_request(Request(k, verb, args)) for k, (verb, args) in enumerate(VERBS, 1)]
    while not done.is_set():
        due = int((time.monotonic() - began) * per_s * clients)
        if sent < due - 2 * clients:
            began += (due - sent) / (per_s * clients)  # as fast as it can: what was late is not made up for
        while sent < due:
            k = sent % clients
            if open_[k] < IN_FLIGHT:
                with suppress(zmq.Again):
                    sockets[k].send(data[sent // clients % len(data)], zmq.NOBLOCK)
                    open_[k] += 1
                    counts["sent"] += 1
            sent += 1
        for k, socket in enumerate(sockets):
            with suppress(zmq.Again):
                while True:
                    reply = decode_reply(socket.recv(zmq.NOBLOCK))
                    open_[k] -= 1
                    counts["ok" if reply.error is None else reply.error.type] += 1
        time.sleep(0.0005)
    results.put((dict(counts), time.monotonic() - began))
    context.destroy(linger=0)


def departs(frames: list[JointFrame], most: FloatArray, since_ns: int) -> int | None:
    """Return the number of the first frame whose set position brakes at a joint's limit `most` (n,), since a time."""
    t, q = 1e-3 * np.array([frame.seq for frame in frames]), np.array([frame.setpoint for frame in frames])
    dq = np.diff(q, axis=0) / np.diff(t)[:, None]
    beyond = np.flatnonzero((np.abs(np.diff(dq, axis=0) / np.diff(t)[1:, None]) > 0.9 * most).any(axis=1))
    return next((int(k) + 2 for k in beyond if frames[k + 1].t_host_ns >= since_ns), None)


class Rig:
    """A daemon with one arm, its client and its frames."""

    def __init__(self, endpoints: dict[str, str], arm: dict[str, Any]) -> None:
        model = load_robot(arm["robot"]).model
        self.most = 5.0 * np.array([joint.velocity for joint in model.joints])  # as `safety.acceleration` is by default
        self.control = Control(endpoints["control"])
        self.stream = Subscriber(endpoints["frames"], [f"{arm['name']}/frame"], timeout_s=60.0)
        first = self.stream.receive()
        assert isinstance(first, FrameMessage)
        here = np.asarray(first.frame.q)
        rng, k = np.random.default_rng(1), np.arange(1.0, HARMONICS + 1)
        a = rng.normal(size=(model.n, HARMONICS - 1)) @ rest_basis(np.ones(HARMONICS)).T
        b = rng.normal(size=(model.n, HARMONICS - 1)) @ rest_basis(k).T
        shape = FourierSeries(F0_HZ, here, a, b)
        series = shape.shrunk(SPEED_RAD_S / np.abs(shape.sample(np.arange(0.0, 1.0 / F0_HZ, 0.001))[1]).max(axis=0))
        names = tuple(joint.name for joint in model.joints)
        units = tuple("rad" if joint.kind == "revolute" else "m" for joint in model.joints)
        self.motion = Trajectory(names, units, series=series).as_message()

    def abort(self, rng: np.random.Generator) -> float:
        """Run, abort at a random time, and return the latency [ms]."""
        token = self._ask("arm")["permit"]
        self._ask("run_trajectory", permit=token, trajectory=self.motion, periods=25)
        until = time.monotonic() + 1.2 + rng.random()
        while time.monotonic() < until:
            self._ask("heartbeat", permit=token)
            time.sleep(0.1)
        self._frames(0.0)
        frames = self._frames(0.4)
        sent_ns = time.monotonic_ns()
        self._ask("abort")
        frames += self._frames(0.5)
        at = departs(frames, self.most, sent_ns)
        while self._ask("status")["processes"] and self._phase() != "disarmed":
            time.sleep(0.05)
        if at is None:  # it was nearly at rest, as at the end of each period: there was nothing to brake
            return self.abort(rng)
        return (frames[at - 1].t_host_ns - sent_ns) * 1e-6

    def _phase(self) -> str:
        found = {one["name"]: one for one in self._ask("status")["processes"]}
        return str(next(one["info"].get("safety") for name, one in found.items() if name.endswith("/acquisition")))

    def _ask(self, verb: str, **args: Any) -> dict[str, Any]:
        for _ in range(100):
            try:
                return self.control.request(verb, 20.0, **args)
            except ControlError as error:
                if error.type != "too_many" and "still stopping" not in str(error):
                    raise
                time.sleep(0.05)
        raise RuntimeError(verb)

    def _frames(self, for_s: float) -> list[Any]:
        found, until = [], time.monotonic() + for_s
        with suppress(ClientTimeoutError):
            while True:
                message = self.stream.receive(max(until - time.monotonic(), 0.0))
                if isinstance(message, FrameMessage):
                    found.append(message.frame)
                if for_s and time.monotonic() > until:
                    break
        return found


def measure(endpoints: dict[str, str], arm: dict[str, Any], clients: int, per_s: float, aborts: int) -> dict[str, Any]:
    """Return latencies and what the other clients were answered, under one load."""
    context = multiprocessing.get_context("spawn")
    results, done = context.Queue(), context.Event()
    noise = context.Process(target=chatter, args=(endpoints["control"], clients, per_s, results, done), daemon=True)
    if per_s:
        noise.start()
    rng, rig = np.random.default_rng(1), Rig(endpoints, arm)
    ms = np.array([rig.abort(rng) for _ in range(aborts)])
    said: dict[str, Any] = {}
    if per_s:
        done.set()
        said, took_s = results.get()
        noise.join()
        said = {name: round(count / took_s) for name, count in said.items()}
    found: dict[str, Any] = {
        "ms": np.round(ms, 1).tolist(),
        "per_client": per_s,
        "aborts": aborts,
        "answers_per_s": said,
    }
    return found | {f"p{p:g}_ms": float(np.percentile(ms, p)) for p in (50, 99, 99.9, 100)}


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aborts", type=int, default=50)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--per-client", type=float, nargs="+", default=[0.0, 25.0, 500.0])
    parser.add_argument("--arm", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    settings = {"rate_hz": 1000.0}
    start = [0.2, 0.4, -0.3, 0.8, 0.1, 0.5, -0.2]
    arm = {
        "name": "arm7",
        "robot": "arm7",
        "driver": {"kind": "sim", "mode": "csp", "start": start, "settings": settings},
    }
    if given.arm is not None:
        arm = json.loads(given.arm.read_text(encoding="utf-8"))
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ports = dict.fromkeys(("frames_port", "estimates_port", "control_port"), 0)
        daemon_table = {"state_dir": str(folder / "state"), "http": False, **ports}
        config = parse_config({"daemon": daemon_table, "arm": [arm]}, "benchmark", folder)
        daemon = DaemonProcess(config, folder / "log").start(timeout_s=600.0)
        try:
            for per_s in given.per_client:
                row = measure(daemon.endpoints, arm, given.clients, per_s, given.aborts)
                rows.append(row)
                print(arm["driver"]["kind"], row, flush=True)
        finally:
            daemon.stop()
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
