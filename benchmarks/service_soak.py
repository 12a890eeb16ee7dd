"""A daemon at 1 kHz for a long time: two arms, one recorded, and two subscribers. Does anything grow, is anything lost?

python benchmarks/service_soak.py [--seconds 3600] [--json]

Every ten seconds the memory, open files and threads of each process are read.  After a warm-up the slope of the memory
is the median of the slopes between all pairs of readings (Theil-Sen), which a single step hardly moves.

Flat is: a slope of at most 2 MB an hour, or, in a run too short to tell, a growth of at most 1.5 MB in all; no more
open files than after the warm-up, but for two; no more threads.  The recorder begins a new file at least eight times in
a run: each closed file is read, must lack no frame and follow on the one before, and is then removed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from scipy.stats import theilslopes

from drivers.recording import read_recording
from service.client import ClientTimeoutError, Control, Subscriber
from service.config import Config, parse_config
from service.launch import DaemonProcess

ARMS = ("space6", "arm7")
RATE_HZ = 1000.0
EVERY_S = 10.0
LIMIT_MB_H = 2.0
RESOLUTION_MB = 1.5
SPARE_FILES = 2
SHORTEST_S = 120.0
LEAST_HZ = {"frames": RATE_HZ, "estimates": 150.0}  # messages a second of each arm: of estimates 50, of torques 100


def configuration(directory: Path, duration_s: float) -> Config:
    """Two simulated arms, the first one recorded, on free ports."""
    ports = dict.fromkeys(("frames_port", "estimates_port", "control_port"), 0) | {"http": False}
    arms: list[dict[str, Any]] = [
        {"name": name, "robot": name, "driver": {"kind": "sim", "settings": {"rate_hz": RATE_HZ, "seed": k + 1}}}
        for k, name in enumerate(ARMS)
    ]
    minutes = min(10.0, duration_s / 60.0 / 8.0)
    arms[0]["recorder"] = {"directory": str(directory / "recordings"), "max_minutes": minutes}
    daemon = {"name": "soak", "state_dir": str(directory / "state"), "log_level": "warning", **ports}
    return parse_config({"daemon": daemon, "arm": arms}, "benchmarks/service_soak.py", directory)


def listen(endpoint: str) -> dict[str, int]:
    """Receive everything until told to stop by SIGTERM; count what came and what is missing."""
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stop.append(number))
    with Subscriber(endpoint, [""]) as stream:
        while not stop:
            with contextlib.suppress(ClientTimeoutError):
                stream.receive(0.2)
        received = sum(counts.received for counts in stream.counts.values())
        return {"received": received, "lost": stream.lost, "invalid": stream.invalid}


class Recordings:
    """Checks the recorder's files one by one and removes them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.files = 0
        self.frames = 0
        self.missing = 0
        self._next: int | None = None

    def work_off(self, *, last: bool) -> None:
        """Look at the files that are closed: all but the newest, or, at the end, all."""
        paths = sorted(self.directory.glob("*.mcap"), key=lambda path: path.stat().st_mtime_ns)
        for path in paths if last else paths[:-1]:
            seq = read_recording(path).seq
            self.missing += int(np.sum(np.diff(seq) - 1))
            if self._next is not None:
                self.missing += abs(int(seq[0]) - self._next)
            self._next = int(seq[-1]) + 1
            self.files += 1
            self.frames += seq.size
            path.unlink()


def run(duration_s: float = 3600.0, progress: Callable[[str], None] | None = None) -> dict[str, Any]:
    """Run for `duration_s`.

    Returns `processes` by name (memory at the start and the end and its slope, files, threads, share of a core),
    `frames`, `recordings`, `subscribers`, and `problems` in sentences.  Raises `ValueError` for less than two minutes.
    """
    if not duration_s >= SHORTEST_S:
        raise ValueError(f"a soak of {duration_s:g} s says nothing about memory; it takes at least {SHORTEST_S:g} s")
    with tempfile.TemporaryDirectory(prefix="thetad-soak-") as name:
        directory = Path(name)
        recordings = Recordings(directory / "recordings")
        with DaemonProcess(configuration(directory, duration_s), directory / "log") as daemon:
            result = _watch(daemon, duration_s, recordings, progress)
        recordings.work_off(last=True)
        words = [line for line in (directory / "log").read_text(encoding="utf-8").splitlines() if '"error"' in line]
    result["recordings"] = {"files": recordings.files, "frames": recordings.frames, "missing": recordings.missing}
    result["problems"] = _problems(result) + words[:10]
    return result


def _watch(
    daemon: DaemonProcess, duration_s: float, recordings: Recordings, progress: Callable[[str], None] | None
) -> dict[str, Any]:
    warm_up_s = min(300.0, max(SHORTEST_S / 2.0, 0.25 * duration_s))
    with contextlib.ExitStack() as stack:
        control = stack.enter_context(Control(daemon.endpoints["control"]))
        watched = {p["name"]: psutil.Process(p["pid"]) for p in control.request("status")["processes"]}
        watched["supervisor"] = psutil.Process(daemon.pid)
        listeners = {}
        for lane in ("frames", "estimates"):
            command = [sys.executable, __file__, "--listen", daemon.endpoints[lane]]
            listeners[lane] = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
            watched[f"subscriber of {lane}"] = psutil.Process(listeners[lane].pid)
        readings: dict[str, list[tuple[float, ...]]] = {name: [] for name in watched}
        for elapsed_s in _ticks(duration_s):
            for name, process in watched.items():
                with contextlib.suppress(psutil.NoSuchProcess):  # a restart is found at the end
                    memory_mb = process.memory_info().rss / 1e6
                    cpu_s = sum(process.cpu_times()[:2])
                    readings[name].append((elapsed_s, memory_mb, process.num_fds(), process.num_threads(), cpu_s))
            recordings.work_off(last=False)
            if progress is not None and round(elapsed_s / EVERY_S) % 6 == 0:
                total = sum(rows[-1][1] for rows in readings.values() if rows)
                progress(f"{elapsed_s:6.0f} s: {total:.1f} MB in {len(watched)} processes, {recordings.files} files")
        found = {p["name"]: p for p in control.request("status", timeout_s=30.0)["processes"]}
        for listener in listeners.values():
            listener.terminate()
        heard = {lane: json.loads(listener.communicate()[0]) for lane, listener in listeners.items()}
    consumers = {name: found[name]["info"] for name in found if name.endswith(("/estimator", "/recorder"))}
    return {
        "duration_s": duration_s,
        "warm_up_s": warm_up_s,
        "processes": {name: summary(np.array(rows), warm_up_s) for name, rows in readings.items()},
        "frames": {
            "sent": {arm: found[f"{arm}/acquisition"]["info"]["frames"] for arm in ARMS},
            "lost": {name: info["lost"] for name, info in consumers.items()},
        },
        "subscribers": heard,
        "restarts": sum(process["restarts"] for process in found.values()),
    }


def _ticks(duration_s: float) -> Iterator[float]:
    """Yield the time since the first call [s] every `EVERY_S`, the last time at `duration_s`."""
    began = time.monotonic()
    for k in range(round(duration_s / EVERY_S) + 1):
        time.sleep(max(0.0, began + k * EVERY_S - time.monotonic()))
        yield time.monotonic() - began


def summary(rows: np.ndarray, warm_up_s: float) -> dict[str, float]:
    """Describe one process; `rows` are time [s], memory [MB], files, threads, CPU time [s]."""
    late = rows[rows[:, 0] >= warm_up_s]
    slope = float(theilslopes(late[:, 1], late[:, 0])[0])
    span_s = late[-1, 0] - late[0, 0]
    return {
        "memory_mb": float(late[0, 1]),
        "memory_end_mb": float(late[-1, 1]),
        "slope_mb_h": 3600.0 * slope,
        "growth_mb": slope * span_s,
        "files": int(late[0, 2]),
        "files_end": int(late[-1, 2]),
        "threads": int(late[0, 3]),
        "threads_end": int(late[-1, 3]),
        "cpu": float((late[-1, 4] - late[0, 4]) / span_s),
    }


def _problems(result: dict[str, Any]) -> list[str]:
    problems = []
    for name, figures in result["processes"].items():
        if figures["slope_mb_h"] > LIMIT_MB_H and figures["growth_mb"] > RESOLUTION_MB:
            problems.append(f"{name}: memory grows by {figures['slope_mb_h']:.1f} MB/h")
        if figures["files_end"] > figures["files"] + SPARE_FILES:
            problems.append(f"{name}: {figures['files_end']} open files, {figures['files']} after the warm-up")
        if figures["threads_end"] > figures["threads"]:
            problems.append(f"{name}: {figures['threads_end']} threads, {figures['threads']} after the warm-up")
    problems += [f"{name}: {lost} frames lost" for name, lost in result["frames"]["lost"].items() if lost]
    for lane, counts in result["subscribers"].items():
        if counts["lost"] or counts["invalid"]:
            problems.append(f"subscriber of {lane}: {counts['lost']} messages lost, {counts['invalid']} invalid")
        least = 0.95 * len(ARMS) * result["duration_s"] * LEAST_HZ[lane]
        if counts["received"] < least:
            problems.append(f"subscriber of {lane}: {counts['received']} messages, fewer than {least:.0f}")
    if result["recordings"]["missing"]:
        problems.append(f"the recordings lack {result['recordings']['missing']} frames")
    for arm, sent in result["frames"]["sent"].items():
        if sent < RATE_HZ * (0.99 * result["duration_s"] - 2.0):
            problems.append(f"{arm}: {sent} frames in {result['duration_s']:g} s are too few")
    if result["restarts"]:
        problems.append(f"{result['restarts']} restarts of processes")
    return problems


def table(result: dict[str, Any]) -> str:
    """The result for people."""
    head = f"{'':24}{'MB':>8}{'end':>8}{'MB/h':>8}{'files':>7}{'threads':>9}{'core':>7}"
    lines = [f"{result['duration_s']:g} s, of which {result['warm_up_s']:g} s warm-up", head]
    for name, f in result["processes"].items():
        lines.append(
            f"{name:24}{f['memory_mb']:8.1f}{f['memory_end_mb']:8.1f}{f['slope_mb_h']:8.2f}"
            f"{f['files_end']:7d}{f['threads_end']:9d}{f['cpu']:7.0%}"
        )
    frames, recordings = result["frames"], result["recordings"]
    heard = sum(counts["received"] for counts in result["subscribers"].values())
    lines.append(f"frames sent {sum(frames['sent'].values())}, lost {sum(frames['lost'].values())}")
    lines.append(f"recorded {recordings['frames']} in {recordings['files']} files, missing {recordings['missing']}")
    lines.append(f"subscribers: {heard} messages, lost {sum(c['lost'] for c in result['subscribers'].values())}")
    return "\n".join(lines + [f"PROBLEM: {problem}" for problem in result["problems"]])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long to run (3600)")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--listen", metavar="ENDPOINT", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.listen:
        sys.stdout.write(json.dumps(listen(arguments.listen)))
        return 0
    result = run(arguments.seconds, lambda text: print(text, file=sys.stderr, flush=True))
    sys.stdout.write((json.dumps(result) if arguments.json else table(result)) + "\n")
    return 1 if result["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
