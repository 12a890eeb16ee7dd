"""Temperatures of joints: which can be, and at which the friction of a model was seen.

How friction follows temperature is known where it was seen and nowhere else: a straight line through friction between
20 and 40 degC says little of -40 degC.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rt_core.jit import kernel
from rt_core.types import BoolArray, FloatArray

#: A temperature that was told so long ago is not known any more [s]; joints change theirs over minutes.
HOLD_S = 10.0
#: No joint is beyond these [degC].
MIN_C, MAX_C = -100.0, 200.0
#: What a sensor makes of no change at all [K], and the fastest that a joint changes [K/s], by a wide margin.
STEP_K, FASTEST_K_PER_S = 5.0, 2.0
#: A joint whose temperature changed by less does not show how its friction follows it [K].
MIN_SPAN_K = 5.0
#: So far outside the temperatures of the fit a joint may be: what sensors are off by [K].
MARGIN_K = 1.0


@kernel
def possible(told: float, before: float, since_s: float) -> bool:
    """Whether a joint may be at `told` degC that was at `before` so long ago; NaN, or longer than `HOLD_S`: not known.

    What a sensor says that is not connected (0x7FFF, zero) would outweigh all that is right.
    """
    if not MIN_C <= told <= MAX_C:
        return False
    return not (since_s <= HOLD_S and abs(told - before) > STEP_K + FASTEST_K_PER_S * since_s)


@kernel
def _mark_possible(t: FloatArray, told: FloatArray, before: float, good: BoolArray) -> None:
    """`before` is what the first values are about at, up to `HOLD_S` later."""
    last = t[0] - 0.5 * HOLD_S
    for k in range(t.size):
        good[k] = possible(told[k], before, t[k] - last)
        if good[k]:
            before, last = told[k], t[k]


def possible_of(t: FloatArray, told: FloatArray) -> BoolArray:
    """(N,) which of the temperatures `told` (N,) of a joint, at `t` (N,) [s], can be, each after those before it."""
    good = np.zeros(t.size, dtype=np.bool_)
    if t.size:
        # the first have none before them: they are compared with most of those that follow
        first = told[t <= t[0] + HOLD_S]
        first = first[(first >= MIN_C) & (first <= MAX_C)]
        before = float(np.median(first)) if first.size else np.nan
        _mark_possible(t, told, before, good)
    return good


@dataclass(frozen=True, eq=False)
class TemperatureRange:
    """Lowest and highest temperature (n,) of each joint [degC]; NaN of a joint that was not seen moving."""

    lower: FloatArray
    upper: FloatArray

    @property
    def narrow(self) -> BoolArray:
        """(n,) whether a joint's temperature hardly changed."""
        return np.asarray(~(self.upper - self.lower >= MIN_SPAN_K))

    def outside(self, temperature: FloatArray) -> BoolArray:
        """Where (..., n) temperatures (..., n) are farther outside than sensors are off, or nothing was seen."""
        beyond = np.maximum(self.lower - temperature, temperature - self.upper)
        return np.asarray(~(beyond <= MARGIN_K))

    def reason(self, name: str, joint: int, seen: str) -> str:
        """Sentence on joint `joint` of that name, which is outside, at `seen` degC."""
        if not np.isfinite(self.lower[joint]):
            return f"joint {name}: it did not move when the model was identified, at no temperature"
        return (
            f"joint {name}: it is at {seen} degC, and was identified at {self.lower[joint]:.1f} to "
            f"{self.upper[joint]:.1f} degC: its friction is not known there"
        )

    @classmethod
    def from_plain(cls, limits: object, n: int) -> TemperatureRange:
        """Return the range of `n` joints that `plain` made lists of; `ValueError` or `TypeError` if it is none."""
        values = np.array(limits, dtype=np.float64)
        if values.shape != (2, n):
            raise ValueError(f"temperatures: expected the lowest and the highest of {n} joints")
        return cls(values[0], values[1])

    @property
    def plain(self) -> list[list[float | None]]:
        """Lowest and highest temperatures as lists, None for NaN."""
        return [[float(v) if np.isfinite(v) else None for v in x] for x in (self.lower, self.upper)]
