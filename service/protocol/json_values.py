"""Values of any kind as plain JSON."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

MAX_TEXT = 4000  # characters of what is told, such as a refusal that repeats what was given


def shortened(text: str, most: int = MAX_TEXT) -> str:
    """Return a text of at most `most` characters: the beginning and the end of a longer one."""
    half = (most - 5) // 2
    return text if len(text) <= most else f"{text[:half]} ... {text[-half:]}"


def plain(value: Any) -> Any:
    """Return `value` as plain JSON types: arrays to lists, dataclasses to maps, NaN and infinity to null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # arrays and scalars of NumPy, which is not imported for this
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    return value
