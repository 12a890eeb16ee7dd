"""`thetad demo`: the complete workflow with a simulated arm, compared with its true parameters."""

import argparse
import sys
from pathlib import Path
from typing import Any

from service.cli._common import Exit, UnavailableError, add_run, number, printed_json, whole_number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add("--robot", help="robot file or name: space6, arm7, arm9 (default: space6, on a bus arm9)")
    seconds = number(10.0, 3600.0)
    add("--excite", type=seconds, default=40.0, metavar="S", help="exciting motion (default: %(default)s s)")
    add("--validate", type=seconds, default=20.0, metavar="S", help="second motion (default: %(default)s s)")
    add("--seed", type=whole_number, default=1, help="of motion and noise (default: %(default)s)")
    add("--output", "-o", type=Path, default=Path("runs/demo"), metavar="DIR",
        help="where recording, models, report and log go (default: %(default)s)")  # fmt: skip
    bus = parser.add_mutually_exclusive_group()
    bus.add_argument("--ethercat", action="store_const", const="ethercat", dest="bus",
                     help="over a real EtherCAT master and simulated drives")  # fmt: skip
    bus.add_argument("--ads", action="store_const", const="ads", dest="bus",
                     help="over ADS (pyads) and a simulated PLC")  # fmt: skip
    add_run(parser, run)


def run(args: argparse.Namespace) -> int:
    """Run the demonstration and print its summary."""
    from service.client import ClientError, ControlError
    from service.demo.demo import Demonstration, DemonstrationError, run_demonstration

    args.output.mkdir(parents=True, exist_ok=True)
    robot = args.robot or ("arm9" if args.bus else "space6")
    what = Demonstration(robot, args.excite, args.validate, args.seed, args.bus)
    log = args.output / "daemon.log"
    try:
        result = run_demonstration(what, args.output, log, lambda line: print(line, file=sys.stderr, flush=True))
    except (DemonstrationError, ClientError, ControlError) as error:
        raise UnavailableError(f"{error} (log: {log})") from error
    if not printed_json(args, result):
        show(result)
    return Exit.OK if result["passed"] else Exit.NO


def show(result: dict[str, Any]) -> None:
    """Print the summary."""
    from service.reports.cells import number

    frames = result["frames"]
    print(f"\n{result['robot']}: {frames['received']} frames received, {frames['lost']} lost")
    print("\nTorque of the second motion, predicted by what was learned in the first:")
    print(f"{'joint':12s}{'online R':>10s}{'RMSE':>9s}{'batch R':>11s}{'RMSE':>9s}")
    for j, joint in enumerate(result["joints"]):
        cells = [result[kind][key][j] for kind in ("online", "batch") for key in ("R", "rmse")]
        print(f"{joint:12s}" + "".join(f"{number(v):>{w}s}" for v, w in zip(cells, (10, 9, 11, 9), strict=True)))
    for kind in ("online", "batch"):
        print(
            f"{kind}: relative torque error {100 * result[kind]['relative_error']:.2f} %; "
            f"{100 * result[kind]['coverage_95']:.0f} % of the {result['parameters']} true parameters lie within "
            "their stated 95 % intervals"
        )
    if result["bus"] is not None:
        show_bus(result)
    print(f"\nreport     {result['files']['report']}")
    print(f"models     {result['files']['online_model']}, {result['files']['batch_model']}")
    print(f"recording  {result['files']['recording']}")
    print("PASSED" if result["passed"] else "NOT PASSED")


def show_bus(result: dict[str, Any]) -> None:
    """Print the counts of the bus's cycles and their timing."""
    bus, frames = result["bus"], result["frames"]
    late = f"{bus['overruns']} skipped because the loop was late, " if "overruns" in bus else ""
    print(
        f"\nbus: {bus['frames']} cycles with a frame, {late}{bus['lost_cycles']} lost; of {frames['sent']} frames "
        f"sent, {frames['received']} were estimated with and {frames['recorded']} recorded"
    )
    print(f"{'us':28s}{'p50':>9s}{'p99':>9s}{'p99.9':>9s}{'max':>9s}")
    rows = [(name.replace("_", " "), row) for name, row in bus["timing"].items()]
    if result["empty_loop_us"]:
        rows.append(("period of an empty loop", result["empty_loop_us"]))
    rows.append(("frame to estimate", result["latency_us"]))
    for name, row in rows:
        print(f"{name:28s}" + "".join(f"{row[key]:9.0f}" for key in ("p50_us", "p99_us", "p999_us", "max_us")))
