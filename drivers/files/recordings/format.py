"""Format of recording files: MCAP with one channel `<robot>/frame` and one record `thetad.recording` per robot."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

#: Version of the file format; another major version is refused.
FORMAT_VERSION = 1
#: Name of the metadata record of each robot.
METADATA_NAME = "thetad.recording"
SCHEMA_NAME = "thetad.JointFrame"
#: Entry of a metadata record: "no" after a recovery that could not tell whether the record had changed.
VERIFIED = "verified"
#: Entry of a metadata record: Unix time minus the source's clock [ns], by the computer that recorded.
UNIX_OFFSET = "unix_offset_ns"
_DIGEST = "sha256"
TOPIC_SUFFIX = "/frame"

_ROBOT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class RecordingError(Exception):
    """Failure to write or read a recording; the message has the problem, its place, and the remedy."""


class RecordingFormatError(RecordingError, ValueError):
    """The file is no recording of a readable version, or its content contradicts itself."""


class RecordingTruncatedError(RecordingFormatError, EOFError):
    """The file is incomplete: its writer was killed, or it was copied in part."""


class RecordingNotFoundError(RecordingError, FileNotFoundError):
    """The file does not exist."""


class RecordingExistsError(RecordingError, FileExistsError):
    """The file to be written exists already."""


class RecordingWriteError(RecordingError, OSError):
    """The file cannot be written, for example because the disk is full."""


@dataclass(frozen=True)
class RecordingMeta:
    """Metadata of a recording, known before its first frame."""

    robot: str  # letters, digits, `_`, `.` and `-`; becomes the topic `<robot>/frame`
    joint_names: tuple[str, ...]  # unique, in order
    units: tuple[str, ...]  # "rad" or "m" for each joint's position
    rate_hz: float  # nominal
    clock: str = "recording"  # of the frames' `t_ns`: "recording", "sim", "dc", "plc"
    source: str = ""  # imported file, with hash and mapping; empty if recorded live
    source_sha256: str = ""
    mapping: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)  # further metadata

    def __post_init__(self) -> None:
        if not _ROBOT_NAME.fullmatch(self.robot):
            raise RecordingFormatError(
                f"robot name {self.robot!r}: use letters, digits, '_', '.' and '-', starting with a letter or digit"
            )
        if not self.joint_names or len(set(self.joint_names)) != len(self.joint_names):
            raise RecordingFormatError(f"robot {self.robot}: joint names {list(self.joint_names)} are empty or repeat")
        if len(self.units) != len(self.joint_names) or any(unit not in ("rad", "m") for unit in self.units):
            raise RecordingFormatError(
                f"robot {self.robot}: units {list(self.units)} must be 'rad' or 'm', one for each of "
                f"{len(self.joint_names)} joints"
            )
        if not (math.isfinite(self.rate_hz) and self.rate_hz > 0.0):
            raise RecordingFormatError(f"robot {self.robot}: rate {self.rate_hz} Hz is not a positive number")

    @property
    def n(self) -> int:
        """Number of joints."""
        return len(self.joint_names)

    @property
    def topic(self) -> str:
        """Topic of the robot's frames."""
        return self.robot + TOPIC_SUFFIX

    def to_metadata(self) -> dict[str, str]:
        """Return the strings of the file's metadata record."""
        return {
            **self.extra, "format": str(FORMAT_VERSION), "robot": self.robot,
            "joints": json.dumps(list(self.joint_names)), "units": json.dumps(list(self.units)),
            "rate_hz": repr(float(self.rate_hz)), "clock": self.clock, "side": "joint", "source": self.source,
            "source_sha256": self.source_sha256, "mapping": self.mapping,
        }  # fmt: skip

    @classmethod
    def from_metadata(cls, record: Mapping[str, str]) -> Self:
        """Read a metadata record; raises `RecordingFormatError` if it is of another version or incomplete."""
        version = record.get("format", "")
        if version.split(".")[0] != str(FORMAT_VERSION):
            raise RecordingFormatError(
                f"recording format version {version or 'missing'!r}; this thetad reads version {FORMAT_VERSION}"
            )
        try:
            joints = json.loads(record["joints"])
            units = json.loads(record["units"])
            rate_hz = float(record["rate_hz"])
            robot = record["robot"]
        except KeyError as error:
            raise RecordingFormatError(f"metadata record {METADATA_NAME!r} lacks {error.args[0]!r}") from None
        except (ValueError, RecursionError) as error:
            raise RecordingFormatError(f"metadata record {METADATA_NAME!r} cannot be read: {error}") from None
        for name, value in (("joints", joints), ("units", units)):
            if not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
                raise RecordingFormatError(f"metadata record {METADATA_NAME!r}: {name!r} is not a list of strings")
        known = {
            "format", "robot", "joints", "units", "rate_hz", "clock", "side", "source", "source_sha256", "mapping",
            _DIGEST,
        }  # fmt: skip
        return cls(
            robot=robot, joint_names=tuple(joints), units=tuple(units), rate_hz=rate_hz,
            clock=record.get("clock", "recording"), source=record.get("source", ""),
            source_sha256=record.get("source_sha256", ""), mapping=record.get("mapping", ""),
            extra={key: value for key, value in record.items() if key not in known},
        )  # fmt: skip


def with_digest(record: Mapping[str, str]) -> dict[str, str]:
    """Return a metadata record with the digest of its other entries, which proves it in a file that was cut off."""
    rest = {key: value for key, value in record.items() if key != _DIGEST}
    return rest | {_DIGEST: hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()}


def altered(record: Mapping[str, str]) -> bool:
    """Return whether a metadata record has a digest, and another one than it states."""
    return _DIGEST in record and with_digest(record) != record


def recovered(record: Mapping[str, str], intact: bool) -> dict[str, str]:
    """Return a metadata record as it is, or marked if neither its digest nor an `intact` file proves it."""
    proven = not altered(record) if _DIGEST in record else intact
    return dict(record) if proven else with_digest({**record, VERIFIED: "no"})


def frame_schema(meta: RecordingMeta) -> bytes:
    """Return the JSON schema of one message.

    It has only simple types, because viewers refuse unions; a value that was not measured is null all the same, and its
    joint is false in `valid`.
    """
    n = meta.n
    position = "/".join(sorted(set(meta.units)))
    effort = "/".join(sorted({"rad": "N*m", "m": "N"}[unit] for unit in set(meta.units)))

    def array(description: str, kind: str = "number") -> dict[str, object]:
        return {"type": "array", "items": {"type": kind}, "minItems": n, "maxItems": n, "description": description}

    schema = {
        "title": SCHEMA_NAME, "type": "object",
        "description": f"One sample of {meta.robot}, joint side, SI units; joints: {', '.join(meta.joint_names)}",
        "properties": {
            "t": {"type": "number", "description": "time since the first sample of the file [s]"},
            "t_ns": {"type": "integer", "description": f"time of the sample on the clock '{meta.clock}' [ns]"},
            "t_host_ns": {"type": "integer", "description": "CLOCK_MONOTONIC when it was received [ns]"},
            "seq": {"type": "integer", "description": "the source's cycle count; a gap means lost cycles"},
            "q": array(f"position [{position}]"), "dq": array(f"velocity [{position} per second]"),
            "current": array("motor current [A]"), "tau": array(f"joint torque or force [{effort}]"),
            "q_motor": array("motor-side position [rad]"), "temperature": array("temperature [degC]"),
            "setpoint": array(f"commanded position [{position}]"),
            "status_word": array("status word of each drive", "integer"),
            "valid": array("false where the joint's values must not be used; absent if all are valid", "boolean"),
        },
        "required": ["t", "t_ns", "seq"],
    }  # fmt: skip
    return json.dumps(schema).encode()
