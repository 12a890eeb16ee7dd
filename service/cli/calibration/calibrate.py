"""`thetad calibrate`: calibrate an arm from a table of measured poses and a robot file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from service.cli._common import CliError, add_run

if TYPE_CHECKING:
    from service.operations.kind import Outcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: some parameters of the job `calibrate`; --set takes the others."""
    from service.cli._options import add_options
    from service.jobs.kinds.calibrate import KIND

    add = parser.add_argument
    add("measurements", metavar="FILE", type=Path, nargs="*", help="table (.csv); with --mapping also .npz, ...")
    add(
        "--arm", metavar="ROBOT=FILE[,FILE]", dest="arms", action="append", default=[],
        help="one of several arms: its robot file (or name), and its tables; with --mapping each file is one "
        "station, and there are no heads",
    )  # fmt: skip
    add("--robot", metavar="R", help="robot file, or a name (default: that of the mapping)")
    add("--mapping", metavar="FILE", type=Path, help="what the columns of FILE are (.toml)")
    add("--output", "-o", metavar="DIR", type=Path, required=True, help="write the results here")
    add_options(parser, KIND)
    add("--set", metavar="NAME=VALUE", dest="pairs", nargs="+", action="extend", default=[], help="any other parameter")
    add_run(parser, run)


def run(args: argparse.Namespace) -> int:
    """Calibrate, report and write the results."""
    from service.cli._progress import report_outcome, run_operation
    from service.cli.calibration._inputs import clear_results, converted, given_values
    from service.jobs.kinds.calibrate import KIND
    from service.operations.inputs import open_robot

    if args.arms and args.check is not None:
        raise CliError("--check is of one arm: leave it out, or calibrate the arms one by one")
    if args.arms:
        from service.cli.calibration._calibrate_arms import run_arms

        return run_arms(args)
    paths, robot_name, mapping = args.measurements, args.robot, None
    if not paths:
        raise CliError("FILE is missing: name the table of what was measured, or give --arm for each of several arms")
    if args.mapping is not None:
        from drivers.files.importing.pose_mapping import load_pose_mapping

        mapping = load_pose_mapping(args.mapping)
        robot_name = robot_name or mapping.content.robot
    if robot_name is None:
        raise CliError("--robot is missing: name a robot file, or one in configs/robots")
    p = KIND.read(given_values(args, measurements=str(paths[0])) | {"robot": robot_name}, flags=True)
    robot, check = open_robot(robot_name), None if p.check is None else Path(p.check)
    for path in [*paths, *([] if check is None else [check])]:
        if not path.is_file():
            raise CliError(f"{path}: no such file")
    args.output.mkdir(parents=True, exist_ok=True)
    clear_results(args.output, [path for path in (*paths, robot.path, check) if path is not None])
    path = converted(paths, mapping, robot, args.output) if mapping is not None or len(paths) > 1 else paths[0]
    p = p.model_copy(update={"measurements": str(path)})
    return report_outcome(run_operation(KIND, p, args.output), args, print_outcome)


def print_outcome(outcome: Outcome, folder: Path) -> None:
    """Print the verdict, the errors, the parameters, and the output folder."""
    from rt_core.calibration.uncertainty import half_interval
    from service.reports.calibration import VERDICT_TEXT, calibration_facts, undetermined
    from service.reports.cells import number

    m = outcome.metrics
    print(f"{m['verdict']}: {VERDICT_TEXT[m['verdict']]}")
    for reason in [*m["reasons"], *m["doubts"]]:
        print(f"  - {reason}")
    for part in ("training", "test", "check"):
        found = m["residual"][part]
        if found is not None:
            texts = [
                f"{when} {number(found[when]['mean_mm'])} (largest {number(found[when]['max_mm'])})"
                for when in ("before", "after")
            ]
            print(f"{part + ' [mm]':22s}{found['poses']} poses, mean {', '.join(texts)}")
    for name, value in calibration_facts(m):
        print(f"{name:21s} {value}")
    half = half_interval(m["standard_deviations"]["freedom"])
    known = [p for p in m["parameters"] if p["value"] is not None]
    for p in known:
        unit = f"m{p['unit']}"
        shown = f"{number(1e3 * p['value'], 4):>10s} ± {number(1e3 * half * p['std'], 2)}"
        print(f"{p['name']:22s}{shown} {unit}  {p['status']}")
    print(f"{'undetermined':22s}{', '.join(undetermined(m)) or 'none'}")
    print(f"{'written to':22s}{folder}")
