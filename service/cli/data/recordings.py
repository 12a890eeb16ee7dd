"""`thetad recordings info`, `recover` and `export`."""

import argparse
import sys
from pathlib import Path

from service.cli._common import CliError, Exit, add_action, add_run, printed_json, read_help

HELP = read_help(__file__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    info = add_action(actions, "info", "what a recording holds", HELP)
    info.add_argument("recording", metavar="REC", type=Path, help="the recording (.mcap)")
    info.add_argument("--robot", metavar="NAME", help="whose frames, if the file holds several robots")
    add_run(info, run_info)
    recover = add_action(actions, "recover", "save what is intact of a recording that was cut off or damaged", HELP)
    recover.add_argument("recording", metavar="REC", type=Path, help="the recording (.mcap)")
    recover.add_argument(
        "--output", "-o", metavar="FILE", type=Path, help="where to (default: REC with .recovered.mcap)"
    )
    recover.add_argument("--force", action="store_true", help="replace FILE if it is there")
    add_run(recover, run_recover)
    export = add_action(actions, "export", "as joint states for ROS 2 or Foxglove, or as a table", HELP)
    export.add_argument("recording", metavar="REC", type=Path, help="the recording (.mcap)")
    export.add_argument(
        "--as", dest="form", choices=("ros2", "foxglove", "csv"), required=True,
        help="ros2: MCAP of sensor_msgs/msg/JointState; foxglove: MCAP of foxglove.JointStates; csv: all channels",
    )  # fmt: skip
    export.add_argument("--output", "-o", metavar="FILE", type=Path, help="where to (default: REC.ros2.mcap, ...)")
    export.add_argument("--robot", metavar="NAME", help="whose frames, if the file holds several robots")
    export.add_argument("--span", metavar="A:B", help="part to write: fractions (0:0.6) or seconds (1s:30s)")
    export.add_argument("--force", action="store_true", help="replace FILE if it is there")
    add_run(export, run_export)


def run_info(args: argparse.Namespace) -> int:
    """Describe a recording."""
    from drivers.files.recordings.recording import recording_info

    info = recording_info(args.recording, args.robot)
    if not printed_json(args, info):
        state = "complete" if info.complete else f"NOT COMPLETE: {info.damage}"
        units = ", ".join(f"{name} [{unit}]" for name, unit in zip(info.joint_names, info.units, strict=True))
        lines = [
            f"{info.path}: {state}",
            f"  robot     {info.robot}" + (f" (of {', '.join(info.robots)})" if len(info.robots) > 1 else ""),
            f"  joints    {units}",
            f"  channels  {', '.join(info.channels)}",
            f"  frames    {info.frames} in {info.duration_s:.3f} s, {info.rate_hz:.6g} Hz "
            f"(nominal {info.nominal_rate_hz:.6g} Hz), clock {info.clock}",
            f"  steps     {info.step_min_s * 1e3:.4g} / {info.step_median_s * 1e3:.4g} / "
            f"{info.step_max_s * 1e3:.4g} ms (shortest, median, longest)",
            f"  lost      {info.lost} frames in {info.gaps} gaps",
            f"  file      {info.bytes} bytes, {info.chunks} chunks, content {info.sha256[:12]}",
        ]
        if info.unix_offset_ns is not None:
            lines.append(f"  offset    Unix time is {info.unix_offset_ns} ns more than clock {info.clock}")
        lines += [f"  source    {info.source}"] * bool(info.source)
        lines += [f"  invalid   {info.invalid} joint samples"] * bool(info.invalid)
        lines += [f"  restarts  the count of frames starts again {info.restarts} times"] * bool(info.restarts)
        lines += [f"  time      does not increase at {info.time_reversals} frames"] * bool(info.time_reversals)
        lines += [f"  note      {note}" for note in info.notes]
        sys.stdout.write("\n".join(lines) + "\n")
        if not info.complete:
            sys.stderr.write(f"thetad: run `thetad recordings recover {info.path}` to get a usable recording\n")
    return Exit.OK if info.complete else Exit.NO


def run_recover(args: argparse.Namespace) -> int:
    """Recover a recording."""
    from drivers.files.recordings.data import UNVERIFIED
    from drivers.files.recordings.recording import recover

    source: Path = args.recording
    target: Path = args.output or source.with_name(f"{source.stem}.recovered.mcap")
    if target.exists():
        if not args.force:
            raise CliError(f"{target}: already there; name another file with -o, or replace it with --force")
        if source.exists() and target.samefile(source):
            raise CliError(f"{target}: is the recording itself; name another file with -o")
    result = recover(source, target, replace=args.force)
    if not printed_json(args, {"path": target, "source": source, **vars(result)}):
        kept = f"{target}: {result.frames} frames in {result.chunks} chunks recovered"
        loss = f"{result.bytes_dropped} of {result.bytes_read} bytes dropped"
        note = "; the recording was complete" if result.was_complete else f" ({result.damage})"
        doubt = "" if result.metadata_verified else f"; {UNVERIFIED}"
        sys.stdout.write(f"{kept}, {loss}{note}{doubt}\n")
    return Exit.OK


def run_export(args: argparse.Namespace) -> int:
    """Export a recording."""
    from drivers.files.recordings.export import SUFFIXES, export_recording
    from drivers.files.recordings.recording import Span, read_recording

    source: Path = args.recording
    target: Path = args.output or source.with_name(f"{source.stem}{SUFFIXES[args.form]}")
    if target.exists() and source.exists() and target.samefile(source):
        raise CliError(f"{target}: is the recording itself; name another file with -o")
    recording = read_recording(source, None if args.span is None else Span.parse(args.span), args.robot)
    export_recording(recording, target, args.form, replace=args.force)
    if not printed_json(args, {"path": target, "source": source, "form": args.form, "samples": recording.samples}):
        sys.stdout.write(f"{target}: {recording.samples} samples of {recording.robot}\n")
    return Exit.OK
