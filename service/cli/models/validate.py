"""`thetad validate`: check how well a model predicts the torque of a recording."""

import argparse
from pathlib import Path

from service.cli._common import Exit, add_run, columns, print_verdict, printed_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: the parameters of the job `validate`."""
    from service.cli._options import add_options
    from service.jobs.kinds.validate import KIND

    parser.add_argument("model", metavar="MODEL", type=Path, help="a model file (.yaml) of `thetad identify`")
    parser.add_argument(
        "recording", metavar="REC", type=Path, help="a recording (.mcap), best not the one it was fitted to"
    )
    add_options(parser, KIND)
    parser.add_argument("--report", metavar="FILE", type=Path, help="write a self-contained HTML report here")
    parser.add_argument("--plot", metavar="FILE", type=Path, help="write measured against predicted torque here (.png)")
    add_run(parser, run)


def run(args: argparse.Namespace) -> int:
    """Validate and report."""
    from drivers.files.atomic_write import write_bytes, write_text
    from drivers.files.recordings.recording import read_recording
    from service.models.document import load_model
    from service.operations.inputs import span_of
    from service.reports.cells import VERDICT_TEXT, number
    from service.reports.validation import report_validation

    model_file = load_model(args.model)
    robot = model_file.robot.model
    report = report_validation(model_file, read_recording(args.recording), span_of(args.span))
    result, metrics = report.result, report.result.metrics
    if args.plot is not None:
        from service.reports.figures import torque_figure

        write_bytes(args.plot, torque_figure(robot, result.rows, result.predicted, f"{robot.name}: {args.recording}"))
    if args.report is not None:
        write_text(args.report, report.html())
    if not printed_json(args, report.summary()):
        print_verdict(result.verdict, VERDICT_TEXT[result.verdict], result.reasons, report.facts())
        head = ("joint", "RMSE", "mean abs.", "maximum", "unit", "R")
        cells = [[number(v) for v in values] for values in (metrics.rmse, metrics.mae, metrics.maximum, metrics.R)]
        rows = zip((joint.name for joint in robot.joints), *cells[:3], robot.torque_units, cells[3], strict=True)
        print(columns(head, rows, head[1:]))
    return Exit.OK if result.verdict == "ok" else Exit.NO
