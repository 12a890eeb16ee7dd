"""Kinds of jobs and their parameters, as data and as text."""

import json
from collections.abc import Mapping
from typing import Any

from service.operations.kind import Kind

_RECORDING = "a recording: FILE.mcap, live:SECONDS of the arm, or job:ID for that of a job"
_MODEL = "a model: FILE.yaml, active, job:ID for the one that a job makes, or model:ID"
#: Parameters with the same meaning in all kinds.
_COMMON = {
    "robot": "a robot: a name in configs/robots, or FILE.toml (without it: that of the arm)",
    "measurements": "measured positions or poses: FILE.csv",
    "span": "part of the recording: fractions (0:0.6) or seconds (1s:30s)",
}


def describe_kind(kind: Kind[Any]) -> dict[str, Any]:
    """Return a kind as JSON values: name, help, whether it needs an arm, and its parameters."""
    schema = kind.parameters.model_json_schema()
    required = schema.get("required", ())
    parameters = []
    for name, field in schema["properties"].items():
        note = _COMMON.get(name, _RECORDING if name in kind.recordings else _MODEL if name in kind.models else "")
        parameters.append(
            {
                "name": name, "type": type_text(field, schema.get("$defs", {})), "required": name in required,
                "default": default_of(kind, name), "help": note or field.get("description", ""),
            }
        )  # fmt: skip
    return {
        "name": kind.name, "help": kind.help, "needs_arm": kind.needs_arm, "divided": kind.fan_out is not None,
        "parameters": parameters,
    }  # fmt: skip


def defaults_of(kind: Kind[Any]) -> dict[str, Any]:
    """Return the defaults of all parameters that have one, as JSON values."""
    fields = kind.parameters.model_fields
    return {name: default_of(kind, name) for name, field in fields.items() if not field.is_required()}


def default_of(kind: Kind[Any], name: str) -> Any:
    """Return the default of a parameter as a JSON value, or None."""
    field = kind.parameters.model_fields[name]
    return None if field.is_required() else json.loads(json.dumps(field.get_default(call_default_factory=True)))


def type_text(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """Describe a JSON schema, such as `whole number, 1 to 256`."""
    if "$ref" in field:
        return type_text(definitions[field["$ref"].rpartition("/")[2]], definitions)
    if "enum" in field:
        return " | ".join(str(value) for value in field["enum"])
    if "const" in field:
        return str(field["const"])
    if "anyOf" in field:
        kinds = [item for item in field["anyOf"] if item.get("type") != "null"]
        between = " | " if all("enum" in item for item in kinds) else " or "
        return between.join(type_text(item, definitions) for item in kinds)
    kind = field.get("type")
    if kind == "array":
        items = field.get("prefixItems")
        if items is not None:
            return "[" + ", ".join(type_text(item, definitions) for item in items) + "]"
        return f"list of {type_text(field.get('items', {}), definitions)}"
    if kind == "object":
        held = field.get("additionalProperties")
        return f"map of {type_text(held, definitions)}" if isinstance(held, dict) else "map"
    names = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true | false"}
    return names.get(str(kind), "any") + _range_text(field)


def _range_text(field: Mapping[str, Any]) -> str:
    low, above = field.get("minimum"), field.get("exclusiveMinimum")
    high, below = field.get("maximum"), field.get("exclusiveMaximum")
    if low is not None and high is not None:
        return f", {low:.10g} to {high:.10g}"
    lower = f", at least {low:.10g}" if low is not None else f", above {above:.10g}" if above is not None else ""
    upper = f", at most {high:.10g}" if high is not None else f", below {below:.10g}" if below is not None else ""
    return lower + upper


def kind_text(kind: Mapping[str, Any]) -> str:
    notes = ["needs an arm"] if kind["needs_arm"] else []
    notes += ["may run in parts"] if kind["divided"] else []
    lines = [f"{kind['name']}: {kind['help']}" + (f" ({', '.join(notes)})" if notes else "")]
    width = max(len(row["name"]) for row in kind["parameters"])
    for row in kind["parameters"]:
        default = "" if row["default"] in (None, {}, []) else f", default {json.dumps(row['default'])}"
        must = "  (required)" if row["required"] else ""
        lines.append(f"  {row['name']:{width}s}  {row['help'] or row['type']}{default}{must}")
        if row["help"] and row["type"] != "text":
            lines.append(f"  {'':{width}s}  {row['type']}")
    return "\n".join(lines)
