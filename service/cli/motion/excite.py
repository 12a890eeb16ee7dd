"""`thetad excite`: design a trajectory that determines a robot's parameters well, with a report."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.cli._common import CliError, add_run, print_verdict
from service.cli.jobs.values import parse_parameters
from service.reports.cells import number, percent

if TYPE_CHECKING:
    from service.operations.kind import Outcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: the parameters of the job `excite`."""
    from service.cli._options import add_options
    from service.jobs.kinds.excite import KIND

    add = parser.add_argument
    add("robot", metavar="ROBOT", help="robot file, or the name of one in configs/robots")
    add("--output", "-o", metavar="DIR", type=Path, required=True, help="write the results here")
    add_options(parser, KIND)
    add(
        "--after", metavar="FILE[:PERIODS]", action="append",
        help="trajectory.json that was recorded already, for so many periods (default: 1): excite what it left open "
        "(may be repeated)",
    )  # fmt: skip
    add("--set", metavar="NAME=VALUE", dest="pairs", nargs="+", action="extend", default=[], help="any other parameter")
    add_run(parser, run)


def run(args: argparse.Namespace) -> int:
    """Design and report."""
    from service.cli._options import given
    from service.cli._progress import report_outcome, run_operation
    from service.jobs.kinds.excite import KIND
    from service.operations.inputs import open_robot

    values = {"robot": args.robot} | given(args, KIND)
    if args.after:
        values["after"] = [_earlier(text) for text in args.after]
    set_here = parse_parameters(KIND, args.pairs)
    for name in values.keys() & set_here.keys():
        raise CliError(f"--set {name}=...: {name} is given already, by an option or as ROBOT")
    p = KIND.read(values | set_here, flags=True)
    open_robot(p.robot)  # before creating a folder
    args.output.mkdir(parents=True, exist_ok=True)
    return report_outcome(run_operation(KIND, p, args.output), args, print_outcome)


def _earlier(text: str) -> dict[str, Any]:
    """Return the trajectory of FILE or FILE:PERIODS as a value of the job's parameter `after`."""
    from service.io.trajectory_file import MAX_PERIODS, TrajectoryError, read_trajectory

    name, colon, count = text.rpartition(":")
    path, periods = Path(text), 1
    if colon and not path.exists():
        path = Path(name)
        periods = int(count) if count.isascii() and count.isdigit() and len(count) < 6 else 0
        if not 1 <= periods <= MAX_PERIODS:
            raise CliError(f"--after {text}: {count!r} is not a number of periods from 1 to {MAX_PERIODS}")
    try:
        trajectory = read_trajectory(path)
    except TrajectoryError as error:
        raise CliError(f"--after {error}") from error
    if trajectory.series is None:
        raise CliError(f"--after {path}: is a table: give the trajectory.json that was designed with it")
    known = {"robot": trajectory.robot, "robot_sha256": trajectory.robot_sha256, "periods": periods}
    return {"joints": list(trajectory.joints)} | known | trajectory.series.as_dict()


def print_outcome(outcome: Outcome, folder: Path) -> None:
    """Print the verdict, the main figures, and the output folder."""
    m = outcome.metrics
    print_verdict(outcome.verdict, m["verdict_text"], m["reasons"], m["facts"])
    print(f"{'weakest':22s}" + ", ".join(f"{w['name']} ({number(w['inflation'], 3)})" for w in m["weakest"]))
    worst = m["worst"]
    print(f"{'narrowest limit':22s}{percent(worst['share'], '.3g')} left to {worst['quantity']} of {worst['where']}")
    for what in m["unchecked"]:
        print(f"{'not checked':22s}{what}")
    print(f"{'written to':22s}{folder}")
