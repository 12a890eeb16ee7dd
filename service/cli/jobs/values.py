"""Convert command-line values for jobs: NAME=VALUE, absolute paths, durations."""

from __future__ import annotations

import argparse
import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.cli._common import CliError

if TYPE_CHECKING:
    from service.operations.kind import Kind
    from service.protocol.job_replies import JobDetail

_REFERENCE = re.compile(r"active|(live|job|model):.*", re.DOTALL)
_FILES = (".mcap", ".yaml", ".yml", ".csv")
_ROBOT_FILES = (".toml", ".urdf")
#: Parameters that hold a robot.
_ROBOTS = ("robot", "prior")
_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(s|m|h|d|)", re.ASCII)
_MODEL_ID = re.compile(r"[0-9a-f]{4,64}")
_MAX_S = 1e8


def job_id(text: str) -> int:
    """Read the number of a job, for argparse."""
    number = text.removeprefix("job:")
    if not (number.isascii() and number.isdigit() and 0 < len(number) < 19):
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a job; `thetad jobs list` shows them")
    return int(number)


def duration(text: str) -> float:
    """Read a time such as `90`, `10m` or `2h` in seconds, for argparse."""
    found = _DURATION.fullmatch(text)
    seconds = math.inf if found is None else float(found[1]) * _UNITS_S[found[2]]
    if seconds > _MAX_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: write seconds, or 10m, 2h, 3d")
    return seconds


def read_parameters(kind: Kind[Any], pairs: Sequence[str]) -> dict[str, Any]:
    """Read and validate the parameters of a job from `NAME=VALUE` texts; see `parse_parameters`.

    Raises `CliError`: malformed text, or a name given twice; `OperationError`: invalid values.
    """
    values = parse_parameters(kind, pairs)
    kind.read(values)
    return values


def parse_parameters(kind: Kind[Any], pairs: Sequence[str]) -> dict[str, Any]:
    """Read `NAME=VALUE` texts without validating the values, which may be incomplete.

    A value is JSON if it parses as JSON, otherwise text; file names become absolute paths. Raises `CliError`: malformed
    text, or a name given twice.
    """
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise CliError(f"argument {pair!r}: expected NAME=VALUE; `thetad jobs kinds {kind.name}` lists the names")
        if name in values:
            raise CliError(f"argument {pair!r}: {name} is given twice")
        values[name] = _with_paths(kind, name, _value(kind, name, text))
    return values


def _value(kind: Kind[Any], name: str, text: str) -> Any:
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text
    if name in (*kind.recordings, *kind.models, *_ROBOTS) and not isinstance(value, (str, list)):
        return None if value is None else text  # a file may be named 7
    return value


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _with_paths(kind: Kind[Any], name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_with_paths(kind, name, item) for item in value]
    if not isinstance(value, str):
        return value
    if name in (*kind.recordings, *kind.models):
        return whole_path(value)
    if value.endswith(_ROBOT_FILES) and "\n" not in value:
        return str(Path(value).absolute())
    return value


def whole_path(text: str) -> str:
    """Return a reference to a recording or model; if it is a path, made absolute."""
    return text if not text or _REFERENCE.fullmatch(text) is not None else str(Path(text).absolute())


def model_reference(text: str) -> str:
    """Convert a user's name of a model to a reference: a file, `active`, `job:ID`, `model:ID`, or an id alone.

    Raises `CliError`: any other text.
    """
    if _REFERENCE.fullmatch(text) is not None and not text.startswith("live:"):
        return text
    if text.endswith(_FILES) or _exists(text):
        return str(Path(text).absolute())
    if _MODEL_ID.fullmatch(text) is not None:
        return f"model:{text}"
    raise CliError(
        f"{text}: no such file, and no id of a model (at least 4 of its hexadecimal digits); `thetad models list` "
        "shows those that are kept"
    )


def _exists(text: str) -> bool:
    try:
        return text != "" and Path(text).exists()
    except (OSError, ValueError):  # not a valid file name
        return False


def command_again(job: JobDetail, defaults: Mapping[str, Any]) -> str:
    """Return the command that queues the same job again, on the same files, with the same limits and priority.

    Not for jobs with parameters of `described`, which cannot be given on a command line.
    """
    words = ["thetad", "jobs", "submit", job.kind]
    for name, value in job.parameters.items():
        if name in defaults and defaults[name] == value:
            continue
        given = job.inputs.get(name) or {}
        if "job" in given:
            value = f"job:{given['job']}"
        elif "path" in given and (value == "active" or str(value).startswith("live:")):
            value = given["path"]  # the same model or frames, not the latest
        text = value if isinstance(value, str) and _is_text(value) else json.dumps(value)
        words.append(f"{name}={text}")
    if job.arm is not None:
        words += ["--arm", job.arm]
    if job.priority:
        words += ["--priority", str(job.priority)]
    for option, name in (("--time", "time_s"), ("--memory", "memory_mb")):
        words += [option, f"{job.limits[name]:.12g}"]
    return shlex.join(words)


def described(job: JobDetail) -> list[str]:
    """Return the parameters of a job that hold whole robot descriptions."""
    return [name for name in _ROBOTS if str(job.parameters.get(name, "")).lstrip().startswith("{")]


def _is_text(value: str) -> bool:
    """Return whether a text is read back as the same text."""
    try:
        json.loads(value, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return True
    return False
