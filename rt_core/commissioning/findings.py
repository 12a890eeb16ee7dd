"""What a check found: a verdict with what was measured, how sure it is, and what it means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

Verdict = Literal["ok", "wrong", "cannot_tell"]

#: Factors between units that are mixed up, and what they mean; a negative sign is told apart.
_FACTORS = (
    (180.0 / np.pi, "degrees for radians"),
    (np.pi / 180.0, "radians for degrees"),
    (1000.0, "millimetres or N*mm for metres or N*m"),
    (0.001, "metres or N*m for millimetres or N*mm"),
    (60.0, "a minute for a second"),
    (1.0 / 60.0, "a second for a minute"),
    (2.0 * np.pi, "revolutions for radians"),
    (1.0 / (2.0 * np.pi), "radians for revolutions"),
)
#: A factor this near to a known one is taken for it.
_NEAR = 0.07


@dataclass(frozen=True)
class Finding:
    """One check of one joint.

    Attributes
    ----------
    check : str
        What was checked, such as "position follows".
    joint : int
    verdict : {"ok", "wrong", "cannot_tell"}
    value, std : float
        What was measured, and its standard deviation; NaN where there is nothing.
    margin : float
        Distance to the nearest other verdict, in standard deviations or as a factor; NaN where there is none.
    text : str
        What it means, and if it is wrong what to look at.
    kind : str
        Which fault it is, where it matters to what follows: "inverted", "masses"; otherwise empty.
    """

    check: str
    joint: int
    verdict: Verdict
    value: float
    std: float
    margin: float
    text: str
    kind: str = ""


def factor_text(factor: float) -> str:
    """Say what a factor that should be 1 points at; nothing if it is no usual one."""
    size = abs(factor)
    sign = "the sign is inverted" if factor < 0.0 else ""
    if abs(size - 1.0) < _NEAR:
        return sign
    for known, meaning in _FACTORS:
        if abs(size / known - 1.0) < _NEAR:
            return f"{sign}, and it looks like {meaning}" if sign else f"it looks like {meaning}"
    return f"{sign}, and the gear ratio or unit is off" if sign else "the gear ratio or the unit is off"
