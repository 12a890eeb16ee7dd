"""`thetad commission` as a user calls it: a rehearsal from description to validated model, in a daemon of its own.

python benchmarks/commission.py [--robot arm7] [--quick]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ROBOT = "arm7"
#: Correlation of measured and predicted torque of each joint on the validation run.
MIN_R = 0.97
MAX_S = 3600.0
#: Less motion: what it validates is that the steps work together.
QUICK = (
    "--speeds", "0.05", "0.1", "0.2", "--sweep", "1.5", "--period", "5", "--first-speed", "1", "--periods", "2",
    "--validation-periods", "1",
)  # fmt: skip


def commission(robot: str = ROBOT, options: tuple[str, ...] = ()) -> dict[str, Any]:
    """Run the command; returns R of each joint, the wall time [s], that of each step, and what was missed."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "service.cli.main", "commission", robot, "-o", folder, "--json", *options]
        begin = time.perf_counter()
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
            timeout=MAX_S,
        )  # fmt: skip
        wall_s = time.perf_counter() - begin
    told = done.stderr.strip().splitlines() or [""]
    result: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
    reached: dict[str, float | None] = result.get("R", {})
    problems = [
        f"R of {name} is {value}, not above {MIN_R:g}"
        for name, value in reached.items()
        if value is None or not value > MIN_R
    ]
    if not result.get("validated"):
        problems.append(f"not validated: {result.get('reason') or told[-1]}")
    return {
        "robot": robot,
        "options": options,
        "exit_code": done.returncode,
        "validated": bool(result.get("validated")),
        "R": reached,
        "open": result.get("open", []),
        "wall_s": wall_s,
        "steps_s": {step["step"]: step["seconds"] for step in result.get("steps", [])},
        "problems": problems,
    }


def table(r: dict[str, Any]) -> list[str]:
    """Lines for people."""
    joints = ", ".join(f"{name} {'none' if value is None else f'{value:.5f}'}" for name, value in r["R"].items())
    verdict = "validated" if r["validated"] else "not validated"
    steps = ", ".join(f"{name} {seconds:.0f}" for name, seconds in r["steps_s"].items())
    return [
        f"thetad {' '.join(('commission', r['robot'], *r['options']))}: {verdict} after {r['wall_s']:.0f} s ({steps}); "
        f"R of {joints} (target above {MIN_R:g})"
    ]


def run(quick: bool) -> tuple[dict[str, Any], list[str], list[str]]:
    """Results, lines, and what is missed."""
    r = commission(options=QUICK if quick else ())
    return r, table(r), [f"commission {r['robot']}: {problem}" for problem in r["problems"]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--robot", default=ROBOT)
    parser.add_argument("--quick", action="store_true", help="fewer speeds and periods")
    arguments = parser.parse_args()
    r = commission(arguments.robot, QUICK if arguments.quick else ())
    print("\n".join(table(r)))
    for problem in r["problems"]:
        print(f"MISSED: {problem}", file=sys.stderr)
    return 1 if r["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
