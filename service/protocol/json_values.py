"""Conversion of any value to JSON values."""

import dataclasses
import math
from pathlib import Path
from typing import Any

MAX_TEXT = 4000  # characters of a reported text, such as a refusal that repeats its input


def shortened(text: str, most: int = MAX_TEXT) -> str:
    """Shorten a text to `most` characters, keeping its beginning and end."""
    half = (most - 5) // 2
    return text if len(text) <= most else f"{text[:half]} ... {text[-half:]}"


def json_values(value: Any) -> Any:
    """Convert `value` to JSON types: arrays to lists, dataclasses to maps, NaN and infinity to null."""
    if isinstance(value, dict):
        return {str(key): json_values(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [json_values(item) for item in value]
    if hasattr(value, "tolist"):  # arrays and scalars of NumPy, which is not imported here
        return json_values(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return json_values({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    if hasattr(value, "__struct_fields__"):
        from msgspec import to_builtins

        return json_values(to_builtins(value))
    return value
