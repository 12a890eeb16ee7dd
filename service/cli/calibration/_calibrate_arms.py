"""`thetad calibrate --arm`: several arms measured by one instrument, and the poses of their bases."""

import argparse
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from drivers.files.atomic_write import write_text
from drivers.files.importing.pose_mapping import load_pose_mapping
from drivers.files.robots.file import RobotError, RobotFile
from rt_core.calibration.cell.arms import CellArm, check_shared, together
from rt_core.calibration.sample import Contacts, Distances
from service.cli._common import CliError, Exit, printed_json
from service.cli._progress import Progress
from service.cli.calibration._inputs import clear_results, converted, given_values
from service.jobs.kinds.calibrate import KIND, calibrated_arm
from service.operations.calibration.table import read_table
from service.operations.errors import OperationError
from service.operations.inputs import open_robot
from service.operations.workspace import Input, Workspace
from service.protocol.json_values import json_values
from service.reports.calibration_cell import ArmResult, cell_document, cell_lines

CELL = "cell.json"


@dataclass(frozen=True, eq=False)
class GivenArm:
    """One `--arm`: the arm's name in results, its robot, and the tables in the order of the stations."""

    name: str
    text: str
    robot: RobotFile
    paths: list[Path]


def run_arms(args: argparse.Namespace) -> int:
    """Calibrate the arms, relate their bases to each other, and write the results."""
    if args.measurements or args.robot is not None:
        extra = args.measurements[0] if args.measurements else f"--robot {args.robot}"
        raise CliError(f"{extra}: with --arm robots and files are in it: --arm ROBOT=FILE[,FILE]")
    values = given_values(args)
    if values.get("base") is False:
        raise CliError("--set base=false: with several arms each base in the instrument's frame has to be found")
    KIND.read(values | {"measurements": "-"}, flags=True)  # refused before results of an earlier run are removed
    arms = given_arms(args.arms)
    mapping = None if args.mapping is None else load_pose_mapping(args.mapping)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    tables, stations = [], []
    # Remove results of an earlier run first, so that they cannot be taken for those of this run.
    inputs = [path for arm in arms for path in (*arm.paths, *([arm.robot.path] if arm.robot.path else []))]
    for arm in arms:
        clear_results(args.output / arm.name, inputs)
    (args.output / CELL).unlink(missing_ok=True)
    for arm in arms:
        try:
            table, seen = _prepared(arm, mapping, args.output / arm.name)
        except OperationError as error:
            raise CliError(f"--arm {arm.text}: {error}") from error
        tables.append(table)
        stations.append(seen)
    check_shared([arm.name for arm in arms], stations)
    results = []
    with Progress("calibrate") as progress:
        for k, (arm, table, seen) in enumerate(zip(arms, tables, stations, strict=True)):

            def report(share: float, what: str, k: int = k, name: str = arm.name) -> None:
                progress.step((k + share) / len(arms), 1.0, f"{name}: {what}")

            inputs_of_arm = {"measurements": Input.of(table)}
            workspace = Workspace(args.output / arm.name, created, inputs=inputs_of_arm, report=report)
            results.append(_calibrated(arm, seen, values, workspace))
    cell = together([result.arm for result in results])
    document = json_values(cell_document(cell, results, created))
    write_text(args.output / CELL, json.dumps(document, allow_nan=False, indent=1) + "\n")
    if not printed_json(args, document | {"output": str(args.output)}):
        print("\n".join([*cell_lines(document), f"{'written to':22s}{args.output / CELL}"]))
    return Exit.OK if cell.verdict == "ok" else Exit.NO


def given_arms(texts: list[str]) -> list[GivenArm]:
    """Read all `--arm ROBOT=FILE[,FILE]`; `CliError` if a robot or a file does not exist or is given twice."""
    found: list[GivenArm] = []
    owner: dict[Path, str] = {}
    for text in texts:
        robot_name, equals, files = text.partition("=")
        names = [name.strip() for name in files.split(",")]
        if not (equals and robot_name.strip() and all(names)):
            raise CliError(f"--arm {text}: is not ROBOT=FILE[,FILE]")
        robot_name = robot_name.strip()
        try:
            robot = open_robot(robot_name)
        except (RobotError, OSError) as error:
            raise CliError(f"--arm {text}: {error}") from error
        name = Path(robot_name).stem
        for other in found:
            if other.name == name:
                raise CliError(
                    f"--arm {text}: {name} is given twice: all tables of one arm go into one --arm, "
                    f"{robot_name}=FILE,FILE; for two arms of a kind give each a robot file with a name of its own"
                )
        paths = [Path(file) for file in names]
        for path in paths:
            if not path.is_file():
                raise CliError(f"--arm {text}: {path}: no such file")
            before = owner.get(path.resolve())
            if before == name:
                raise CliError(f"--arm {text}: {path} is there twice: give each station its own table")
            if before is not None:
                raise CliError(f"--arm {text}: {path} is {before}'s already: give each arm its own table")
            owner[path.resolve()] = name
        found.append(GivenArm(name, text, robot, paths))
    if len(found) < 2:
        raise CliError(f"--arm {texts[0]}: is one arm alone: give --arm for each arm, or FILE and --robot for one")
    return found


def _prepared(arm: GivenArm, mapping: Any, folder: Path) -> tuple[Path, tuple[int, ...]]:
    """Return the table of an arm, converted if needed, and the numbers of its stations."""
    folder.mkdir(parents=True, exist_ok=True)
    path = arm.paths[0]
    if mapping is not None or len(arm.paths) > 1:
        path = converted(arm.paths, mapping, arm.robot, folder)
    table = read_table(path, str(path), arm.robot.model.n)
    if isinstance(table.measured, (Contacts, Distances)):
        raise OperationError(
            f"{path}: has no positions of an instrument, which is what arms share: calibrate this arm alone"
        )
    return path, table.station_numbers or (1,)


def _calibrated(arm: GivenArm, stations: tuple[int, ...], values: dict[str, Any], workspace: Workspace) -> ArmResult:
    robot_name, table = arm.text.partition("=")[0].strip(), str(workspace.inputs["measurements"].path)
    try:
        parameters = KIND.read(values | {"robot": robot_name, "measurements": table})
        found, outcome = calibrated_arm(parameters, workspace)
    except OperationError as error:
        raise CliError(f"--arm {arm.text}: {error}") from error
    paths, folder = [str(path) for path in arm.paths], str(workspace.folder)
    return ArmResult(CellArm(arm.name, found, stations), outcome, robot_name, paths, folder)
