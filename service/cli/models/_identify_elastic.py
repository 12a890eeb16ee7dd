"""`thetad identify --model elastic_joint`: stiffness and friction of one joint with encoders on motor and link."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.cli._common import EXIT_NO, EXIT_OK, CliError, fail, json_text, printed_json, verdict_console
from service.cli.models._identify_joints import WIDTH, error_text, reasons, run_joints, write_accepted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rt_core.elastic.identify import ElasticParameter
    from service.operations.elastic.joint import ElasticIdentification
    from service.operations.elastic.online import OnlineResult

#: Options of this model alone, by their names in the parsed arguments.
ELASTIC_OPTIONS = (
    "joint", "gear_ratio", "torque_constant", "rotor_inertia", "sensor", "stage", "linear", "lag", "zero", "omega1",
    "omega_s", "smoothing", "table", "online", "forgetting",
)  # fmt: skip


def add_elastic_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `--model elastic_joint`; omitted ones have the job's defaults."""
    group = parser.add_argument_group(
        "elastic joint (with --model elastic_joint; also --robot, --span, --cutoff, --min-velocity, -o, --report)"
    )
    add = group.add_argument
    add("--joint", metavar="J", help="name, or number from 1 on, or all")
    add("--gear-ratio", metavar="N", type=float, help="negative if the motor turns against the joint")
    add("--torque-constant", metavar="KM", type=float, help="of the motor [N*m/A]")
    add("--rotor-inertia", metavar="J_IN", type=float, help="motor side [kg*m^2]; then all motion counts")
    add("--sensor", action="store_true", help="tau is a torque sensor behind the spring")
    add("--stage", choices=("stiffness", "coulomb", "viscous", "full"), help="friction (default: viscous)")
    add("--linear", action="store_true", help="a spring without k2")
    add("--lag", metavar="S", type=float, help="how late the link encoder is (default: estimated)")
    add("--zero", metavar="RAD", type=float, help="zero of the deflection (default: estimated)")
    add("--omega1", metavar="W", type=float, help="full: of C1*tanh(v/W), motor side [rad/s] (default: estimated)")
    add("--omega-s", metavar="W", type=float, help="full: of C2*v*exp(-v/W), motor side [rad/s] (default: estimated)")
    add("--smoothing", metavar="V", type=float, help="eps of tanh(v/eps) in place of the sign [rad/s]")
    add("--table", metavar="FILE", type=Path, help="write deflection and torque of every row (.csv)")
    add("--online", action="store_true", help="also the online estimate over the recording, in the report")
    add("--forgetting", metavar="L", type=float, help="online: a constant factor instead of the variable")


def run_elastic(args: argparse.Namespace) -> int:
    """Identify one joint, report and write the results."""
    from drivers.files.atomic_write import write_text
    from drivers.files.recordings.recording import read_recording
    from drivers.files.robots.file import load_robot
    from service.cli._progress import Progress
    from service.jobs.kinds.elastic_joint import KIND
    from service.operations.elastic.joint import ElasticJointError, identify_joint
    from service.operations.elastic.online import follow_online
    from service.reports.elastic import elastic_page

    if args.joint is None:
        raise CliError("--joint is missing: which one, by its name in the recording or its number from 1 on?")
    if args.forgetting is not None and not (args.online and 0.5 <= args.forgetting <= 1.0):
        raise CliError("--forgetting: give a factor from 0.5 to 1, with --online")
    if args.joint == "all" or len(args.recording) > 1:
        given = _parameters(args)
        return run_joints(args, {name: given[name] for name in given if name not in ("recording", "joint")})
    parameters = KIND.read(_parameters(args))
    model = None if args.robot is None else load_robot(args.robot).model
    recording = read_recording(args.recording[0])
    created = datetime.now(UTC).isoformat(timespec="seconds")
    online = None
    try:
        with Progress("identify") as progress:
            result = identify_joint(parameters, recording, model, created=created, progress=progress.share)
            if args.online and result.accepted:
                progress.step(0.7, 1.0, "online estimate")
                online = follow_online(result, args.forgetting)
    except ElasticJointError as error:
        raise CliError(error_text(error)) from error
    if args.online and not result.accepted:
        fail("no online estimate: it starts from the off-line values, and these data tell no stiffness")
    why = "these data tell no stiffness"
    written = write_accepted(args, result.accepted, lambda path: write_text(path, json_text(result.document)), why)
    if args.table is not None:
        write_text(args.table, result.table())
    if args.report is not None:
        write_text(args.report, elastic_page(result, online))
    more = {"online": None if online is None else online.document(), "model": written}
    if not printed_json(args, result.document | more):
        print_elastic(result, online)
    return EXIT_OK if result.accepted else EXIT_NO


def _parameters(args: argparse.Namespace) -> dict[str, Any]:
    """Return the parameters of a job of this kind that were given."""
    slowest = args.min_velocity
    if slowest is not None and len(slowest) > 1:
        raise CliError(f"--min-velocity: {len(slowest)} values for one joint; give one")
    given = {
        "recording": str(args.recording[0]),
        "joint": int(args.joint) if args.joint.isdecimal() else args.joint,
        "span": args.span,
        "cutoff_hz": args.cutoff,
        "min_velocity": None if slowest is None else slowest[0],
        "sensor": args.sensor or None,
        "cubic": False if args.linear else None,
    } | {
        name: getattr(args, name)
        for name in (
            "gear_ratio", "torque_constant", "rotor_inertia", "stage", "lag", "zero", "omega1", "omega_s", "smoothing",
        )
    }  # fmt: skip
    return {name: value for name, value in given.items() if value is not None}


def print_elastic(result: ElasticIdentification, online: OnlineResult | None) -> None:
    """Print the result, verdict first."""
    from rich.text import Text

    from service.operations.elastic.joint import VERDICT_TEXT
    from service.reports.elastic import elastic_facts

    answer = result.answer
    facts = elastic_facts(result) + ([] if online is None else online.facts())
    console = verdict_console(answer.verdict, VERDICT_TEXT[answer.verdict], answer.reasons, facts, WIDTH)
    tables = [("parameter", answer.parameters)]
    if online is not None:
        tables.append(("online", online.last.parameters))
    if online is not None and online.warning is not None:
        console.print(Text(online.warning, style="bold"))
    for title, parameters in tables:
        console.print(_table(title, parameters))
        for line in reasons(parameters):
            console.print(Text(line))


def _table(title: str, parameters: Iterable[ElasticParameter]) -> Any:
    from rich.table import Table

    from service.reports.identification import number

    table = Table(box=None, pad_edge=False)
    for head in (title, "value", "95 % from", "to", "unit", "status"):
        table.add_column(head, no_wrap=True)
    for q in parameters:
        table.add_row(q.name, *(number(v, 5) for v in (q.value, q.lower, q.upper)), q.unit, q.status)
    return table
