"""`thetad compare`: compare all estimators on the same simulated truth."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.cli._common import EXIT_NO, EXIT_OK, CliError, add_run, printed_json
from service.config.methods import COMPARED

if TYPE_CHECKING:
    from service.operations.compare import Comparison

EXAMPLES = """\
Examples:
  thetad compare                                      the usual methods on a 6-joint arm with Stribeck friction
  thetad compare --robot arm9 --methods wls iwls rls --outliers 0.02 --seeds 20
  thetad compare --methods full:lm full:pso_linear full:pso_lm --report compare.html
  thetad compare --robot my_arm.toml --noise 3.6 4.6 2.9 1.3 1.0 1.1 --json

Methods: ols wls iwls tls iv physical; pso pso_linear tcs_pso ga lm pso_lm search the friction constants alone
(separable), with "full:" before the name all parameters at once; rls and vff_rls are the online estimator;
bp_nn and kan are networks (pip install 'thetad[comparators]').

The error is that of the predicted torque against the noise-free torque of an independent motion, in units of
the noise; success means that it is below the noise at every joint.

Exit codes: 0 compared; 1 a method never gave a result; 2 wrong input.
"""


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "compare",
        help="compare estimators on simulated truth",
        description="Compare estimators on the same simulated truth: torque error, parameter error, time, success.",
        epilog=EXAMPLES,
    )
    parser.add_argument("--robot", metavar="R", default="space6_stribeck", help="robot file or name (the truth)")
    parser.add_argument("--methods", metavar="M", nargs="+", default=COMPARED, help="what to compare")
    parser.add_argument("--seeds", metavar="N", type=int, default=3, help="motions and noises (default: 3)")
    parser.add_argument("--seconds", metavar="S", type=float, default=40.0, help="length of the exciting motion")
    parser.add_argument("--noise", metavar="SD", type=float, nargs="+", help="torque noise per joint [N*m]")
    parser.add_argument("--outliers", metavar="SHARE", type=float, default=0.0, help="share of training samples")
    parser.add_argument("--report", metavar="FILE", type=Path, help="write a self-contained HTML report here")
    parser.add_argument("--plot", metavar="FILE", type=Path, help="write errors and times here (.png)")
    add_run(parser, run)


def run(args: argparse.Namespace) -> int:
    """Compare and report."""
    import numpy as np

    from drivers.files.atomic_write import write_bytes, write_text
    from drivers.files.robots.file import load_robot
    from service.cli._progress import Progress
    from service.operations.compare import Conditions, compare, comparison_document
    from service.reports.comparison import comparison_figure, comparison_html

    model = load_robot(args.robot).model
    if not 2.0 <= args.seconds < 1e5:
        raise CliError("--seconds must be at least 2")
    noise = None
    if args.noise is not None:
        noise = np.asarray(args.noise, dtype=np.float64)
        if not np.all((noise > 0.0) & np.isfinite(noise)):
            raise CliError("--noise takes standard deviations, finite and above zero: errors are told in units of them")
    conditions = Conditions(seconds=args.seconds, validation_s=args.seconds / 2, noise=noise, outliers=args.outliers)
    with Progress("compare") as progress:
        result = compare(model, args.methods, args.seeds, conditions, progress.step)
    if args.plot is not None:
        write_bytes(args.plot, comparison_figure(result))
    if args.report is not None:
        write_text(args.report, comparison_html(result))
    if not printed_json(args, comparison_document(result)):
        print_table(result)
    return EXIT_NO if any(result.summary(m)["failed"] == args.seeds for m in result.methods) else EXIT_OK


def print_table(result: Comparison) -> None:
    """Print medians over the seeds, best first."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from service.reports.comparison import HEADINGS, table_rows

    console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
    seeds = len(result.of(result.methods[0]))
    console.print(f"{result.model.name}, {seeds} seeds, medians; error in units of the torque noise", markup=False)
    table = Table(*HEADINGS, box=None, pad_edge=False)
    for row in table_rows(result):
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
