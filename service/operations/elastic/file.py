"""Reader of `elastic.json`: the joint, its drive, and the start of an online estimate."""

import json
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
    document = _read(path)
    try:
        found = _Document.model_validate_json(json.dumps(document))
    except ValidationError as error:
        raise ConfigError(f"{path}: {describe(error, _Document)}") from error
    if "reason" in found.online_start:
        raise ConfigError(f"{path}: joint {found.joint}: {found.online_start['reason']}")
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
