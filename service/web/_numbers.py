"""Numbers as JSON of few bytes, for messages that go out many times a second."""

from __future__ import annotations

import math
from collections.abc import Iterable


def number(value: float | None) -> str:
    """Return a number with six digits; null where it is not known, not a number, or infinite."""
    return "null" if value is None or not math.isfinite(value) else f"{value:.6g}"


def numbers(values: Iterable[float | None]) -> str:
    """Return a list of them."""
    return "[" + ",".join(map(number, values)) + "]"
