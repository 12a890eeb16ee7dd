"""What errors of the deflection may have done to an estimate, as far as an off-line fit tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class DeflectionErrors:
    """Errors of deflection, lag and zero, carried over from the off-line fit that an online estimate starts from.

    They bias a stiffness by an amount that the rows of the direct regression alone do not show.

    Attributes
    ----------
    shift : mapping of str to float
        By name, inverse less direct regression: the interval spans both.
    std : mapping of str to float
        By name, the standard deviation that comes from lag and zero alone, which online are taken as exact.
    doubtful : bool
        The off-line values are doubtful, so what rests on the same motion is.
    """

    shift: Mapping[str, float] = field(default_factory=dict)
    std: Mapping[str, float] = field(default_factory=dict)
    doubtful: bool = False
