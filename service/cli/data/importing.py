"""`thetad import`: convert a log to a recording by a mapping file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from service.cli._common import Exit, add_run, printed_json

if TYPE_CHECKING:
    from drivers.files.importing.data_source import Progress
    from drivers.files.importing.importer import ImportResult


_BIG_BYTES = 20 * 2**20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    known = ".csv .txt .tsv .dat .npz .npy .mat .h5 .hdf5 .parquet .mcap .db3"
    parser.add_argument("data", metavar="DATA", type=Path, help=f"the log, or the folder of a ROS 2 bag: {known}")
    parser.add_argument(
        "--mapping", "-m", metavar="M", required=True, help="mapping file, or a name in configs/mappings"
    )
    parser.add_argument("--output", "-o", metavar="FILE", type=Path, required=True, help="the recording to write")
    parser.add_argument("--force", action="store_true", help="replace FILE if it is there")
    add_run(parser, run)


def run(args: argparse.Namespace) -> int:
    """Import and report."""
    from drivers.files.importing.importer import import_recording

    show = sys.stderr.isatty() and args.data.is_file() and args.data.stat().st_size > _BIG_BYTES
    result = import_recording(
        args.data, args.mapping, args.output, force=args.force, progress=_progress() if show else None
    )
    if not printed_json(args, result):
        print(_text(result))
    return Exit.OK


def _progress() -> Progress:
    def report(fraction: float) -> None:
        end = "\n" if fraction >= 1.0 else ""
        sys.stderr.write(f"\rimporting {fraction:4.0%}{end}")
        sys.stderr.flush()

    return report


def _text(result: ImportResult) -> str:
    lines = [
        f"{result.path}: {result.frames} frames of {result.robot}, {result.duration_s:.3f} s at "
        f"{result.rate_hz:.6g} Hz",
        f"  joints    {', '.join(f'{n} [{u}]' for n, u in zip(result.joint_names, result.units, strict=True))}",
        f"  channels  {', '.join(result.channels)}",
        f"  steps     {result.step_min_s * 1e3:.4g} / {result.step_median_s * 1e3:.4g} / "
        f"{result.step_max_s * 1e3:.4g} ms (shortest, median, longest)",
        *(f"  warning   {warning}" for warning in result.warnings),
    ]
    return "\n".join(lines)
