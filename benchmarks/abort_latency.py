"""Latency of `abort` by load and transport: from its arrival at the daemon to the first set position that decelerates.

    python benchmarks/abort_latency.py [--transport simulation ethercat ads] [--aborts 100] [--clients 20]
                                       [--per-client 0 25 500] [--json FILE]

An arm at 1 kHz runs a trajectory in a daemon while other clients send heartbeats with a wrong permit, `ping` and
`status`, and read their answers. The abort is sent at a random time to a daemon on the same machine, so that its
sending is counted as its arrival. The drives on EtherCAT and the PLC are those of `thetad sim`, in a network namespace
of their own (root). For others give the table of an arm (`--arm FILE`, JSON) whose bus or PLC runs.

A set position decelerates where it first departs from the trajectory. Two times are stated, both as frames of the
source were received (`t_host_ns`): `ms` of the frame that it was commanded after, `played_ms` of the frame that has it.
They are a cycle apart, or `lead_ms` where set positions are sent ahead. Of each stop it is checked that set positions
kept the limits of position, velocity and acceleration, that the arm came to rest, and that nothing but the abort ended
it (`faults`). `asleep_ms` tells what the machine is worth meanwhile: how late a process wakes that sleeps for 1 ms.
"""

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import zmq

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from drivers.files.robots.file import load_robot
from drivers.frame import JointFrame
from rt_core.excitation.fourier import FourierSeries, rest_basis
from service.client import ClientTimeoutError, Control, ControlError, FrameMessage, Subscriber
from service.config.load import parse_config
from service.demo.hardware import bus_configuration, own_network, simulated_drives, simulated_plc
from service.io.trajectory_file import Trajectory
from service.protocol.control import Request, decode_reply, encode_request
from service.supervisor.launch import DaemonProcess

VERBS = (("heartbeat", {"permit": "wrong"}), ("heartbeat", {"permit": "wrong"}), ("ping", {}), ("status", {}))
SPEED_RAD_S, F0_HZ, HARMONICS = 0.4, 0.5, 4
IN_FLIGHT = 90  # requests of a client
PERIOD_S = 1e-3
BRIDGED = 40  # cycles: drives and clients share their processors here
LEAD_MS = 600.0  # as in the shipped configuration, for the same reason
AT_REST = 2e-3  # [rad] that a joint may be moved by its brake, and by its following error
SAFETY = {"heartbeat_s": 3.0, "silence_s": 1.0, "permit_s": 120.0, "permit_max_s": 120.0}  # the clients starve, too
PERCENTILES = (50, 99, 99.9, 100)


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


def asleep(results: Any, done: Any) -> None:
    """Sleep for 1 ms again and again until `done`; report percentiles of how late it woke [ms]."""
    late = []
    while not done.is_set():
        until = time.monotonic() + 1e-3
        time.sleep(1e-3)
        late.append(1e3 * (time.monotonic() - until))
    results.put(np.percentile(late, PERCENTILES).round(2).tolist())


def source(transport: str, stack: ExitStack) -> dict[str, Any]:
    """Return the table of the arm, whose simulated bus is started."""
    if transport == "simulation":
        start = [0.2, 0.4, -0.3, 0.8, 0.1, 0.5, -0.2]
        driver = {"kind": "sim", "mode": "csp", "start": start, "settings": {"rate_hz": 1.0 / PERIOD_S}}
        return {"name": "arm7", "robot": "arm7", "driver": driver, "safety": SAFETY}
    arm, file = bus_configuration("ethercat" if transport == "ethercat" else "ads", "arm9")
    del arm["motion"]
    arm["safety"], arm["driver"]["enable"] = SAFETY, False
    if transport == "ethercat":
        arm["driver"] |= {"bridge_cycles": BRIDGED, "watchdog_ms": 500.0}
        segment = Path(stack.enter_context(tempfile.TemporaryDirectory())) / file.name
        segment.write_text(f"bridge_cycles = {BRIDGED}\n" + file.read_text(encoding="utf-8"), encoding="utf-8")
        stack.enter_context(simulated_drives(segment, 50))
    else:
        arm["driver"]["lead_ms"] = LEAD_MS
        stack.enter_context(simulated_plc(file))
    return arm


class Rig:
    """A daemon with one arm, its client and its frames."""

    def __init__(self, endpoints: dict[str, str], arm: dict[str, Any]) -> None:
        model = load_robot(arm["robot"]).model
        self.low, self.high, self.velocity = (
            np.array([getattr(joint, name) for joint in model.joints]) for name in ("lower", "upper", "velocity")
        )
        self.most = 5.0 * self.velocity  # as `safety.acceleration` is by default
        self.lead = round(1e-3 * arm["driver"].get("lead_ms", 1e3 * PERIOD_S) / PERIOD_S)  # cycles
        self.control = Control(endpoints["control"])
        self.stream = Subscriber(endpoints["frames"], [f"{arm['name']}/frame"], timeout_s=60.0)
        self.faults: Counter[str] = Counter()
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

    def abort(self, rng: np.random.Generator) -> tuple[float, float]:
        """Run, abort at a random time, and return the latency [ms] until commanded, and until played."""
        while True:
            token = self._ask("arm")["permit"]
            self._ask("run_trajectory", permit=token, trajectory=self.motion, periods=25)
            until = None
            while until is None or time.monotonic() < until:
                found = self._ask("heartbeat", permit=token)
                if until is None and found["state"] not in ("armed", "approach"):
                    until = time.monotonic() + 2.0 * rng.random()
                time.sleep(min(0.1, max(0.0, (until or np.inf) - time.monotonic())))
            self._frames(0.0)
            frames = self._frames(0.3)
            sent_ns = time.monotonic_ns()
            asked = self._ask("abort")
            while (found := self._ask("heartbeat", permit=token))["state"] != "disarmed":
                time.sleep(0.05)
            frames += self._frames(0.5)
            if asked["state"] != "stopping":  # it was stopped before: by what the machine has lost
                self.faults[f"before the abort: {found['reason']}"] += 1
                continue
            if found["reason"] != "aborted by request":  # something else has stopped it before it was at rest
                self.faults[found["reason"]] += 1
                continue
            at = self._departs(frames, sent_ns)
            if at is None:  # it was nearly at rest, as at the end of each period: there was nothing to brake
                continue
            before = [frame.t_host_ns for frame in frames if frame.seq <= frames[at].seq - self.lead]
            if before:
                return max(before[-1] - sent_ns, 0) * 1e-6, (frames[at].t_host_ns - sent_ns) * 1e-6

    def _departs(self, frames: list[JointFrame], since_ns: int) -> int | None:
        """Return the number of the first frame whose set position brakes at a joint's limit, and check the stop."""
        t, q = PERIOD_S * np.array([frame.seq for frame in frames]), np.array([frame.setpoint for frame in frames])
        dq = np.diff(q, axis=0) / np.diff(t)[:, None]
        ddq = np.abs(np.diff(dq, axis=0) / np.diff(t)[1:, None])
        beyond = np.flatnonzero((ddq > 0.9 * self.most).any(axis=1))
        at = next((int(k) + 2 for k in beyond if frames[k + 1].t_host_ns >= since_ns), None)
        still = np.flatnonzero((dq == 0.0).all(axis=1))
        if at is None or any(frames[k].t_host_ns >= since_ns and k < at - 1 for k in still):
            return None  # it rested before: set positions of drives that are off are those where the arm stands
        rests = at + np.flatnonzero((dq[at:] == 0.0).all(axis=1))
        if not rests.size:
            self.faults["set positions do not come to rest"] += 1
            return at
        stop = slice(at - 2, rests[0])
        whole = np.diff(t)[:-1] + np.diff(t)[1:] < 2.5 * PERIOD_S  # no cycle is missing
        measured = np.array([frame.q for frame in frames[-100:]])
        self.faults.update(
            name
            for name, broken in {
                "acceleration": (ddq[stop] > 1.001 * self.most)[whole[stop]],
                "velocity": np.abs(dq[stop]) > 1.001 * self.velocity,
                "position": (q[stop] < self.low) | (q[stop] > self.high),
                "not at rest": np.ptp(measured, axis=0) > AT_REST,
                "rests elsewhere": np.abs(measured[-1] - q[rests[0]]) > 10.0 * AT_REST,
            }.items()
            if broken.any()
        )
        return at

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
    sleeps = context.Queue()
    helpers = [context.Process(target=asleep, args=(sleeps, done), daemon=True)]
    if per_s:
        chat = (endpoints["control"], clients, per_s, results, done)
        helpers.append(context.Process(target=chatter, args=chat, daemon=True))
    for helper in helpers:
        helper.start()
    rng, rig = np.random.default_rng(1), Rig(endpoints, arm)
    ms = np.array([rig.abort(rng) for _ in range(aborts)])
    done.set()
    said, took_s = results.get() if per_s else ({}, 1.0)
    found: dict[str, Any] = {
        "per_client": per_s, "aborts": aborts, "answers_per_s": {name: round(n / took_s) for name, n in said.items()},
        "faults": dict(rig.faults), "asleep_ms": sleeps.get(),
    }  # fmt: skip
    for helper in helpers:
        helper.join()
    for name, values in zip(("ms", "played_ms"), ms.T, strict=True):
        found[name] = np.percentile(values, PERCENTILES).round(2).tolist()
        found[f"all_{name}"] = values.round(2).tolist()
    return found


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transport", nargs="+", choices=("simulation", "ethercat", "ads"), default=["simulation"])
    parser.add_argument("--aborts", type=int, default=100)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--per-client", type=float, nargs="+", default=[0.0, 25.0, 500.0])
    parser.add_argument("--arm", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.arm is None and given.transport != ["simulation"]:
        own_network()
    rows = []
    for transport in given.transport if given.arm is None else ["given"]:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            arm = json.loads(given.arm.read_text(encoding="utf-8")) if given.arm else source(transport, stack)
            ports = dict.fromkeys(("frames_port", "estimates_port", "control_port"), 0)
            daemon_table = {"state_dir": str(folder / "state"), "http": False, **ports}
            config = parse_config({"daemon": daemon_table, "arm": [arm]}, "benchmark", folder)
            daemon = stack.enter_context(DaemonProcess(config, folder / "log").start(timeout_s=600.0))
            for per_s in given.per_client:
                row = {"transport": transport, **measure(daemon.endpoints, arm, given.clients, per_s, given.aborts)}
                rows.append(row)
                print({name: value for name, value in row.items() if not name.startswith("all_")}, flush=True)
                if given.json is not None:
                    given.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
