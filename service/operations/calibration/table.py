"""Table of measurements of a calibration: comma-separated values whose first line names the columns."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from rt_core.calibration.sample import Contacts, Distances
from rt_core.calibration.settings import MAX
from rt_core.types import FloatArray, IntArray
from service.operations.errors import OperationError

POSITION = ("x", "y", "z")
QUATERNION = ("qx", "qy", "qz", "qw")
#: Bound on a table, for memory: a Jacobian of so many poses of a large arm has some 100 MB.
MAX_POSES = 50_000
_MAX_BYTES = 64_000_000
_UNIT_LENGTH = 1e-3


@dataclass(frozen=True, eq=False)
class MeasurementTable:
    """Content of a table."""

    q: FloatArray  # (N, n), [rad] or [m]
    measured: FloatArray | Contacts | Distances  # (N, 3) or (N, 7); as `rt_core.calibration.calibrate` takes it
    numbers: IntArray | None  # of the socket or centre of each pose, as the table has them
    lines: list[int]  # of each pose, in the file
    head: IntArray | None = None  # (N,), which point on the tool was measured, from 0 in the order of `head_numbers`
    head_numbers: tuple[int, ...] = ()
    station: IntArray | None = None  # (N,), where the instrument stood, from 0 in the order of `station_numbers`
    station_numbers: tuple[int, ...] = ()

    @property
    def known_numbers(self) -> list[int]:
        """Numbers of sockets or centres, in the order in which `measured` counts them from 0."""
        return [] if self.numbers is None else [int(k) for k in np.unique(self.numbers)]


def read_table(path: Path, where: str, n: int) -> MeasurementTable:
    """Read the table of an arm of `n` joints; `where` names it in messages.

    Empty lines, and those that begin with `#`, are skipped, but counted. Raises `OperationError` with line and column.
    """
    joints = tuple(f"q{k + 1}" for k in range(n))
    empty = f"the first line names the columns {', '.join((*joints, *POSITION))}"
    wanted, values, lines = _read_columns(path, where, lambda names, line: _wanted(names, joints, line), empty)
    q, rest = values[:, :n], values[:, n:]
    if wanted[n] == "socket":
        numbers, order = _counted(rest[:, 0], lines, f"{where}: ", "socket")
        return MeasurementTable(q, Contacts(order), numbers, lines)
    if wanted[n] == "distance":
        given = rest[:, 1] if len(wanted) > n + 1 else np.ones(len(rest))
        numbers, order = _counted(given, lines, f"{where}: ", "centre")
        return MeasurementTable(q, Distances(rest[:, 0], order), numbers, lines)
    counted: dict[str, tuple[IntArray | None, tuple[int, ...]]] = {}
    for name in ("head", "station"):
        counted[name] = None, ()
        if name in wanted:
            numbers, order = _counted(rest[:, wanted.index(name) - n], lines, f"{where}: ", name)
            counted[name] = order, tuple(int(k) for k in np.unique(numbers))
    measured = rest[:, : 7 if QUATERNION[0] in wanted else 3]
    _check_quaternions(measured[:, 3:], lines, where)
    return MeasurementTable(q, measured, None, lines, *counted["head"], *counted["station"])


def read_targets(path: Path, where: str, n: int) -> tuple[FloatArray, FloatArray | None, FloatArray | None]:
    """Read a table of Cartesian targets for an arm of `n` joints; raises `OperationError` with line and column.

    Returns positions (N, 3) [m]; rotations (N, 3, 3) if there are `qx` to `qw`; and joint positions (N, n) to start
    from if there are `q1` to `qn`.
    """
    joints = tuple(f"q{k + 1}" for k in range(n))

    def wanted(names: list[str], line: str) -> tuple[str, ...]:
        turned = QUATERNION if any(name in names for name in QUATERNION) else ()
        started = joints if any(name in names for name in joints) else ()
        return _exactly(names, (*POSITION, *turned, *started), line, "targets")

    found, values, lines = _read_columns(path, where, wanted, "the first line names the columns x, y, z")
    rotations = start = None
    if "qx" in found:
        _check_quaternions(values[:, 3:7], lines, where)
        rotations = Rotation.from_quat(values[:, 3:7]).as_matrix()
    if "q1" in found:
        start = values[:, -n:]
    return values[:, :3], rotations, start


def _read_columns(
    path: Path, where: str, wanted: Callable[[list[str], str], tuple[str, ...]], empty: str
) -> tuple[tuple[str, ...], FloatArray, list[int]]:
    """Return the names of the columns that `wanted` chooses, their values (N, k), and the line of each row."""
    size = path.stat().st_size
    if size > _MAX_BYTES:
        what = f"has {size} bytes, more than {_MAX_BYTES}"
        raise OperationError(f"{where}: {what}: leave poses out, or write fewer digits")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise OperationError(f"{where}: not UTF-8 text: {error.reason} at byte {error.start}") from None
    filled = [
        (number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip() and line.lstrip()[0] != "#"
    ]
    if not filled:
        raise OperationError(f"{where}: is empty; {empty}")
    names = [name.strip() for name in filled[0][1].split(",")]
    chosen = wanted(names, f"{where}: line {filled[0][0]}")
    if len(filled) - 1 > MAX_POSES:
        raise OperationError(f"{where}: line {filled[MAX_POSES + 1][0]}: more than {MAX_POSES} poses: leave some out")
    values = np.empty((len(filled) - 1, len(names)))
    for row, (number, line) in zip(values, filled[1:], strict=True):
        fields = line.split(",")
        if len(fields) != len(names):
            raise OperationError(f"{where}: line {number}: {len(fields)} values for {len(names)} columns")
        for k, field in enumerate(fields):
            row[k] = _number(field, f"{where}: line {number}, column {names[k]}")
    if not len(values):
        raise OperationError(f"{where}: has no line of values after the names of the columns")
    lines = [number for number, _ in filled[1:]]
    return chosen, values[:, [names.index(name) for name in chosen]], lines


def table_text(names: list[str], values: FloatArray) -> str:
    """Return the text of a table with these columns; numbers read back to the same bits, NaN is an empty field."""
    lines = [",".join(names), *(",".join("" if math.isnan(v) else repr(float(v)) for v in row) for row in values)]
    return "\n".join(lines) + "\n"


def columns_of(n: int, measured: Any) -> list[str]:
    """Return the names of the columns of an arm of `n` joints for a kind of measurement."""
    joints = [f"q{k + 1}" for k in range(n)]
    if isinstance(measured, Contacts):
        return [*joints, "socket"]
    if isinstance(measured, Distances):
        return [*joints, "distance", "centre"]
    return [*joints, *POSITION, *(QUATERNION if measured.shape[1] == 7 else ())]


def as_stations(tables: list[tuple[str, MeasurementTable]], n: int) -> str:
    """Return several tables as one text, each a station of the instrument; with the station names.

    Raises `OperationError` if they are not positions or poses of one kind, or one of them has stations already.
    """
    first = tables[0][1]
    for where, table in tables:
        if isinstance(table.measured, (Contacts, Distances)) or table.station is not None:
            what = "several tables are several stations"
            raise OperationError(f"{where}: {what}: give positions or poses, and no station")
        assert not isinstance(first.measured, (Contacts, Distances))
        if table.measured.shape[1] != first.measured.shape[1] or (table.head is None) != (first.head is None):
            raise OperationError(f"{where}: has other columns than {tables[0][0]}: measure the same at each station")
    names = [*columns_of(n, first.measured), *(["head"] if first.head is not None else []), "station"]
    text = []
    for number, (_, table) in enumerate(tables, 1):
        heads = [] if table.head is None else [np.array(table.head_numbers, dtype=np.float64)[table.head]]
        rows = np.column_stack((table.q, np.asarray(table.measured), *heads, np.full(len(table.q), float(number))))
        text.append(table_text(names, rows) if number == 1 else table_text(names, rows).partition("\n")[2])
    return "".join(text)


def _check_quaternions(quaternions: FloatArray, lines: list[int], where: str) -> None:
    if not quaternions.shape[1]:
        return
    lengths = np.linalg.norm(quaternions, axis=1)
    wrong = np.abs(lengths - 1.0) > _UNIT_LENGTH
    if wrong.any():
        i = int(wrong.argmax())
        raise OperationError(
            f"{where}: line {lines[i]}, column qx: the quaternion has length {lengths[i]:.6g}, not 1; its order "
            "is x, y, z, w"
        )


def _counted(values: FloatArray, lines: list[int], where: str, column: str) -> tuple[IntArray, IntArray]:
    """Return the whole numbers of a column, and the same counted from 0 without gaps."""
    wrong = (values != np.round(values)) | (values < 0.0)
    if wrong.any():
        i = int(wrong.argmax())
        raise OperationError(f"{where}line {lines[i]}, column {column}: {values[i]:g} is not a whole number")
    numbers = values.astype(np.int64)
    order: IntArray = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
    return numbers, order


def _wanted(names: list[str], joints: tuple[str, ...], where: str) -> tuple[str, ...]:
    """Return the names of the columns in their order here; `OperationError` unless the header has exactly these."""
    wanted = (*joints, *POSITION)
    if "socket" in names:
        wanted = (*joints, "socket")
    elif "distance" in names:
        wanted = (*joints, "distance", *(("centre",) if "centre" in names else ()))
    else:
        if "head" in names:
            wanted = (*wanted, "head")
        elif any(name in names for name in QUATERNION):
            wanted = (*wanted, *QUATERNION)
        wanted = (*wanted, *(("station",) if "station" in names else ()))
    return _exactly(names, wanted, where, f"an arm of {len(joints)} joints")


def _exactly(names: list[str], wanted: tuple[str, ...], where: str, who: str) -> tuple[str, ...]:
    for k, name in enumerate(names):
        if name in names[:k]:
            raise OperationError(f"{where}, column {k + 1}: {name!r} is there twice")
    for name in wanted:
        if name not in names:
            raise OperationError(f"{where}: there is no column {name}; {who} takes {', '.join(wanted)}")
    for k, name in enumerate(names):
        if name not in wanted:
            raise OperationError(f"{where}, column {k + 1}: {name!r} is none of {', '.join(wanted)}: leave it out")
    return wanted


def _number(field: str, where: str) -> float:
    try:
        value = float(field)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or "_" in field:
        raise OperationError(f"{where}: {field.strip()!r} is not a number; leave the line out if nothing was measured")
    if abs(value) > MAX:
        raise OperationError(f"{where}: {field.strip()} is beyond {MAX:g} m or rad: correct it, or leave the line out")
    return value
