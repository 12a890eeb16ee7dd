"""Kinds of drives: a `DeviceProfile`, read from a TOML file.

The profiles of the package are in `devices/`; `load_profile` takes their names or a path.  Errors name file and field.
"""

import difflib
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from drivers.files.table import Positive, parse_toml, read_file
from sim_backend.canopen.data_types import DataType, integer_range, is_string, type_bits
from sim_backend.errors import SimulationConfigError
from sim_backend.tables import Table

U16 = Annotated[int, Field(ge=0, le=0xFFFF)]
U32 = Annotated[int, Field(ge=0, le=0xFFFFFFFF)]
RamAddress = Annotated[int, Field(ge=0x1000, le=0x2FFF)]
Side = Literal["motor", "joint"]
Mode = Literal["csp", "csv", "cst"]
_RAM_END = 0x3000


class DeviceProfileError(SimulationConfigError):
    """An invalid device profile; names file and field."""


@dataclass(frozen=True)
class PdoEntry:
    """Entry of the dictionary in a PDO, and its size; index 0 is a gap."""

    index: int
    subindex: int
    bits: int

    @property
    def word(self) -> int:
        """Its value in a mapping object."""
        return self.index << 16 | self.subindex << 8 | self.bits


@dataclass(frozen=True)
class ObjectAddress:
    """Index and subindex of an entry."""

    index: int
    subindex: int


def _numbers(value: Any, form: str, example: str) -> list[int]:
    parts = value.split(":") if isinstance(value, str) else []
    try:
        numbers = [int(part, 0) for part in parts]
    except ValueError:
        numbers = []
    tops = (0xFFFF, 0xFF, 0xFF)
    if len(numbers) != form.count(":") + 1 or any(not 0 <= n <= top for n, top in zip(numbers, tops, strict=False)):
        raise ValueError(f"should read '{form}', such as '{example}', got {value!r}")
    return numbers


def _pdo_entry(value: Any) -> PdoEntry:
    return value if isinstance(value, PdoEntry) else PdoEntry(*_numbers(value, "index:subindex:bits", "0x6040:0:16"))


def _address(value: Any) -> ObjectAddress:
    return value if isinstance(value, ObjectAddress) else ObjectAddress(*_numbers(value, "index:subindex", "0x6064:0"))


def _data_type(value: Any) -> DataType:
    names = [kind.name for kind in DataType if type_bits(kind) is not None or is_string(kind)]
    if isinstance(value, DataType):
        return value
    if value not in names:
        raise ValueError(f"is no data type: {value!r}; known are {', '.join(names)}")
    return DataType[value]


class Identity(Table):
    """Identity of the slave."""

    vendor_id: U32
    vendor_name: str
    product_code: U32
    revision: U32
    device_name: Annotated[str, Field(min_length=1, max_length=64)]
    """Object 0x1008 and the name in the SII."""
    order_number: Annotated[str, Field(max_length=64)]
    group: Annotated[str, Field(max_length=64)] = "Drives"
    hardware_version: str = "1.0"
    software_version: str = "1.0"


class MailboxProfile(Table):
    """Mailbox sync managers (0: from the master, 1: to it) and supported CoE services."""

    receive_start: RamAddress
    receive_bytes: Annotated[int, Field(ge=32, le=1486)]
    send_start: RamAddress
    send_bytes: Annotated[int, Field(ge=32, le=1486)]
    complete_access: bool = True
    sdo_information: bool = True


class ImageProfile(Table):
    """Sync manager of process data: 2 for outputs, 3 for inputs."""

    start: RamAddress
    max_bytes: Annotated[int, Field(ge=1, le=256)]
    assigned: tuple[U16, ...]
    """PDOs in the sync manager after power-on."""


class PdoProfile(Table):
    """One PDO: 0x16xx from the master, 0x1Axx to it."""

    index: U16
    name: str
    entries: tuple[Annotated[PdoEntry, BeforeValidator(_pdo_entry)], ...]

    @property
    def bits(self) -> int:
        """Length as delivered."""
        return sum(entry.bits for entry in self.entries)


class DcProfile(Table):
    """Support of distributed clocks."""

    required: bool = False
    """Whether OP needs SYNC0."""
    min_cycle_ns: Annotated[int, Field(ge=1)] = 250_000
    max_cycle_ns: Annotated[int, Field(ge=1)] = 20_000_000


class EntryProfile(Table):
    """A value of the dictionary."""

    name: str
    type: Annotated[DataType, BeforeValidator(_data_type)]
    access: Literal["ro", "wo", "rw", "rw-preop"] = "ro"
    """`rw-preop` is writable in PREOP only."""
    pdo: Literal["none", "rx", "tx", "both"] = "none"
    value: int | float | str = 0
    """At power-on."""
    minimum: float | None = None
    maximum: float | None = None
    size: Annotated[int, Field(ge=1, le=2000)] = 64
    """Room of a string [bytes]."""

    @model_validator(mode="after")
    def _check_value(self) -> Self:
        if is_string(self.type):
            if isinstance(self.value, str) and len(self.value) > self.size:
                raise ValueError(f"value has {len(self.value)} characters, more than size = {self.size}")
            if self.value and not isinstance(self.value, str):
                raise ValueError(f"value of a {self.type.name} should be a text")
            return self
        if isinstance(self.value, str):
            raise ValueError(f"value of a {self.type.name} should be a number")  # noqa: TRY004 - pydantic's way
        if self.type not in (DataType.REAL32, DataType.REAL64):
            low, high = integer_range(self.type)
            if not (float(self.value).is_integer() and low <= self.value <= high):
                raise ValueError(f"value {self.value} is no {self.type.name}")
        return self


class SubEntryProfile(EntryProfile):
    """A value of a record or array."""

    subindex: Annotated[int, Field(ge=1, le=254)]


class ObjectProfile(Table):
    """A vendor's or CiA 402 object: one variable, or a record or array of entries."""

    index: U16
    name: str
    kind: Literal["variable", "array", "record"] = "variable"
    variable: EntryProfile | None = None
    entries: tuple[SubEntryProfile, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _flat_variable(cls, data: Any) -> Any:
        """Read type, access and value of a variable from the object's own table."""
        if not isinstance(data, dict) or data.get("kind", "variable") != "variable" or "variable" in data:
            return data
        own = {key: data[key] for key in ("index", "name", "kind", "entries") if key in data}
        rest = {key: value for key, value in data.items() if key not in own}
        return {**own, "variable": {"name": data.get("name", ""), **rest}}

    @model_validator(mode="after")
    def _check_entries(self) -> Self:
        numbers = [entry.subindex for entry in self.entries]
        if (self.kind == "variable") != (not numbers):
            raise ValueError("a variable has no entries, a record or array has at least one")
        if len(set(numbers)) < len(numbers):
            raise ValueError("a subindex appears twice in entries")
        return self


class PositionProfile(Table):
    """Unit of the positions 0x6064 and 0x607A."""

    side: Side
    """Shaft whose angle they give: the motor's, or the joint's behind the gear."""
    units_per_rev: Positive
    """Position units per revolution of that shaft."""
    encoder: Side
    """Where the encoder sits that they come from; its counts are what quantises them."""


class SecondPosition(Table):
    """A further encoder's position, in counts."""

    object: Annotated[ObjectAddress, BeforeValidator(_address)]
    side: Side


class TemperatureProfile(Table):
    """The motor's temperature."""

    object: Annotated[ObjectAddress, BeforeValidator(_address)]
    degc_per_unit: Positive


class DriveConstants(Table):
    """Mechanics and ratings of the drive."""

    gear_ratio: Positive
    """Motor revolutions per revolution of the joint, as delivered."""
    motor_counts_per_rev: Annotated[int, Field(ge=1)]
    joint_counts_per_rev: Annotated[int, Field(ge=1)] | None = None
    position: PositionProfile
    second_position: SecondPosition | None = None
    rated_current_ma: Annotated[int, Field(ge=1)]
    """Object 0x6075 [mA]."""
    rated_torque_mnm: Annotated[int, Field(ge=1)]
    """Object 0x6076 where there is one [mN m], on the side that `torque_side` says (`none`: at the motor)."""
    torque_constant_nm_per_a: Positive
    """Motor torque per current [N m/A], at the motor."""
    torque_side: Literal["motor", "joint", "none"]
    """Side of 0x6071, 0x6077, 0x60B2 and 0x6076; `none`: the drive has current only."""
    modes: Annotated[tuple[Mode, ...], Field(min_length=1)]
    temperature: TemperatureProfile | None = None

    @model_validator(mode="after")
    def _check_encoders(self) -> Self:
        sides = {self.position.encoder} | ({self.second_position.side} if self.second_position else set())
        if "joint" in sides and self.joint_counts_per_rev is None:
            raise ValueError("a joint-side encoder needs joint_counts_per_rev")
        if "cst" in self.modes and self.torque_side == "none":
            raise ValueError("mode cst needs a torque_side")
        return self

    def encoder_counts_per_rev(self, side: Side) -> int:
        """Return the counts of the encoder on a side, per revolution of the shaft it sits on."""
        counts = self.motor_counts_per_rev if side == "motor" else self.joint_counts_per_rev
        if counts is None:
            raise DeviceProfileError(f"the drive has no {side}-side encoder")
        return counts


class DeviceProfile(Table):
    """A kind of drive: identity, mailbox, process data, objects and constants."""

    description: str
    identity: Identity
    mailbox: MailboxProfile
    outputs: ImageProfile
    inputs: ImageProfile
    pdo_access: Literal["fixed", "select", "remap"]
    """`fixed`: as delivered; `select`: a choice among the PDOs there are; `remap`: their content too."""
    pdo_slots: Annotated[int, Field(ge=1, le=32)] = 16
    """Entries that a PDO has room for where it can be remapped."""
    dc: DcProfile = DcProfile()
    pdo: tuple[PdoProfile, ...]
    object: tuple[ObjectProfile, ...]
    drive: DriveConstants

    @cached_property
    def rx_pdos(self) -> tuple[PdoProfile, ...]:
        """PDOs from the master."""
        return tuple(pdo for pdo in self.pdo if pdo.index < 0x1A00)

    @cached_property
    def tx_pdos(self) -> tuple[PdoProfile, ...]:
        """PDOs to the master."""
        return tuple(pdo for pdo in self.pdo if pdo.index >= 0x1A00)

    @model_validator(mode="after")
    def _check_pdos(self) -> Self:
        known = [pdo.index for pdo in self.pdo]
        for index in known:
            if not (0x1600 <= index <= 0x17FF or 0x1A00 <= index <= 0x1BFF):
                raise ValueError(f"PDO 0x{index:04X} is neither 0x1600-0x17FF nor 0x1A00-0x1BFF")
            if known.count(index) > 1:
                raise ValueError(f"PDO 0x{index:04X} appears twice")
        for name, image, pdos in (("outputs", self.outputs, self.rx_pdos), ("inputs", self.inputs, self.tx_pdos)):
            sizes = {pdo.index: pdo.bits for pdo in pdos}
            missing = [f"0x{index:04X}" for index in image.assigned if index not in sizes]
            if missing:
                raise ValueError(f"{name}.assigned names {', '.join(missing)}, which is not a PDO of that direction")
            if sum(sizes[index] for index in image.assigned) > 8 * image.max_bytes:
                raise ValueError(f"the PDOs of {name} are longer than its max_bytes = {image.max_bytes}")
        return self

    @model_validator(mode="after")
    def _check_memory(self) -> Self:
        areas = sorted(
            (
                (self.mailbox.receive_start, self.mailbox.receive_bytes, "mailbox.receive"),
                (self.mailbox.send_start, self.mailbox.send_bytes, "mailbox.send"),
                # Process data have three buffers in a real slave's memory.
                (self.outputs.start, 3 * self.outputs.max_bytes, "outputs"),
                (self.inputs.start, 3 * self.inputs.max_bytes, "inputs"),
            )
        )
        ends = [*((start, name) for start, _, name in areas[1:]), (_RAM_END, "the end of memory")]
        for (start, size, name), (end, other) in zip(areas, ends, strict=True):
            if start + size > end:
                raise ValueError(f"memory of {name} (0x{start:04X}, {size} bytes) runs into {other} at 0x{end:04X}")
        return self


def known_profiles() -> list[str]:
    """Names of the profiles that come with the package, sorted."""
    return sorted(Path(item.name).stem for item in _shipped().iterdir() if item.name.endswith(".toml"))


def load_profile(ref: str | Path) -> DeviceProfile:
    """Read a shipped profile by name, or a path that ends in `.toml`; `DeviceProfileError` has file and field."""
    text = str(ref)
    if text.endswith(".toml"):
        return parse_profile(read_file(Path(ref), DeviceProfileError), text)
    names = known_profiles()
    if text not in names:
        close = difflib.get_close_matches(text, names, 1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise DeviceProfileError(f"no device {text!r}; {hint}known are {', '.join(names)}; a path ends in .toml")
    return parse_profile((_shipped() / f"{text}.toml").read_bytes(), f"{text}.toml")


def parse_profile(data: bytes, label: str = "profile") -> DeviceProfile:
    """Return the profile in the bytes of a file; raises `DeviceProfileError`."""
    content = parse_toml(data, label, DeviceProfileError)
    try:
        return DeviceProfile.model_validate(content)
    except ValidationError as error:
        lines = [f"{label}: {_field(list(item['loc']), content)}: {item['msg']}" for item in error.errors()]
        raise DeviceProfileError("\n".join(lines)) from None


def _field(location: list[Any], content: dict[str, Any]) -> str:
    """Name a field; objects and PDOs by their index."""
    if len(location) > 1 and location[0] in ("object", "pdo") and isinstance(location[1], int):
        item = content[location[0]][location[1]]
        index = item.get("index") if isinstance(item, dict) else item
        name = f"0x{index:04X}" if isinstance(index, int) else str(index)
        location = [f"{location[0]} {name}", *location[2:]]
    return ".".join(str(part) for part in location if part != "variable") or "profile"


def _shipped() -> Traversable:
    return files("sim_backend.ethercat") / "devices"
