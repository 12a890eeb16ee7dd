"""Description of a simulated PLC in TOML: an arm, an axis for each joint, sizes, faults.

    robot = "arm9"
    net_id = "5.80.201.11.1.1"

    [[axis]]
    joint = "joint_1"
    unit = "deg"
    gear_ratio = 101.0

Relative paths are relative to the file.  Errors name the key.
"""

import ctypes
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from drivers.ads.layout import NAME_CHARS, VARIABLES, Sizes, structure
from drivers.files.table import Finite, NonNegative, Positive, check_table, parse_toml, read_file
from sim_backend.errors import SimulationConfigError
from sim_backend.plc import _ams as ams
from sim_backend.plc._faults import Fault
from sim_backend.tables import Table

Channel = Literal["q", "dq", "tau", "current", "q_motor", "temperature", "setpoint"]
_MAX_IMAGE = 64 * 1024 * 1024


def _net_id(text: str) -> str:
    ams.net_id(text)
    return text


NetId = Annotated[str, AfterValidator(_net_id)]


class PlcFileError(SimulationConfigError):
    """An invalid description of a PLC; names file and key."""


class AxisSettings(Table):
    """`[[axis]]`: the axis of one joint, in the order of the joints."""

    joint: str
    # In the PLC; None: that of the joint.
    name: Annotated[str, Field(min_length=1, max_length=NAME_CHARS, pattern=r"^[\x20-\x7e]+$")] | None = None
    # Of position, and of velocity in the same unit a second.
    unit: Literal["rad", "mrad", "deg", "rev", "m", "cm", "mm", "um"] = "rad"
    side: Literal["motor", "joint"] = "joint"  # side of position and velocity
    gear_ratio: Positive = 1.0  # motor turns per joint turn
    sign: Literal[-1, 1] = 1  # -1: the axis counts against the joint
    offset_rad: Finite = 0.0  # the axis' position, on the joint side, at joint position zero [rad or m]
    motor_unit: Literal["rad", "deg", "rev"] = "rad"  # of the second encoder, which is at the motor
    torque_unit: Literal["Nm", "mNm", "N", "percent", "permille"] = "permille"
    torque_side: Literal["motor", "joint"] = "motor"
    rated_torque_nm: Positive | None = None
    current_unit: Literal["A", "mA", "percent", "permille"] = "A"
    rated_current_a: Positive | None = None
    torque_constant_nm_per_a: Positive = 0.254  # of the motor
    encoder_counts_per_rev: Positive = 1_048_576.0  # at the motor

    @model_validator(mode="after")
    def _rated(self) -> Self:
        for unit, rated in (("torque_unit", "rated_torque_nm"), ("current_unit", "rated_current_a")):
            if getattr(self, unit) in ("percent", "permille") and getattr(self, rated) is None:
                raise ValueError(f"{unit} = {getattr(self, unit)!r} needs {rated}")
        if self.side == "motor" and self.unit in ("m", "cm", "mm", "um"):
            raise ValueError(f'side = "motor" needs a unit of angle, not {self.unit!r}')
        return self


class PlcSettings(Table):
    """A whole file."""

    robot: str  # name of a robot file, or its path
    net_id: NetId = "5.80.201.11.1.1"  # AMS net id of the controller
    port: Annotated[int, Field(ge=1, le=65535)] = 851  # AMS port of the PLC runtime
    variables: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")] = "GVL_Theta"  # global variable list
    unknown_net_id: Literal["error", "silent"] = "error"  # answer to a packet for another net id: AMS error 7, or none
    routes: tuple[NetId, ...] | None = None  # net ids of the clients with a route; None: all
    # Whether a new connection closes an older one from the same address, as TwinCAT's router does.
    one_connection_per_host: bool = False
    user: str = "Administrator"
    password: str = "1"  # needed to add a route over UDP
    start: tuple[Finite, ...] | None = None  # joint positions at the beginning [rad or m]; None: mid-range
    seed: Annotated[int, Field(ge=0)] = 1
    torque_noise: NonNegative = 0.0  # standard deviation of the measured torque as a share of each joint's torque scale
    velocity_noise: NonNegative = 0.0  # standard deviation of the measured velocity [rad/s or m/s]
    cycle_us: Annotated[int, Field(ge=100, le=100_000)] = 1000
    clock_ppm: Annotated[float, Field(ge=-1000.0, le=1000.0)] = 0.0  # drift of the PLC's clock relative to the host's
    clock_offset_ms: Annotated[float, Field(ge=-1e12, le=1e12)] = 0.0  # initial offset of the PLC's time to the host's
    dc: bool = True  # whether samples have a distributed-clock time
    block_samples: Annotated[int, Field(ge=1, le=10_000)] = 10
    blocks: Annotated[int, Field(ge=2, le=100_000)] = 64
    setpoints: Annotated[int, Field(ge=1, le=100_000)] = 400
    channels: tuple[Channel, ...] = ("q", "dq", "tau", "current", "q_motor", "temperature", "setpoint")
    heartbeat_ms: Annotated[int, Field(ge=10, le=60_000)] = 200
    enable_ms: NonNegative = 100.0  # time from the command to enabled axes
    stop_ms: Positive = 200.0  # time of a controlled stop from the largest speed; proportionally less from a lower one
    max_speed: Positive = 1.5  # largest step of the set position, as a multiple of the joint's velocity limit
    axis: Annotated[tuple[AxisSettings, ...], Field(min_length=1, max_length=64)]
    fault: tuple[Fault, ...] = ()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        size = sum(_bytes(self.sizes, name) for name in VARIABLES)
        if size > _MAX_IMAGE:
            raise ValueError(f"the variables take {size} bytes, at most {_MAX_IMAGE} are possible: smaller blocks")
        if self.heartbeat_ms * 1000 < 2 * self.cycle_us:
            raise ValueError(f"heartbeat_ms = {self.heartbeat_ms} is less than two cycles of {self.cycle_us} us")
        names = [axis.name or axis.joint for axis in self.axis]
        if len(set(names)) != len(names):
            raise ValueError(f"two axes have the same name: {', '.join(names)}")
        return self

    @property
    def sizes(self) -> Sizes:
        """Lengths of the arrays."""
        return Sizes(len(self.axis), self.block_samples, self.blocks, self.setpoints)

    @property
    def cycle_ns(self) -> int:
        """The cycle [ns]."""
        return 1000 * self.cycle_us


def _bytes(sizes: Sizes, name: str) -> int:
    kind, lengths = VARIABLES[name]
    size = ctypes.sizeof(structure(kind, sizes))
    for length in lengths:
        size *= sizes.length(length)
    return size


def load_plc(path: Path) -> PlcSettings:
    """Read the description of a PLC; raises `PlcFileError`."""
    table = parse_toml(read_file(path, PlcFileError), path, PlcFileError)
    return parse_plc(table, str(path), path.resolve().parent)


def parse_plc(table: object, origin: str, base: Path) -> PlcSettings:
    """Check a description given as a table; `origin` names it in errors, relative paths start at `base`."""
    settings = check_table(PlcSettings, table, origin, PlcFileError)
    robot = settings.robot
    if robot.endswith((".toml", ".urdf")):
        robot = str((base / robot).resolve())
    return settings.model_copy(update={"robot": robot})
