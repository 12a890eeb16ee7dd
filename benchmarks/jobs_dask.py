"""A comparison over many seeds on a Dask cluster, and by local workers: the same to the last digit, and how long each.

python benchmarks/jobs_dask.py [--seeds 64] [--workers 2] [--json]

Scheduler and workers are processes of this machine; one worker is killed on the way and another takes its place.
"""

import argparse
import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from service.client import Control, Jobs
from service.config.load import Config, parse_config
from service.supervisor.launch import DaemonProcess

DASK = [str(Path(sys.executable).with_name("dask"))]
METHODS = ["ols", "wls", "iwls"]
SECONDS = 6.0
KILL_AFTER = 8  # parts that are done by then
_PATIENCE_S = 1800.0


def configuration(directory: Path, jobs: dict[str, Any]) -> Config:
    """A daemon with a simulated arm that takes little time, and jobs as given."""
    ports = dict.fromkeys(("frames_port", "estimates_port", "control_port"), 0) | {"http": False}
    daemon = {"name": "dask", "state_dir": str(directory), "log_level": "warning", **ports}
    arm = {"name": "arm", "robot": "space6", "driver": {"kind": "sim", "settings": {"rate_hz": 50.0}}}
    table = {"daemon": daemon, "jobs": {"priority": "normal", **jobs}, "arm": [arm]}
    return parse_config(table, "benchmarks/jobs_dask.py", directory.parent)


def worker(address: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start a worker with one thread."""
    command = [*DASK, "worker", address, "--nthreads", "1", "--no-nanny", "--memory-limit", "0"]
    command += ["--no-dashboard", "--local-directory", str(folder), "--host", "127.0.0.1"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def cluster(folder: Path, count: int) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler and workers; yields the scheduler's address and the workers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    command = [*DASK, "scheduler", "--host", "127.0.0.1", "--no-dashboard"]
    scheduler = subprocess.Popen(
        [*command, "--port", address.rpartition(":")[2]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    workers = [worker(address, folder) for _ in range(count)]
    try:
        yield address, workers
    finally:
        for process in (*workers, scheduler):
            process.kill()
            process.wait()


def compare(daemon: DaemonProcess, seeds: int, on_done: Any = None) -> tuple[Any, float]:
    """Run the comparison as a job; returns it and its time [s]; `on_done` is told how many parts are done."""
    with Control(daemon.endpoints["control"]) as control:
        jobs = Jobs(control)
        began = time.monotonic()
        id = jobs.submit("compare", {"methods": METHODS, "seeds": seeds, "seconds": SECONDS}).id
        while True:
            job = jobs.job(id)
            if job.state not in ("queued", "running"):
                return job, time.monotonic() - began
            if time.monotonic() - began > _PATIENCE_S:
                raise TimeoutError(f"job {id} is {job.state}: {job.waits}")
            if on_done is not None:
                on_done(sum(part.state == "succeeded" for part in job.parts))
            time.sleep(0.5)


def run(seeds: int = 64, workers: int = 2) -> dict[str, Any]:
    """Compare both ways; `problems` is empty if they agree and nothing was lost."""
    with tempfile.TemporaryDirectory(prefix="thetad-dask-") as name:
        folder = Path(name)
        with cluster(folder / "spill", workers) as (address, processes):
            killed: list[int] = []

            def kill_one(done: int) -> None:
                if done >= KILL_AFTER and not killed:
                    processes[0].kill()
                    killed.append(done)
                    processes.append(worker(address, folder / "spill"))

            with DaemonProcess(
                configuration(folder / "dask", {"backend": "dask", "scheduler": address}), folder / "dask.log"
            ) as daemon:
                spread, dask_s = compare(daemon, seeds, kill_one)
        with DaemonProcess(configuration(folder / "local", {"workers": workers}), folder / "local.log") as daemon:
            local, local_s = compare(daemon, seeds)
    problems = [f"{where}: {job.state}: {job.reason}" for where, job in (("Dask", spread), ("local", local))
                if job.state != "succeeded"]  # fmt: skip
    if not killed:
        problems.append("no worker was killed")
    same = not problems and all(
        json.dumps(of(spread.outcome), sort_keys=True) == json.dumps(of(local.outcome), sort_keys=True)
        for of in map(attrgetter, ("metrics", "verdict", "summary"))
    )
    if not problems and not same:
        problems.append("the results differ")
    interrupted = sum(part.attempts > 0 for part in spread.parts)
    return {
        "seeds": seeds, "workers": workers, "dask_s": dask_s, "local_s": local_s, "ratio": local_s / dask_s,
        "identical": same, "killed_after": killed, "failed_attempts": interrupted, "problems": problems,
    }  # fmt: skip


def table(r: dict[str, Any]) -> list[str]:
    """The result for people."""
    return [
        f"compare over {r['seeds']} seeds with {r['workers']} workers: Dask {r['dask_s']:.0f} s (a worker killed after "
        f"{r['killed_after']} parts), local {r['local_s']:.0f} s; results identical: {r['identical']}"
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=64, help="seeds, a part of the job each (64)")
    parser.add_argument("--workers", type=int, default=2, help="workers, on Dask and local (2)")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    arguments = parser.parse_args()
    result = run(arguments.seeds, arguments.workers)
    sys.stdout.write((json.dumps(result) if arguments.json else "\n".join(table(result))) + "\n")
    for problem in result["problems"]:
        sys.stderr.write(f"MISSED: {problem}\n")
    return 1 if result["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
