"""Processor time of the web process with a browser at a 9-joint arm, twenty updates a second, beside the same without.

python benchmarks/dashboard.py [--seconds 20] [--json]

What stands for a browser asks as the page does (`dashboard_page`), and is a process of its own.  Updates that bring a
new estimate count.
"""

import argparse
import http.client
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.dashboard_page import AGAIN_S, Page
from benchmarks.latency import ROBOT, configuration
from service.client import Control
from service.supervisor.launch import DaemonProcess

TARGET = 0.10  # of one core, of the web process
RATE_HZ = 20.0
SETTLE_S = 4.0


def browse(url: str, seconds: float) -> dict[str, Any]:
    """Look at the arm for so long; returns updates with a new estimate, bytes, and the time it took [s]."""
    page = Page(url, ROBOT)
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        try:
            took = page.look()
        except (OSError, http.client.HTTPException):
            page.forget()
            took = None
        if took is None:
            time.sleep(AGAIN_S)
    page.close()
    return {"updates": page.updates, "bytes": page.received, "seconds": time.monotonic() - began}


def run(seconds: float = 20.0) -> dict[str, Any]:
    """Measure for `seconds` each; `cpu` are shares of one core, `problems` what is worse than allowed."""
    with tempfile.TemporaryDirectory(prefix="thetad-dashboard-") as name:
        settings = configuration(Path(name))
        daemon_table = settings.daemon.model_copy(update={"http": True, "http_port": 0})
        settings = settings.model_copy(update={"daemon": daemon_table})
        with DaemonProcess(settings, Path(name) / "log") as daemon, Control(daemon.endpoints["control"]) as control:
            found = {p["name"]: psutil.Process(p["pid"]) for p in control.request("status")["processes"]}
            looked_at = {"web": found["web"], "estimator": found[f"{ROBOT}/estimator"]}
            time.sleep(SETTLE_S)
            without = _shares(looked_at, lambda: time.sleep(seconds))
            seen: dict[str, Any] = {}

            def look() -> None:
                command = [sys.executable, __file__, "--browse", daemon.endpoints["http"], "--seconds", str(seconds)]
                seen.update(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))

            with_one = _shares(looked_at, look)
    rate_hz = seen["updates"] / seen["seconds"]
    result: dict[str, Any] = {
        "robot": ROBOT,
        "target": TARGET,
        "cpu": {"without": without, "with": with_one},
        "updates_hz": rate_hz,
        "bytes_per_s": seen["bytes"] / seen["seconds"],
    }
    result["problems"] = []
    if with_one["web"] > TARGET:
        result["problems"].append(f"the web process takes {100 * with_one['web']:.1f} % of a core")
    if rate_hz < 0.9 * RATE_HZ:
        result["problems"].append(f"a browser gets {rate_hz:.1f} updates a second")
    return result


def _shares(processes: dict[str, psutil.Process], work: Any) -> dict[str, float]:
    """Share of one core that each process takes while something is done."""
    before, began = {name: sum(p.cpu_times()[:2]) for name, p in processes.items()}, time.monotonic()
    work()
    wall = time.monotonic() - began
    return {name: (sum(p.cpu_times()[:2]) - before[name]) / wall for name, p in processes.items()}


def table(result: dict[str, Any]) -> list[str]:
    """Return the result as lines for people."""
    cpu = result["cpu"]
    return [
        f"dashboard, {result['robot']}: {result['updates_hz']:.1f} updates a second, "
        f"{result['bytes_per_s'] / 1e3:.0f} kB/s; web process {100 * cpu['with']['web']:.1f} % of a core, without a "
        f"browser {100 * cpu['without']['web']:.1f} % (target {100 * result['target']:g} %); estimator "
        f"{100 * cpu['with']['estimator']:.1f} %, without {100 * cpu['without']['estimator']:.1f} %"
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--browse", metavar="URL", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.browse:
        sys.stdout.write(json.dumps(browse(arguments.browse, arguments.seconds)))
        return 0
    result = run(arguments.seconds)
    sys.stdout.write(json.dumps(result) + "\n" if arguments.json else "\n".join(table(result)) + "\n")
    for problem in result["problems"]:
        print(f"MISSED: {problem}", file=sys.stderr)
    return 1 if result["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
