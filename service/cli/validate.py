"""`thetad validate`: how well a model predicts the torque of a recording."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from service.cli.common import EXIT_NO, EXIT_OK, add_json_flag, print_json

EXAMPLES = """\
Examples:
  thetad validate model.yaml rec.mcap --span 0.6:1
  thetad validate model.yaml other.mcap --report validation.html --json

The signals are prepared exactly as for the identification (the settings are in the model file).

Exit codes: 0 the model predicts the torque; 1 it does not; 2 wrong input.
"""


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "validate",
        help="compare a model's torque with a recording's",
        description="Predict the torque of a recording with a model and compare, joint by joint.",
        epilog=EXAMPLES,
    )
    parser.add_argument("model", metavar="MODEL", type=Path, help="a model file (.yaml) of `thetad identify`")
    parser.add_argument(
        "recording", metavar="REC", type=Path, help="a recording (.mcap), best not the one it was fitted to"
    )
    parser.add_argument("--span", metavar="A:B", help="part to use: fractions (0.6:1) or seconds (4.91s:7.5s)")
    parser.add_argument("--report", metavar="FILE", type=Path, help="write a self-contained HTML report here")
    parser.add_argument("--plot", metavar="FILE", type=Path, help="write measured against predicted torque here (.png)")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Validate and report."""
    from drivers.recording import Span, read_recording
    from service.cli.identify import band_text, selection_text
    from service.figures import torque_figure
    from service.identification import validate_recording
    from service.model_file import load_model, settings_document, write_bytes, write_text
    from service.report import VERDICT_TEXT, html_report, number

    model_file = load_model(args.model)
    robot = model_file.robot.model
    span = None if args.span is None else Span.parse(args.span)
    recording = read_recording(args.recording)
    result = validate_recording(
        recording,
        robot,
        model_file.base,
        model_file.theta,
        model_file.settings,
        span=span,
        fit_error=model_file.fit_error,
    )
    metrics, rows = result.metrics, result.rows
    facts = [
        (
            "model",
            f"{args.model}, {model_file.document['method']} from {model_file.origin}",
        ),
        ("recording", f"{args.recording}, span {'0:1' if span is None else span}"),
        ("band", band_text(model_file.settings, rows.rate_hz, rows.band_hz)),
        ("window", f"{rows.t[0]:.4g} s to {rows.t[-1]:.4g} s"),
        ("rows", ", ".join(str(int(c)) for c in metrics.count) + f" per joint{selection_text(model_file.settings)}"),
        ("relative torque error", f"{100 * metrics.relative_error:.2f} %"),
    ]
    if args.plot is not None:
        write_bytes(args.plot, torque_figure(robot, rows, result.predicted, f"{robot.name}: {args.recording}"))
    if args.report is not None:
        title = f"{robot.name}: validation on {args.recording.name}"
        text = html_report(title, robot, rows, result.predicted, metrics, result.verdict, result.reasons, facts)
        write_text(args.report, text)
    if args.json:
        data = {
            "verdict": result.verdict,
            "reasons": result.reasons,
            "model": str(args.model),
            "recording": str(args.recording),
            "span": "0:1" if span is None else str(span),
            "rows": metrics.count.astype(int),
            "row_rate_hz": rows.rate_hz,
            "band_hz": rows.band_hz,
            "first_s": float(rows.t[0]),
            "last_s": float(rows.t[-1]),
            "fit_relative_error": model_file.fit_error,
            "settings": settings_document(model_file.settings),
        }
        print_json(metrics.as_dict() | data)
    else:
        print(f"{result.verdict}: {VERDICT_TEXT[result.verdict]}")
        for reason in result.reasons:
            print(f"  - {reason}")
        for name, value in facts:
            print(f"{name:22s}{value}")
        print(f"{'joint':16s}{'RMSE':>10s}{'mean abs.':>11s}{'maximum':>10s}{'R':>9s}")
        for j, joint in enumerate(robot.joints):
            values = (metrics.rmse[j], metrics.mae[j], metrics.maximum[j], metrics.R[j])
            print(
                f"{joint.name:16s}"
                + "".join(f"{number(v):>{w}s}" for v, w in zip(values, (10, 11, 10, 9), strict=True))
            )
    return EXIT_OK if result.verdict == "ok" else EXIT_NO
