"""`thetad identify`: identify a model from recordings and a robot file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.cli._common import EXIT_NO, EXIT_OK, CliError, add_json_flag, print_json, verdict_console
from service.cli.models._identify_arm import FOREIGN, check_joints, choose_joints, finish_elastic
from service.cli.models._identify_elastic import ELASTIC_OPTIONS, add_elastic_options, run_elastic
from service.cli.models._identify_joints import write_accepted
from service.config.methods import METHODS

if TYPE_CHECKING:
    from drivers.files.recordings.recording import Recording
    from drivers.files.robots.file import RobotFile
    from rt_core.identification.estimate import EstimatorOptions
    from rt_core.identification.preprocess import SignalSettings
    from rt_core.model.robot import RobotModel
    from service.reports.identification_document import IdentificationReport

EXAMPLES = """\
Examples:
  thetad identify rec.mcap --robot franka_panda -o model.yaml --report report.html
  thetad identify rec.mcap --robot my_arm.toml --method iwls --span 0:0.6 -o model.yaml
  thetad identify rec.mcap --robot my_arm.toml --span 0.1s:4.91s --cutoff 100 --json
  thetad identify rec.mcap --robot my_arm.toml --method physical --prior cad.toml -o model.yaml
  thetad identify rec.mcap --robot my_arm.toml --method pso_lm --formulation full --seed 3
  thetad identify first.mcap second.mcap --robot my_arm.toml -o model.yaml
  thetad identify rec.mcap --robot my_arm.toml --joints auto --json
  thetad identify rec.mcap --model elastic_joint --joint elbow --robot my_arm.toml --sensor --report joint.html
  thetad identify a.mcap b.mcap --model elastic_joint --joint all --robot my_arm.toml --json

How the signals are prepared (cut-off, rate of the rows, trimming, slowest velocity) comes from the
[identification] table of the robot file, or from the options below.

Methods: ols, wls (joints weighted by their residual), iwls (repeatedly, and outliers lose weight), tls and iv
(for noise in the motion), physical (every link a possible body, drawn towards the robot file's or --prior's
links where the data leave it open).  Velocity constants of friction are searched for by variable projection
first; pso, pso_linear, tcs_pso, ga, lm and pso_lm search for them by that optimiser instead, or with
--formulation full for all parameters at once.

--joints elastic needs an encoder on motor and link of every joint: rotors and friction then move with the motors,
and each joint has a stiffness, where the data tell it. --joints auto takes elastic joints only where they predict
held-out torque better than rigid ones beyond chance, else the result is that of rigid joints. -o writes JSON for
elastic joints, which other commands do not read. See docs/elastic-joint.md.

--model elastic_joint is stiffness and friction of one joint with encoders on motor and link, or with --joint all of
each, and then also how late the link encoders are; see docs/elastic-joint.md.

Exit codes: 0 identified; 1 the model does not explain the recording, or these data tell no stiffness (no model
is written, unless --force); 2 wrong input.
"""

#: Options of the whole arm's model, by their names in the parsed arguments.
_RIGID_OPTIONS = (
    "method", "plot", "essential", "loss", "constants", "formulation", "seed", "starts", "bounds", "prior", "weight",
    "rate", "trim", "period", "joints",
)  # fmt: skip


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "identify",
        help="fit the dynamic model of a robot to a recording",
        description="Fit the dynamic model of a robot to a recording: base parameters with standard deviations that\n"
        "account for correlated residuals, and a verdict on what the data support.",
        epilog=EXAMPLES,
    )
    add = parser.add_argument
    add("recording", metavar="REC", type=Path, nargs="+",
        help="a recording (.mcap), or several of one arm that are used together; see `thetad import`")  # fmt: skip
    add("--robot", metavar="R", help="robot file, or the name of one in configs/robots")
    add("--model", choices=("rigid", "elastic_joint"), default="rigid", help="the whole arm, or one joint's spring")
    add("--joints", choices=("rigid", "elastic", "auto"), default="rigid",
        help="whether the whole arm's joints give way, see below (default: rigid)")  # fmt: skip
    add("--method", choices=METHODS, default="wls", help="estimator, see below (default: wls)")
    add("--span", metavar="A:B", help="part to use: fractions (0:0.6) or seconds (0.1s:4.91s)")
    add("--output", "-o", metavar="FILE", type=Path, help="write the model file here (.yaml)")
    add("--report", metavar="FILE", type=Path, help="write a self-contained HTML report here")
    add("--plot", metavar="FILE", type=Path, help="write measured against predicted torque here (.png)")
    add("--force", action="store_true", help="write the model file even if the verdict is bad")
    add_estimator_options(parser)
    add_signal_options(parser)
    add("--period", metavar="S", type=positive, help="average over the periods of a motion that was repeated first")
    add_elastic_options(parser)
    add_json_flag(parser)
    parser.set_defaults(run=run, parser=parser)


def add_estimator_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the estimators."""
    group = parser.add_argument_group("estimator")
    add = group.add_argument
    add("--essential", action="store_true", help="drop parameters that the data do not support")
    add("--loss", choices=("bisquare", "huber", "none"), default="bisquare", help="iwls: how outliers lose weight")
    add("--constants", choices=("search", "given"), default="search", help="velocity constants of friction")
    add("--formulation", choices=("separable", "full"), default="separable", help="what a search runs over")
    add("--seed", metavar="N", type=int, default=0, help="seed of a search (default: 0)")
    add("--starts", metavar="N", type=int, default=8, help="starts of the separable search (default: 8)")
    add("--bounds", metavar="NAME=LOW:HIGH", nargs="+", default=[],
        help="range of a parameter in a search, for example vb2=0.01:0.2")  # fmt: skip
    add("--prior", metavar="R", help="physical: robot file with the prior (default: the robot itself)")
    add("--weight", metavar="W", type=positive, help="physical: weight of the prior (from data)")


def options_of(args: argparse.Namespace, model: RobotModel) -> EstimatorOptions:
    """Return the estimator options of a command line for the robot `model`."""
    from drivers.files.robots.file import load_robot
    from rt_core.identification.estimate import EstimatorOptions
    from service.operations.identify import prior_model

    bounds: dict[str, tuple[float, float]] = {}
    for text in args.bounds:
        name, equals, given = text.partition("=")
        low, colon, high = given.partition(":")
        try:
            bounds[name] = float(low), float(high)
        except ValueError:
            equals = ""
        if not (equals and colon and name):
            raise CliError(f"--bounds {text}: write NAME=LOW:HIGH, for example vb2=0.01:0.2")
    return EstimatorOptions(
        method=args.method, formulation=args.formulation, loss=None if args.loss == "none" else args.loss,
        constants=args.constants, essential=args.essential, seed=args.seed, starts=args.starts, bounds=bounds or None,
        prior=None if args.prior is None else prior_model(model, load_robot(args.prior).model), weight=args.weight,
    )  # fmt: skip


def add_signal_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that override a robot file's `[identification]`."""
    group = parser.add_argument_group("signal preparation (default: the robot file's [identification])")
    group.add_argument("--cutoff", metavar="HZ", type=positive, help="zero-phase low-pass on position and torque")
    group.add_argument("--rate", metavar="HZ", type=positive, help="rate of the rows after decimation")
    group.add_argument("--trim", metavar="S", type=float, help="cut at both ends of each recording")
    group.add_argument(
        "--min-velocity", metavar="V", type=float, nargs="+",
        help="leave out slower samples, one value or one per joint",
    )  # fmt: skip


def positive(text: str) -> float:
    """Read a number above zero, for argparse."""
    value = float(text)
    if not 0.0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def settings_of(args: argparse.Namespace, robot: RobotFile) -> SignalSettings:
    """Return the robot file's signal settings, overridden by the command line's options."""
    import math

    from service.operations.identify import signal_settings, slowest_velocity

    if args.trim is not None and not 0.0 <= args.trim < math.inf:
        raise CliError("--trim must be finite and not negative")
    slowest = slowest_velocity(robot, args.min_velocity)
    return signal_settings(robot, cutoff_hz=args.cutoff, rate_hz=args.rate, trim_s=args.trim, min_velocity=slowest)


def run(args: argparse.Namespace) -> int:
    """Identify, report and write the results."""
    elastic = args.model == "elastic_joint"
    foreign = [name for name in (_RIGID_OPTIONS if elastic else ELASTIC_OPTIONS) if _given(args, name)]
    if foreign:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in foreign)
        raise CliError(f"{options}: not for --model {args.model}; see `thetad identify --help`")
    if args.joints != "rigid" and (foreign := [name for name in FOREIGN if _given(args, name)]):
        options = ", ".join(f"--{name}" for name in foreign)
        raise CliError(f"{options}: not with --joints {args.joints}; see `thetad identify --help`")
    return run_elastic(args) if elastic else run_rigid(args)


def _given(args: argparse.Namespace, name: str) -> bool:
    """Return whether an option differs from its default."""
    return bool(getattr(args, name) != args.parser.get_default(name))


def run_rigid(args: argparse.Namespace) -> int:
    """Identify the model of the whole arm."""
    if args.robot is None:
        raise CliError("--robot is missing: name a robot file, or one in configs/robots")
    from drivers.files.atomic_write import write_bytes, write_text
    from drivers.files.recordings.recording import Span
    from drivers.files.robots.file import load_robot
    from service.cli._progress import Progress
    from service.models.document import write_model
    from service.reports.figures import torque_figure
    from service.reports.identification_document import report_identification

    robot = load_robot(args.robot)
    span = None if args.span is None else Span.parse(args.span)
    settings = settings_of(args, robot)
    options = options_of(args, robot.model)
    recording = _read(args)
    if args.period is not None:
        from service.operations.identify import average_recording

        recording = average_recording(recording, args.period)
    check_joints(args.joints, recording, robot.model)
    with Progress("identify") as progress:
        report = report_identification(recording, robot, settings, options=options, span=span, callback=progress.search)
        each = report.errors_within(recording.spans) if recording.parts else []
        for path, error in zip(args.recording, each, strict=False):
            if not error["rows"]:
                raise CliError(f"{path}: nothing of it can be used: it is shorter than filters and --trim cut off")
        choice = None if args.joints == "rigid" else choose_joints(args.joints, report)
    if choice is not None and choice.arm is not None:
        return finish_elastic(args, choice, choice.arm)
    why = "the model does not explain the recording"
    written = write_accepted(args, report.accepted, lambda path: write_model(report.document, path), why)
    if args.plot is not None:
        title = f"{robot.model.name}: {recording.path}"
        write_bytes(args.plot, torque_figure(robot.model, report.result.rows, report.predicted, title))
    if args.report is not None:
        write_text(args.report, report.html())
    if args.json:
        more: dict[str, Any] = {} if choice is None else {"joint_model": choice.document()}
        if each:
            more["recordings"] = [{"path": str(p)} | error for p, error in zip(args.recording, each, strict=True)]
        print_json(report.summary() | {"model": written} | more)
    else:
        print_result(report)
        for path, error in zip(args.recording, each, strict=False):
            sys.stdout.write(f"{path}: relative torque error {100 * error['relative_error']:.2f} %\n")
        if choice is not None:
            sys.stdout.write(f"joints: rigid; {choice.reason}\n")
    return EXIT_OK if report.accepted else EXIT_NO


def _read(args: argparse.Namespace) -> Recording:
    """Read the recordings, joining several into one."""
    from drivers.files.recordings.join import JoinError, join_recordings
    from drivers.files.recordings.recording import read_recording

    recordings = [read_recording(path) for path in args.recording]
    if len(recordings) == 1:
        return recordings[0]
    if given := [name for name in ("span", "period") if getattr(args, name) is not None]:
        raise CliError(f"--{given[0]}: of one recording, and there are {len(recordings)}")
    try:
        return join_recordings(recordings)
    except JoinError as error:
        raise CliError(str(error)) from error


def print_result(report: IdentificationReport) -> None:
    """Print the result, verdict first."""
    from rich.table import Table
    from rich.text import Text

    from service.reports.identification import VERDICT_TEXT, number

    result, document = report.result, report.document
    console = verdict_console(result.verdict, VERDICT_TEXT[result.verdict], result.reasons, report.facts())
    table = Table("joint", "verdict", "RMSE", "max", "R", "because", box=None, pad_edge=False)
    for j, row in enumerate(document["joints"]):
        values = (result.metrics.rmse[j], result.metrics.maximum[j], result.metrics.R[j])
        table.add_row(Text(row["name"]), row["verdict"], *(number(v) for v in values), Text(row["reason"]))
    console.print(table)
    if result.verdict == "not_explained":
        return
    if document["constants"]:
        table = Table("constant", "value", "95 % from", "to", "unit", "status", box=None, pad_edge=False)
        for c in document["constants"]:
            table.add_row(
                c["name"], *(number(c[key], 4) for key in ("value", "lower", "upper")), c["unit"], c["status"]
            )
        console.print(table)
    table = Table("parameter", "value", "±95 %", "unit", "status", "stands for", box=None, pad_edge=False)
    for p in document["parameters"]:
        half = None if p["std"] is None or p["status"] == "dropped" else 1.96 * p["std"]
        cells = (p["name"], number(p["value"], 5), number(half, 2), p["unit"], p["status"], p["expression"])
        table.add_row(*(Text(c) for c in cells))
    console.print(table)
