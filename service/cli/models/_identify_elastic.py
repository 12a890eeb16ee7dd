"""`thetad identify --model elastic_joint`: stiffness and friction of one joint with encoders on motor and link."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from service.cli._common import EXIT_NO, EXIT_OK, CliError, columns, fail, json_text, print_verdict, printed_json
from service.cli.models._identify_joints import error_text, reasons, run_joints, write_accepted

if TYPE_CHECKING:
    from service.operations.elastic.joint import ElasticIdentification
    from service.operations.elastic.online import OnlineResult


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
    parameters = KIND.read(_parameters(args), flags=True)
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
    from service.cli._options import given
    from service.jobs.kinds.elastic_joint import KIND

    found = given(args, KIND) | {"recording": str(args.recording[0])}
    if args.joint.isdecimal():
        found["joint"] = int(args.joint)
    if args.min_velocity is not None:
        if len(args.min_velocity) > 1:
            raise CliError(f"--min-velocity: {len(args.min_velocity)} values for one joint; give one")
        found["min_velocity"] = args.min_velocity[0]
    return found


def print_elastic(result: ElasticIdentification, online: OnlineResult | None) -> None:
    """Print the result, verdict first."""
    from service.operations.elastic.joint import VERDICT_TEXT
    from service.reports.elastic import elastic_facts
    from service.reports.identification import number

    answer = result.answer
    facts = elastic_facts(result) + ([] if online is None else online.facts())
    print_verdict(answer.verdict, VERDICT_TEXT[answer.verdict], answer.reasons, facts)
    tables = [("parameter", answer.parameters)] + ([] if online is None else [("online", online.last.parameters)])
    if online is not None and online.warning is not None:
        print(online.warning)
    for title, parameters in tables:
        rows = [(q.name, *(number(v, 5) for v in (q.value, q.lower, q.upper)), q.unit, q.status) for q in parameters]
        print(columns((title, "value", "95 % from", "to", "unit", "status"), rows))
        print("".join(f"{line}\n" for line in reasons(parameters)), end="")
