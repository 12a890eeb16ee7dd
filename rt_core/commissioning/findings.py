"""Result of a check: a verdict with the measured value, its uncertainty and its meaning."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

FindingVerdict = Literal["ok", "wrong", "cannot_tell"]

#: Factors between units that are easily confused, and their meaning.
_FACTORS = (
    (180.0 / np.pi, "degrees for radians"), (np.pi / 180.0, "radians for degrees"),
    (1000.0, "millimetres or N*mm for metres or N*m"), (0.001, "metres or N*m for millimetres or N*mm"),
    (60.0, "a minute for a second"), (1.0 / 60.0, "a second for a minute"), (2.0 * np.pi, "revolutions for radians"),
    (1.0 / (2.0 * np.pi), "radians for revolutions"),
)  # fmt: skip
#: Relative distance within which a factor is taken for a known one.
_NEAR = 0.07


class CommissioningError(ValueError):
    """Data without a usable result; the message states the reason."""


@dataclass(frozen=True)
class Finding:
    """Result of one check of one joint."""

    check: str  # name of the check, such as "position follows"
    joint: int
    verdict: FindingVerdict
    value: float  # the measured value; NaN if there is none
    std: float  # its standard deviation, likewise
    margin: float  # distance to the nearest other verdict, in standard deviations or as a factor; NaN if there is none
    text: str  # its meaning, and for a fault the remedy
    kind: str = ""  # kind of fault where later steps depend on it: "inverted", "masses"; otherwise empty


def factor_text(factor: float) -> str:
    """Return the likely cause of a factor that should be 1; empty if it is 1."""
    size = abs(factor)
    sign = "the sign is inverted" if factor < 0.0 else ""
    if abs(size - 1.0) < _NEAR:
        return sign
    for known, meaning in _FACTORS:
        if abs(size / known - 1.0) < _NEAR:
            return f"{sign}, and it looks like {meaning}" if sign else f"it looks like {meaning}"
    return f"{sign}, and the gear ratio or unit is off" if sign else "the gear ratio or the unit is off"
