"""JSON schemas of a bridge's messages: plain types only, as viewers refuse unions; a missing value is null."""

import json
from dataclasses import dataclass
from typing import Any

from drivers.files.recordings.format import SCHEMA_NAME, RecordingMeta, frame_schema
from drivers.files.recordings.joint_states import JOINT_STATES, JOINT_STATES_SCHEMA, TIME_SCHEMA


@dataclass(frozen=True)
class Stream:
    """One topic, the name of its message type, and its JSON schema."""

    topic: str
    name: str
    schema: dict[str, Any]


_NUMBER = {"type": "number"}
_INTEGER = {"type": "integer"}
_TEXT = {"type": "string"}
_MAP = {"type": "object"}
_WHEN = {
    "t": {"type": "number", "description": "time on the source's clock [s]"},
    "t_ns": {"type": "integer", "description": "the same [ns]"},
    "seq": {"type": "integer", "description": "count of the daemon's messages, of which the bridge leaves some out"},
}


def _object(title: str, description: str, **properties: Any) -> dict[str, Any]:
    found = {"title": title, "type": "object", "description": description, "properties": _WHEN | properties}
    return {**found, "required": list(_WHEN)}


def _list(description: str, **properties: Any) -> dict[str, Any]:
    return {"type": "array", "description": description, "items": {"type": "object", "properties": properties}}


def _numbers(description: str) -> dict[str, Any]:
    return {"type": "array", "items": _NUMBER, "description": description}


_TORQUE = _object(
    "thetad.Torque",
    "Torques of the joints in their order, N*m or N: measured, predicted by the active model, and their difference",
    measured=_numbers("measured"), predicted=_numbers("predicted"),
    residual=_numbers("measured less predicted: torque from outside"),
)  # fmt: skip
_ESTIMATE = _object(
    "thetad.Estimate", "Base parameters with bounds; no number where the data do not support one",
    parameters=_list(
        "one for each base parameter", name=_TEXT, unit=_TEXT,
        value={"type": "number", "description": "as estimated now; null if the status says that there is none"},
        lower={"type": "number", "description": "of the interval of 95 %"},
        upper={"type": "number", "description": "of the interval of 95 %"}, std=_NUMBER,
        validated={"type": "number", "description": "the last value that the data supported; null before the first"},
        status={"type": "string", "description": "unestimated, estimated, invalid, stale, frozen"},
        excited={"type": "boolean", "description": "whether the present motion determines it"},
    ),
    joints=_list(
        "one for each joint", name=_TEXT, lam={"type": "number", "description": "forgetting factor"},
        innovation={"type": "number", "description": "latest difference of measured and predicted torque"},
        sigma={"type": "number", "description": "its usual size"},
    ),
    delay_s=_NUMBER,
    **dict.fromkeys(("frames", "used", "masked", "lost", "resets"), _INTEGER),
    hash=_TEXT,
)  # fmt: skip
_EVENT = _object(
    "thetad.Event", "Something has changed", event=_TEXT, text=_TEXT, data=_MAP | {"description": "see docs/wire.md"}
)
_LOG = {
    "title": "foxglove.Log", "description": "A log message", "type": "object",
    "properties": {
        "timestamp": TIME_SCHEMA, "level": {"type": "integer", "description": "2 is info, 3 a warning"},
        "message": _TEXT, "name": _TEXT, "file": _TEXT, "line": _INTEGER,
    },
    "required": ["timestamp", "level", "message", "name"],
}  # fmt: skip


def arm_streams(arm: str) -> list[Stream]:
    """Return the streams that every arm has."""
    return [
        Stream(f"{arm}/torque", "thetad.Torque", _TORQUE), Stream(f"{arm}/estimate", "thetad.Estimate", _ESTIMATE),
        Stream(f"{arm}/event", "thetad.Event", _EVENT), Stream(f"{arm}/log", "foxglove.Log", _LOG),
    ]  # fmt: skip


def frame_streams(meta: RecordingMeta) -> list[Stream]:
    """Return the streams of an arm's frames, with the topics and fields of recordings and their exports."""
    frame = json.loads(frame_schema(meta))
    frame["properties"]["t"] = _WHEN["t"]
    return [
        Stream(meta.topic, SCHEMA_NAME, frame),
        Stream(f"{meta.robot}/joint_states", JOINT_STATES, JOINT_STATES_SCHEMA),
    ]


def generic_stream(arm: str, kind: str, src: str) -> Stream:
    """Return the stream of messages that are passed on unchanged, such as the status of one process."""
    if kind == "status":
        schema = _object("thetad.Status", "Of one process; the fields are described in docs/wire.md", state=_TEXT)
        return Stream(f"{arm}/status/{src}", "thetad.Status", schema)
    schema = _object("thetad.Elastic", "Elastic joints, by name; described in docs/wire.md", joints=_MAP)
    return Stream(f"{arm}/elastic", "thetad.Elastic", schema)
