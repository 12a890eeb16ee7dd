"""Mapping files: from the columns of a log to the channels of a recording; `docs/recordings.md` explains every key."""

import difflib
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from drivers.files.importing.units import CHANNEL_QUANTITIES, Unit, UnitError, find_unit
from drivers.files.shipped import shipped
from drivers.files.table import Finite, Positive, check_table, parse_toml, read_file
from drivers.frame import CHANNELS
from rt_core.model.robot import Transmission

Ref = str | int


class ImportFailedError(Exception):
    """Data cannot be imported; the message has the problem, its place, and the remedy."""


class MappingError(ImportFailedError, ValueError):
    """The mapping file does not exist, cannot be read, or contradicts itself."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class TimeTable(_Table):
    """Source of the time stamps."""

    column: Ref | None = None
    unit: Annotated[str, AfterValidator(lambda unit: find_unit(unit, ("time",)).name)] = "s"
    rate_hz: Positive | None = None
    rate_column: str | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.column is None and self.rate_hz is None and self.rate_column is None:
            raise ValueError("give `column` (time stamps), `rate_hz` (samples per second) or `rate_column`")
        if self.rate_hz is not None and self.rate_column is not None:
            raise ValueError("give only one of `rate_hz` and `rate_column`")
        return self

    @property
    def factor(self) -> float:
        """Seconds in one unit of the column."""
        return find_unit(self.unit, ("time",)).factor


class ChannelTable(_Table):
    """One channel: value = side(sign * unit(scale * column)) + offset, with the transmission `side` of motor values."""

    columns: Ref | Annotated[list[Ref], Field(min_length=1)] | None = None
    unit: str | list[str] | None = None
    sign: Literal[1, -1] | list[Literal[1, -1]] = 1
    scale: Finite | list[Finite] | str = 1.0
    offset: Finite | list[Finite] = 0.0
    side: Literal["joint", "motor"] = "joint"
    transpose: bool = False
    from_current: bool = False

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.from_current:
            given = sorted(self.model_fields_set - {"from_current", "offset"})
            if given:
                raise ValueError(f"`from_current` computes the torque: leave out {', '.join(given)}")
        elif self.columns is None:
            raise ValueError("`columns` is missing: name the array, or list one column per joint")
        elif self.unit is None:
            raise ValueError("`unit` is missing: units are never guessed")
        return self

    def units(self, channel: str, n: int) -> list[Unit]:
        """Return the unit of each of `n` joints; raises `UnitError`."""
        names = [self.unit or ""] * n if not isinstance(self.unit, list) else self.unit
        quantities = CHANNEL_QUANTITIES[channel]
        return [find_unit(name, quantities) for name in names]


class TransmissionTable(_Table):
    """`q_motor = matrix @ q + offset`, `tau = matrix.T @ tau_motor`, `tau_motor = torque_constant * current`."""

    gear_ratio: list[Finite] | None = None
    matrix: list[list[Finite]] | None = None
    offset: list[Finite] | None = None
    torque_constant: list[Finite] | None = None

    @model_validator(mode="after")
    def _shapes(self) -> Self:
        if (self.gear_ratio is None) == (self.matrix is None):
            raise ValueError("give either `gear_ratio` (one a joint) or `matrix` (joints to motors)")
        matrix = self.as_matrix()
        n = len(matrix)
        if matrix.shape != (n, n):
            raise ValueError(f"`matrix` must be square, not {matrix.shape[0]} x {matrix.shape[-1]}")
        if n == 0 or np.linalg.matrix_rank(matrix) < n or not np.all(np.diag(matrix)):
            raise ValueError("the matrix cannot be inverted, or a gear ratio is 0")
        for name in ("offset", "torque_constant"):
            values = getattr(self, name)
            if values is not None and len(values) != n:
                raise ValueError(f"`{name}` has {len(values)} values for {n} joints")
        return self

    def as_matrix(self) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        """(n, n) joints to motors."""
        if self.gear_ratio is not None:
            return np.diag(np.array(self.gear_ratio, dtype=np.float64))
        rows = self.matrix or []
        if len({len(row) for row in rows}) > 1:
            raise ValueError("the rows of `matrix` have different lengths")
        return np.array(rows, dtype=np.float64)

    def transmission(self) -> Transmission:
        """Return the transmission; torque constants that are not given are NaN."""
        matrix = self.as_matrix()
        n = len(matrix)
        return Transmission(
            matrix=matrix,
            offset=np.zeros(n) if self.offset is None else np.array(self.offset),
            torque_constant=np.full(n, np.nan) if self.torque_constant is None else np.array(self.torque_constant),
        )


class CsvTable(_Table):
    """Layout of a text file."""

    delimiter: str = "auto"
    comment: str = "#%"
    decimal: Literal[".", ","] = "."
    skip_rows: Annotated[int, Field(ge=0)] = 0
    header: bool | Literal["auto"] = "auto"
    skip_after_header: Annotated[int, Field(ge=0)] = 0
    encoding: str = "utf-8"

    @field_validator("delimiter")
    @classmethod
    def _one_character(cls, value: str) -> str:
        value = {"tab": "\t", "space": " ", "comma": ",", "semicolon": ";"}.get(value, value)
        if value not in ("auto", "whitespace") and len(value) != 1:
            raise ValueError("a delimiter is one character, 'tab', 'whitespace' or 'auto'")
        return value

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, value: str) -> str:
        try:
            "".encode(value)
        except LookupError:
            raise ValueError(f"encoding {value!r} is not known; try 'utf-8' or 'latin-1'") from None
        return value

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if self.delimiter == self.decimal:
            raise ValueError("`delimiter` and `decimal` are the same character")
        return self


class ChecksTable(_Table):
    """Strictness of the import."""

    plausibility: Literal["error", "warn"] = "error"


class MappingFile(_Table):
    """A whole mapping file."""

    format: Literal[1]
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    description: str = ""
    robot: str | None = None
    joints: Annotated[list[str], Field(min_length=1)] | None = None
    missing: Literal["error", "mask"] = "error"
    time: TimeTable
    q: ChannelTable | None = None
    dq: ChannelTable | None = None
    current: ChannelTable | None = None
    tau: ChannelTable | None = None
    q_motor: ChannelTable | None = None
    temperature: ChannelTable | None = None
    setpoint: ChannelTable | None = None
    transmission: TransmissionTable | None = None
    csv: CsvTable = CsvTable()
    checks: ChecksTable = ChecksTable()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        tables = self.tables()
        if not tables:
            raise ValueError(f"no channel: give at least one of [{'], ['.join(CHANNELS)}]")
        for name, table in tables.items():
            if table.side == "motor" and name not in ("q", "dq", "tau", "setpoint"):
                raise ValueError(f"{name}.side: only q, dq, tau and setpoint can be converted from the motor side")
            if table.side == "motor" and self.transmission is None and self.robot is None:
                raise ValueError(f"{name}.side: the motor side needs [transmission], or a robot that has one")
            if table.from_current and name != "tau":
                raise ValueError(f"{name}.from_current: only tau can be computed from the current")
            if not table.from_current:
                try:
                    table.units(name, 1)
                except UnitError as error:
                    raise ValueError(f"{name}.unit: {error}") from None
        if self.tau is not None and self.tau.from_current and self.current is None:
            raise ValueError("tau.from_current: there is no [current] to compute it from")
        if self.joints is not None and len(set(self.joints)) != len(self.joints):
            raise ValueError("joints: the names repeat")
        return self

    def tables(self) -> dict[str, ChannelTable]:
        """Return the mapped channels, in the order of `drivers.frame.CHANNELS`."""
        found = {name: getattr(self, name) for name in CHANNELS}
        return {name: table for name, table in found.items() if table is not None}


@dataclass(frozen=True)
class Mapping:
    """A mapping file with its path and hash."""

    content: MappingFile
    path: Path | None
    sha256: str

    @property
    def label(self) -> str:
        """Name in messages."""
        return self.content.name if self.path is None else str(self.path)


def load_mapping(ref: str | Path, base: Path | None = None) -> Mapping:
    """Load a mapping by path, or by name from `configs/mappings` here or in `base`; `MappingError` names the key."""
    path = _find(ref, base)
    return parse_mapping(read_file(path, MappingError), path)


def parse_mapping(data: bytes, path: Path | None = None) -> Mapping:
    """Parse the bytes of a mapping file; raises `MappingError`."""
    label = "mapping" if path is None else path
    content = check_table(MappingFile, parse_toml(data, label, MappingError), label, MappingError)
    return Mapping(content, path, hashlib.sha256(data).hexdigest())


def _find(ref: str | Path, base: Path | None) -> Path:
    text = str(ref)
    path = Path(ref)
    if path.suffix == ".toml" or "/" in text:
        if not path.is_file():
            raise MappingError(f"{path}: no such mapping file")
        return path
    folders = [Path("configs/mappings")]
    if base is not None:
        folders += [base, base / "configs/mappings"]
    folders.append(shipped("configs/mappings"))
    for folder in folders:
        candidate = folder / f"{text}.toml"
        if candidate.is_file():
            return candidate
    names = sorted({entry.stem for folder in folders for entry in folder.glob("*.toml")})
    close = difflib.get_close_matches(text, names, 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise MappingError(
        f"no mapping {text!r}; {hint}known are {', '.join(names) or 'none'}; a path ends in .toml or contains '/'"
    )
