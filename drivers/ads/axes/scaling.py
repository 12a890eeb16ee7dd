"""Conversion between the units of the PLC's axes and SI units on the joint side.

With `x` the axis' position on the joint side, `q = sign * (x - offset_rad)`; `sign` applies to torque, current and
velocity too.  A position counted at the motor is divided by the gear ratio, a torque at the motor is multiplied by it.
"""

from collections.abc import Sequence

import numpy as np

from drivers.ads.config import AxisTable
from drivers.files.importing.units import UNITS
from rt_core.types import FloatArray

_PARTS = {"percent": 1e-2, "permille": 1e-3}
_AMOUNTS = {"Nm": 1.0, "mNm": 1e-3, "N": 1.0, "A": 1.0, "mA": 1e-3}


def _length(unit: str) -> float:
    for quantity in ("angle", "length"):
        if unit in UNITS[quantity]:
            return UNITS[quantity][unit][0]
    raise KeyError(unit)


class AxisScaling:
    """Factors (n,) of all joints; `axes` are in the order of the joints.

    `position`, `velocity`, `torque`, `current` and `motor_position` are one unit of the PLC in SI units, joint side
    (motor side for the motor position), with sign; `position_zero` and `motor_zero` are subtracted from the scaled
    position.
    """

    def __init__(self, axes: Sequence[AxisTable]) -> None:
        def array(values: Sequence[float]) -> FloatArray:
            return np.array(values, dtype=np.float64)

        def amount(unit: str, rated: float | None) -> float:
            return _AMOUNTS[unit] if unit in _AMOUNTS else _PARTS[unit] * (rated or np.nan)

        sign = array([axis.sign for axis in axes])
        gear = array([axis.gear_ratio for axis in axes])
        offset = array([axis.offset_rad for axis in axes])
        length = array([_length(axis.unit) for axis in axes])
        self.position = sign * length / np.where([axis.side == "motor" for axis in axes], gear, 1.0)
        self.velocity = self.position.copy()
        self.position_zero = sign * offset
        torque = [amount(axis.torque_unit, axis.rated_torque_nm) for axis in axes]
        self.torque = sign * array(torque) * np.where([axis.torque_side == "motor" for axis in axes], gear, 1.0)
        self.current = sign * array([amount(axis.current_unit, axis.rated_current_a) for axis in axes])
        self.motor_position = sign * array([_length(axis.motor_unit) for axis in axes])
        self.motor_zero = sign * offset * gear

    def axis_position(self, q: FloatArray) -> FloatArray:
        """Convert joint positions (..., n) to positions of the axes, in their units."""
        return (q + self.position_zero) / self.position
