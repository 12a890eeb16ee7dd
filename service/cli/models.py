"""`thetad models show|export`: look at a model file, or turn it into what other tools take."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from service.cli.common import EXIT_OK, CliError, add_json_flag, fail, print_json

EXAMPLES = """\
Examples:
  thetad models show model.yaml
  thetad models export model.yaml --format python -o torque.py
  thetad models export model.yaml --format urdf -o arm.urdf
"""

EXPORT_NOTES = """\
The URDF's link parameters give exactly the identified torque, with friction, rotor inertia and offset added.  Torque
does not tell single links, so that many sets of them do.  Written is

  - of a model of `thetad identify --method physical`: the links that it found, all of them possible bodies;
  - of any other: the possible bodies nearest to the robot file's links (or to solids between the joints, where it has
    none), recovered from the base parameters;
  - where noise has carried these beyond all possible bodies: the parameters nearest to the robot file's.  Then some
    links cannot be bodies, and warnings name them.

Negative friction is written as 0, which warnings name, too.
"""


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Register the commands."""
    parser = subparsers.add_parser(
        "models",
        help="show a model file, or export it",
        description="Show a model file, or export it to other tools.",
        epilog=EXAMPLES,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = actions.add_parser(
        "show", help="print what a model file holds", description="Print what a model file holds."
    )
    show.add_argument("model", metavar="MODEL", type=Path, help="a model file (.yaml)")
    add_json_flag(show)
    show.set_defaults(run=run_show)
    export = actions.add_parser(
        "export",
        help="write a model as YAML, URDF or a Python function",
        description="Write a model as YAML (the file itself, checked), as URDF, or as a Python module with\n"
        "torque(q, dq, ddq) that needs nothing but Python.",
        epilog=EXPORT_NOTES,
    )
    export.add_argument("model", metavar="MODEL", type=Path, help="a model file (.yaml)")
    export.add_argument("--format", choices=("yaml", "urdf", "python"), required=True, help="what to write")
    export.add_argument("--output", "-o", metavar="FILE", type=Path, help="where to (default: standard output)")
    export.set_defaults(run=run_export)


def run_show(args: argparse.Namespace) -> int:
    """Print a model file."""
    from service.model_file import load_model
    from service.report import number

    model = load_model(args.model)
    document = {k: v for k, v in model.document.items() if k not in ("theta", "covariance", "format")}
    document["robot"] = {k: v for k, v in document["robot"].items() if k != "source"}
    if args.json:
        print_json(document)
        return EXIT_OK
    print(f"{args.model}: {document['kind']} model of {document['robot']['name']}, {document['verdict']}")
    for reason in document["reasons"]:
        print(f"  - {reason}")
    for key in ("created", "thetad", "method", "condition_number", "scaled_condition_number"):
        if key in document:
            print(f"{key:26s}{document[key]}")
    for group in ("data", "settings", "metrics"):
        for key, value in document.get(group, {}).items():
            print(f"{group + '.' + key:26s}{value}")
    print(f"{'parameter':10s}{'value':>13s}{'±95 %':>11s}  {'unit':11s}{'status':14s}stands for")
    for p in document["parameters"]:
        half = None if p["std"] is None else 1.96 * p["std"]
        print(
            f"{p['name']:10s}{number(p['value'], 6):>13s}{number(half, 2):>11s}  {p['unit']:11s}{p['status']:14s}"
            f"{p['expression']}"
        )
    return EXIT_OK


def run_export(args: argparse.Namespace) -> int:
    """Export a model file."""
    from service.model_export import to_urdf
    from service.model_file import load_model, write_text
    from service.torque_module import to_python

    model = load_model(args.model)
    if args.format == "yaml":
        text = args.model.read_text(encoding="utf-8")
    elif args.format == "python":
        text = to_python(model)
    else:
        try:
            text, warnings = to_urdf(model)
        except ValueError as error:
            raise CliError(f"{args.model}: cannot be written as URDF: {error}") from error
        for warning in warnings:
            fail(f"warning: {warning}")
    if args.output is None:
        sys.stdout.write(text)
    else:
        write_text(args.output, text)
    return EXIT_OK
