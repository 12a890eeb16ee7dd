"""Configuration of an EtherCAT arm: `[arm.driver]` with `kind = "ethercat"`.

`[arm.driver.device.NAME]` describes a type of drive; `[[arm.driver.drive]]` lists the joints in the order of the model.
"""

import math
import re
from collections import Counter
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, model_validator

from drivers.ethercat.pdo import LayoutError, PdoLayout, parse_layout
from drivers.files.table import Table

Side = Literal["motor", "joint"]
Mode = Literal["csp", "csv", "cst", "none"]
Number = Literal["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f32", "f64"]
Identity = Annotated[int, Field(ge=0, le=0xFFFFFFFF)]
Alias = Annotated[int, Field(ge=0, le=0xFFFF)]
ObjectAddress = Annotated[str, Field(pattern=r"^[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}$")]
Interface = Annotated[str, Field(pattern=r"^[^\s/]{1,15}$")]

#: Modes of operation, as object 6060 has them (CiA 402).
MODES = {"none": 0, "csp": 8, "csv": 9, "cst": 10}
#: Meanings that may be floating-point numbers.
FLOATS = ("velocity", "torque", "current", "temperature")
#: Target that a mode needs in the outputs.
TARGETS = {"csp": "target_position", "csv": "target_velocity", "cst": "target_torque"}

#: Types of targets: `struct` codes, and their names for messages.
TARGET_TYPES = {
    "target_position": (("i",), "an i32"),
    "target_velocity": (("i",), "an i32"),
    "target_torque": (("h", "i", "q"), "an i16 or wider"),
}
_COUNTS = 1 << 31  # positions are 32 bits of counts


def address(text: str) -> tuple[int, int]:
    """Return index and subindex of `"6064:00"`."""
    index, subindex = text.split(":")
    return int(index, 16), int(subindex, 16)


class SdoValue(Table):
    """An object and its value, to write or to expect."""

    object: ObjectAddress  # "60C2:01"
    type: Number
    value: int | float

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.type.startswith("f"):
            return self
        bits = int(self.type[1:])
        low = -(1 << bits - 1) if self.type.startswith("i") else 0
        high = (1 << (bits - 1 if self.type.startswith("i") else bits)) - 1
        if not isinstance(self.value, int) or not low <= self.value <= high:
            raise ValueError(f"value {self.value} of object {self.object} is no {self.type}: {low} to {high}")
        return self


class DeviceTable(Table):
    """`[device.NAME]`: a type of drive: its process data and the units of its values."""

    vendor_id: Identity
    product_code: Identity
    revision: Identity | None = None  # any if left out
    # process data: PDO index -> entries "INDEX:SUB:BITS MEANING", in order; see drivers.ethercat.pdo
    rx: dict[Annotated[str, Field(pattern=r"^1[67][0-9A-Fa-f]{2}$")], list[str]]
    tx: dict[Annotated[str, Field(pattern=r"^1[AB][0-9A-Fa-f]{2}$")], list[str]]
    remap: bool = True  # false: the drive's PDOs are fixed; they are compared with rx and tx, not written
    init: list[SdoValue] = Field([])  # written in PRE-OPERATIONAL, in order
    expect: list[SdoValue] = Field([])  # read at start; another value is an error (units, encoder lines)
    interpolation_period: bool = True  # write the cycle to 60C2 in csp and csv
    # position
    counts_per_rev: PositiveFloat
    position_side: Side = "motor"  # where the encoder sits that 6064 counts
    motor_counts_per_rev: PositiveFloat | None = None  # of the encoder mapped as motor_position
    # velocity, on the side of the position
    velocity_unit: Literal["counts/s", "0.1counts/s", "rpm", "0.001rpm", "mrad/s"] = "counts/s"
    # torque
    torque_unit: Literal["permille", "mNm", "0.01Nm"] = "permille"  # per mille of rated_torque_nm
    torque_side: Side = "motor"
    rated_torque_nm: PositiveFloat | None = None  # [N*m]; the drive's own if left out, compared with it if given
    rated_torque_object: ObjectAddress = "6076:00"  # [mN*m]
    # current
    current_unit: Literal["permille", "mA"] = "permille"  # per mille of rated_current_a
    rated_current_a: PositiveFloat | None = None  # [A]; as rated_torque_nm
    rated_current_object: ObjectAddress = "6075:00"  # [mA]
    # temperature
    temperature_scale: PositiveFloat = 0.1  # [degC] a digit
    temperature_offset: float = 0.0  # [degC]

    @model_validator(mode="after")
    def _layouts(self) -> Self:
        try:
            outputs, inputs = self.outputs, self.inputs
        except LayoutError as error:
            raise ValueError(str(error)) from error
        if "controlword" not in outputs.meanings:
            raise ValueError("rx maps no controlword (6040:00:16)")
        for name in ("statusword", "position"):
            if name not in inputs.meanings:
                raise ValueError(f"tx maps no {name}")
        for layout in (outputs, inputs):
            for _, entries in layout.pdos:
                for entry in entries:
                    if entry.code in ("f", "d") and entry.meaning not in FLOATS:
                        raise ValueError(f"{entry.meaning} cannot be a floating-point number; {', '.join(FLOATS)} can")
                    codes, wanted = TARGET_TYPES.get(entry.meaning, (entry.code, ""))
                    if entry.code not in codes:
                        raise ValueError(f"{entry.meaning} ({entry}) has to be {wanted}")
        if "motor_position" in inputs.meanings and self.motor_counts_per_rev is None:
            raise ValueError("tx maps motor_position, but motor_counts_per_rev is not given")
        return self

    @property
    def outputs(self) -> PdoLayout:
        """Layout of the outputs, which the drive receives."""
        return parse_layout(self.rx)

    @property
    def inputs(self) -> PdoLayout:
        """Layout of the inputs, which the drive sends."""
        return parse_layout(self.tx)


class DriveTable(Table):
    """`[[drive]]`: the drive of one joint."""

    joint: Annotated[str, Field(min_length=1)]
    device: str  # key of a device table
    position: Annotated[int, Field(ge=0, le=198)] | None = None  # on the bus, from 0; its place in the list if left out
    alias: Alias | None = None  # station alias; not compared if left out
    serial: Identity | None = None
    gear_ratio: PositiveFloat = 1.0  # motor turns a joint turn
    sign: Literal[-1, 1] = 1  # -1: the drive counts against the joint
    offset_rad: float = 0.0  # homing: q = sign * (drive's angle on the joint side - offset_rad)
    init: list[SdoValue] = Field([])  # after those of the device
    position_min_rad: float | None = None  # commands outside are refused
    position_max_rad: float | None = None
    velocity_max_rad_s: PositiveFloat | None = None  # steps of the commanded position above it are refused
    torque_max_nm: PositiveFloat | None = None


class OtherTable(Table):
    """`[[other]]`: a slave that is not a drive, such as a coupler or an I/O terminal."""

    position: Annotated[int, Field(ge=0, le=198)]
    vendor_id: Identity
    product_code: Identity
    revision: Identity | None = None


class EthercatConfig(Table):
    """`[arm.driver]` with `kind = "ethercat"`."""

    made_by: ClassVar[str] = ".driver:EthercatDriver"  # relative to this package
    kind: Literal["ethercat"] = "ethercat"
    interface: Interface  # network interface that only the bus is plugged into
    redundant_interface: Interface | None = None  # the far end of the ring, for cable redundancy
    cycle_hz: Annotated[int, Field(ge=250, le=4000)] = 1000  # a divisor of 1,000,000
    dc: bool = True  # synchronise to the distributed clock
    sync0_shift_us: Annotated[float, Field(ge=0.0)] | None = None  # SYNC0 after the frame; half a cycle if left out
    answer_timeout_us: PositiveFloat | None = None  # a frame not back by then is lost; 0.8 cycles (at least 800)
    watchdog_ms: Annotated[float, Field(gt=0.0, le=6000.0)] = 100.0  # drives leave OP without process data
    sdo_timeout_ms: Annotated[float, Field(ge=10.0, le=2000.0)] = 500.0
    state_timeout_ms: Annotated[float, Field(ge=50.0, le=5000.0)] = 2000.0  # to PRE-OP and to SAFE-OP
    op_timeout_ms: Annotated[float, Field(ge=100.0, le=8000.0)] = 3000.0  # to OP, all slaves
    start_timeout_s: Annotated[float, Field(ge=1.0, le=9.0)] = 5.0  # everything from open to OP
    mode: Mode = "csp"  # mode of operation of all drives; "none": listen, never enable
    # csp: cycles without a set position that the drives bridge by extrapolation; a loop that is late by no more
    # sends the position extrapolated in the same way.  0: the drives hold.
    bridge_cycles: Annotated[int, Field(ge=0, le=50)] = 0
    enable: bool = False  # switch the drives on at start
    enable_timeout_ms: Annotated[float, Field(gt=0.0, le=7000.0)] = 3000.0  # an arm has to be armed within 8 s
    # how long a drive may take to stop along its quick-stop ramp; after that its torque is switched off
    stop_timeout_ms: Annotated[float, Field(ge=10.0, le=1500.0)] = 500.0
    stop_all_on_fault: bool = True  # a drive that drops out stops the others: an arm moves as one
    drive: Annotated[list[DriveTable], Field(min_length=1, max_length=199)]
    other: list[OtherTable] = Field([])
    device: dict[str, DeviceTable]

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if 1_000_000 % self.cycle_hz:
            raise ValueError(f"cycle_hz = {self.cycle_hz}: the cycle is not a whole number of microseconds")
        if self.redundant_interface == self.interface:
            raise ValueError(f"redundant_interface is the interface itself, {self.interface!r}")
        if self.sync0_shift_us is not None and self.sync0_shift_us >= self.cycle_ns * 1e-3:
            raise ValueError(f"sync0_shift_us = {self.sync0_shift_us:g} is not within the cycle")
        if self.watchdog_ms < 3 * self.cycle_ns * 1e-6:
            raise ValueError(f"watchdog_ms = {self.watchdog_ms:g} is less than three cycles")
        if self.enable and self.mode == "none":
            raise ValueError('enable = true needs a mode other than "none"')
        self._check_drives()
        return self

    def _check_drives(self) -> None:
        for name, count in Counter(drive.joint for drive in self.drive).items():
            if count > 1:
                raise ValueError(f"joint {name!r} has {count} drives")
        places = Counter([*self.positions, *(slave.position for slave in self.other)])
        for position, count in places.items():
            if count > 1:
                raise ValueError(f"position {position} of the bus is given to {count} slaves")
        for drive in self.drive:
            device = self.device.get(drive.device)
            if device is None:
                known = ", ".join(sorted(self.device)) or "none"
                raise ValueError(f"joint {drive.joint!r}: no device table {drive.device!r}; there is: {known}")
            target = TARGETS.get(self.mode)
            if target is not None and target not in device.outputs.meanings:
                raise ValueError(f'device {drive.device!r}: mode = "{self.mode}" needs {target} in rx')
            if target in ("target_position", "target_velocity") and device.interpolation_period:
                self._check_period(drive.device)
            low, high = drive.position_min_rad, drive.position_max_rad
            if low is not None and high is not None and low >= high:
                raise ValueError(f"joint {drive.joint!r}: position_min_rad is not below position_max_rad")
            for key in ("position_min_rad", "position_max_rad"):
                self._check_reach(drive, device, key)

    def _check_period(self, name: str) -> None:
        try:
            interpolation_period(self.cycle_ns)
        except ValueError as error:
            raise ValueError(
                f"cycle_hz = {self.cycle_hz}: {error}: choose another, or set interpolation_period = false for device "
                f"{name!r}"
            ) from error

    @staticmethod
    def _check_reach(drive: DriveTable, device: DeviceTable, key: str) -> None:
        limit: float | None = getattr(drive, key)
        if limit is None:
            return
        turns = (drive.sign * limit + drive.offset_rad) / math.tau
        if device.position_side == "motor":
            turns *= drive.gear_ratio
        if abs(turns) * device.counts_per_rev > _COUNTS:
            raise ValueError(
                f"joint {drive.joint!r}: {key} = {limit:g} is {turns * device.counts_per_rev:.4g} counts of the drive, "
                "more than 32 bits hold"
            )

    @property
    def interfaces(self) -> tuple[str, ...]:
        """The interface, and the one at the far end of a ring."""
        return (self.interface,) if self.redundant_interface is None else (self.interface, self.redundant_interface)

    @property
    def cycle_ns(self) -> int:
        """Cycle time [ns]."""
        return 1_000_000_000 // self.cycle_hz

    @property
    def shift_ns(self) -> int:
        """Time from the frame to SYNC0 [ns]."""
        return self.cycle_ns // 2 if self.sync0_shift_us is None else round(self.sync0_shift_us * 1e3)

    @property
    def answer_timeout_ns(self) -> int:
        """Time after which a frame counts as lost [ns]."""
        if self.answer_timeout_us is not None:
            return round(self.answer_timeout_us * 1e3)
        return max(self.cycle_ns * 4 // 5, 800_000)

    @property
    def positions(self) -> tuple[int, ...]:
        """Position on the bus of each drive, in the order of the joints."""
        return tuple(k if drive.position is None else drive.position for k, drive in enumerate(self.drive))

    def device_of(self, joint: int) -> DeviceTable:
        """Return the device table of joint number `joint`, from 0."""
        return self.device[self.drive[joint].device]


def interpolation_period(cycle_ns: int) -> tuple[int, int]:
    """Return value (at most 255) and exponent for 60C2, `value * 10**exponent` seconds; `ValueError` if impossible."""
    mantissa, exponent = cycle_ns, -9
    while mantissa % 10 == 0:
        mantissa, exponent = mantissa // 10, exponent + 1
    if mantissa > 255:
        raise ValueError(f"a cycle of {cycle_ns} ns has no value of 60C2 (value 1 to 255 times a power of ten)")
    return mantissa, exponent


def describe(value: SdoValue) -> str:
    """Return an object and its value for messages, such as `60C2:01 = 1`."""
    number = hex(value.value) if isinstance(value.value, int) and re.match("u(16|32)", value.type) else value.value
    return f"{value.object} = {number}"
