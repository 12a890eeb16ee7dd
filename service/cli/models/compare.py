"""`thetad compare`: compare all estimators on the same simulated truth."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from service.cli._common import Exit, add_run, columns, printed_json

if TYPE_CHECKING:
    from service.operations.compare import Comparison


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: the parameters of the job `compare`."""
    from service.cli._options import add_options
    from service.jobs.kinds.compare import KIND

    add_options(parser, KIND)
    parser.set_defaults(robot="space6_stribeck")
    parser.add_argument("--report", metavar="FILE", type=Path, help="write a self-contained HTML report here")
    parser.add_argument("--plot", metavar="FILE", type=Path, help="write errors and times here (.png)")
    add_run(parser, run)


def run(args: argparse.Namespace) -> int:
    """Compare and report."""
    from drivers.files.atomic_write import write_bytes, write_text
    from service.cli._options import given
    from service.cli._progress import Progress
    from service.jobs.kinds.compare import KIND, truth
    from service.operations.compare import compare, comparison_document
    from service.reports.comparison import comparison_figure, comparison_html

    p = KIND.read(given(args, KIND), flags=True)
    model, conditions = truth(p)
    with Progress("compare") as progress:
        result = compare(model, p.methods, p.seeds, conditions, progress.step)
    if args.plot is not None:
        write_bytes(args.plot, comparison_figure(result))
    if args.report is not None:
        write_text(args.report, comparison_html(result))
    if not printed_json(args, comparison_document(result)):
        print_table(result)
    return Exit.NO if any(result.summary(m)["failed"] == p.seeds for m in result.methods) else Exit.OK


def print_table(result: Comparison) -> None:
    """Print medians over the seeds, best first."""
    from service.reports.comparison import HEADINGS, table_rows

    seeds = len(result.of(result.methods[0]))
    print(f"{result.model.name}, {seeds} seeds, medians; error in units of the torque noise")
    print(columns(HEADINGS, table_rows(result)))
