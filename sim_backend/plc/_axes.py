"""Conversion between units of the PLC's axes and SI units on the joint side, for all axes at once.

With `x` a joint's position (the motor's referred to the joint side where motors are coupled), an axis' position on the
joint side is `sign * x + offset_rad`, at the motor that times the gear ratio; the sign also applies to velocity, torque
and current.
"""

import math
from collections.abc import Sequence

import numpy as np

from rt_core.types import FloatArray
from sim_backend.plc.settings import AxisSettings

_TURN = 2.0 * math.pi
_LENGTHS = {
    "rad": 1.0, "mrad": 1e-3, "deg": _TURN / 360.0, "rev": _TURN, "m": 1.0, "cm": 1e-2, "mm": 1e-3, "um": 1e-6,
}  # fmt: skip
_PARTS = {"percent": 1e-2, "permille": 1e-3}
_AMOUNTS = {"Nm": 1.0, "mNm": 1e-3, "N": 1.0, "A": 1.0, "mA": 1e-3}


class Axes:
    """Scales of all axes, as arrays (n,)."""

    def __init__(self, settings: Sequence[AxisSettings]) -> None:
        def array(values: Sequence[float]) -> FloatArray:
            return np.array(values, dtype=np.float64)

        def amount(unit: str, rated: float | None) -> float:
            return _AMOUNTS[unit] if unit in _AMOUNTS else _PARTS[unit] * (rated or math.nan)

        gear = array([axis.gear_ratio for axis in settings])
        self._sign = sign = array([axis.sign for axis in settings])
        self._offset = array([axis.offset_rad for axis in settings])
        side = np.where([axis.side == "motor" for axis in settings], gear, 1.0)
        self._unit = side / array([_LENGTHS[axis.unit] for axis in settings])
        self._motor = gear / array([_LENGTHS[axis.motor_unit] for axis in settings])
        torque = array([amount(axis.torque_unit, axis.rated_torque_nm) for axis in settings])
        torque *= np.where([axis.torque_side == "motor" for axis in settings], gear, 1.0)
        self._torque = sign / torque
        current = array([amount(axis.current_unit, axis.rated_current_a) for axis in settings])
        self._current = sign / (current * gear * array([axis.torque_constant_nm_per_a for axis in settings]))
        self._counts = array([axis.encoder_counts_per_rev for axis in settings]) * gear / _TURN
        self._step = 1.0 / self._counts

    def angle(self, x: FloatArray) -> FloatArray:
        """Return quantised axis positions on the joint side, of positions `x` [rad or m]."""
        rounded: FloatArray = np.rint((self._sign * x + self._offset) * self._counts) * self._step
        return rounded

    def position(self, angle: FloatArray) -> FloatArray:
        """Return axis positions in their units, of `angle`."""
        return angle * self._unit

    def motor_position(self, angle: FloatArray) -> FloatArray:
        """Return motor positions, of `angle`."""
        return angle * self._motor

    def velocity(self, v: FloatArray) -> FloatArray:
        """Return axis velocities, of joint velocities [rad/s or m/s]."""
        return self._sign * v * self._unit

    def torque(self, u: FloatArray) -> FloatArray:
        """Return axis torques in their units, of joint torques [N*m or N]."""
        return u * self._torque

    def current(self, u: FloatArray) -> FloatArray:
        """Return currents, of joint torques [N*m or N]."""
        return u * self._current

    def joint_position(self, position: FloatArray) -> FloatArray:
        """Return positions `x` [rad or m], of axis positions in their units."""
        return self._sign * (position / self._unit - self._offset)

    def speed(self, speed: FloatArray) -> FloatArray:
        """Return speeds in the axes' units, of joint speeds [rad/s or m/s]."""
        return speed * np.abs(self._unit)
