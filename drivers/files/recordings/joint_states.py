"""Joint states for Foxglove, `foxglove.JointStates` in JSON, for exports and for live data."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from drivers.frame import JointFrame

#: Channel of a frame for each field of a joint state.
STATE_FIELDS = {"position": "q", "velocity": "dq", "effort": "tau"}
JOINT_STATES = "foxglove.JointStates"
#: Foxglove's type of times.
TIME_SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "time",
    "properties": {
        "sec": {"type": "integer", "minimum": 0},
        "nsec": {"type": "integer", "minimum": 0, "maximum": 999_999_999},
    },
}
JOINT_STATES_SCHEMA: dict[str, Any] = {
    "title": JOINT_STATES, "description": "The state of a set of joints at one time", "type": "object",
    "properties": {
        "timestamp": TIME_SCHEMA,
        "joints": {
            "type": "array",
            "items": {
                "title": "foxglove.JointState", "type": "object",
                "properties": {"name": {"type": "string"}, **{name: {"type": "number"} for name in STATE_FIELDS}},
                "required": ["name"],
            },
        },
    },
    "required": ["timestamp", "joints"],
}  # fmt: skip


def timestamp(t_ns: int) -> dict[str, int]:
    """Return a time in Foxglove's type."""
    sec, nsec = divmod(t_ns, 1_000_000_000)
    return {"sec": sec, "nsec": nsec}


def joint_states(t_ns: int, names: Sequence[str], fields: Iterable[Sequence[float]]) -> dict[str, Any]:
    """Return a message; `fields` are those of `STATE_FIELDS`, each (n,), or empty if not measured.

    Values that are not finite are left out.
    """
    joints: list[dict[str, Any]] = [{"name": name} for name in names]
    for field, of_joints in zip(STATE_FIELDS, fields, strict=True):
        for joint, value in zip(joints, of_joints, strict=False):  # empty: not measured
            if math.isfinite(value):
                joint[field] = value
    return {"timestamp": timestamp(t_ns), "joints": joints}


def joint_states_of(frame: JointFrame, names: Sequence[str]) -> dict[str, Any]:
    """Return a frame as a message, without invalid values."""
    fields: list[list[float]] = []
    for name in STATE_FIELDS.values():
        values = getattr(frame, name)
        found = [] if values is None else values.tolist()
        if frame.valid is not None:
            found = [value if ok else math.nan for value, ok in zip(found, frame.valid.tolist(), strict=False)]
        fields.append(found)
    return joint_states(frame.t_bus_ns, names, fields)
