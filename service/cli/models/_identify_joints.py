"""`thetad identify --model elastic_joint` for several joints or recordings at once."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.cli._common import EXIT_NO, EXIT_OK, CliError, columns, fail, printed_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from drivers.files.recordings.recording import Recording
    from rt_core.elastic.identify import ElasticParameter
    from service.operations.elastic.joints import ElasticJoints
    from service.operations.kind import Parameters

#: Options for one joint and one recording, by their names in the parsed arguments.
_OF_ONE = ("output", "report", "table", "online", "forgetting")
#: Options for one joint, because every joint has its own drive and zero.
_OF_ONE_JOINT = ("gear_ratio", "torque_constant", "rotor_inertia", "zero", "omega1", "omega_s")


def run_joints(args: argparse.Namespace, parameters: dict[str, Any]) -> int:
    """Identify the joints given by `--joint` from all recordings together, and report."""
    from drivers.files.recordings.recording import read_recording
    from drivers.files.robots.file import load_robot
    from service.operations.elastic.joint import ElasticJointError
    from service.operations.elastic.joints import identify_joints
    from service.operations.elastic.parameters import ElasticJointJob

    if given := [name for name in _OF_ONE if getattr(args, name) != args.parser.get_default(name)]:
        options = ", ".join(f"--{name}" for name in given)
        raise CliError(f"{options}: for one joint and one recording only; see `thetad identify --help`")
    if args.joint == "all" and (given := [name for name in _OF_ONE_JOINT if getattr(args, name) is not None]):
        options = ", ".join(option(name, ElasticJointJob) for name in given)
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
    return EXIT_OK if found.accepted else EXIT_NO


def write_accepted(args: argparse.Namespace, accepted: bool, write: Callable[[Path], object], why: str) -> str | None:
    """Write a result to --output, unless it is not `accepted` and --force is missing; return the path if written."""
    if args.output is None:
        return None
    if not (accepted or args.force):
        fail(f"{args.output} is not written: {why} (--force writes it anyway)")
        return None
    write(args.output)
    return str(args.output)


def option(name: str, parameters: type[Parameters]) -> str:
    """Return the command's option for a parameter, or for a name in the parsed arguments."""
    from service.operations.parameter_types import flag_of

    return flag_of(parameters, name) if name in parameters.model_fields else f"--{name}"


def error_text(error: Exception | None) -> str:
    """Return an error's message, preceded by the option it concerns."""
    from service.operations.elastic.joint import ElasticJointError
    from service.operations.elastic.parameters import ElasticJointJob

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
    from service.reports.identification import number

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
