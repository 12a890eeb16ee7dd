"""`thetad identify`: identify a model from recordings and a robot file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rt_core.statistics import NORMAL_QUANTILE_95
from service.cli._common import CliError, Exit, add_json_flag, columns, print_json, print_verdict, write_accepted
from service.reports.cells import VERDICT_TEXT, number

if TYPE_CHECKING:
    from drivers.files.recordings.recording import Recording
    from service.operations.kind import Parameters
    from service.reports.identification_document import IdentificationReport


#: Options of the command alone that only one of the models has.
_RIGID, _ELASTIC = ("plot",), ("table", "online", "forgetting")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: those of the whole arm are parameters of the job `identify`, of a joint of `elastic_joint`."""
    from service.cli._options import add_options
    from service.jobs.kinds import find_kind

    rigid, elastic = find_kind("identify"), find_kind("elastic_joint")
    add = parser.add_argument
    add("recording", metavar="REC", type=Path, nargs="+",
        help="a recording (.mcap), or several of one arm that are used together; see `thetad import`")  # fmt: skip
    add("--model", choices=("rigid", "elastic_joint"), default="rigid", help="the whole arm, or one joint's spring")
    add("--output", "-o", metavar="FILE", type=Path, help="write the model file here (.yaml)")
    add("--report", metavar="FILE", type=Path, help="write a self-contained HTML report here")
    add("--plot", metavar="FILE", type=Path, help="write measured against predicted torque here (.png)")
    add("--force", action="store_true", help="write the model file even if the verdict is bad")
    add_options(parser, rigid)
    add_options(parser, elastic, skip=rigid.parameters.model_fields)
    add("--table", metavar="FILE", type=Path, help="elastic joint: write deflection and torque of every row (.csv)")
    add("--online", action="store_true", help="elastic joint: also the online estimate, in the report")
    add("--forgetting", metavar="L", type=float, help="online: a constant factor instead of the variable")
    add_json_flag(parser)
    parser.set_defaults(run=run, parser=parser)


def run(args: argparse.Namespace) -> int:
    """Identify, report and write the results."""
    from service.cli._options import option
    from service.jobs.kinds import find_kind
    from service.jobs.kinds.identify import RIGID_ONLY

    rigid, elastic = (find_kind(name).parameters for name in ("identify", "elastic_joint"))
    own, other, more = (elastic, rigid, _RIGID) if args.model == "elastic_joint" else (rigid, elastic, _ELASTIC)
    foreign = [name for name in sorted({*more, *other.model_fields} - {*own.model_fields}) if _given(args, name, other)]
    what = f"for --model {args.model}"
    if not foreign and args.joints in ("elastic", "auto"):
        foreign = [name for name in RIGID_ONLY if _given(args, name, own)]
        what = f"with --joints {args.joints}"
    if foreign:
        options = ", ".join(option(name, other if name in other.model_fields else own) for name in foreign)
        raise CliError(f"{options}: not {what}; see `thetad identify --help`")
    if args.model != "elastic_joint":
        return run_rigid(args)
    from service.cli.models._identify_elastic import run_elastic  # with the numerics of elastic joints

    return run_elastic(args)


def _given(args: argparse.Namespace, name: str, parameters: type[Parameters]) -> bool:
    """Return whether an option differs from its default."""
    field = parameters.model_fields.get(name)
    defaults = (None, args.parser.get_default(name), None if field is None else field.default)
    return getattr(args, name, None) not in defaults


def run_rigid(args: argparse.Namespace) -> int:
    """Identify the model of the whole arm."""
    if args.robot is None:
        raise CliError("--robot is missing: name a robot file, or one in configs/robots")
    from drivers.files.atomic_write import write_bytes, write_text
    from service.cli._options import given
    from service.cli._progress import Progress
    from service.jobs.kinds.identify import KIND, identified, with_joints
    from service.operations.inputs import open_robot

    p = KIND.read(given(args, KIND) | {"recording": str(args.recording[0])}, flags=True)
    robot = open_robot(p.robot)
    recording = _read(args)
    with Progress("identify") as progress:
        rigid = identified(p, robot, recording, progress.share)
        report = with_joints(p, rigid)
        each = report.errors_within(recording.spans) if recording.parts else []
        for path, error in zip(args.recording, each, strict=False):
            if not error["rows"]:
                raise CliError(f"{path}: nothing of it can be used: it is shorter than filters and --trim cut off")
    written = write_accepted(args, report.accepted, report.write, "the model does not explain the recording")
    if args.report is not None:
        write_text(args.report, report.html())
    if args.plot is not None:
        from service.reports.figures import torque_figure

        title = f"{robot.model.name}: {recording.path}"
        write_bytes(args.plot, torque_figure(robot.model, report.result.rows, report.predicted, title))
    if args.json:
        paired = [{"path": str(path)} | error for path, error in zip(args.recording, each, strict=False)]
        more = {"recordings": paired} if each else {}
        print_json(report.summary() | {"model": written} | more)
    else:
        print_result(report)
        for path, error in zip(args.recording, each, strict=False):
            sys.stdout.write(f"{path}: relative torque error {100 * error['relative_error']:.2f} %\n")
        if report.joint_model is not None:
            sys.stdout.write(f"joints: {report.joint_model['chosen']}; {report.joint_model['reason']}\n")
    return Exit.OK if report.accepted else Exit.NO


def _read(args: argparse.Namespace) -> Recording:
    """Read the recordings, joining several into one."""
    from drivers.files.recordings.join import join_recordings
    from drivers.files.recordings.recording import read_recording

    recordings = [read_recording(path) for path in args.recording]
    if len(recordings) == 1:
        return recordings[0]
    if single := [name for name in ("span", "period_s") if getattr(args, name) is not None]:
        raise CliError(f"--{single[0].removesuffix('_s')}: of one recording, and there are {len(recordings)}")
    return join_recordings(recordings)


def print_result(report: IdentificationReport) -> None:
    """Print the result, verdict first."""
    result, document = report.result, report.document
    print_verdict(result.verdict, VERDICT_TEXT[result.verdict], result.reasons, report.facts())
    rows: list[tuple[str, ...]] = []
    for j, row in enumerate(document["joints"]):
        rmse, largest, R = (number(v[j]) for v in (result.metrics.rmse, result.metrics.maximum, result.metrics.R))
        rows.append(
            (row["name"], row["verdict"], rmse, largest, report.data.robot.model.torque_units[j], R, row["reason"])
        )
    print(columns(("joint", "verdict", "RMSE", "max", "unit", "R", "because"), rows))
    if result.verdict == "not_explained":
        return
    if document["constants"]:
        rows = [
            (c["name"], *(number(c[key], 4) for key in ("value", "lower", "upper")), c["unit"], c["status"])
            for c in document["constants"]
        ]
        print(columns(("constant", "value", "95 % from", "to", "unit", "status"), rows))
    rows = []
    for p in document["parameters"]:
        half = None if p["std"] is None or p["status"] == "dropped" else NORMAL_QUANTILE_95 * p["std"]
        rows.append((p["name"], number(p["value"], 5), number(half, 2), p["unit"], p["status"], p["expression"]))
    print(columns(("parameter", "value", "±95 %", "unit", "status", "stands for"), rows))
