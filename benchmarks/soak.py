"""Hours of estimation and of a running daemon: numbers, flags and memory stay where they belong.

make soak [DURATION=3600]        or: python benchmarks/soak.py [--only estimator|service] [--json]

First ten million frames of online estimation on a simulated arm, as fast as they go: rich motion, an hour with one
joint at rest, an hour with all at rest, rich motion again, and a step in one joint's friction.  Then the daemon at
1 kHz in real time for DURATION seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import estimator_soak, service_soak

PHASES = estimator_soak.Phases(rich=1300.0, one_held=3600.0, all_held=3600.0, rich_again=1300.0, step=200.0)
LIMIT_ERROR = 0.01  # of the parameters, in the torque-weighted norm
LIMIT_STEP = 0.05  # of the step's size, five seconds after it


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run_estimator() -> dict[str, Any]:
    """Run the scenario; `problems` lists what is worse than allowed."""
    told = [0.0]

    def progress(t: float, phase: str, error: float) -> None:
        if time.monotonic() - told[0] > 30.0:
            told[0] = time.monotonic()
            tell(f"{t:6.0f} s of {PHASES.ends['step']:g} s, {phase}: error {error:.2%}")

    result = asdict(estimator_soak.soak(phases=PHASES, progress=progress))
    problems = result["problems"]
    problems += [f"{phase}: error {e:.2%}" for phase, e in result["error"].items() if not e < LIMIT_ERROR]
    if not result["step_error"] < LIMIT_STEP:
        problems.append(f"step of friction: off by {result['step_error']:.1%} of it after five seconds")
    return result


def estimator_table(result: dict[str, Any]) -> str:
    """The result for people."""
    lines = [f"{result['frames']} frames, {result['parameters']} parameters"]
    lines += [
        f"{phase:12} worst error {error:.3%} in the torque-weighted norm" for phase, error in result["error"].items()
    ]
    lines.append(f"step of friction: off by {result['step_error']:.1%} of it after five seconds")
    lines.append(f"excited flags: {result['flags_wrong']} wrong of {result['flags_checked']} checked")
    return "\n".join(lines + [f"PROBLEM: {problem}" for problem in result["problems"][:20]])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("estimator", "service"), help="one part alone")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    if arguments.only != "service":
        results["estimator"] = run_estimator()
        tell(estimator_table(results["estimator"]))
    if arguments.only != "estimator":
        results["service"] = service_soak.run(float(os.environ.get("DURATION", "3600")), tell)
        tell(service_soak.table(results["service"]))
    problems = [problem for result in results.values() for problem in result["problems"]]
    if arguments.json:
        sys.stdout.write(json.dumps(results) + "\n")
    tell("soak: " + ("all is well" if not problems else f"{len(problems)} problems"))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
