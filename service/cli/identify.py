"""`thetad identify`: a recording and a robot file in, a model file with a verdict out."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.cli.common import EXIT_NO, EXIT_OK, CliError, add_json_flag, fail, print_json

if TYPE_CHECKING:
    from drivers.recording import Recording, Span
    from drivers.robot_file import RobotFile
    from rt_core.batch.estimate import EstimatorOptions
    from rt_core.batch.identify import Identification
    from rt_core.batch.preprocess import SignalSettings
    from rt_core.model.robot import RobotModel

METHODS = ("ols", "wls", "iwls", "tls", "iv", "physical", "pso", "pso_linear", "tcs_pso", "ga", "lm", "pso_lm")

EXAMPLES = """\
Examples:
  thetad identify rec.mcap --robot franka_panda -o model.yaml --report report.html
  thetad identify rec.mcap --robot my_arm.toml --method iwls --span 0:0.6 -o model.yaml
  thetad identify rec.mcap --robot my_arm.toml --span 0.1s:4.91s --cutoff 100 --json
  thetad identify rec.mcap --robot my_arm.toml --method physical --prior cad.toml -o model.yaml
  thetad identify rec.mcap --robot my_arm.toml --method pso_lm --formulation full --seed 3

How the signals are prepared (cut-off, rate of the rows, trimming, slowest velocity) comes from the
[identification] table of the robot file, or from the options below.

Methods: ols, wls (joints weighted by their residual), iwls (repeatedly, and outliers lose weight), tls and iv
(for noise in the motion), physical (every link a possible body, drawn towards the robot file's or --prior's
links where the data leave it open).  Velocity constants of friction are searched for by variable projection
first; pso, pso_linear, tcs_pso, ga, lm and pso_lm search for them by that optimiser instead, or with
--formulation full for all parameters at once.

Exit codes: 0 identified; 1 the model does not explain the recording (no model is written, unless
--force); 2 wrong input.
"""


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "identify",
        help="fit the dynamic model of a robot to a recording",
        description="Fit the dynamic model of a robot to a recording: base parameters with standard deviations that\n"
        "account for correlated residuals, and a verdict on what the data support.",
        epilog=EXAMPLES,
    )
    parser.add_argument("recording", metavar="REC", type=Path, help="a recording (.mcap); see `thetad import`")
    parser.add_argument("--robot", metavar="R", required=True, help="robot file, or the name of one in configs/robots")
    parser.add_argument("--method", choices=METHODS, default="wls", help="estimator, see below (default: wls)")
    parser.add_argument("--span", metavar="A:B", help="part to use: fractions (0:0.6) or seconds (0.1s:4.91s)")
    parser.add_argument("--output", "-o", metavar="FILE", type=Path, help="write the model file here (.yaml)")
    parser.add_argument("--report", metavar="FILE", type=Path, help="write a self-contained HTML report here")
    parser.add_argument("--plot", metavar="FILE", type=Path, help="write measured against predicted torque here (.png)")
    parser.add_argument("--force", action="store_true", help="write the model file even if the verdict is bad")
    add_estimator_options(parser)
    add_signal_options(parser)
    add_json_flag(parser)
    parser.set_defaults(run=run)


def add_estimator_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the estimators."""
    group = parser.add_argument_group("estimator")
    group.add_argument("--essential", action="store_true", help="drop parameters that the data do not support")
    group.add_argument(
        "--loss", choices=("bisquare", "huber", "none"), default="bisquare", help="iwls: how outliers lose weight"
    )
    group.add_argument(
        "--constants", choices=("search", "given"), default="search", help="velocity constants of friction"
    )
    group.add_argument(
        "--formulation", choices=("separable", "full"), default="separable", help="what a search runs over"
    )
    group.add_argument("--seed", metavar="N", type=int, default=0, help="seed of a search (default: 0)")
    group.add_argument("--starts", metavar="N", type=int, default=8, help="starts of the separable search (default: 8)")
    group.add_argument(
        "--bounds",
        metavar="NAME=LOW:HIGH",
        nargs="+",
        default=[],
        help="range of a parameter in a search, for example vb2=0.01:0.2",
    )
    group.add_argument("--prior", metavar="R", help="physical: robot file with the prior (default: the robot itself)")
    group.add_argument("--weight", metavar="W", type=positive, help="physical: weight of the prior (from data)")


def options_of(args: argparse.Namespace, model: RobotModel) -> EstimatorOptions:
    """Estimator options of a command line, for the robot `model`."""
    from dataclasses import replace

    from drivers.robot_file import load_robot
    from rt_core.batch.estimate import EstimatorOptions
    from rt_core.model.frames import inertial_in_frames_of

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
    prior = None
    if args.prior is not None:
        given = load_robot(args.prior).model
        prior = replace(model, name=given.name, inertial=inertial_in_frames_of(model, given), dynamics=given.dynamics)
    return EstimatorOptions(
        method=args.method,
        formulation=args.formulation,
        loss=None if args.loss == "none" else args.loss,
        constants=args.constants,
        essential=args.essential,
        seed=args.seed,
        starts=args.starts,
        bounds=bounds or None,
        prior=prior,
        weight=args.weight,
    )


def add_signal_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that override a robot file's `[identification]`."""
    group = parser.add_argument_group("signal preparation (default: the robot file's [identification])")
    group.add_argument("--cutoff", metavar="HZ", type=positive, help="zero-phase low-pass on position and torque")
    group.add_argument("--rate", metavar="HZ", type=positive, help="rate of the rows after decimation")
    group.add_argument("--trim", metavar="S", type=float, help="cut at both ends of the recording")
    group.add_argument(
        "--min-velocity",
        metavar="V",
        type=float,
        nargs="+",
        help="leave out slower samples, one value or one per joint",
    )


def positive(text: str) -> float:
    """Read a number above zero, for argparse."""
    value = float(text)
    if not 0.0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def settings_of(args: argparse.Namespace, robot: RobotFile) -> SignalSettings:
    """Signal settings of a robot file with the command line's options on top."""
    import numpy as np

    from service.identification import signal_settings

    speeds = None
    if args.min_velocity is not None:
        n = robot.model.n
        if len(args.min_velocity) not in (1, n) or not all(0.0 <= v < np.inf for v in args.min_velocity):
            raise CliError(f"--min-velocity takes one value or {n}, finite and not negative")
        speeds = np.broadcast_to(np.asarray(args.min_velocity, dtype=np.float64), (n,)).copy()
    if args.trim is not None and not 0.0 <= args.trim < np.inf:
        raise CliError("--trim must be finite and not negative")
    return signal_settings(robot, cutoff_hz=args.cutoff, rate_hz=args.rate, trim_s=args.trim, min_velocity=speeds)


def run(args: argparse.Namespace) -> int:
    """Identify, report, write."""
    from drivers.recording import Span, read_recording
    from drivers.robot_file import load_robot
    from service.cli.progress import Progress
    from service.figures import torque_figure
    from service.identification import identify_recording
    from service.model_file import batch_document, write_bytes, write_model, write_text
    from service.report import html_report

    robot = load_robot(args.robot)
    span = None if args.span is None else Span.parse(args.span)
    settings = settings_of(args, robot)
    options = options_of(args, robot.model)
    recording = read_recording(args.recording)
    with Progress("identify") as progress:
        result = identify_recording(recording, robot, settings, options=options, span=span, callback=progress.search)
    document = batch_document(result, robot, recording, settings, span)
    accepted = result.verdict != "not_explained"
    if not accepted:
        for row in document["parameters"]:
            row.update(value=None, status="invalid")
        for row in document["constants"]:
            row.update(value=None, lower=None, upper=None, status="invalid")
        for row in document["joints"]:
            row.update(counts={})
    written = None
    if args.output is not None:
        if accepted or args.force:
            write_model(document, args.output)
            written = str(args.output)
        else:
            fail(f"{args.output} is not written: the model does not explain the recording (--force writes it anyway)")
    predicted = result.rows.predict(result.theta)
    if args.plot is not None:
        title = f"{robot.model.name}: {args.recording}"
        write_bytes(args.plot, torque_figure(robot.model, result.rows, predicted, title))
    facts = describe(result, robot, recording, settings, span)
    if args.report is not None:
        text = html_report(
            f"{robot.model.name}: identification from {args.recording.name}",
            robot.model,
            result.rows,
            predicted,
            result.metrics,
            result.verdict,
            result.reasons,
            facts,
            document["parameters"] if accepted else (),
            identification=result,
            constants=document["constants"] if accepted else (),
            history=[] if result.estimate.search is None else [result.estimate.search.history],
        )
        write_text(args.report, text)
    if args.json:
        print_json(summary(document) | {"model": written})
    else:
        print_result(document, facts, result)
    return EXIT_OK if accepted else EXIT_NO


def summary(document: dict[str, Any]) -> dict[str, Any]:
    """Return the `--json` result: the model file without the bulk, metrics on top."""
    bulk = ("theta", "covariance", "robot", "metrics", "format")
    kept = {k: v for k, v in document.items() if k not in bulk}
    if document["verdict"] == "not_explained":
        kept["standard"] = None
    robot = {k: v for k, v in document["robot"].items() if k != "source"}
    metrics: dict[str, Any] = document["metrics"]
    return metrics | kept | {"robot": robot}


def describe(
    result: Identification, robot: RobotFile, recording: Recording, settings: SignalSettings, span: Span | None
) -> list[tuple[str, str]]:
    """Tell what was done, as pairs of name and value for people."""
    rows = result.rows
    facts = [
        ("robot", f"{robot.model.name}, {robot.model.n} joints, sha256 {robot.sha256[:12]}"),
        ("recording", f"{recording.path}, span {'0:1' if span is None else span}, sha256 {recording.sha256[:12]}"),
        ("method", f"{result.options.method}, {len(result.base)} base parameters"),
        ("band", band_text(settings, rows.rate_hz, rows.band_hz)),
        (
            "window",
            f"{rows.t[0]:.4g} s to {rows.t[-1]:.4g} s ({settings.trim:.3g} s cut at both ends of the recording)",
        ),
        ("rows", ", ".join(str(int(c)) for c in result.metrics.count) + f" per joint{selection_text(settings)}"),
        (
            "condition number",
            f"{result.solution.condition_number:.0f}, {result.solution.scaled_condition_number:.0f} with unit columns",
        ),
        ("relative torque error", f"{100 * result.metrics.relative_error:.2f} %"),
    ]
    if not result.gravity.sensitive:
        facts.append(("gravity", "these data fit equally well with any mounting direction: it is not verified"))
    return facts


def band_text(settings: SignalSettings, rate_hz: float, band_hz: float) -> str:
    """How signals were filtered, in words."""
    return (
        f"zero-phase low-pass {settings.cutoff_hz:g} Hz (order {settings.filter_order}); "
        f"rows at {rate_hz:g} Hz, both sides kept up to {band_hz:g} Hz"
    )


def selection_text(settings: SignalSettings) -> str:
    """Which samples were left out for being slow, in words."""
    if settings.min_velocity is None or not settings.min_velocity.any():
        return ", all samples"
    return ", samples with |dq| of at least " + " ".join(f"{v:g}" for v in settings.min_velocity)


def print_result(document: dict[str, Any], facts: list[tuple[str, str]], result: Identification) -> None:
    """Print the result for people: verdict first."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from service.report import VERDICT_TEXT, number

    console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
    console.print(Text(f"{result.verdict}: {VERDICT_TEXT[result.verdict]}", style="bold"))
    for reason in result.reasons:
        console.print(f"  - {reason}", markup=False)
    for name, value in facts:
        console.print(f"{name:22s}{value}", markup=False)
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
