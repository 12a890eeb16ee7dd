"""Temperatures of the joints as frames report them, and those that an estimate is based on."""

import numpy as np

from rt_core.jit import kernel
from rt_core.model.parameters import ParameterLayout
from rt_core.model.temperature import HOLD_S, TemperatureRange, possible
from rt_core.types import BoolArray, FloatArray, IntArray

HOLD_NS = round(HOLD_S * 1e9)
_NEVER_NS = -(1 << 62)


@kernel
def _take(t_ns: int, reported: FloatArray, values: FloatArray, reported_ns: IntArray) -> int:
    """Copy the possible temperatures reported at `t_ns`; return the number of impossible ones."""
    refused = 0
    for j in range(reported.size):
        if possible(reported[j], values[j], (t_ns - reported_ns[j]) * 1e-9):
            values[j], reported_ns[j] = reported[j], t_ns
        elif not np.isnan(reported[j]):
            refused += 1
    return refused


class JointTemperatures:
    """Last reported temperatures of `n` joints [degC].

    Attributes
    ----------
    values : (n,) float64
        Last reported; meaningless for joints that are `lacking`.
    seen : (2, n) float64
        Lowest and highest that the estimate is based on, NaN without any.
    refused : int
        Number of impossible temperatures, which were left out.
    """

    def __init__(self, n: int) -> None:
        self.values = np.zeros(n)
        self.seen = np.full((2, n), np.nan)
        self.refused = 0
        self._reported_ns = np.full(n, _NEVER_NS)
        self._newest_ns: int | None = None

    def take(self, t_ns: int, reported: FloatArray | None) -> bool:
        """Process the temperatures of a frame at `t_ns`, NaN for none; return False if one is outdated."""
        self._newest_ns = t_ns
        if reported is not None:
            self.refused += _take(t_ns, reported, self.values, self._reported_ns)
        return bool(t_ns - self._reported_ns.min() <= HOLD_NS)

    def learned(self, joints: BoolArray, values: FloatArray) -> None:
        """Add the temperatures `values` (n,) of `joints` (n,) to `seen`."""
        lower, upper = self.seen
        np.fmin(lower, values, out=lower, where=joints)
        np.fmax(upper, values, out=upper, where=joints)

    def unseen(self, layout: ParameterLayout) -> BoolArray:
        """Return (p,) the columns of `layout` that depend on a temperature that hardly varied."""
        return np.asarray(layout.follows_temperature & self.range.narrow[layout.joint])

    def learned_at(self, temperatures: TemperatureRange | None) -> None:
        """Set `seen` to these temperatures; None for no data."""
        self.seen[:] = np.nan if temperatures is None else (temperatures.lower, temperatures.upper)

    def restart(self) -> None:
        """Forget the present temperatures, for frames with another clock."""
        self._reported_ns[:] = _NEVER_NS
        self._newest_ns = None

    @property
    def expiry_ns(self) -> int:
        """Time [ns] after which one of the temperatures is unknown unless it is reported again."""
        return int(self._reported_ns.min()) + HOLD_NS

    @property
    def lacking(self) -> BoolArray:
        """(n,) joints with unknown temperature: all before the first frame, and after a gap."""
        if self._newest_ns is None:
            return np.ones(self.values.size, dtype=np.bool_)
        return np.asarray(self._newest_ns - self._reported_ns > HOLD_NS)

    @property
    def range(self) -> TemperatureRange:
        """Temperatures that the estimate is based on."""
        return TemperatureRange(*self.seen.copy())
