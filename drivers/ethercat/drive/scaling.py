"""Conversion between a drive's integers and SI units on the joint side.

With `angle` the drive's angle on the joint side, `q = sign * (angle - offset_rad)`; `sign` applies to torque and
velocity too.  A position counted at the motor is divided by the gear ratio, a torque at the motor is multiplied by it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from drivers.ethercat.config import DeviceTable, DriveTable
from rt_core.types import FloatArray

_TURN = 2.0 * math.pi
INT32 = (-(1 << 31), (1 << 31) - 1)
INT16 = (-(1 << 15), (1 << 15) - 1)


@dataclass(frozen=True)
class Ratings:
    """Rated values of a drive, which its per mille refer to."""

    torque_nm: float = math.nan
    current_a: float = math.nan


def velocity_rad_s(device: DeviceTable) -> float:
    """Return one digit of velocity [rad/s] on the side of the position encoder."""
    return {
        "counts/s": _TURN / device.counts_per_rev, "0.1counts/s": 0.1 * _TURN / device.counts_per_rev,
        "rpm": _TURN / 60.0, "0.001rpm": 0.001 * _TURN / 60.0, "mrad/s": 0.001,
    }[device.velocity_unit]  # fmt: skip


class JointScaling:
    """Factors of all joints (n,); `drives`, `devices` and `ratings` are in the order of the joints.

    Each is one digit of the object in SI units, joint side (motor side for the motor position), with sign;
    `position_zero` and `motor_zero` are subtracted from the scaled position [rad].
    """

    def __init__(
        self, drives: Sequence[DriveTable], devices: Sequence[DeviceTable], ratings: Sequence[Ratings]
    ) -> None:
        def array(values: list[float]) -> FloatArray:
            return np.array(values, dtype=np.float64)

        rows = list(zip(drives, devices, ratings, strict=True))
        sign = array([float(drive.sign) for drive, _, _ in rows])
        gear = array([drive.gear_ratio for drive, _, _ in rows])
        offset = array([drive.offset_rad for drive, _, _ in rows])
        encoder_gear = np.where([device.position_side == "motor" for _, device, _ in rows], gear, 1.0)
        torque_gear = np.where([device.torque_side == "motor" for _, device, _ in rows], gear, 1.0)
        self.position = sign * _TURN / (array([device.counts_per_rev for _, device, _ in rows]) * encoder_gear)
        self.position_zero = sign * offset
        self.velocity = sign * array([velocity_rad_s(device) for _, device, _ in rows]) / encoder_gear
        torque_nm = [
            {"permille": 1e-3 * rating.torque_nm, "mNm": 1e-3, "0.01Nm": 1e-2}[device.torque_unit]
            for _, device, rating in rows
        ]
        self.torque = sign * array(torque_nm) * torque_gear
        current_a = [
            1e-3 * (rating.current_a if device.current_unit == "permille" else 1.0) for _, device, rating in rows
        ]
        self.current = sign * array(current_a)
        counts = [device.motor_counts_per_rev or math.nan for _, device, _ in rows]
        self.motor_position = sign * _TURN / array(counts)
        self.motor_zero = sign * offset * gear
        self.temperature = array([device.temperature_scale for _, device, _ in rows])
        self.temperature_zero = array([-device.temperature_offset for _, device, _ in rows])

    def position_counts(self, q: FloatArray) -> list[int]:
        """Return counts of joint positions (n,) [rad], rounded and limited to 32 bits."""
        return _digits((q + self.position_zero) / self.position, INT32)

    def position_reach(self) -> tuple[FloatArray, FloatArray]:
        """Return lowest and highest joint positions (n,) [rad] that 32 bits of counts hold."""
        ends = np.array([limit * self.position - self.position_zero for limit in INT32])
        return ends.min(axis=0), ends.max(axis=0)

    def velocity_digits(self, dq: FloatArray) -> list[int]:
        """Return digits of joint velocities (n,) [rad/s]."""
        return _digits(dq / self.velocity, INT32)

    def torque_digits(self, tau: FloatArray) -> list[int]:
        """Return digits of joint torques (n,) [N*m], limited to 16 bits."""
        return _digits(tau / self.torque, INT16)


def _digits(values: FloatArray, limits: tuple[int, int]) -> list[int]:
    low, high = limits
    return [round(min(max(value, low), high)) for value in values.tolist()]
