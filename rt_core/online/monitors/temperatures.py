"""The temperatures of the joints as frames tell them, and those that an estimate was learned from."""

from __future__ import annotations

import numpy as np

from rt_core.jit import kernel
from rt_core.model.parameters import ParameterLayout
from rt_core.model.temperature import HOLD_S, TemperatureRange, possible
from rt_core.types import BoolArray, FloatArray, IntArray

HOLD_NS = round(HOLD_S * 1e9)
_NEVER_NS = -(1 << 62)


@kernel
def _take(t_ns: int, told: FloatArray, values: FloatArray, told_ns: IntArray) -> int:
    """Take over what was told at `t_ns` and can be; returns how many cannot."""
    refused = 0
    for j in range(told.size):
        if possible(told[j], values[j], (t_ns - told_ns[j]) * 1e-9):
            values[j], told_ns[j] = told[j], t_ns
        elif not np.isnan(told[j]):
            refused += 1
    return refused


class JointTemperatures:
    """Temperatures of `n` joints [degC], each as it was told last.

    Attributes
    ----------
    values : (n,) float64
        Told last; of no meaning for joints that are `lacking`.
    seen : (2, n) float64
        Lowest and highest that was learned from, NaN without any.
    refused : int
        Temperatures told that cannot be, which count as not told.
    """

    def __init__(self, n: int) -> None:
        self.values = np.zeros(n)
        self.seen = np.full((2, n), np.nan)
        self.refused = 0
        self._told_ns = np.full(n, _NEVER_NS)
        self._newest_ns: int | None = None

    def take(self, t_ns: int, told: FloatArray | None) -> bool:
        """Take what a frame at `t_ns` tells, NaN for nothing; False if a joint's is not known any more."""
        self._newest_ns = t_ns
        if told is not None:
            self.refused += _take(t_ns, told, self.values, self._told_ns)
        return bool(t_ns - self._told_ns.min() <= HOLD_NS)

    def learned(self, joints: BoolArray) -> None:
        """Count the present temperatures of `joints` (n,) among those that were learned from."""
        lower, upper = self.seen
        np.fmin(lower, self.values, out=lower, where=joints)
        np.fmax(upper, self.values, out=upper, where=joints)

    def unseen(self, layout: ParameterLayout) -> BoolArray:
        """(p,) columns of `layout` that follow the temperature of a joint whose temperature hardly changed."""
        return np.asarray(layout.follows_temperature & self.range.narrow[layout.joint])

    def learned_at(self, temperatures: TemperatureRange | None) -> None:
        """Let what was learned from be these temperatures alone; None for nothing."""
        self.seen[:] = np.nan if temperatures is None else (temperatures.lower, temperatures.upper)

    def restart(self) -> None:
        """Forget the present temperatures: frames go on with another clock."""
        self._told_ns[:] = _NEVER_NS
        self._newest_ns = None

    @property
    def lacking(self) -> BoolArray:
        """(n,) joints whose temperature is not known; all before the first frame, and after a gap."""
        if self._newest_ns is None:
            return np.ones(self.values.size, dtype=np.bool_)
        return np.asarray(self._newest_ns - self._told_ns > HOLD_NS)

    @property
    def range(self) -> TemperatureRange:
        """Temperatures that were learned from."""
        return TemperatureRange(*self.seen.copy())
