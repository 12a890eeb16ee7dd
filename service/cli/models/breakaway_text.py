"""Text of breakaway friction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def breakaway_lines(joints: Mapping[str, Mapping[str, Any]] | None) -> list[str]:
    """Return one line for each joint whose starts from rest were observed."""
    lines = []
    for joint, estimate in (joints or {}).items():
        if estimate["value"] is not None:
            lines.append(
                f"{joint}: breakaway friction {estimate['value']:.4g} {estimate['unit']}, 95 % "
                f"{estimate['lower']:.4g} to {estimate['upper']:.4g}, {estimate['status']}, "
                f"from {estimate['starts']} starts"
            )
        elif estimate["seen"]:
            lines.append(f"{joint}: breakaway friction not known: {estimate['reason']}")
    return lines
