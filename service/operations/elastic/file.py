"""Reader of `elastic.json` and of springs in model files: the joint, its drive, and the start of an online estimate."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from drivers.files.table import Finite, describe
from rt_core.elastic.rows import Drive
from rt_core.identification.preprocess import DataError
from service.config.load import ConfigError
from service.operations.elastic._prior import OnlineStart
from service.operations.elastic.joint import FORMAT

#: Far above the size of any such file.
_SIZE_LIMIT = 1 << 22
_WRITE = "thetad identify --model elastic_joint -o FILE writes one"


class _Table(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class _Drive(_Table):
    gear_ratio: Finite
    torque_constant: Finite | None
    rotor_inertia: Finite | None


class _Document(_Table):
    joint: str
    drive: _Drive
    online_start: dict[str, JsonValue]


class ElasticFile(NamedTuple):
    """Content of the file.

    `torque_constant` [N*m/A] is None where the motor's torque is not from a current; `sensor`: there is a torque sensor
    behind the spring.
    """

    joint: str
    drive: Drive
    torque_constant: float | None
    sensor: bool
    start: OnlineStart


def load_elastic(path: Path) -> ElasticFile:
    """Read a file; `ConfigError` if it is unreadable, no such file, or has no start for an online estimate."""
    return _known(_read(path), str(path))


def known_springs(springs: Sequence[Mapping[str, Any]], joints: Sequence[str] | None) -> list[ElasticFile]:
    """Return what the estimates of `joints` start from, by the entries `springs` of a model file.

    `joints` is None for an arm without estimates of springs. Raises `ConfigError` if that does not fit the model, or a
    joint has no start.
    """
    if springs and joints is None:
        raise ConfigError(
            "the model's joints are elastic, and the arm has no [[arm.elastic]]: identify with --joints rigid, or add "
            "a table for each joint whose spring is to be estimated"
        )
    if joints and not springs:
        raise ConfigError(
            f"the model's joints are rigid, and [[arm.elastic]] of {', '.join(joints)} starts from the active model: "
            "identify with --joints elastic, or name a file in `model` of the table"
        )
    if not isinstance(springs, list | tuple) or not all(isinstance(entry, Mapping) for entry in springs):
        raise ConfigError("springs of a model are a list of tables")
    entries = {entry.get("joint"): entry for entry in springs}
    return [_known(entries.get(joint, {}), "the model") for joint in joints or ()]


def _known(document: Mapping[str, Any], path: str) -> ElasticFile:
    start = document.get("online_start")
    if isinstance(start, Mapping) and "reason" in start:
        raise ConfigError(f"{path}: joint {document.get('joint')}: {start['reason']}")
    try:
        found = _Document.model_validate_json(json.dumps(document))
    except ValidationError as error:
        raise ConfigError(f"{path}: {describe(error, _Document)}") from error
    try:
        drive = Drive(found.drive.gear_ratio, found.drive.rotor_inertia)
        begin = OnlineStart.model_validate_json(json.dumps(found.online_start))
    except DataError as error:
        raise ConfigError(f"{path}: drive: {error}") from error
    except ValidationError as error:
        raise ConfigError(f"{path}: {describe(error, OnlineStart, 'online_start')}") from error
    return ElasticFile(found.joint, drive, found.drive.torque_constant, "b_out" in begin.values, begin)


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as stream:
            text = stream.read(_SIZE_LIMIT)
        document = json.loads(text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; {_WRITE}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is not JSON, as a model of an elastic joint is: {_WRITE}") from error
    written = document.get("format") if isinstance(document, dict) else None
    if written != FORMAT:
        raise ConfigError(f"{path}: format {written!r:.60} is not that of an elastic joint, {FORMAT!r}: {_WRITE}")
    if "online_start" not in document:
        raise ConfigError(f"{path}: has no online_start, because an earlier version wrote it; {_WRITE} that has")
    return dict(document)
