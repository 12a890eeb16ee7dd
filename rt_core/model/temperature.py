"""Temperatures of joints: plausibility of reported values, and the range of a model's data, in which it holds."""

from dataclasses import dataclass

import numpy as np

from rt_core.jit import kernel
from rt_core.types import BoolArray, FloatArray

#: Age of a reported temperature from which it is unknown [s]; joints change theirs over minutes.
HOLD_S = 10.0
#: Possible temperatures of a joint [degC].
MIN_C, MAX_C = -100.0, 200.0
#: Largest step of a sensor without a change [K], and fastest change of a joint [K/s], with a wide margin.
STEP_K, FASTEST_K_PER_S = 5.0, 2.0
#: Least range of a joint's temperature that shows how its friction follows it [K].
MIN_SPAN_K = 5.0
#: Largest distance of a joint outside the temperatures of the fit: the error of sensors [K].
MARGIN_K = 1.0


@kernel
def possible(reported: float, before: float, since_s: float) -> bool:
    """Return whether a joint at `before` degC can be at `reported` degC after `since_s` [s].

    `before` does not count if it is NaN or older than `HOLD_S`.  Rejects the values of a disconnected sensor (0x7FFF,
    zero), which would outweigh all correct ones.
    """
    if not MIN_C <= reported <= MAX_C:
        return False
    return not (since_s <= HOLD_S and abs(reported - before) > STEP_K + FASTEST_K_PER_S * since_s)


@kernel
def _mark_possible(t: FloatArray, reported: FloatArray, before: float, good: BoolArray) -> None:
    """Mark possible values; `before` is the typical one of the first `HOLD_S`."""
    last = t[0] - 0.5 * HOLD_S
    for k in range(t.size):
        good[k] = possible(reported[k], before, t[k] - last)
        if good[k]:
            before, last = reported[k], t[k]


def possible_of(t: FloatArray, reported: FloatArray) -> BoolArray:
    """Return a mask (N,) of the possible ones of a joint's temperatures `reported` (N,) at `t` (N,) [s], in order."""
    good = np.zeros(t.size, dtype=np.bool_)
    if t.size:
        # the first have no predecessor: they are compared with the median of those that follow
        first = reported[t <= t[0] + HOLD_S]
        first = first[(first >= MIN_C) & (first <= MAX_C)]
        before = float(np.median(first)) if first.size else np.nan
        _mark_possible(t, reported, before, good)
    return good


@dataclass(frozen=True, eq=False)
class TemperatureRange:
    """Lowest and highest temperature (n,) of each joint [degC]; NaN for a joint that did not move."""

    lower: FloatArray
    upper: FloatArray

    @property
    def narrow(self) -> BoolArray:
        """(n,) mask of joints whose temperature hardly changed."""
        return np.asarray(~(self.upper - self.lower >= MIN_SPAN_K))

    def outside(self, temperature: FloatArray) -> BoolArray:
        """Return a mask of temperatures (..., n) outside the range by more than the sensors' error, or unknown ones."""
        beyond = np.maximum(self.lower - temperature, temperature - self.upper)
        return np.asarray(~(beyond <= MARGIN_K))

    def reason(self, name: str, joint: int, seen: str) -> str:
        """Return a sentence on joint `joint` called `name`, which is outside, at `seen` degC."""
        if not np.isfinite(self.lower[joint]):
            return f"joint {name}: it did not move when the model was identified, at no temperature"
        return (
            f"joint {name}: it is at {seen} degC, and was identified at {self.lower[joint]:.1f} to "
            f"{self.upper[joint]:.1f} degC: its friction is not known there"
        )

    @classmethod
    def from_plain(cls, limits: object, n: int) -> "TemperatureRange":
        """Return the range of `n` joints that `plain` made lists of; `ValueError` or `TypeError` if it is none."""
        values = np.array(limits, dtype=np.float64)
        if values.shape != (2, n):
            raise ValueError(f"temperatures: expected the lowest and the highest of {n} joints")
        return cls(values[0], values[1])

    @property
    def plain(self) -> list[list[float | None]]:
        """Lowest and highest temperatures as lists, None for NaN."""
        return [[float(v) if np.isfinite(v) else None for v in x] for x in (self.lower, self.upper)]
