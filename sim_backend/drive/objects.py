"""Objects of the dictionary that a CiA 402 drive uses."""

import math

from sim_backend.canopen.data_types import DataType, Value
from sim_backend.canopen.dictionary import Access, Entry, ObjectDictionary
from sim_backend.drive.modes import CSP

#: Following error window that disables the supervision.
NO_WINDOW = 0xFFFFFFFF


class DriveObjects:
    """Entries by meaning; missing ones are replaced by stand-ins with default values."""

    def __init__(self, dictionary: ObjectDictionary) -> None:
        def entry(index: int, subindex: int = 0, default: int = 0) -> Entry:
            found = dictionary.find(index, subindex)
            return found or Entry(index, subindex, "", DataType.INTEGER32, 32, Access(0), default)

        self.controlword, self.statusword = entry(0x6040), entry(0x6041)
        self.mode, self.mode_display = entry(0x6060, default=CSP), entry(0x6061)
        self.error_code, self.error_register = entry(0x603F), entry(0x1001)
        self.position, self.velocity = entry(0x6064), entry(0x606C)
        self.torque, self.current = entry(0x6077), entry(0x6078)
        self.rated_torque, self.rated_current = entry(0x6076), entry(0x6075)
        self.target_position, self.target_velocity, self.target_torque = entry(0x607A), entry(0x60FF), entry(0x6071)
        self.velocity_offset, self.torque_offset = entry(0x60B1), entry(0x60B2)
        self.window, self.window_ms = entry(0x6065, default=NO_WINDOW), entry(0x6066, default=50)
        self.following_error = entry(0x60F4)
        self.lower, self.upper = entry(0x607D, 1), entry(0x607D, 2)
        self.quick_stop_option, self.shutdown_option = entry(0x605A, default=2), entry(0x605B)
        self.disable_option, self.fault_option = entry(0x605C, default=1), entry(0x605E, default=2)
        self.connection_option = entry(0x6007, default=1)
        self.quick_deceleration = entry(0x6085)
        self.slow_deceleration = dictionary.find(0x6084) or self.quick_deceleration
        self.top_speed = entry(0x6080)
        self.interpolation, self.interpolation_power = entry(0x60C2, 1), entry(0x60C2, 2, -3)
        self.inputs = entry(0x60FD)
        self._torque_limit = dictionary.find(0x6072) or dictionary.find(0x6073)
        self._steps: tuple[tuple[Value, Value, float], int] | None = None

    def torque_limit(self) -> float:
        """Return the largest torque or current [per mille of the rated one]."""
        return math.inf if self._torque_limit is None else float(self._torque_limit.value)

    def interpolation_steps(self, period_s: float) -> int:
        """Return the cycles of `period_s` between two set values, at least 1."""
        given = self.interpolation.value, self.interpolation_power.value, period_s
        if self._steps is None or self._steps[0] != given:
            between_s = float(given[0]) * 10.0 ** int(given[1])
            self._steps = given, max(1, round(between_s / period_s))
        return self._steps[1]

    def position_limits(self) -> tuple[float, float]:
        """Return the software position limits [units], infinite if none are set."""
        lower, upper = float(self.lower.value), float(self.upper.value)
        return (lower, upper) if lower < upper else (-math.inf, math.inf)
