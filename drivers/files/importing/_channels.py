"""Channels of a log, converted to SI units on the joint side."""

from dataclasses import dataclass

import numpy as np

from drivers.files.importing._mapping import ChannelTable, Mapping, MappingError, Ref
from drivers.files.importing.data_source import DataError, DataSource
from drivers.files.importing.units import CHANNEL_QUANTITIES, Unit, UnitError
from drivers.files.robots.file import RobotFile
from rt_core.model.robot import Transmission
from rt_core.types import FloatArray, IntArray

PLACEHOLDER = "{joint}"


@dataclass(frozen=True)
class Channels:
    """All channels of a log: (rows, n) each, joint side, SI; NaN where the log has none."""

    values: dict[str, FloatArray]
    joint_names: tuple[str, ...]
    units: tuple[str, ...]
    rows: int
    warnings: tuple[str, ...]
    position_turns: tuple[float, ...] | None = None  # one turn of the encoder as seen at the joint


def read_channels(source: DataSource, mapping: Mapping, robot: RobotFile | None) -> Channels:
    """Read and convert every channel; `DataError` by a column, `MappingError` by a contradiction of the mapping."""
    content = mapping.content
    tables = {name: table for name, table in content.tables().items() if not table.from_current}
    names = _known_joints(mapping, robot)
    refs = {name: _resolve(source, name, table, names) for name, table in tables.items()}
    scales = {t.scale for t in tables.values() if isinstance(t.scale, str)}
    for name, table in tables.items():
        if isinstance(table.scale, str):
            source.check(table.scale, f"{name}.scale")
    loaded = source.load(dict.fromkeys([ref for found in refs.values() for ref in found] + sorted(scales)))
    raw = {name: _stack(source, name, table, refs[name], loaded) for name, table in tables.items()}
    raw = {name: _ordered(source, array, names) for name, array in raw.items()}
    n = len(names) if names is not None else next(iter(raw.values())).shape[1]
    if names is None:
        names = tuple(f"joint{i + 1}" for i in range(n))
    _check_shapes(source, raw, n)
    values: dict[str, FloatArray] = {}
    units = _joint_units(mapping, robot, tables, n)
    transmission = _transmission(mapping, robot, n)
    for name in content.tables():
        table = content.tables()[name]
        if table.from_current:
            continue
        values[name] = _convert(mapping, source, name, table, raw[name], loaded, units, transmission)
    warnings: list[str] = []
    if content.tau is not None and content.tau.from_current:
        constants = _with_torque_constants(mapping, robot, transmission)
        torque = constants.joint_torque(values["current"] * constants.torque_constant)
        values["tau"] = torque + _per_joint(mapping, "tau.offset", content.tau.offset, n)
        warnings.append("tau is computed from the current and the torque constants; it is not measured")
    rows = len(next(iter(values.values())))
    ordered = {name: values[name] for name in content.tables()}
    return Channels(ordered, names, units, rows, tuple(warnings), _turns(tables, units, transmission))


def _turns(
    tables: dict[str, ChannelTable], units: tuple[str, ...], transmission: Transmission | None
) -> tuple[float, ...] | None:
    """Return by how much each joint's position steps where its encoder wraps, 0 for none; None without positions."""
    if "q" not in tables:
        return None
    turn = 2.0 * np.pi
    if tables["q"].side == "joint" or transmission is None:
        return tuple(turn if unit == "rad" else 0.0 for unit in units)
    matrix = transmission.matrix
    if np.count_nonzero(matrix - np.diag(np.diag(matrix))):
        return (0.0,) * len(units)  # one motor moves several joints
    return tuple(turn / abs(float(ratio)) for ratio in np.diag(matrix))


def _known_joints(mapping: Mapping, robot: RobotFile | None) -> tuple[str, ...] | None:
    names = mapping.content.joints
    if robot is None:
        return None if names is None else tuple(names)
    of_robot = tuple(joint.name for joint in robot.model.joints)
    if names is not None and tuple(names) != of_robot:
        raise MappingError(
            f"{mapping.label}: joints: {', '.join(names)} are not those of robot {robot.model.name}: "
            f"{', '.join(of_robot)}; leave `joints` out to take them from the robot"
        )
    return of_robot


def _resolve(source: DataSource, name: str, table: ChannelTable, joints: tuple[str, ...] | None) -> list[Ref]:
    """Find the columns of one channel: one array of all joints, or one column each."""
    where = f"{name}.columns"
    columns = table.columns
    if isinstance(columns, str) and PLACEHOLDER in columns:
        refs: list[Ref] = list(expanded(source, where, columns, joints))
    else:
        refs = columns if isinstance(columns, list) else [] if columns is None else [columns]
    for ref in refs:
        source.check(ref, where)
    return refs


def expanded(source: DataSource, where: str, pattern: str, joints: tuple[str, ...] | None) -> list[str]:
    """Expand a pattern such as `q_{joint}` to columns: joint names, or numbers from 1, or from 0."""
    candidates: list[list[str]] = []
    if joints is not None:
        candidates.append([pattern.replace(PLACEHOLDER, joint) for joint in joints])
        candidates += [[pattern.replace(PLACEHOLDER, str(first + i)) for i in range(len(joints))] for first in (1, 0)]
    else:
        for first in (0, 1):
            count = 0
            while source.has(pattern.replace(PLACEHOLDER, str(first + count))):
                count += 1
            candidates.append([pattern.replace(PLACEHOLDER, str(first + i)) for i in range(count)])
    for columns in candidates:
        if columns and all(source.has(column) for column in columns):
            return columns
    best = max(candidates, key=lambda columns: sum(source.has(column) for column in columns))
    for column in best:
        source.check(column, where)
    source.check(pattern.replace(PLACEHOLDER, "1"), where)
    return best


def _stack(
    source: DataSource, name: str, table: ChannelTable, refs: list[Ref], loaded: dict[Ref, FloatArray | IntArray]
) -> FloatArray:
    """Return the raw values (rows, n) of one channel."""
    parts: list[FloatArray] = []
    for ref in refs:
        array = np.asarray(loaded[ref], dtype=np.float64)
        if array.ndim == 2 and (table.transpose or (array.shape[0] == 1 and array.shape[1] > 1 and len(refs) > 1)):
            array = array.T
        if array.ndim == 1:
            array = array[:, None]
        if array.ndim != 2:
            raise DataError(f"{source.path}: {name}.columns: array {ref!r} has shape {array.shape}; (N, n) is needed")
        if len(refs) > 1 and array.shape[1] != 1:
            raise DataError(
                f"{source.path}: {name}.columns lists several columns, but {ref!r} has shape {array.shape}; "
                f"name column k of it as '{ref}[k]'"
            )
        parts.append(array)
    lengths = {str(ref): len(part) for ref, part in zip(refs, parts, strict=True)}
    if len(set(lengths.values())) > 1:
        raise DataError(f"{source.path}: {name}.columns have different lengths: {lengths}")
    return np.hstack(parts)


def _ordered(source: DataSource, array: FloatArray, names: tuple[str, ...] | None) -> FloatArray:
    """Return the columns of a log that names its joints in the order of `names`."""
    recorded = source.joint_names
    if not recorded or names is None or array.shape[1] != len(recorded):
        return array
    missing = [name for name in names if name not in recorded]
    if missing:
        raise DataError(
            f"{source.path}: no joint {', '.join(missing)}; the log has {', '.join(recorded)}: name the joints of the "
            "robot file as the log does"
        )
    return array[:, [recorded.index(name) for name in names]]


def _check_shapes(source: DataSource, raw: dict[str, FloatArray], n: int) -> None:
    rows = {name: len(array) for name, array in raw.items()}
    for name, array in raw.items():
        if array.shape[1] != n:
            hint = ""
            if array.shape[0] == n:
                hint = f"; samples must be rows: set {name}.transpose = true"
            raise DataError(
                f"{source.path}: {name} has {array.shape[1]} columns for {n} joints (shape {array.shape}){hint}"
            )
    if len(set(rows.values())) > 1:
        raise DataError(
            f"{source.path}: channels have different numbers of samples: "
            + ", ".join(f"{name} {count}" for name, count in rows.items())
        )
    if not next(iter(rows.values())):
        raise DataError(f"{source.path}: holds no samples")


def _joint_units(mapping: Mapping, robot: RobotFile | None, tables: dict[str, ChannelTable], n: int) -> tuple[str, ...]:
    """Return the unit of each joint's position, from the robot, or from the units of q, setpoint, dq or tau."""
    if robot is not None:
        return tuple("rad" if joint.kind == "revolute" else "m" for joint in robot.model.joints)
    for name in ("q", "setpoint", "dq", "tau"):
        if name in tables and tables[name].side == "joint":
            return tuple(unit.joint_unit or "rad" for unit in _units(mapping, name, tables[name], n))
    return ("rad",) * n


def _units(mapping: Mapping, name: str, table: ChannelTable, n: int) -> list[Unit]:
    if isinstance(table.unit, list) and len(table.unit) != n:
        raise MappingError(f"{mapping.label}: {name}.unit has {len(table.unit)} values for {n} joints")
    try:
        return table.units(name, n)
    except UnitError as error:
        raise MappingError(f"{mapping.label}: {name}.unit: {error}") from None


def _transmission(mapping: Mapping, robot: RobotFile | None, n: int) -> Transmission | None:
    table = mapping.content.transmission
    if table is not None:
        transmission = table.transmission()
        if len(transmission.offset) != n:
            raise MappingError(f"{mapping.label}: transmission is for {len(transmission.offset)} joints, not {n}")
        return transmission
    return None if robot is None else robot.model.transmission


def _with_torque_constants(
    mapping: Mapping, robot: RobotFile | None, transmission: Transmission | None
) -> Transmission:
    """Return the transmission if its torque constants were given; there is no default."""
    inline = mapping.content.transmission
    if inline is not None:
        given = inline.torque_constant is not None
    else:
        given = robot is not None and "torque_constant" in (robot.source.get("transmission") or {})
    if not given or transmission is None:
        raise MappingError(
            f"{mapping.label}: tau.from_current needs `torque_constant` [N*m/A] in [transmission] "
            f"of the mapping or robot"
        )
    return transmission


def _per_joint(mapping: Mapping, where: str, values: float | list[float], n: int) -> FloatArray:
    array = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if len(array) not in (1, n):
        raise MappingError(f"{mapping.label}: {where} has {len(array)} values for {n} joints")
    return np.broadcast_to(array, (n,)).copy()


def _convert(
    mapping: Mapping, source: DataSource, name: str, table: ChannelTable, raw: FloatArray,
    loaded: dict[Ref, FloatArray | IntArray], joint_units: tuple[str, ...], transmission: Transmission | None,
) -> FloatArray:  # fmt: skip
    """Apply scale, unit, sign, side and offset, in this order."""
    n = raw.shape[1]
    units = _units(mapping, name, table, n)
    if table.side == "joint" and len(CHANNEL_QUANTITIES[name]) > 1:
        for j, unit in enumerate(units):
            if unit.joint_unit != joint_units[j]:
                raise MappingError(
                    f"{mapping.label}: {name}.unit {unit.name!r} does not suit joint {j + 1}, whose position is in "
                    f"{joint_units[j]}; `unit` may be a list, one a joint"
                )
    if isinstance(table.scale, str):
        scale = np.ravel(np.asarray(loaded[table.scale], dtype=np.float64))
        if len(scale) not in (1, n) or not np.all(np.isfinite(scale)):
            raise DataError(f"{source.path}: {name}.scale {table.scale!r} is not one finite number, or one a joint")
    else:
        scale = _per_joint(mapping, f"{name}.scale", table.scale, n)
    sign = _per_joint(mapping, f"{name}.sign", [float(s) for s in np.atleast_1d(np.asarray(table.sign))], n)
    factor = np.array([unit.factor for unit in units])
    value = sign * (raw * (scale * factor) + np.array([unit.offset for unit in units]))
    if table.side == "motor":
        if transmission is None:
            raise MappingError(
                f"{mapping.label}: {name}.side: the robot has no transmission; give [transmission] in the mapping"
            )
        if name in ("q", "setpoint"):
            value = transmission.joint_position(value)
        elif name == "dq":
            value = transmission.joint_velocity(value)
        else:
            value = transmission.joint_torque(value)
    return np.ascontiguousarray(value + _per_joint(mapping, f"{name}.offset", table.offset, n))
