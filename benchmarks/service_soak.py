"""A daemon at 1 kHz for a long time, with clients, batch jobs and random faults: is anything lost, does anything grow?

python benchmarks/service_soak.py [--seconds 3600] [--seed 1] [--calm] [--arms ROBOT ...] [--json] [--plot FILE]

Two arms, recorded; subscribers to everything, one that is slow and one that stops now and then; a browser that asks for
health, readiness and metrics, and a page of the dashboard that stays open; jobs one after the other; and, unless it is
to be calm, faults drawn by the seed (`soak_faults`): processes killed, stopped and hung, a saved state torn, visitors,
random bytes on every port.  Each process is killed in one half of the time and lives through the other, so that its
memory can be told to be flat.

Once a second it is looked at who has lost something, by the sequence numbers that each reader has counted, and who had
no answer: what no fault explains is a problem.  So is a process that ends though no fault has ended it, and so are
frames that the recordings lack, unless they came while a fault was under way: from `soak_faults.BEFORE_S` before it
until `AFTER_S` after it.  Every five seconds memory, open files and threads of each process are read (`soak_readings`);
latencies are measured by the clients (`soak_clients`).
"""

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.soak_clients import PATHS, Client
from benchmarks.soak_counts import Ledger, Totals, ends
from benchmarks.soak_faults import SPARED, Fault, Faults, windows
from benchmarks.soak_jobs import JobsClient
from benchmarks.soak_readings import EVERY_S, Readings, draw, not_flat
from benchmarks.soak_recordings import Recordings
from rt_core.types import FloatArray
from service.client import Control
from service.config.load import Config, parse_config
from service.supervisor.launch import DaemonProcess

ARMS = ("space6", "arm7")
RATE_HZ = 1000.0
HANG_S = 10.0
WINDOW_S = 30.0
SPACING_S = 6.0
TICK_S = 1.0
PATIENCE_S = 60.0  # until a fault is got over; the last one may take half as long again
BUDGET_GB = 0.05  # of the recordings of an arm
MAX_GB = 0.12  # the budget, and what is written between two looks at it
#: Clients by name: what they do, and where.
CLIENTS = {
    "frames": ("steady", "frames"),
    "estimates": ("steady", "estimates"),
    "sleeper": ("steady", "frames"),
    "slow": ("slow", "frames"),
    "browser": ("browser", "http"),
    "dashboard": ("dashboard", "http"),
}
STEADY = ("frames", "estimates", "sleeper")  # subscribers whose losses have to be explained
#: Messages that a steady subscriber has had or counted as lost, at least, for each frame that was sent.
MIN = {"frames": 0.5, "estimates": 0.05}
#: What may be answered: a question is not while the process that knows is being started.
STATUSES = {"browser": {"200", "503"}, "dashboard": {"200", "503", "504"}}
MEASURED = ("frames", "estimates", "browser", "dashboard")


def configuration(directory: Path, duration_s: float, arms: Sequence[str] = ARMS) -> Config:
    """Simulated arms, recorded, on free ports."""
    ports = dict.fromkeys(("frames_port", "estimates_port", "control_port", "http_port"), 0)
    minutes = min(2.0, max(duration_s, 120.0) / 60.0 / 8.0)
    tables: list[dict[str, Any]] = [
        {
            "name": name,
            "robot": name,
            "window_s": WINDOW_S,
            "driver": {"kind": "sim", "settings": {"rate_hz": RATE_HZ, "seed": k + 1}},
            "state": {"every_s": 1.0},
            "recorder": {"directory": f"recordings/{name}", "max_minutes": minutes, "max_gb": BUDGET_GB},
        }
        for k, name in enumerate(arms)
    ]
    daemon = {
        "name": "soak",
        "state_dir": "state",
        "runtime_dir": "r",
        "log_level": "warning",
        "http": True,
        "hang_s": HANG_S,
        **ports,
    }
    return parse_config({"daemon": daemon, "arm": tables}, "benchmarks/service_soak.py", directory)


def run(
    duration_s: float = 3600.0,
    progress: Callable[[str], None] | None = None,
    *,
    seed: int = 1,
    calm: bool = False,
    arms: Sequence[str] = ARMS,
    spacing_s: float = SPACING_S,
    least_faults: int = 0,
    patience_s: float = PATIENCE_S,
    plot: Path | None = None,
) -> dict[str, Any]:
    """Run for `duration_s`, and until there were `least_faults`.

    Returns `processes` by name, `frames`, `losses`, `latency_s`, `browser`, `dashboard`, `recordings`, `jobs`, `faults`
    and `problems` in sentences.
    """
    on_progress = progress or (lambda _: None)
    with tempfile.TemporaryDirectory(prefix="ts-", dir="/tmp") as name:
        directory = Path(name)
        log = directory / "log"
        recordings = {arm: Recordings(directory / "recordings" / arm) for arm in arms}
        with DaemonProcess(configuration(directory, duration_s, arms), log) as daemon:
            soak = _Soak(daemon, directory, recordings, on_progress, seed, spacing_s, patience_s)
            result = soak.run(duration_s, least_faults, calm, plot)
        for arm, found in recordings.items():
            found.work_off(last=True)
            found.end(*soak.last_sent[arm], soak.ended_s)
            found.judge(windows(soak.done, f"{arm}/recorder"))
            result["recordings"][arm] = told = found.told()
            if told["most_mb"] > 1e3 * MAX_GB or not told["frames"]:
                result["problems"].append(f"{arm}: recordings: {told}")
            result["problems"] += [f"{arm}: {problem}" for problem in found.problems]
        result["log"], crashes = ends(log.read_text("utf-8", "replace").splitlines(), soak.done)
        result["problems"] += crashes
    return result


class _Soak:
    """A daemon that is watched while faults come.

    Attributes
    ----------
    done : list of Fault
    last_sent : dict
        Epoch of the last source of each arm as its recorder knows it, and frames that it has sent, by arm.
    ended_s : float
        When the last look was [s, CLOCK_MONOTONIC].
    """

    def __init__(
        self,
        daemon: DaemonProcess,
        directory: Path,
        recordings: dict[str, Recordings],
        on_progress: Callable[[str], None],
        seed: int,
        spacing_s: float,
        patience_s: float,
    ) -> None:
        self._daemon, self._directory, self._recordings, self._tell = daemon, directory, recordings, on_progress
        self._seed, self._spacing_s, self._patience_s = seed, spacing_s, patience_s
        self.done: list[Fault] = []
        self.last_sent: dict[str, tuple[int, int]] = {}
        self.ended_s = 0.0
        self._readings, self._ledger = Readings(), Ledger()
        self._sent, self._received = Totals(), Totals()
        self._clients: dict[str, Client] = {}
        self._since_s = time.monotonic()

    def run(self, duration_s: float, least_faults: int, calm: bool, plot: Path | None) -> dict[str, Any]:
        daemon, began_s = self._daemon, time.monotonic()
        with contextlib.ExitStack() as stack:
            control = stack.enter_context(Control(daemon.endpoints["control"]))
            for name, (kind, lane) in CLIENTS.items():
                self._clients[name] = Client(name, kind, daemon.endpoints[lane], self._directory)
                stack.callback(self._clients[name].stop)
            jobs = JobsClient(control, tuple(self._recordings), min(10.0, duration_s / 9.0))
            faults = Faults(
                self._seed,
                daemon.endpoints,
                self._directory / "state",
                self._clients,
                self._spacing_s,
                self._patience_s,
            )
            stack.callback(faults.release)
            self.done = faults.done

            def too_few() -> bool:
                # after a fault that was not got over no other one begins: there is nothing to wait for
                return not calm and not faults.problems and len(faults.done) < least_faults

            next_reading = next_word = 0.0
            longest_s = duration_s + 1.5 * self._patience_s * (1 + least_faults)
            for elapsed in _ticks(duration_s, longest_s, lambda: too_few() or faults.under_way is not None):
                found = {p["name"]: p for p in control.request("status", timeout_s=30.0)["processes"]}
                faults.spared = SPARED[elapsed > duration_s / 2.0]
                faults.step(found, more=not calm and (elapsed < duration_s or too_few()))
                self._look(found, faults)
                jobs.step(elapsed < duration_s - jobs.LAST_S)
                if elapsed >= next_reading:
                    next_reading = elapsed + EVERY_S
                    pids = {name: process["pid"] for name, process in found.items() if process["state"] == "ready"}
                    own = {f"client {name}": client.process.pid for name, client in self._clients.items()}
                    self._readings.take(elapsed, pids | {"supervisor": daemon.pid} | own)
                if elapsed >= next_word:
                    next_word = elapsed + 60.0
                    self._report(elapsed, jobs)
            jobs.finish()
            found = {p["name"]: p for p in control.request("status", timeout_s=30.0)["processes"]}
            self.ended_s = time.monotonic()
            for arm in self._recordings:
                epoch = found[f"{arm}/recorder"]["info"].get("source_epoch", 0)
                self.last_sent[arm] = epoch, found[f"{arm}/acquisition"]["info"].get("frames", 0)
            ended = {name: client.stop() for name, client in self._clients.items()}
            if plot is not None:
                draw(plot, self._readings, self._seconds(), faults.done, began_s)
        processes = self._readings.summary()
        result = {
            "duration_s": duration_s,
            "seed": self._seed,
            "faults": dict(Counter(f"{fault.kind}: {fault.target}" for fault in faults.done)),
            "processes": processes,
            "restarts": {name: process["restarts"] for name, process in found.items()},
            "frames": {"sent": self._sent.told(), "received": self._received.told()},
            "losses": {"explained": dict(self._ledger.explained), "unexplained": dict(self._ledger.unexplained)},
            "subscribers": {name: ended[name] for name in ("frames", "estimates", "sleeper", "slow")},
            "browser": ended["browser"],
            "dashboard": ended["dashboard"],
            "latency_s": {name: ended[name].get("percentiles", {}) for name in MEASURED},
            "recordings": {},
            "jobs": jobs.result(),
        }
        result["problems"] = [*faults.problems, *jobs.problems, *not_flat(processes), *_problems(result)]
        return result

    def _look(self, found: Mapping[str, Mapping[str, Any]], faults: Faults) -> None:
        """See what each reader has counted since the last look."""
        since_s, self._since_s = self._since_s, time.monotonic()  # a look may take long

        def look(name: str, pid: int, lost: int) -> None:
            self._ledger.look(name, pid, lost, faults.explained(name, since_s, self._since_s))

        for name, process in found.items():
            info = process.get("info", {})
            if process["state"] != "ready":
                continue
            if name.endswith("/acquisition") and "frames" in info:
                self._sent.take(name, process["pid"], info["frames"])
            elif name.endswith(("/estimator", "/recorder")) and "lost" in info:
                self._received.take(name, process["pid"], info["received"])
                look(name, process["pid"], info["lost"])
        for name, count in (*((name, "lost") for name in STEADY), *((name, "missed") for name in STATUSES)):
            client = self._clients[name]
            if told := client.newest():
                look(name, client.process.pid, told[count])
        for files in self._recordings.values():
            files.work_off()

    def _report(self, elapsed_s: float, jobs: JobsClient) -> None:
        total = sum(lives[-1].rows[-1][1] for lives in self._readings.lives.values())
        lost = sum(self._ledger.unexplained.values())
        told = f"{len(self.done)} faults, {jobs.told()}, {lost} lost without a fault"
        self._tell(f"{elapsed_s:6.0f} s: {total:.0f} MB, {told}")

    def _seconds(self) -> dict[str, FloatArray]:
        """Time, median and largest latency of each second, by client."""
        return {
            name: np.array(
                [(line["t"], line["p50"], line["largest"]) for line in self._clients[name].lines() if "p50" in line]
            )
            for name in MEASURED
        }


def _ticks(duration_s: float, longest_s: float, busy: Callable[[], bool]) -> Iterator[float]:
    """Yield the time since the first call [s] once a second, until `duration_s`, and on while it is `busy`."""
    began = time.monotonic()
    k = 0
    while True:
        time.sleep(max(0.0, began + k * TICK_S - time.monotonic()))
        elapsed = time.monotonic() - began
        yield elapsed
        if elapsed >= duration_s and (not busy() or elapsed > longest_s):
            return
        k = max(k + 1, int(elapsed / TICK_S))


def _problems(result: dict[str, Any]) -> list[str]:
    losses = result["losses"]["unexplained"]
    problems = [f"{reader}: {count} lost or not answered without a fault" for reader, count in losses.items()]
    for name, told in result["subscribers"].items():
        if told.get("invalid", 1):
            problems.append(f"subscriber {name!r}: {told.get('invalid', 'no count of')} invalid messages")
    sent = sum(result["frames"]["sent"].values())
    for name, share in MIN.items():
        told = result["subscribers"][name]
        if told.get("received", 0) + told.get("lost", 0) < share * sent:
            problems.append(f"subscriber {name!r}: {told}: fewer messages than {share:g} of {sent} frames")
    for name, allowed in STATUSES.items():
        answers = result[name].get("answers", {})
        if not {"200"} <= {answer.rpartition(" ")[2] for answer in answers} <= allowed:
            problems.append(f"{name}: {result[name]}")
    answered = {answer.partition(" ")[0] for answer in result["browser"].get("answers", {})}
    if silent := [path for path in PATHS if path not in answered]:
        problems.append(f"browser: no answer from {', '.join(silent)}")
    if not result["dashboard"].get("updates"):
        problems.append(f"dashboard: no estimate: {result['dashboard']}")
    return problems


def table(result: dict[str, Any]) -> str:
    """The result for people."""
    head = (
        f"{'':22}{'lives':>6}{'MB':>8}{'end':>8}{'most':>8}{'MB/h':>8}{'files':>7}{'end':>5}{'threads':>9}{'core':>7}"
    )
    lines = [f"{result['duration_s']:g} s, seed {result['seed']}", head]
    for name, p in sorted(result["processes"].items()):
        slope = "-" if p["slope_mb_h"] is None else f"{p['slope_mb_h']:.2f}"
        lines.append(
            f"{name:22}{p['lives']:6d}{p['memory_mb']:8.1f}{p['memory_end_mb']:8.1f}{p['memory_most_mb']:8.1f}{slope:>8}"
            f"{p['files'] or 0:7d}{p['files_end']:5d}{p['threads_end']:9d}{p['core']:7.0%}"
        )
    lines.append("latency [ms]" + "".join(f"{name:>10}" for name in ("p50", "p90", "p99", "p99.9", "max")))
    for name, found in result["latency_s"].items():
        values = "".join(f"{1e3 * found[key]:10.2f}" for key in ("p50", "p90", "p99", "p99.9", "max") if key in found)
        lines.append(f"{name:12}{values}")
    kinds: Counter[str] = Counter()
    for fault, count in result["faults"].items():
        kinds[fault.partition(":")[0]] += count
    lines.append(
        f"faults: {sum(kinds.values())}: " + ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    )
    losses = result["losses"]
    lines.append(
        f"lost or not answered by faults: {losses['explained'] or 'nothing'}; "
        f"otherwise: {losses['unexplained'] or 'nothing'}"
    )
    for arm, found in result["recordings"].items():
        lines.append(f"recorded of {arm}: {found}")
    lines.append(f"jobs: {result['jobs']}")
    for name in STATUSES:
        told = result[name]
        lines.append(f"{name}: {told.get('answers')}, without an answer {told.get('missed')}")
    lines.append(f"dashboard: {result['dashboard'].get('updates')} estimates")
    lines.append(f"warnings and errors in the log: {result.get('log', {})}")
    return "\n".join(lines + [f"PROBLEM: {problem}" for problem in result["problems"]])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long to run (3600)")
    parser.add_argument("--seed", type=int, default=1, help="draws the faults (1)")
    parser.add_argument("--arms", nargs="+", default=ARMS, metavar="ROBOT", help=f"which ({' '.join(ARMS)})")
    parser.add_argument("--calm", action="store_true", help="without faults")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--plot", type=Path, help="draw memory and latencies over time into this file")
    arguments = parser.parse_args()
    result = run(
        arguments.seconds,
        lambda text: print(text, file=sys.stderr, flush=True),
        seed=arguments.seed, calm=arguments.calm, arms=arguments.arms, plot=arguments.plot,
    )  # fmt: skip
    sys.stdout.write((json.dumps(result) if arguments.json else table(result)) + "\n")
    return 1 if result["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
