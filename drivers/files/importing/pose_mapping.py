"""Mapping files of measured poses, for a calibration; `docs/calibration.md` explains every key."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from drivers.files.importing._channels import PLACEHOLDER, expanded
from drivers.files.importing._data_files import open_data
from drivers.files.importing._mapping import CsvTable, ImportFailedError, MappingError, Ref
from drivers.files.importing.data_source import DataError, DataSource
from drivers.files.importing.units import UnitError, find_unit
from drivers.files.table import Table, check_table, parse_toml, read_file
from rt_core.calibration.sample import Contacts, Distances
from rt_core.types import FloatArray, IntArray

Columns = Ref | Annotated[list[Ref], Field(min_length=1)]


class JointColumns(Table):
    """Joint positions: one array, or one column each."""

    columns: Columns | None = None
    unit: str | list[str]
    sign: Literal[1, -1] | list[Literal[1, -1]] = 1
    offset: float | list[float] = 0.0


class LengthColumns(Table):
    """Lengths: one array, or one column each."""

    columns: Columns
    unit: str
    sign: Literal[1, -1] = 1


class QuaternionColumns(Table):
    """Unit quaternions: one array (N, 4), or four columns."""

    columns: Columns
    order: Literal["xyzw", "wxyz"]


class NumberColumn(Table):
    """Whole numbers."""

    column: Ref


class SocketArrays(Table):
    """One array of joint positions for each socket, by the socket's number."""

    arrays: Annotated[list[str], Field(min_length=1)]


class PoseMappingFile(Table):
    """A whole mapping file."""

    format: Literal[1]
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    description: str = ""
    robot: str | None = None
    q: JointColumns
    position: LengthColumns | None = None
    deviation: LengthColumns | None = None
    orientation: QuaternionColumns | None = None
    distance: LengthColumns | None = None
    centre: NumberColumn | None = None
    socket: NumberColumn | None = None
    sockets: SocketArrays | None = None
    missing: Literal["error", "mask"] = "error"
    csv: CsvTable = CsvTable()

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [name for name in ("position", "distance", "socket", "sockets") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("give one of [position], [distance], [socket] and [sockets]: what was measured")
        for name, needs in (("orientation", "position"), ("deviation", "position"), ("centre", "distance")):
            if getattr(self, name) is not None and needs not in given:
                raise ValueError(f"[{name}] needs [{needs}]")
        if (self.q.columns is None) != (self.sockets is not None):
            raise ValueError("q.columns is missing, or [sockets] names the joint positions too: give one of them")
        return self


@dataclass(frozen=True)
class PoseMapping:
    """A mapping file and its path."""

    content: PoseMappingFile
    path: Path


def load_pose_mapping(path: Path) -> PoseMapping:
    """Load a mapping file of poses; raises `MappingError` with the path and the invalid key."""
    content = parse_toml(read_file(path, MappingError), path, MappingError)
    return PoseMapping(check_table(PoseMappingFile, content, path, MappingError), path)


def read_poses(
    path: Path, mapping: PoseMapping, n: int, joints: tuple[str, ...] | None = None
) -> tuple[FloatArray, FloatArray | Contacts | Distances]:
    """Return joint positions (N, n) and measurements in SI units, as inputs of `rt_core.calibration.calibrate`.

    Sockets and centres keep the numbers of the file.  `joints` are the names that `{joint}` in `q.columns` stands for,
    besides numbers from 1 or 0.  With `missing = "mask"` poses of which a value is missing are left out.  Raises
    `ImportFailedError` if the data cannot be read, or contradict the mapping.
    """
    content = mapping.content
    source = open_data(path, content.csv, masking=content.missing == "mask")
    if content.sockets is not None:
        parts = [_array(source, "sockets.arrays", name, n) for name in content.sockets.arrays]
        numbers = np.concatenate([np.full(len(part), k + 1) for k, part in enumerate(parts)])
        return _complete(mapping, _joints(mapping, np.vstack(parts), n), Contacts(numbers))
    assert content.q.columns is not None
    columns = content.q.columns
    if isinstance(columns, str) and PLACEHOLDER in columns:
        names = joints if joints is not None and len(joints) == n else tuple(str(k + 1) for k in range(n))
        columns = list(expanded(source, "q.columns", columns, names))
    q = _joints(mapping, _array(source, "q.columns", columns, n), n)
    measured: FloatArray | Contacts | Distances
    if content.socket is not None:
        socket = _whole(source, "socket.column", content.socket.column, content.missing)
        measured, rows = Contacts(socket), len(socket)
    elif content.distance is not None:
        length = _lengths(mapping, source, "distance", content.distance, 1)[:, 0]
        numbers = np.ones(len(length), dtype=np.int64)
        if content.centre is not None:
            numbers = _whole(source, "centre.column", content.centre.column, content.missing)
        measured = Distances(length, numbers)
        rows = min(len(length), len(numbers))
    else:
        assert content.position is not None
        measured = _lengths(mapping, source, "position", content.position, 3)
        if content.deviation is not None:
            measured = measured + _lengths(mapping, source, "deviation", content.deviation, 3)
        if content.orientation is not None:
            turns = _array(source, "orientation.columns", content.orientation.columns, 4)
            measured = np.hstack((measured, turns[:, [1, 2, 3, 0]] if content.orientation.order == "wxyz" else turns))
        rows = len(measured)
    if rows != len(q):
        raise DataError(f"{path}: {len(q)} joint positions, but {rows} measurements")
    return _complete(mapping, q, measured)


def _complete(
    mapping: PoseMapping, q: FloatArray, measured: FloatArray | Contacts | Distances
) -> tuple[FloatArray, FloatArray | Contacts | Distances]:
    """Return the poses without those of which a value is missing, if the mapping says so."""
    if mapping.content.missing == "error":
        return q, measured
    whole = np.isfinite(q).all(axis=1)
    if isinstance(measured, Contacts):
        whole &= measured.socket >= 0
        return q[whole], Contacts(measured.socket[whole], measured.spacings)
    if isinstance(measured, Distances):
        whole &= np.isfinite(measured.length) & (measured.centre >= 0)
        return q[whole], Distances(measured.length[whole], measured.centre[whole])
    whole &= np.isfinite(measured).all(axis=1)
    return q[whole], measured[whole]


def _array(source: DataSource, where: str, columns: Ref | list[Ref], width: int) -> FloatArray:
    """Return values (N, width) of an array, or of as many columns."""
    refs = columns if isinstance(columns, list) else [columns]
    for ref in refs:
        source.check(ref, where)
    loaded = source.load(refs)
    parts = [np.asarray(loaded[ref], dtype=np.float64) for ref in refs]
    parts = [part[:, None] if part.ndim == 1 else part for part in parts]
    if any(part.ndim != 2 or len(part) != len(parts[0]) for part in parts):
        shapes = ", ".join(str(part.shape) for part in parts)
        raise DataError(f"{source.path}: {where}: arrays of shapes {shapes} do not make rows of poses")
    found = np.hstack(parts)
    if found.shape[1] != width:
        raise DataError(f"{source.path}: {where}: {found.shape[1]} columns where {width} are needed")
    return found


def _whole(source: DataSource, where: str, column: Ref, missing: Literal["error", "mask"]) -> IntArray:
    """Return the whole numbers (N,) of a column; -1 where one is missing and that is allowed."""
    values = _array(source, where, column, 1)[:, 0]
    absent = np.isnan(values) & (missing == "mask")
    values = np.where(absent, 0.0, values)
    if not (values == np.round(values)).all() or (values < 0.0).any():
        raise DataError(f"{source.path}: {where}: {column!r} has values that are no whole numbers from 0")
    return np.where(absent, -1, values).astype(np.int64)


def _lengths(mapping: PoseMapping, source: DataSource, name: str, table: LengthColumns, width: int) -> FloatArray:
    try:
        unit = find_unit(table.unit, ("length",))
    except UnitError as error:
        raise MappingError(f"{mapping.path}: {name}.unit: {error}") from None
    return table.sign * unit.factor * _array(source, f"{name}.columns", table.columns, width)


def _joints(mapping: PoseMapping, raw: FloatArray, n: int) -> FloatArray:
    table = mapping.content.q
    names = table.unit if isinstance(table.unit, list) else [table.unit] * n
    try:
        factors = [find_unit(name, ("angle", "length")).factor for name in names]
    except UnitError as error:
        raise MappingError(f"{mapping.path}: q.unit: {error}") from None
    signs = np.atleast_1d(np.asarray(table.sign, dtype=np.float64))
    offsets = np.atleast_1d(np.asarray(table.offset, dtype=np.float64))
    for key, values in (("unit", factors), ("sign", signs), ("offset", offsets)):
        if len(values) not in (1, n):
            raise MappingError(f"{mapping.path}: q.{key} has {len(values)} values for {n} joints")
    return np.asarray(signs * np.array(factors) * raw + offsets)


__all__ = ["ImportFailedError", "PoseMapping", "load_pose_mapping", "read_poses"]
