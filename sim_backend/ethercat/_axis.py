"""Conversion between a drive's integers (counts, per mille) and SI units on the joint side.

With `x` the joint's position (the motor's referred to the joint side where motors are coupled), a drive's angle is
`sign * x + offset_rad`, and the motor's that times the gear ratio; the sign also applies to velocity and torque.
Positions are quantised to the encoder's counts, in the drive's units on the side that its profile names.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from sim_backend.canopen.dictionary import Entry, ObjectDictionary
from sim_backend.drive.modes import CSP, CST, CSV
from sim_backend.drive.motion import Demand, Feedback
from sim_backend.drive.objects import DriveObjects
from sim_backend.errors import SimulationConfigError
from sim_backend.ethercat._profile import DeviceProfile, Side

_TURN = 2.0 * math.pi
_INT16 = 0x7FFF
_POWERED = (CSP, CSV, CST)


@dataclass(frozen=True)
class Mounting:
    gear_ratio: float | None = None  # motor turns per joint turn; None: that of the profile
    sign: int = 1  # -1: drive and joint count in opposite directions
    offset_rad: float = 0.0  # the drive's angle, on the joint side, at joint position zero

    def __post_init__(self) -> None:
        if self.gear_ratio is not None and not (math.isfinite(self.gear_ratio) and self.gear_ratio > 0.0):
            raise SimulationConfigError(f"gear_ratio is {self.gear_ratio}, must be > 0: a reversed joint has sign = -1")
        if self.sign not in (-1, 1):
            raise SimulationConfigError(f"sign is {self.sign}, must be 1 or -1")
        if not math.isfinite(self.offset_rad):
            raise SimulationConfigError(f"offset_rad is {self.offset_rad}, must be finite")


class JointDemand(NamedTuple):
    """Command of a drive until the next cycle, in SI units on the joint side; see `Demand`."""

    mode: int
    target: float
    torque_offset: float
    torque_limit: float
    brake: bool


class Axis:
    """Scales of one drive on one joint, and the faults of its encoder.

    The dictionary has the rated torque and current, and receives second encoder and temperature. `units_per_motor_rev`
    are position units per revolution. A `stuck` encoder repeats its last reading (after power-on: the first one); the
    drive's control loop is unaffected.
    """

    def __init__(
        self, profile: DeviceProfile, dictionary: ObjectDictionary, objects: DriveObjects, mounting: Mounting
    ) -> None:
        constants = profile.drive
        self._objects = objects
        self._sign, self._offset = float(mounting.sign), mounting.offset_rad
        self._gear = gear = constants.gear_ratio if mounting.gear_ratio is None else mounting.gear_ratio

        def turns(side: Side) -> float:
            return gear if side == "motor" else 1.0

        position = constants.position
        self._units = position.units_per_rev * turns(position.side) / _TURN  # per rad of the joint
        self._counts = constants.encoder_counts_per_rev(position.encoder) * turns(position.encoder) / _TURN
        self.units_per_motor_rev = position.units_per_rev * turns(position.side) / gear
        self._second: tuple[Entry, float] | None = None
        if constants.second_position is not None:
            second = constants.second_position
            counts = constants.encoder_counts_per_rev(second.side) * turns(second.side) / _TURN
            self._second = dictionary.entry(second.object.index, second.object.subindex), counts
        self._temperature: tuple[Entry, float] | None = None
        if constants.temperature is not None:
            place = constants.temperature
            self._temperature = dictionary.entry(place.object.index, place.object.subindex), place.degc_per_unit
        self._torque_constant = constants.torque_constant_nm_per_a * gear  # joint torque per current [N*m/A]
        self._torque_gear = 0.0 if constants.torque_side == "none" else turns(constants.torque_side)
        self._rated = constants.rated_torque_mnm, constants.rated_current_ma
        self.stuck = False
        self.power_on()

    def power_on(self) -> None:
        """Clear the jumps of the encoder."""
        self._jump = self._true = self._error = 0  # counts; error: of what the drive takes the joint's position for
        self._reading: int | None = None
        self._powered = False

    def jump(self, counts: int) -> None:
        """Shift the encoder's reading permanently."""
        self._jump += counts

    def feedback(self, x: float, v: float, u: float, limited: bool, temperature: float) -> Feedback:
        """Write the measured values into the objects, and return the feedback of the drive.

        Position `x`, velocity `v` and motor torque `u` are on the joint side [rad, rad/s, N*m], the temperature in
        degC.
        """
        angle = self._sign * x + self._offset
        self._true = round(angle * self._counts)
        if not self.stuck or self._reading is None:
            self._reading = self._true + self._jump
            self._error = self._jump
        torque = self._sign * u
        current = torque / self._torque_constant
        objects = self._objects
        objects.current.value = _int16(current / self._current_per_mille())
        if self._torque_gear:
            objects.torque.value = _int16(torque / self._torque_per_mille())
        if self._second is not None:
            entry, counts = self._second
            entry.value = round(angle * counts)
        if self._temperature is not None:
            entry, scale = self._temperature
            entry.value = round(temperature / scale)
        position = round(self._reading * (self._units / self._counts))
        speed = 0.0 if self.stuck else self._sign * v * self._units
        return Feedback(position, speed, limited, temperature)

    def motion(self, demand: Demand) -> JointDemand:
        """Return the command of the joint."""
        per_mille = self._torque_per_mille()
        offset, limit = self._sign * demand.torque_offset * per_mille, demand.torque_limit * per_mille
        powered = demand.mode in _POWERED
        if powered and not self._powered and self._reading is not None:
            self._error = self._reading - self._true  # it holds the position it reads, stuck or not
        self._powered = powered
        target = 0.0
        if demand.mode == CSP:
            error = self._error / self._counts
            target = self._sign * (demand.target / self._units - error - self._offset)
        elif demand.mode == CSV:
            target = self._sign * demand.target / self._units
        elif demand.mode == CST:
            target = self._sign * demand.target * per_mille
        return JointDemand(demand.mode, target, offset, limit, demand.brake)

    def _current_per_mille(self) -> float:
        """Return one per mille of rated current [A]."""
        return (float(self._objects.rated_current.value) or self._rated[1]) * 1e-6

    def _torque_per_mille(self) -> float:
        """Return one per mille of rated torque, or of rated current for a drive without torque [N*m], joint side."""
        if not self._torque_gear:
            return self._current_per_mille() * self._torque_constant
        return (float(self._objects.rated_torque.value) or self._rated[0]) * 1e-6 * self._torque_gear


def _int16(value: float) -> int:
    digits = round(value)
    if -_INT16 <= digits <= _INT16:
        return digits
    return _INT16 if digits > 0 else -_INT16 - 1
