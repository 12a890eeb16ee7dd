"""A disk that fills at random under a daemon that estimates, records and runs jobs; needs root, for a small disk.

The disk is filled and freed again, while processes that write are killed now and then. Nothing that was acknowledged
may be lost: each job that was taken ends, under its own number; each recording can be read, or what is intact of it be
recovered; no process ends but those that were killed, and the estimator receives all frames.

    sudo python benchmarks/disk_soak.py [--rounds 30] [--seed 1]
"""

import argparse
import contextlib
import os
import random
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

from drivers.files.recordings.format import RecordingError, RecordingFormatError
from drivers.files.recordings.recording import read_recording
from drivers.files.recordings.writer import recover
from service.client import Control, ControlError, Jobs
from tests.lab.daemon.daemons import await_status, config, processes, start
from tests.lab.jobs.small_disk import fill, small_disk

DISK_MB = 64
LEAVE = (0, 0, 4096, 20_000, 200_000, 1_500_000)  # bytes
KILLED = ("jobs", "arm/recorder", "arm/estimator")  # what writes
ARM = {"name": "arm", "robot": "space6", "driver": {"kind": "sim", "settings": {"rate_hz": 200.0}}}
JOB = {"robot": "space6", "methods": ["ols"], "seconds": 2.0, "seeds": 1}
ENDED = ("succeeded", "failed", "cancelled")
PATIENCE_S = 600.0


def readable(path: Path, spare: Path) -> str:
    """Return how a recording is read: "whole", "recovered" or "empty"; "unreadable: ..." is a fault."""
    try:
        read_recording(path)
        return "whole"
    except RecordingError:
        try:
            recover(path, spare, replace=True)
            return "recovered" if read_recording(spare).samples else "empty"
        except RecordingFormatError as error:
            return "empty" if path.stat().st_size < 200_000 else f"unreadable: {path.stat().st_size} bytes: {error}"


def run(rounds: int, seed: int, folder: Path) -> list[str]:
    """Fill and free the disk so many times; return what went wrong."""
    rng, problems, killed = random.Random(seed), list[str](), Counter[str]()
    arm = ARM | {"recorder": {}, "state": {"every_s": 0.5}}
    refused, ids = Counter[str](), list[int]()
    with small_disk(folder / "disk", DISK_MB) as disk:
        settings = config(folder, arm, state_dir=str(disk / "state"))
        with start(settings, folder) as daemon, Control(daemon.endpoints["control"]) as control:
            jobs = Jobs(control)
            for _ in range(rounds):
                for ask in (
                    lambda: ids.append(jobs.submit("compare", JOB).id),
                    lambda: control.request("record", arm="arm", action="start"),
                ):
                    try:
                        ask()
                    except ControlError as error:
                        refused[error.type] += 1
                time.sleep(rng.uniform(0.0, 3.0))
                filler = fill(disk, rng.choice(LEAVE))
                time.sleep(rng.uniform(0.0, 2.5))
                if rng.random() < 0.4:
                    name = rng.choice(KILLED)
                    if pid := processes(control)[name]["pid"]:
                        killed[name] += 1
                        os.kill(pid, signal.SIGKILL)
                time.sleep(rng.uniform(0.0, 1.0))
                filler.unlink(missing_ok=True)
                time.sleep(rng.choice((0.0, 2.0)))
            found = await_status(control, lambda all_: all(p["state"] == "ready" for p in all_.values()), PATIENCE_S)
            for name, process in found.items():
                if process["restarts"] != killed[name]:
                    problems.append(f"{name}: {process['restarts']} restarts, {killed[name]} kills")
            if ids != sorted(set(ids)):
                problems.append(f"numbers of jobs: {ids}")
            ended = Counter[str]()
            for id in ids:
                job = jobs.wait(id, PATIENCE_S)
                ended[job.state] += 1
                if job.state != "succeeded":
                    problems.append(f"job {id}: {job.state}: {job.reason}")
            with contextlib.suppress(ControlError):
                control.request("record", arm="arm", action="stop")
            lost = processes(control)["arm/estimator"]["info"]["lost"]
            if lost and not killed["arm/estimator"]:
                problems.append(f"the estimator lacks {lost} frames")
        read = Counter(readable(path, folder / "spare.mcap") for path in (disk / "state/arm/recordings").glob("*.mcap"))
        problems += [text for text in read if text.startswith("unreadable")]
    print(
        f"{rounds} rounds: kills {dict(killed)}, refused {dict(refused)}, jobs {dict(ended)}, recordings {dict(read)}"
    )
    return problems


def main() -> int:
    """Run it, and say what went wrong."""
    parser = argparse.ArgumentParser(description="A disk that fills at random.")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        problems = run(options.rounds, options.seed, Path(folder))
        print("\n".join(problems) or "nothing was lost")
        if problems:
            print((Path(folder) / "log").read_text(encoding="utf-8")[-5000:])
    return bool(problems)


if __name__ == "__main__":
    raise SystemExit(main())
