"""`thetad models`: show, compare and export models, and change the active one."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rt_core.statistics import NORMAL_QUANTILE_95
from service.cli._common import CliError, Exit, add_action, add_run, fail, number, printed_json, read_help
from service.cli._remote import add_control_flags
from service.cli.jobs.values import job_id, model_reference, whole_path
from service.cli.jobs.wait import connected, wait_and_report
from service.cli.models._model_text import arms_text, difference_text, short_id

if TYPE_CHECKING:
    from service.client import Jobs

HELP = read_help(__file__)

_MODEL = "a model file (.yaml), active, the id of a model that is kept, or job:ID"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = add_action(actions, "show", "print what a model holds", HELP)
    show.add_argument("model", metavar="MODEL", help=_MODEL)
    add_daemon_flags(show)
    add_run(show, run_show)
    export = add_action(actions, "export", "write a model as YAML, a description of the arm, or code", HELP)
    export.add_argument("model", metavar="MODEL", help=_MODEL)
    formats = ("yaml", "urdf", "mjcf", "sdf", "ros2", "python", "c", "st", "casadi")
    export.add_argument("--format", choices=formats, required=True, help="what to write")
    export.add_argument("--output", "-o", metavar="FILE", type=Path, help="where to (default: standard output)")
    export.add_argument(
        "--into", metavar="URDF", type=Path, help="urdf: a URDF of the arm; only inertials and friction are replaced"
    )
    export.add_argument(
        "--allow-impossible", action="store_true", help="urdf: keep the torque, even where that needs impossible links"
    )
    add_daemon_flags(export)
    export.set_defaults(run=run_export)
    diff = add_action(actions, "diff", "what differs between two models, in standard deviations", HELP)
    diff.add_argument("a", metavar="A", help=_MODEL)
    diff.add_argument("b", metavar="B", help="the same")
    diff.add_argument(
        "--z", type=number(0.0), default=2.0, metavar="Z", help="differences beyond it (default: %(default)g)"
    )
    add_daemon_flags(diff)
    add_run(diff, run_diff)
    listing = add_action(actions, "list", "the models that a daemon keeps, and which are active", HELP)
    listing.add_argument("--arm", help="only those of this arm")
    add_control_flags(listing)
    add_run(listing, run_list)
    promote = add_action(actions, "promote", "make a model an arm's active one, if it is better on new data", HELP)
    promote.add_argument("model", metavar="MODEL", help="a model file (.yaml), the id of one that is kept, or job:ID")
    promote.add_argument("--recording", metavar="REC", required=True, help="a recording (.mcap), live:60, or job:ID")
    promote.add_argument("--span", metavar="A:B", help="part to use: fractions (0.65:1) or seconds (5s:30s)")
    rollback = add_action(actions, "rollback", "make the model active again that was before", HELP)
    rollback.add_argument("--reason", default="", metavar="TEXT", help="why, for the history")
    for parser, run in ((promote, run_promote), (rollback, run_rollback)):
        parser.add_argument("--arm", help="which arm; may be left out where there is only one")
        add_control_flags(parser)
        add_run(parser, run)


def run_show(args: argparse.Namespace) -> int:
    """Print a model."""
    from service.models.document import load_model
    from service.reports.cells import number, stiffness_text

    model = load_model(model_path(args.model, args))
    document = {k: v for k, v in model.document.items() if k not in ("theta", "covariance", "format")}
    document["robot"] = {k: v for k, v in document["robot"].items() if k != "source"}
    if printed_json(args, document):
        return Exit.OK
    print(f"{args.model}: {document['kind']} model of {document['robot']['name']}, {document['verdict']}")
    for reason in document["reasons"]:
        print(f"  - {reason}")
    for key in ("created", "thetad", "method", "condition_number", "scaled_condition_number"):
        if key in document:
            print(f"{key:26s}{document[key]}")
    for group in ("data", "settings", "metrics", "ranges"):
        for key, value in document.get(group, {}).items():
            if key == "frames":  # for programs only
                continue
            if key == "sources":
                value = ", ".join(f"{s['recording']} ({s['sha256'][:12]})" for s in value)
            print(f"{group + '.' + key:26s}{value}")
    print(f"{'parameter':10s}{'value':>13s}{'±95 %':>11s}  {'unit':11s}{'status':14s}stands for")
    for p in document["parameters"]:
        half = None if p["std"] is None else NORMAL_QUANTILE_95 * p["std"]
        print(
            f"{p['name']:10s}{number(p['value'], 6):>13s}{number(half, 2):>11s}  {p['unit']:11s}{p['status']:14s}"
            f"{p['expression']}"
        )
    for spring in model.springs:
        print(f"stiffness {spring['joint']}: {stiffness_text(spring)}")
    return Exit.OK


def run_export(args: argparse.Namespace) -> int:
    """Export a model file."""
    from rt_core.model.urdf import UrdfError
    from service.models.document import load_model, write_text
    from service.models.export_code import to_code
    from service.models.export_urdf import to_mjcf, to_ros2, to_sdf, to_urdf

    path = model_path(args.model, args)
    model = load_model(path)
    if (args.into is not None or args.allow_impossible) and args.format != "urdf":
        raise CliError(f"--into and --allow-impossible are for --format urdf, not {args.format}")
    if args.format == "yaml":
        text = path.read_text(encoding="utf-8")
    elif args.format in ("python", "c", "st", "casadi"):
        text = to_code(model, args.format)
    else:
        described = {"mjcf": to_mjcf, "sdf": to_sdf, "ros2": to_ros2}.get(args.format)
        try:
            into = None if args.into is None else _urdf_text(args.into)
            text, warnings = (
                to_urdf(model, into, allow_impossible=args.allow_impossible) if described is None else described(model)
            )
        except UrdfError as error:
            raise CliError(f"{args.into or args.model}: {error}") from error
        except ValueError as error:
            raise CliError(f"{args.model}: cannot be written as {args.format.upper()}: {error}") from error
        for warning in warnings:
            fail(f"warning: {warning}")
    if args.output is None:
        sys.stdout.write(text)
    else:
        write_text(args.output, text)
    return Exit.OK


def _urdf_text(path: Path) -> str:
    """Return a URDF with its own line ends."""
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise CliError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CliError(f"{path}: not UTF-8: save it as UTF-8, also in its first line") from error


def run_diff(args: argparse.Namespace) -> int:
    """Compare two models."""
    from service.models.diff import compare_models, difference_document
    from service.models.document import load_model

    a, b = (load_model(model_path(text, args)) for text in (args.a, args.b))
    found = compare_models(a, b)
    if not printed_json(args, difference_document(found, args.z)):
        print(difference_text(found, (args.a, args.b), args.z))
    return Exit.OK


def run_list(args: argparse.Namespace) -> int:
    """Print the models kept by a daemon."""
    with connected(args) as jobs:
        arms = jobs.models(args.arm)
    if not printed_json(args, {"arms": arms}):
        print(arms_text(arms))
    return Exit.OK


def run_promote(args: argparse.Namespace) -> int:
    """Queue a promotion and wait for it."""
    from service.jobs.kinds import find_kind

    values = {"model": model_reference(args.model), "recording": whole_path(args.recording)}
    values |= {} if args.span is None else {"span": args.span}
    find_kind("promote").read(values)
    with connected(args) as jobs:
        queued = jobs.submit("promote", values, arm=args.arm)
        return wait_and_report(jobs, [queued.id], as_json=args.json)


def run_rollback(args: argparse.Namespace) -> int:
    """Make the previous model active again."""
    with connected(args) as jobs:
        answer = jobs.rollback(args.arm, args.reason)
    if not printed_json(args, answer):
        print(f"{answer.arm}: {short_id(answer.active)} is active again, instead of {short_id(answer.previous)}")
    return Exit.OK


def add_daemon_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--arm`, `--control` and `--timeout`, for models kept by a daemon."""
    parser.add_argument("--arm", help="whose active model; may be left out where there is only one arm")
    add_control_flags(parser)


def model_path(text: str, args: argparse.Namespace) -> Path:
    """Return the file of the model named by `text`; contacts a daemon only for models that it keeps.

    Raises `CliError`: there is no such model; `UnavailableError` if the daemon does not answer.
    """
    reference = model_reference(text)
    kind, colon, rest = reference.partition(":")
    if reference != "active" and not (colon and kind in ("job", "model")):
        return Path(text)
    with connected(args) as jobs:
        if reference == "active":
            return _active(jobs, args.arm)
        return _of_job(jobs, rest) if kind == "job" else _kept(jobs, rest)


def _active(jobs: Jobs, arm: str | None) -> Path:
    arms = jobs.models(arm)
    if len(arms) != 1:
        raise CliError(f"active: of which arm? --arm names one of {', '.join(arms)}")
    ((name, models),) = arms.items()
    for model in models.models:
        if model.id == models.active:
            return Path(model.path)
    raise CliError(f"active: arm {name} has no active model", Exit.NO)


def _of_job(jobs: Jobs, number: str) -> Path:
    from service.jobs.references import MODEL

    try:
        job = jobs.job(job_id(number))
    except argparse.ArgumentTypeError as error:
        raise CliError(f"job:{number}: {error}") from None
    outcome = job.outcome
    if outcome is None or MODEL not in outcome.results:
        raise CliError(f"job:{number}: that job is {job.state} and has made no model", Exit.NO)
    return Path(outcome.results[MODEL].path)


def _kept(jobs: Jobs, start: str) -> Path:
    entries = [model for arm in jobs.models().values() for model in arm.models]
    found = {model.id: model.path for model in entries if start and model.id.startswith(start)}
    if len(found) != 1:
        what = f"{len(found)} models begin so" if found else "no such model is kept"
        raise CliError(f"model {start}: {what}; `thetad models list` shows their ids")
    return Path(found.popitem()[1])
