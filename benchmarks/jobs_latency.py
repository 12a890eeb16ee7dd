"""Latency of the 1 kHz path while batch jobs run, beside the same daemon without them.

python benchmarks/jobs_latency.py [--runs 5] [--jobs 50] [--robot space6] [--json]

A simulated arm at 1 kHz, recorded, with subscribers to frames and estimates.  Jobs have what processor time the arm
leaves: on two processors, 50 of them take about a quarter of an hour beside an arm of nine joints, less beside one of
six.  Runs alternate: so many seconds without jobs, then so many jobs of all kinds submitted at once, until the last has
finished.  Compared are the medians over the runs of p50 and p99 of the time from a frame's arrival to the estimate that
rests on it.
"""

import argparse
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.latency import configuration, percentiles
from service.client import ClientTimeoutError, Control, Subscriber
from service.supervisor.launch import DaemonProcess

ROBOT = "space6"
RATIO = 1.5  # of p50 and p99 with jobs over those without
QUIET_S = 20.0
KINDS = ("frame", "estimate")
WHEN = ("quiet", "busy")
WARM_S = 22.0  # of frames in the window before the first job
_PATIENCE_S = 3600.0  # for the jobs of a run: they have what processor time the daemon leaves


def mixed_jobs(count: int) -> list[dict[str, Any]]:
    """Parameters of `count` jobs: identification by many methods, comparisons, excitation, validation."""
    live = {"recording": "live:6", "span": "0:0.6"}
    first = {"model": "job:1", "recording": "job:1", "span": "0.65:1"}  # the job before all, and what it left out
    fits = [{"kind": "identify", "parameters": {**live, "method": name}} for name in ("wls", "physical", "iwls", "ols")]
    others: list[dict[str, Any]] = [
        {"kind": "compare", "parameters": {"methods": ["ols", "wls", "iwls"], "seeds": 1, "seconds": 2.0}},
        {"kind": "excite", "parameters": {"robot": "space6", "starts": 1, "iterations": 20}},
        {"kind": "validate", "parameters": first},
    ]
    turns = (job for fit in itertools.cycle(fits) for job in (fit, *others))
    return [dict(job) for job in itertools.islice(turns, count)]


def listen(endpoint: str, robot: str, kind: str) -> dict[str, Any]:
    """Ages [us] of messages until stdin is closed."""
    import select

    ages: list[float] = []
    with Subscriber(endpoint, [f"{robot}/{kind}"]) as stream:
        stream.receive(30.0)
        sys.stdout.write("\n")
        sys.stdout.flush()
        while not select.select([sys.stdin], [], [], 0.0)[0]:
            with contextlib.suppress(ClientTimeoutError):
                ages.append(1e6 * stream.age_s(stream.receive(1.0)))
    return {"ages": ages, "lost": stream.lost, "invalid": stream.invalid}


@contextlib.contextmanager
def listening(daemon: DaemonProcess, robot: str) -> Iterator[dict[str, Any]]:
    """Fill the yielded map with what was heard of each kind meanwhile."""
    heard: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        listeners = {}
        for kind in KINDS:
            endpoint = daemon.endpoints["frames" if kind == "frame" else "estimates"]
            command = [sys.executable, __file__, "--listen", endpoint, robot, kind]
            listeners[kind] = stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
        for listener in listeners.values():
            assert listener.stdout is not None
            listener.stdout.readline()
        yield heard
        for kind, listener in listeners.items():
            heard[kind] = json.loads(listener.communicate()[0])


def run(runs: int = 5, jobs: int = 50, quiet_s: float = QUIET_S, robot: str = ROBOT) -> dict[str, Any]:
    """Measure; `runs` is what was seen in each, `ratio` those of the medians, `problems` what is worse than allowed."""
    with (
        tempfile.TemporaryDirectory(prefix="thetad-jobs-") as name,
        DaemonProcess(configuration(Path(name), robot), Path(name) / "log") as daemon,
        Control(daemon.endpoints["control"]) as control,
    ):
        time.sleep(WARM_S)
        first = control.request("submit", 30.0, kind="identify", parameters={"recording": "live:20", "span": "0:0.6"})
        _wait(control, [first["id"]])
        seen = []
        for _ in range(runs):
            with listening(daemon, robot) as quiet:
                time.sleep(quiet_s)
            began = time.monotonic()
            with listening(daemon, robot) as busy:
                ids = [control.request("submit", 30.0, **job)["id"] for job in mixed_jobs(jobs)]
                states = _wait(control, ids)
            seen.append(
                {
                    "quiet": _figures(quiet),
                    "busy": _figures(busy),
                    "busy_s": time.monotonic() - began,
                    "finished": {state: states.count(state) for state in set(states)},
                }
            )
            sys.stderr.write(_line(seen[-1]) + "\n")
        found = {p["name"]: p for p in control.request("status")["processes"]}
    result: dict[str, Any] = {"robot": robot, "jobs": jobs, "runs": seen, "load_average": os.getloadavg()[0]}
    result["lost"] = {
        "estimator": found[f"{robot}/estimator"]["info"]["lost"],
        "recorder": found[f"{robot}/recorder"]["info"]["lost"],
        "acquisition": found[f"{robot}/acquisition"]["info"]["dropped"],
    }
    result["restarts"] = sum(process["restarts"] for process in found.values())
    result["median_us"] = {
        when: {q: float(np.median([r[when]["estimate"][q] for r in seen])) for q in ("p50", "p99")} for when in WHEN
    }
    result["ratio"] = {q: result["median_us"]["busy"][q] / result["median_us"]["quiet"][q] for q in ("p50", "p99")}
    result["problems"] = _problems(result)
    return result


def _wait(control: Control, ids: list[int]) -> list[str]:
    deadline = time.monotonic() + _PATIENCE_S
    states: dict[int, str] = {}
    while len(states) < len(ids) and time.monotonic() < deadline:
        time.sleep(5.0)
        recent = control.request("jobs", 30.0, limit=1000)["jobs"]
        states |= {
            job["id"]: job["state"] for job in recent if job["id"] in ids and job["state"] not in ("queued", "running")
        }
    return [states.get(id, "unfinished") for id in ids]


def _figures(heard: dict[str, Any]) -> dict[str, Any]:
    return {kind: percentiles(np.array(h["ages"])) | {"lost": h["lost"] + h["invalid"]} for kind, h in heard.items()}


def _problems(result: dict[str, Any]) -> list[str]:
    problems = [f"{count} frames lost by the {who}" for who, count in result["lost"].items() if count]
    ends = [r["finished"] for r in result["runs"]]
    problems += [f"jobs ended as {end}" for end in ends if end != {"succeeded": result["jobs"]}]
    problems += [
        f"{q} of the estimates' age with jobs is {ratio:.2f} times that without (target {RATIO})"
        for q, ratio in result["ratio"].items()
        if ratio > RATIO
    ]
    if result["restarts"]:
        problems.append(f"{result['restarts']} restarts of processes")
    return problems


def table(result: dict[str, Any]) -> list[str]:
    """The result for people."""
    lines = [f"{result['robot']} at 1 kHz, {len(result['runs'])} runs without and with {result['jobs']} jobs"]
    lines += [_line(seen) for seen in result["runs"]]
    m = result["median_us"]
    lines.append(
        f"medians: p50 {m['quiet']['p50']:.0f} -> {m['busy']['p50']:.0f} us ({result['ratio']['p50']:.2f} times), p99 "
        f"{m['quiet']['p99']:.0f} -> {m['busy']['p99']:.0f} us ({result['ratio']['p99']:.2f} times); target {RATIO}"
    )
    lines.append(f"frames lost: {result['lost']}")
    return lines


def _line(seen: dict[str, Any]) -> str:
    ages = (f"{when} {seen[when]['estimate']['p50']:.0f}/{seen[when]['estimate']['p99']:.0f}" for when in WHEN)
    return f"estimate age p50/p99 [us]: {', '.join(ages)}; {seen['finished']} in {seen['busy_s']:.0f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="alternating runs (5)")
    parser.add_argument("--jobs", type=int, default=50, help="jobs in each (50)")
    parser.add_argument("--quiet", type=float, default=QUIET_S, help="seconds without jobs (20)")
    parser.add_argument("--robot", default=ROBOT, help=f"name of the arm ({ROBOT})")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--listen", nargs=3, metavar=("ENDPOINT", "ROBOT", "KIND"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.listen:
        sys.stdout.write(json.dumps(listen(*arguments.listen)))
        return 0
    result = run(arguments.runs, arguments.jobs, arguments.quiet, arguments.robot)
    sys.stdout.write((json.dumps(result) if arguments.json else "\n".join(table(result))) + "\n")
    for problem in result["problems"]:
        sys.stderr.write(f"MISSED: {problem}\n")
    return 1 if result["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
