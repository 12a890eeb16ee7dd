"""`thetad excite`: design a trajectory that determines a robot's parameters well, with a report."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.cli._common import CliError, add_run, print_verdict
from service.cli.jobs.values import at_most, parse_parameters

if TYPE_CHECKING:
    from service.operations.kind import Outcome

EXAMPLES = """\
Examples:
  thetad excite ur10 -o excitation/
  thetad excite my_arm.toml -o excitation/ --period 20 --starts 4 --set effort_fraction=0.6
  thetad excite arm9 -o excitation/ --objective d_optimal --set scaled=false f_avoid_hz=2.5
  thetad excite my_arm.toml -o second/ --after excitation/trajectory.json:5 --set urdf_bodies=true clearance_m=0.02
  thetad excite my_arm.toml -o excitation/ --set 'workspace=[[-0.8, 0.8], [-0.8, 0.8], [0.1, 1.2]]' --json

`thetad jobs kinds excite` lists everything that --set takes.  A running daemon makes the same design as a job:
thetad jobs submit excite robot=ur10 starts=16.

Written to DIR: trajectory.json (coefficients, and all that is known of them), trajectory.csv (positions, velocities
and accelerations in SI units), points.csv (set positions in degrees and millimetres, for motion controllers),
report.html (how good the motion is, and how much it leaves to every limit), metrics.json; with --validation also
validation.json and validation.csv, a motion that differs from the first.  Files of these names that an earlier design
left in DIR are removed before the first is written.

Exit codes: 0 designed; 1 no motion within the limits was found (and no trajectory is written), or the motion does not
determine the parameters well; 2 wrong input.
"""

#: Independent searches by default.
STARTS = 4
#: Options that are job parameters of the same name.
_SHORT = ("objective", "optimiser", "harmonics", "period_s", "rate_hz", "seed", "starts", "validation", "changed_robot")


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "excite",
        help="design a trajectory on which the parameters of a robot show well",
        description="Design a periodic trajectory on which the parameters of a robot show well, within all its limits.",
        epilog=EXAMPLES,
    )
    add = parser.add_argument
    add("robot", metavar="ROBOT", help="robot file, or the name of one in configs/robots")
    add("--output", "-o", metavar="DIR", type=Path, required=True, help="write the results here")
    add("--objective", metavar="O", help="condition, d_optimal or e_optimal (default: condition)")
    add("--optimiser", metavar="M", help="gradient, tcs_pso, pso, pso_linear or ga (default: gradient)")
    add("--harmonics", metavar="N", type=at_most(50), help="of the Fourier series (default: 5)")
    add("--period", metavar="S", dest="period_s", type=float, help="length of a period (default: 10)")
    add("--rate", metavar="HZ", dest="rate_hz", type=float, help="of the tables (default: 100)")
    add("--seed", metavar="N", type=int, help="of everything random (default: 0)")
    add("--starts", metavar="N", type=at_most(256), help=f"independent searches, the best counts (default: {STARTS})")
    add(
        "--after", metavar="FILE[:PERIODS]", action="append",
        help="trajectory.json that was recorded already, for so many periods (default: 1): excite what it left open "
        "(may be repeated)",
    )  # fmt: skip
    add("--changed-robot", action="store_true", default=None,
        help="take --after although the robot's description is another version than that of its design")  # fmt: skip
    add("--validation", action="store_true", default=None, help="design a second one to validate on")
    add("--set", metavar="NAME=VALUE", dest="pairs", nargs="+", action="extend", default=[], help="any other parameter")
    add_run(parser, run)


def run(args: argparse.Namespace) -> int:
    """Design and report."""
    from service.cli._progress import report_outcome, run_operation
    from service.jobs.kinds import find_kind
    from service.operations.errors import OperationError
    from service.operations.inputs import open_robot

    kind = find_kind("excite")
    given = {"robot": args.robot} | {name: getattr(args, name) for name in _SHORT if getattr(args, name) is not None}
    if args.after:
        given["after"] = [_earlier(text) for text in args.after]
    set_here = parse_parameters(kind, args.pairs)
    for name in given.keys() & set_here.keys():
        raise CliError(f"--set {name}=...: {name} is given already, by an option or as ROBOT")
    given.setdefault("starts", STARTS)
    try:
        values = kind.read(given | set_here)
        open_robot(values.robot)  # before creating a folder
        args.output.mkdir(parents=True, exist_ok=True)
        outcome = run_operation(kind, values, args.output)
    except OperationError as error:
        raise CliError(str(error)) from error
    return report_outcome(outcome, args, print_outcome)


def _earlier(text: str) -> dict[str, Any]:
    """Return the trajectory of FILE or FILE:PERIODS as a value of the job's parameter `after`."""
    from service.io.trajectory_file import MAX_PERIODS, TrajectoryError, read_trajectory

    name, colon, count = text.rpartition(":")
    path, periods = Path(text), 1
    if colon and not path.exists():
        path = Path(name)
        periods = int(count) if count.isascii() and count.isdigit() and len(count) < 6 else 0
        if not 1 <= periods <= MAX_PERIODS:
            raise CliError(f"--after {text}: {count!r} is no number of periods from 1 to {MAX_PERIODS}")
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
    from service.reports.identification import number, percent

    m = outcome.metrics
    print_verdict(outcome.verdict, m["verdict_text"], m["reasons"], m["facts"])
    print(f"{'weakest':22s}" + ", ".join(f"{w['name']} ({number(w['inflation'], 3)})" for w in m["weakest"]))
    worst = m["worst"]
    print(f"{'narrowest limit':22s}{percent(worst['share'], '.3g')} left to {worst['quantity']} of {worst['where']}")
    for what in m["unchecked"]:
        print(f"{'not checked':22s}{what}")
    print(f"{'written to':22s}{folder}")
