"""`thetad identify --model elastic_joint`: stiffness and friction of joints with encoders on motor and link."""

import argparse
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from drivers.files.atomic_write import write_text
from drivers.files.recordings.recording import Recording, read_recording
from drivers.files.robots.file import load_robot
from rt_core.elastic.identify import ElasticParameter
from service.cli._common import CliError, Exit, columns, fail, json_text, print_verdict, printed_json, write_accepted
from service.cli._options import given, option
from service.cli._progress import Progress
from service.jobs.kinds.elastic_joint import KIND
from service.operations.elastic.joint import VERDICT_TEXT, ElasticIdentification, ElasticJointError, identify_joint
from service.operations.elastic.joints import ElasticJoints, identify_joints
from service.operations.elastic.online import OnlineResult, follow_online
from service.operations.elastic.parameters import ElasticJointJob
from service.reports.cells import number
from service.reports.elastic import elastic_facts, elastic_page

#: Options for one joint and one recording, by their names in the parsed arguments.
_OF_ONE = ("output", "report", "table", "online", "forgetting")
#: Options for one joint, because every joint has its own drive and zero.
_OF_ONE_JOINT = ("gear_ratio", "torque_constant", "rotor_inertia", "zero", "omega1", "omega_s")


def run_elastic(args: argparse.Namespace) -> int:
    """Identify one joint, report and write the results."""
    if args.joint is None:
        raise CliError("--joint is missing: which one, by its name in the recording or its number from 1 on?")
    if args.forgetting is not None and not (args.online and 0.5 <= args.forgetting <= 1.0):
        raise CliError("--forgetting: give a factor from 0.5 to 1, with --online")
    if args.joint == "all" or len(args.recording) > 1:
        found = _parameters(args)
        return run_joints(args, {name: found[name] for name in found if name not in ("recording", "joint")})
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
    return Exit.OK if result.accepted else Exit.NO


def _parameters(args: argparse.Namespace) -> dict[str, Any]:
    """Return the parameters of a job of this kind that were given."""
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


def run_joints(args: argparse.Namespace, parameters: dict[str, Any]) -> int:
    """Identify the joints given by `--joint` from all recordings together, and report."""
    if extra := [name for name in _OF_ONE if getattr(args, name) != args.parser.get_default(name)]:
        options = ", ".join(f"--{name}" for name in extra)
        raise CliError(f"{options}: for one joint and one recording only; see `thetad identify --help`")
    if args.joint == "all" and (extra := [name for name in _OF_ONE_JOINT if getattr(args, name) is not None]):
        options = ", ".join(option(name, ElasticJointJob) for name in extra)
        raise CliError(f"{options}: of one joint; for --joint all give --robot with the drive of each")
    recordings = [read_recording(path) for path in args.recording]
    model = None if args.robot is None else load_robot(args.robot).model
    try:
        found = identify_joints(recordings, _joints(args.joint, recordings[0]), parameters, model)
    except ElasticJointError as error:
        raise CliError(error_text(error)) from error
    if all(joint.fit is None for joint in found.joints):  # nothing was fitted: the request is wrong, not the data
        fault = found.joints[0].error
        raise CliError(error_text(fault)) from fault
    if not printed_json(args, found.document()):
        _print(found)
    return Exit.OK if found.accepted else Exit.NO


def error_text(error: Exception | None) -> str:
    """Return an error's message, preceded by the option it concerns."""
    if isinstance(error, ElasticJointError) and error.parameter:
        return f"{option(error.parameter, ElasticJointJob)}: {error.message}"
    return str(error or "")


def _joints(name: str, recording: Recording) -> list[int]:
    names = recording.joint_names
    if name == "all":
        return list(range(len(names)))
    if name.isdecimal() and 1 <= int(name) <= len(names):
        return [int(name) - 1]
    if name in names:
        return [names.index(name)]
    raise CliError(f"--joint {name}: the recording has {', '.join(names)}; they count from 1, or all")


def reasons(parameters: Iterable[ElasticParameter]) -> list[str]:
    """Return the reasons why parameters have no value or a doubtful one: a line per reason, with its parameters."""
    named: dict[str, list[str]] = {}
    for q in parameters:
        if q.reason:
            named.setdefault(q.reason, []).append(q.name)
    return [f"{', '.join(names)}: {reason}" for reason, names in named.items()]


def _print(found: ElasticJoints) -> None:
    rows: list[tuple[str, ...]] = []
    because: list[str] = []
    for joint in found.joints:
        if joint.fit is None:
            rows.append((joint.name, "not_determined", "", "", "", "", ""))
            because.append(f"{joint.name}: {error_text(joint.error)}")
            continue
        because += [f"{joint.name}: {line}" for line in reasons(joint.fit.parameters)]
        for k, q in enumerate(joint.fit.parameters):
            head = (joint.name, joint.fit.verdict) if k == 0 else ("", "")
            rows.append((*head, q.name, *(number(v, 4) for v in (q.value, q.lower, q.upper)), q.unit))
    print(columns(("joint", "verdict", "parameter", "value", "95 % from", "to", "unit"), rows))
    if because:
        print("\n".join(because))
    for joint in found.joints:
        for recording, error in zip(found.recordings, joint.within, strict=False):
            print(f"{recording.path}: {joint.name}: relative torque error {100.0 * error.relative_error:.2f} %")
    for joint in found.joints:
        if joint.lag is not None:
            print(
                f"{joint.name}: apparent lag {1e3 * joint.lag.value:.3f} ms, std {1e3 * joint.lag.std:.2g} ms, that is "
                "the link encoder's less N^2*b_in/k1 of the joint"
            )
    if found.lag is not None:
        lag = found.lag
        value, lower, upper, between = (1e3 * x for x in (lag.value, lag.lower, lag.upper, lag.between))
        print(
            f"all joints: mean apparent lag {value:.3g} ms, 95 % {lower:.3g} to {upper:.3g} ms, joints differ by "
            f"{between:.2g} ms; the encoders' own lag is larger, by the mean of N^2*b_in/k1"
        )
