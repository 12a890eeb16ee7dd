"""`thetad doctor`: check whether this host can run the daemon and keep a cycle."""

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

from service.cli._common import Exit, add_run, number, printed_json
from service.doctor.finding import Finding


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="what is to run here, TOML")
    parser.add_argument("--interface", metavar="IF", help="look at this network card as well")
    parser.add_argument(
        "--cycle-s", type=number(0.0, 3600.0), default=5.0, metavar="SECONDS",
        help="how long the cycle of each arm is tried; 0: not at all (default: %(default)g)",
    )  # fmt: skip
    add_run(parser, run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from service.config.load import load_config
    from service.doctor.examine import examine

    config = None if arguments.config is None else load_config(arguments.config, needs_key=False)
    found = []
    for finding in examine(config, arguments.interface, arguments.cycle_s):
        found.append(finding)
        if not arguments.json:
            _print(finding)
    counts = dict.fromkeys(("ok", "warning", "failed", "unknown", "not applicable"), 0)
    for finding in found:
        counts[finding.verdict] += 1
    verdict = "failed" if counts["failed"] else "warning" if counts["warning"] else "ok"
    checks = [asdict(finding) for finding in found]
    if not printed_json(arguments, {"verdict": verdict, "counts": counts, "checks": checks}):
        print("; ".join(f"{count} {name}" for name, count in counts.items() if count))
    return Exit.NO if counts["failed"] else Exit.OK


def _print(finding: Finding) -> None:
    verdict = "-" if finding.verdict == "not applicable" else finding.verdict
    print(f"{verdict:8} {finding.name:20} {finding.value}")
    if finding.remedy:
        print(f"{'':29} {finding.remedy}")
    sys.stdout.flush()
