"""`thetad poses`: where to measure an arm for its calibration, and a simulated tracker to rehearse it."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.cli._common import CliError, Exit, add_action, add_run, json_text, printed_json, read_help, whole_number
from service.reports.cells import number

if TYPE_CHECKING:
    from drivers.files.robots.file import RobotFile
    from rt_core.calibration.planning import PosePlan
    from sim_backend.arm.laser_tracker import TrackedArm, TrackerSettings

HELP = read_help(__file__)

_FAR = 10.0  # [m]
_SIZE = 1e-3  # of drawn errors [m], [rad]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True, parser_class=type(parser))
    plan = add_action(what, "plan", "where to measure", HELP)
    add_plan = plan.add_argument
    add_plan("robot", metavar="ROBOT", help="robot file, or the name of one in configs/robots")
    add_plan("--output", "-o", metavar="FILE", type=Path, required=True, help="write the poses here (.csv)")
    add_plan("--count", metavar="N", type=int, default=45, help="poses on the spirals (default: 45)")
    add_plan("--select", metavar="K", type=int, help="choose these many of them")
    add_plan("--layers", metavar="M", type=int, default=4, help="spheres (default: 4)")
    add_plan("--radius", metavar="M", type=float, help="of the largest sphere [m] (default: 0.8 of the reach)")
    add_plan("--inner", metavar="M", type=float, help="radius that the inner ones go towards [m]")
    add_plan("--singularity", metavar="C", type=float, default=0.02,
             help="least reciprocal condition number of the joint Jacobian (default: 0.02)")  # fmt: skip
    add_plan("--margin", metavar="S", type=float, default=0.02,
             help="share of a joint's range to keep free at each limit (default: 0.02)")  # fmt: skip
    add_plan("--floor", metavar="Z", type=float, help="no joint may be below this height in the base [m]")
    add_plan("--turn", metavar="DEG", type=float, default=0.0, help="turn the spirals, for other poses")
    add_plan("--orientation", action="store_true", help="judge the poses for measured orientation, too")
    add_plan(
        "--target", metavar=("X", "Y", "Z"), type=float, nargs=3,
        help="the point that will be measured, from the tip along the tip's axes [m] (default: the tip)",
    )  # fmt: skip
    add_plan("--seed", metavar="N", type=whole_number, default=0, help="of the postures that are tried (default: 0)")
    add_run(plan, run_plan)
    measure = add_action(what, "measure", "a simulated tracker", HELP)
    add_measure = measure.add_argument
    add_measure("poses", metavar="POSES", type=Path, help="table of `thetad poses plan`")
    add_measure("--robot", metavar="R", required=True, help="robot file, or the name of one")
    add_measure("--output", "-o", metavar="FILE", type=Path, required=True, help="write it here (.csv)")
    add_measure("--truth", metavar="FILE", type=Path, help="write what was drawn here (.json)")
    add_measure("--true", metavar="FILE",
                help="the true arm instead of a drawn one: what --truth wrote (.json), or a robot file")  # fmt: skip
    add_measure("--true-robot", metavar="FILE", type=Path, help="write the true arm as a robot file (.toml)")
    add_measure("--error-length", metavar="M", type=float, help="of the arm [m] (1e-3)")
    add_measure("--error-angle", metavar="RAD", type=float, help="of the arm [rad] (1e-3)")
    add_measure("--target", metavar=("X", "Y", "Z"), type=float, nargs=3,
                help="the target, from the tip along the tip's axes [m] (default: 50 mm away, drawn)")  # fmt: skip
    add_measure("--station", metavar="N", type=int, default=1, help="place of the tracker, from 1 (default: 1)")
    add_measure("--noise", metavar="M", type=float, default=5e-5, help="of a coordinate [m] (5e-5)")
    add_measure("--noise-angle", metavar="RAD", type=float, default=1e-4, help="of orientation [rad] (1e-4)")
    add_measure("--outliers", metavar="SHARE", type=float, default=0.0, help="share of bad readings (0)")
    add_measure("--orientation", action="store_true", help="measure orientation, too")
    add_measure("--base-frame", action="store_true", help="measure in the robot's base frame")
    add_measure("--seed", metavar="N", type=whole_number, default=0, help="of all that is drawn (default: 0)")
    add_measure("--noise-seed", metavar="N", type=whole_number,
                help="of noise and bad readings, to measure the same arm once more (default: --seed)")  # fmt: skip
    add_run(measure, run_measure)


def run_plan(args: argparse.Namespace) -> int:
    """Plan, select and judge the poses, and write them."""
    import numpy as np

    from drivers.files.atomic_write import write_text
    from drivers.files.robots.file import load_robot
    from rt_core.calibration.planning import PlanningError, PlanSettings, fibonacci_plan, judged_poses
    from rt_core.calibration.selection import d_optimal
    from service.cli._progress import Progress
    from service.operations.calibration.nominal_geometry import nominal_geometry
    from service.operations.calibration.table import POSITION, table_text

    geometry = nominal_geometry(load_robot(args.robot))
    if args.target is not None:
        place = np.array(args.target)
        if not np.abs(place).max() < _FAR:
            raise CliError(f"--target: give three numbers within {_FAR:g} m of the tip")
        geometry = replace(geometry, tip_translation=geometry.tip_translation + geometry.tip_rotation @ place)
    settings = PlanSettings(
        args.count, args.layers, args.radius, args.inner, singularity=args.singularity, margin=args.margin,
        floor=args.floor, seed=args.seed, turn=math.radians(args.turn),
    )  # fmt: skip
    if args.select is not None and not 1 <= args.select <= args.count:
        raise CliError(f"--select {args.select}: give 1 to --count ({args.count})")
    with Progress("poses") as progress:
        plan = fibonacci_plan(geometry, settings, on_progress=progress.share)
    reached = plan.found
    short = [k for k, (count, wanted) in enumerate(zip(reached, plan.wanted, strict=True)) if count < wanted]
    if args.select is not None:
        _, J, _ = judged_poses(geometry, plan.q, orientation=args.orientation)
        try:
            plan = plan.take(d_optimal(J, args.select, args.seed))
        except ValueError as error:
            raise PlanningError(f"--select: {error}") from None
    plan = plan.take(short_way(plan.q))
    found, _, indices = judged_poses(geometry, plan.q, orientation=args.orientation)
    names = [*(f"q{k + 1}" for k in range(geometry.n)), *POSITION]
    write_text(args.output, table_text(names, np.hstack((plan.q, plan.positions))))
    result = {
        "poses": len(plan.q),
        "layers": [
            {"radius": radius, "wanted": wanted, "found": count, "chosen": chosen}
            for radius, wanted, count, chosen in zip(plan.radii, plan.wanted, reached, plan.found, strict=True)
        ],
        "orientation": args.orientation, "target": args.target, "rank": found.rank,
        "condition_number": found.condition_number,
        "observability": {name: getattr(indices, name) for name in ("O1", "O2", "O3", "O4", "O5")},
        "fixed": [{"name": item.name, "reason": item.reason, "on": dict(item.on)} for item in found.fixed],
        "least_dexterity": float(plan.dexterity.min()), "output": str(args.output),
    }  # fmt: skip
    if not printed_json(args, result):
        _print_plan(plan, result, short)
    return Exit.NO if short else Exit.OK


def short_way(q: Any) -> Any:
    """Return an order of postures (N, n): from the first one always to the nearest of those left."""
    import numpy as np

    left = list(range(1, len(q)))
    order = [0]
    while left:
        k = int(np.argmin(np.abs(q[left] - q[order[-1]]).max(axis=1)))
        order.append(left.pop(k))
    return np.array(order)


def _print_plan(plan: PosePlan, result: dict[str, Any], short: list[int]) -> None:
    print(f"{result['poses']} poses on spheres of " + ", ".join(f"{1e3 * r:.0f}" for r in plan.radii) + " mm: "
          + ", ".join(str(k) for k in plan.found))  # fmt: skip
    for k in short:
        layer = result["layers"][k]
        print(f"  - sphere {k + 1}: the arm reaches {layer['found']} of {layer['wanted']} points")
    print(f"{'determined':22s}{result['rank']} parameters, condition number {number(result['condition_number'])}")
    print(f"{'observability':22s}" + ", ".join(f"{k} {number(v, 3)}" for k, v in result["observability"].items()))
    held = [f"{item['name']} ({item['reason']})" for item in result["fixed"]]
    print(f"{'not determined':22s}{', '.join(held) or 'none'}")
    print(f"{'nearest singularity':22s}reciprocal condition number {number(result['least_dexterity'], 2)}")
    print(f"{'written to':22s}{result['output']}")


def run_measure(args: argparse.Namespace) -> int:
    """Measure with a simulated tracker."""
    import numpy as np

    from drivers.files.atomic_write import write_text
    from drivers.files.robots.file import load_robot
    from service.operations.calibration.nominal_geometry import nominal_geometry
    from service.operations.calibration.table import columns_of, read_table, table_text
    from service.operations.true_arm import true_robot_text
    from sim_backend.arm.laser_tracker import TrackerSettings

    robot = load_robot(args.robot)
    geometry = nominal_geometry(robot)
    table = read_table(args.poses, str(args.poses), geometry.n)
    settings = TrackerSettings(
        _SIZE if args.error_length is None else args.error_length,
        _SIZE if args.error_angle is None else args.error_angle,
        args.noise, args.noise_angle, args.outliers,
        orientation=args.orientation, own_frame=not args.base_frame, seed=args.seed,
        noise_seed=args.noise_seed, place=None if args.target is None else tuple(args.target), station=args.station,
    )  # fmt: skip
    arm, true = _tracked(args, robot, settings)
    measured, bad = arm.measure(table.q)
    write_text(args.output, table_text(columns_of(geometry.n, measured), np.hstack((table.q, measured))))
    if args.truth is not None:
        nothing = np.zeros(arm.model.size)
        frames = {name: arm.model.frame(name, nothing) for name in ("base", "tool")}
        truth = {
            "errors": {k: v for k, v in zip(arm.model.names, arm.errors, strict=True) if "_" not in k},
            "station": args.station,
            "outliers": [table.lines[i] for i in np.flatnonzero(bad)],
        } | {name: {"rotation": R, "translation": t} for name, (R, t) in frames.items()}
        write_text(args.truth, json_text(truth))
    if args.true_robot is not None:
        write_text(args.true_robot, true_robot_text(true, arm))
    result = {"poses": len(table.q), "outliers": int(bad.sum()), "output": str(args.output)}
    if not printed_json(args, result):
        print(f"{result['poses']} poses, {result['outliers']} of them bad readings, written to {args.output}")
    return Exit.OK


def _tracked(args: argparse.Namespace, robot: RobotFile, settings: TrackerSettings) -> tuple[TrackedArm, RobotFile]:
    """Return the arm to measure, drawn or from --true, and the robot file that it deviates from."""
    from drivers.files.robots.file import load_robot
    from rt_core.calibration.error_model import error_model
    from service.operations.calibration.nominal_geometry import nominal_geometry
    from service.operations.true_arm import Truth, read_truth
    from sim_backend.arm.laser_tracker import TrackedArm

    if args.true is None:
        return TrackedArm.of(nominal_geometry(robot), settings), robot
    for name in ("error_length", "error_angle"):
        if getattr(args, name) is not None:
            raise CliError(f"--{name.replace('_', '-')} draws an arm, and --true gives one: leave one of them out")
    if args.true.lower().endswith(".json"):
        geometry = nominal_geometry(robot)
        known = [name for name in error_model(geometry).names if "_" not in name]
        truth = read_truth(Path(args.true), known)
    else:
        if args.truth is not None:
            raise CliError("--truth writes errors against --robot; with a robot file as --true leave it out")
        robot, nominal = load_robot(args.true), robot.model
        if robot.model.n != nominal.n:
            raise CliError(f"--true {args.true}: has {robot.model.n} joints, {args.robot} has {nominal.n}")
        geometry, truth = nominal_geometry(robot), Truth({})
    if args.base_frame and truth.base is not None:
        raise CliError(f"--base-frame: {args.true} has a base in the tracker's frame: leave one of them out")
    tool = truth.tool if args.target is None else None
    base = truth.base if truth.station == args.station else None
    return TrackedArm.of(geometry, settings, truth.errors, base, tool), robot
