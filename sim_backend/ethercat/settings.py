"""Description of a simulated segment in TOML: an arm, a drive for each joint, cables, faults.

    robot = "arm9"

    [[drive]]
    joint = "joint_1"
    device = "generic_servo"      # a shipped profile, or the path of one
    gear_ratio = 101.0

Relative paths are relative to the file.  Errors name the key.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from drivers.files.table import Finite, NonNegative, Positive, check_table, parse_toml, read_file
from sim_backend.errors import SimulationConfigError
from sim_backend.ethercat._faults import Fault
from sim_backend.tables import Table

_MAX_CLOCK_START_NS = 10**15


class SegmentFileError(SimulationConfigError):
    """An invalid description of a segment; names file and key."""


class DriveSettings(Table):
    """`[[drive]]`: the drive of one joint; the order along the cable is that of the joints."""

    joint: str
    device: str = "generic_servo"
    gear_ratio: Positive | None = None
    """Motor turns a joint turn; None: that of the device."""
    sign: Literal[-1, 1] = 1
    """-1: the drive counts against the joint."""
    offset_rad: Finite = 0.0
    """The drive's angle, on the joint side, where the joint is at zero."""
    rated_torque_nm: Positive | None = None
    """Object 0x6076 [N*m], on the side that the device measures; None: that of the device."""
    rated_current_a: Positive | None = None
    """Object 0x6075 [A]."""
    alias: Annotated[int, Field(ge=0, le=0xFFFF)] = 0
    serial: Annotated[int, Field(ge=0, le=0xFFFFFFFF)] = 0
    clock_ppm: Annotated[float, Field(ge=-1000.0, le=1000.0)] = 0.0
    """How much faster the slave's clock runs than the host's."""
    clock_start_ns: Annotated[int, Field(ge=0, le=_MAX_CLOCK_START_NS)] = 0


class SegmentSettings(Table):
    """A whole file."""

    robot: str
    """Name of a robot file, or its path."""
    start: tuple[Finite, ...] | None = None
    """Joint positions at the beginning [rad or m]; None: mid-range."""
    seed: Annotated[int, Field(ge=0)] = 1
    torque_noise: NonNegative = 0.0
    """Standard deviation of the measured torque as a share of each joint's torque scale, besides its rounding."""
    hop_ns: Annotated[int, Field(ge=0, le=1_000_000)] = 600
    """Delay from a slave to the next."""
    bridge_cycles: Annotated[int, Field(ge=0, le=50)] = 8
    """Cycles without a new set position that the drives bridge by extrapolation, before they hold."""
    ring: bool = False
    """A cable leads from the last drive back to a second interface."""
    drive: Annotated[tuple[DriveSettings, ...], Field(min_length=1)]
    fault: tuple[Fault, ...] = ()


def load_segment(path: Path) -> SegmentSettings:
    """Read the description of a segment; raises `SegmentFileError`."""
    table = parse_toml(read_file(path, SegmentFileError), path, SegmentFileError)
    return parse_segment(table, str(path), path.resolve().parent)


def parse_segment(table: object, origin: str, base: Path) -> SegmentSettings:
    """Check a description given as a table; `origin` names it in errors, relative paths start at `base`."""
    settings = check_table(SegmentSettings, table, origin, SegmentFileError)

    def absolute(name: str) -> str:
        return str((base / name).resolve()) if name.endswith((".toml", ".urdf")) else name

    drives = tuple(drive.model_copy(update={"device": absolute(drive.device)}) for drive in settings.drive)
    return settings.model_copy(update={"robot": absolute(settings.robot), "drive": drives})
