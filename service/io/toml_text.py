"""Write a robot description as TOML."""

import json
from typing import Any


def toml_text(source: dict[str, Any]) -> str:
    """Return the source of a robot as the text of a robot file."""
    scalars = {key: value for key, value in source.items() if not isinstance(value, dict) and key != "joint"}
    lines = [f"{key} = {_value(value)}" for key, value in scalars.items()]
    for joint in source.get("joint", ()):
        lines += ["", "[[joint]]", *(f"{key} = {_value(value)}" for key, value in joint.items())]
    for name, table in source.items():
        if isinstance(table, dict):
            lines += ["", f"[{name}]", *(f"{key} = {_value(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, float):
        return repr(float(value))
    return json.dumps(value, ensure_ascii=True)
