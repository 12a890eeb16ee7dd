"""Conversion between the units of the PLC's axes and SI units on the joint side.

With `x` the axis' position on the joint side, `q = sign * (x - offset_rad)`; `sign` applies to torque, current and
velocity too.  A position counted at the motor is divided by the gear ratio, a torque at the motor is multiplied by it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from drivers.ads.config import AxisTable
from drivers.files.importing.units import UNITS
from rt_core.types import FloatArray

_PARTS = {"percent": 1e-2, "permille": 1e-3}
_TORQUE = {"Nm": 1.0, "mNm": 1e-3, "N": 1.0}
_CURRENT = {"A": 1.0, "mA": 1e-3}


def _length(unit: str) -> float:
    for quantity in ("angle", "length"):
        if unit in UNITS[quantity]:
            return UNITS[quantity][unit][0]
    raise KeyError(unit)


class AxisScaling:
    """Factors of all joints, as arrays; `axes` are in the order of the joints.

    Attributes
    ----------
    position, velocity, torque, current, motor_position : (n,) float64
        One unit of the PLC in SI units, joint side (motor side for the motor position), with sign.
    position_zero, motor_zero : (n,) float64
        Subtracted from the scaled position.
    """

    def __init__(self, axes: Sequence[AxisTable]) -> None:
        def array(values: Sequence[float]) -> FloatArray:
            return np.array(values, dtype=np.float64)

        sign = array([axis.sign for axis in axes])
        gear = array([axis.gear_ratio for axis in axes])
        offset = array([axis.offset_rad for axis in axes])
        length = array([_length(axis.unit) for axis in axes])
        self.position = sign * length / np.where([axis.side == "motor" for axis in axes], gear, 1.0)
        self.velocity = self.position.copy()
        self.position_zero = sign * offset
        torque = [
            _TORQUE[axis.torque_unit]
            if axis.torque_unit in _TORQUE
            else _PARTS[axis.torque_unit] * (axis.rated_torque_nm or np.nan)
            for axis in axes
        ]
        self.torque = sign * array(torque) * np.where([axis.torque_side == "motor" for axis in axes], gear, 1.0)
        current = [
            _CURRENT[axis.current_unit]
            if axis.current_unit in _CURRENT
            else _PARTS[axis.current_unit] * (axis.rated_current_a or np.nan)
            for axis in axes
        ]
        self.current = sign * array(current)
        self.motor_position = sign * array([_length(axis.motor_unit) for axis in axes])
        self.motor_zero = sign * offset * gear

    def axis_position(self, q: FloatArray) -> FloatArray:
        """Convert joint positions (..., n) to positions of the axes, in their units."""
        return (q + self.position_zero) / self.position
