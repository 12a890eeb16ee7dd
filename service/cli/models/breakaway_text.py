"""Breakaway friction as lines for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def breakaway_lines(joints: Mapping[str, Mapping[str, Any]] | None) -> list[str]:
    """One line about each joint that starts from rest have told something of."""
    lines = []
    for joint, said in (joints or {}).items():
        if said["value"] is not None:
            lines.append(
                f"{joint}: breakaway friction {said['value']:.4g} {said['unit']}, 95 % {said['lower']:.4g} to "
                f"{said['upper']:.4g}, {said['status']}, from {said['starts']} starts"
            )
        elif said["seen"]:
            lines.append(f"{joint}: breakaway friction not known: {said['reason']}")
    return lines
