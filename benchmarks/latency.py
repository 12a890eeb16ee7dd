"""From a frame's arrival to its estimate at a subscriber: a simulated 9-joint arm at 1 kHz through the real processes.

python benchmarks/latency.py [--seconds 60] [--json]

Each subscriber is a process of its own that uses `service.client`, and takes the time when it has decoded a message.
The age of a frame counts from when the acquisition received it, that of an estimate from when the newest frame that
renewed it was received: the wait for an update, and the delay of the filters, are properties of the method and are
reported as they are, not as latency.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from service.client import ClientTimeoutError, Control, Subscriber
from service.config.load import Config, parse_config
from service.supervisor.launch import DaemonProcess

ROBOT = "arm9"
RATE_HZ = 1000.0
SECOND_START_S = 5.0  # a start from the cache takes at most this long
SETTLE_S = 3.0  # between the first frame and the first age that counts
KINDS = ("frame", "estimate", "torque")


def configuration(directory: Path, robot: str = ROBOT) -> Config:
    """One simulated arm, named as its robot, recorded, on free ports."""
    ports = dict.fromkeys(("frames_port", "estimates_port", "control_port"), 0) | {"http": False}
    arm = {
        "name": robot,
        "robot": robot,
        "driver": {"kind": "sim", "settings": {"rate_hz": RATE_HZ}},
        "recorder": {"directory": str(directory / "recordings")},
    }
    daemon = {"name": "latency", "state_dir": str(directory / "state"), "log_level": "warning", **ports}
    return parse_config({"daemon": daemon, "arm": [arm]}, "benchmarks/latency.py", directory)


def listen(endpoint: str, kind: str, settle_s: float, seconds: float) -> dict[str, Any]:
    """Ages [us] of the messages of one kind that come within `seconds`, and what was lost."""
    ages: list[float] = []
    with Subscriber(endpoint, [f"{ROBOT}/{kind}"]) as stream:
        stream.receive(30.0)
        begin = time.monotonic() + settle_s
        end = begin + seconds
        while (now := time.monotonic()) < end:
            try:
                message = stream.receive(end - now)
            except ClientTimeoutError:
                break
            age_s = stream.age_s(message)
            if now >= begin:
                ages.append(1e6 * age_s)
    return {"ages": ages, "lost": stream.lost, "invalid": stream.invalid}


def run(seconds: float = 60.0) -> dict[str, Any]:
    """Measure for `seconds`.

    Returns `latency_us` by kind of message (p50, p99, p99.9, max, messages), `frames` (sent, and lost on the way to
    any subscriber, the estimator or the recorder), `cpu` (share of one core of each process), the mean cost of a frame
    in the estimator and the start times [s]; `problems` lists in sentences what is worse than allowed.
    """
    with tempfile.TemporaryDirectory(prefix="thetad-latency-") as name:
        settings = configuration(Path(name))
        log = Path(name) / "log"
        starts = {}
        for which in ("first", "second"):
            began = time.monotonic()
            with DaemonProcess(settings, log) as daemon:
                starts[which] = time.monotonic() - began
                if which == "second":
                    result = _measure(daemon, seconds)
    result["start_s"] = starts
    result["problems"] = _problems(result)
    return result


def _measure(daemon: DaemonProcess, seconds: float) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:
        listeners = {}
        for kind in KINDS:
            endpoint = daemon.endpoints["frames" if kind == "frame" else "estimates"]
            command = [sys.executable, __file__, "--listen", endpoint, kind, "--seconds", str(seconds)]
            listeners[kind] = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
        control = stack.enter_context(Control(daemon.endpoints["control"]))
        stats = stack.enter_context(Subscriber(daemon.endpoints["estimates"], [f"{ROBOT}/stats"]))
        costs: list[float] = []
        with contextlib.suppress(ClientTimeoutError):
            stats.receive(SETTLE_S)
        processes = {p["name"]: psutil.Process(p["pid"]) for p in control.request("status")["processes"]}
        processes["supervisor"] = psutil.Process(daemon.pid)
        before, began = _cpu_seconds(processes), time.monotonic()
        while (left := began + seconds - time.monotonic()) > 0.0:
            with contextlib.suppress(ClientTimeoutError):
                costs.append(stats.receive(left).body["step_mean_us"])  # type: ignore[union-attr]
        after, wall = _cpu_seconds(processes), time.monotonic() - began
        heard = {kind: json.loads(listener.communicate()[0]) for kind, listener in listeners.items()}
        found = {p["name"]: p for p in control.request("status")["processes"]}
    info = {role: found[f"{ROBOT}/{role}"]["info"] for role in ("acquisition", "estimator", "recorder")}
    lost = {f"{kind} subscriber": heard[kind]["lost"] + heard[kind]["invalid"] for kind in KINDS}
    lost |= {role: info[role]["lost"] for role in ("estimator", "recorder")}
    lost["acquisition"] = info["acquisition"]["dropped"]
    return {
        "robot": ROBOT,
        "rate_hz": RATE_HZ,
        "seconds": seconds,
        "latency_us": {kind: percentiles(np.array(heard[kind]["ages"])) for kind in KINDS},
        "frames": {"sent": info["acquisition"]["frames"], "lost": lost},
        "cpu": {name: (after[name] - before[name]) / wall for name in processes},
        "estimator_frame_us": float(np.mean(costs)),
        "load_average": psutil.getloadavg()[0],
        "restarts": sum(process["restarts"] for process in found.values()),
    }


def _cpu_seconds(processes: dict[str, psutil.Process]) -> dict[str, float]:
    return {name: sum(process.cpu_times()[:2]) for name, process in processes.items()}


def percentiles(values: np.ndarray) -> dict[str, float]:
    """p50, p99, p99.9 and max of `values`, and how many there are."""
    if not values.size:
        return {"messages": 0}
    p50, p99, p999 = np.percentile(values, (50.0, 99.0, 99.9))
    return {"p50": p50, "p99": p99, "p99.9": p999, "max": float(values.max()), "messages": int(values.size)}


def _problems(result: dict[str, Any]) -> list[str]:
    problems = [
        f"{count} messages lost on the way to the {who}" for who, count in result["frames"]["lost"].items() if count
    ]
    if result["restarts"]:
        problems.append(f"{result['restarts']} restarts of processes")
    if result["start_s"]["second"] > SECOND_START_S:
        problems.append(f"the start from the cache took {result['start_s']['second']:.1f} s, not {SECOND_START_S:g} s")
    for kind, figures in result["latency_us"].items():
        rate = {"frame": RATE_HZ, "estimate": 50.0, "torque": 100.0}[kind]
        if figures["messages"] < 0.9 * rate * result["seconds"]:
            problems.append(f"only {figures['messages']} messages of kind {kind} in {result['seconds']:g} s")
    return problems


def table(result: dict[str, Any]) -> str:
    """The result for people."""
    columns = ("p50", "p99", "p99.9", "max", "messages")
    lines = [
        f"{result['robot']} at {result['rate_hz']:g} Hz for {result['seconds']:g} s, "
        f"load average {result['load_average']:.1f}",
        f"{'arrival to subscriber [us]':<28}" + "".join(f"{name:>10}" for name in columns),
    ]
    for kind, figures in result["latency_us"].items():
        lines.append(f"{kind:<28}" + "".join(f"{figures.get(name, float('nan')):>10.0f}" for name in columns))
    lines.append("share of a core: " + ", ".join(f"{name} {share:.0%}" for name, share in result["cpu"].items()))
    lines.append(f"estimator: {result['estimator_frame_us']:.0f} us a frame with everything it publishes")
    frames = result["frames"]
    lines.append(f"frames sent {frames['sent']}, lost {sum(frames['lost'].values())}")
    starts = result["start_s"]
    lines.append(f"start: {starts['first']:.1f} s, again {starts['second']:.1f} s (from the cache)")
    return "\n".join(lines + [f"PROBLEM: {problem}" for problem in result["problems"]])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to measure (60)")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--listen", nargs=2, metavar=("ENDPOINT", "KIND"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.listen:
        sys.stdout.write(json.dumps(listen(*arguments.listen, SETTLE_S, arguments.seconds)))
        return 0
    result = run(arguments.seconds)
    sys.stdout.write((json.dumps(result) if arguments.json else table(result)) + "\n")
    return 1 if result["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
