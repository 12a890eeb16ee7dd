"""Import of a log into a recording by a mapping; implausible data are refused."""

import hashlib
import os
from collections.abc import Mapping as MappingType
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from drivers.files.importing import checks
from drivers.files.importing._channels import Channels, read_channels
from drivers.files.importing._data_files import open_data
from drivers.files.importing._mapping import ImportFailedError, Mapping, MappingError, load_mapping, parse_mapping
from drivers.files.importing.data_source import ArraySource, DataError, DataNotFoundError, DataSource, Progress
from drivers.files.importing.units import find_unit
from drivers.files.recordings.recording import (
    Recording,
    RecordingError,
    RecordingExistsError,
    RecordingMeta,
    RecordingWriteError,
    RecordingWriter,
)
from drivers.files.robots.file import RobotError, RobotFile, load_robot
from rt_core.channels import ChannelFault, position_faults, rolls_over, unwrapped
from rt_core.types import BoolArray, FloatArray, IntArray

__all__ = [
    "DataError", "DataNotFoundError", "ImportFailedError", "ImportResult", "MappingError", "import_recording",
    "load_data", "parse_mapping",
]  # fmt: skip


@dataclass(frozen=True)
class ImportResult:
    """Result of an import.

    Of `rows` in the file, `dropped` repeated time stamp and content and were left out; `repeated_samples` repeat the
    content of the sample before at a later time and were kept; `masked` counts joint samples marked invalid because a
    value was missing.
    """

    path: str
    source: str
    mapping: str
    robot: str
    joint_names: tuple[str, ...]
    units: tuple[str, ...]
    channels: tuple[str, ...]
    rows: int
    frames: int
    dropped: int
    repeated_samples: int
    masked: int
    duration_s: float
    rate_hz: float
    step_min_s: float
    step_median_s: float
    step_max_s: float
    gaps: int
    sha256: str
    warnings: tuple[str, ...]


def import_recording(
    data: str | Path, mapping: Mapping | str | Path, out: str | Path, *, force: bool = False,
    progress: Progress | None = None,
) -> ImportResult:  # fmt: skip
    """Import `data` by `mapping` into the new recording `out`, atomically; formats: docs/recordings.md.

    `mapping` may be a path or name; `force` replaces `out` if it exists; `progress` is called with the fraction done.
    Raises `MappingError` if the mapping cannot be read, or does not fit its robot; `DataError` or `DataNotFoundError`
    if the data cannot be read, contradict the mapping, or are implausible; `RecordingError` if `out` exists or cannot
    be written.
    """
    target = Path(out)
    if target.exists() and not force:
        raise RecordingExistsError(f"{target}: already there; choose another name, or replace it with --force")
    if not target.parent.is_dir():
        raise RecordingWriteError(f"{target}: there is no directory {target.parent}")
    recording, result = load_data(data, mapping, None if progress is None else lambda x: progress(0.5 * x))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        temporary.unlink(missing_ok=True)
        with RecordingWriter(temporary, recording.meta) as writer:
            for index, frame in enumerate(recording.frames()):
                writer.write(frame)
                if progress is not None and index % 8192 == 0:
                    progress(0.5 + 0.5 * index / recording.samples)
        temporary.replace(target)
    except OSError as error:
        if isinstance(error, RecordingError):
            raise
        raise RecordingWriteError(f"{target}: cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    if progress is not None:
        progress(1.0)
    return ImportResult(path=str(target), **result)


def load_data(
    data: str | Path | MappingType[str, Any], mapping: Mapping | str | Path, progress: Progress | None = None,
    robot: RobotFile | None = None,
) -> tuple[Recording, dict[str, Any]]:  # fmt: skip
    """Read and check `data`; return it and `ImportResult` without its path; raises as `import_recording`.

    `data` may also be arrays by name, called a table in messages; `robot` takes the place of the mapping's.
    """
    path = Path(data) if isinstance(data, str | Path) else Path("table")
    if not isinstance(mapping, Mapping):
        mapping = load_mapping(mapping, path.parent)
    content = mapping.content
    robot = _robot(mapping) if robot is None else robot
    masking = content.missing == "mask"
    if isinstance(data, str | Path):
        source = open_data(path, content.csv, masking, progress)
        path, sha256 = source.path, _sha256(source.path)  # of a bag's folder, the file in it
    else:
        source, sha256 = ArraySource(path, [*data], data.__getitem__), ""
    channels = read_channels(source, mapping, robot)
    rows = channels.rows
    t_ns, nominal_hz = _time(source, mapping, rows)
    keep, t_ns = _without_repeats(t_ns, channels)
    dropped = rows - int(np.count_nonzero(keep))
    values = {name: array[keep] for name, array in channels.values.items()}
    if len(t_ns) < 2:
        raise DataError(f"{path}: holds {len(t_ns)} distinct samples; at least two are needed")
    checks.check_increasing(t_ns, f"{path}: column {content.time.column!r}")
    checks.check_one_clock(t_ns, f"{path}: column {content.time.column!r}")
    t = (t_ns - t_ns[0]) * 1e-9
    warnings = [*source.warnings, *channels.warnings]
    limits = None if robot is None else np.array([joint.velocity for joint in robot.model.joints])
    faults = _repair_positions(t, values, channels, limits, masking, warnings)
    valid, masked = _missing(path, t, values, channels.joint_names, masking)
    _check_counters(path, values, channels.joint_names)
    joints = None if robot is None else robot.model.joints
    wrong, odd = checks.plausibility(
        t, values, channels.joint_names, channels.units, joints, turning={f.joint for f in faults if f.kind == "wrap"}
    )
    wrong = [
        text for f in faults if (text := checks.fault_text(f, t, channels.joint_names, channels.units, masking))
    ] + wrong
    if "q" in values and (text := checks.arrival_text(t, values["q"], f"column {content.time.column!r}")):
        wrong.insert(0, text)
    if wrong and content.checks.plausibility == "error":
        raise DataError(f"{path}: " + "; ".join(wrong[:3]) + (f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""))
    warnings += wrong + odd
    steps = checks.timing(t_ns)
    if steps.gaps:
        warnings.append(
            f"{steps.gaps} steps are longer than three median steps of {steps.step_median_s:.6g} s; the longest, "
            f"{steps.step_max_s:.6g} s, is at {steps.longest_gap_at_s:.6g} s"
        )
    if content.time.column is not None and (hint := checks.unit_of_time(steps.step_median_s, content.time.unit)):
        warnings.append(hint)
    if repeated := _repeated(values):
        warnings.append(f"{repeated} samples repeat the values of the sample before; they are kept as they are")
    if dropped:
        warnings.append(f"{dropped} rows repeat the row before, time stamp included; they were left out")
    if masked:
        warnings.append(f"{masked} joint samples lack a value and are marked invalid")
    rate_hz = nominal_hz or 1.0 / steps.step_median_s
    recording = Recording(
        t=t, t_ns=t_ns, seq=np.arange(len(t_ns), dtype=np.int64), channels=values, valid=valid,
        meta=RecordingMeta(
            robot=content.name if robot is None else robot.model.name, joint_names=channels.joint_names,
            units=channels.units, rate_hz=rate_hz, source=path.name, source_sha256=sha256, mapping=content.name,
            extra={"mapping_sha256": mapping.sha256},
        ),
    )  # fmt: skip
    result: dict[str, Any] = {
        "source": str(path), "mapping": mapping.label, "robot": recording.robot, "joint_names": recording.joint_names,
        "units": recording.units, "channels": tuple(values), "rows": rows, "frames": recording.samples,
        "dropped": dropped, "repeated_samples": repeated, "masked": masked, "duration_s": recording.duration_s,
        "rate_hz": rate_hz, "step_min_s": steps.step_min_s, "step_median_s": steps.step_median_s,
        "step_max_s": steps.step_max_s, "gaps": steps.gaps, "sha256": recording.sha256, "warnings": tuple(warnings),
    }  # fmt: skip
    return recording, result


def _robot(mapping: Mapping) -> RobotFile | None:
    if mapping.content.robot is None:
        return None
    try:
        return load_robot(mapping.content.robot, None if mapping.path is None else mapping.path.parent)
    except RobotError as error:
        raise MappingError(f"{mapping.label}: robot: {error}") from error


def _time(source: DataSource, mapping: Mapping, rows: int) -> tuple[IntArray, float | None]:
    """Return time stamps (rows,) [ns], and the nominal rate [Hz] if given."""
    table = mapping.content.time
    rate_hz = table.rate_hz
    if table.rate_column is not None:
        source.check(table.rate_column, "time.rate_column")
        value = np.ravel(source.load([table.rate_column])[table.rate_column])
        if value.size != 1 or not np.isfinite(value[0]) or value[0] <= 0:
            raise DataError(f"{source.path}: time.rate_column {table.rate_column!r} is not one positive number [Hz]")
        rate_hz = float(value[0])
    if table.column is None:
        if rate_hz is None or rate_hz > 1e9:
            raise DataError(f"{source.path}: a rate of {rate_hz} Hz is beyond what time stamps in ns can hold")
        return np.round(np.arange(rows) * (1e9 / rate_hz)).astype(np.int64), rate_hz
    source.check(table.column, "time.column")
    dates = source.load_dates(table.column)
    if dates is not None:
        return dates, rate_hz
    stamps = source.load([table.column])[table.column]
    if stamps.ndim == 2 and 1 in stamps.shape:
        stamps = stamps.ravel()
    where = f"{source.path}: time.column {table.column!r}"
    if stamps.ndim != 1 or len(stamps) != rows:
        raise DataError(f"{where} has shape {stamps.shape}, the channels have {rows} rows")
    bad = np.flatnonzero(~np.isfinite(stamps))
    if bad.size:
        raise DataError(f"{where} is not a finite number in {bad.size} rows, first row {bad[0]} (from 0)")
    factor = find_unit(table.unit, ("time",)).factor * 1e9
    if not stamps.size:
        raise DataError(f"{source.path}: holds no samples")
    with np.errstate(over="ignore"):  # what does not fit is refused below
        first = float(stamps[0] * factor)
        elapsed = (stamps - stamps[0]) * factor  # exact for integers; keeps the digits of seconds since an epoch
    if not (abs(first) < 9e18 and float(np.max(np.abs(elapsed))) < 9e18):
        raise DataError(f"{where} reaches {float(np.max(np.abs(stamps))):.4g} {table.unit}; check time.unit")
    # Times of a source that starts below zero start at zero.
    lowest = first + float(np.min(elapsed))
    start = round(first) if lowest >= 0.0 else int(np.ceil(-float(np.min(elapsed))))
    return np.round(elapsed).astype(np.int64) + start, rate_hz


def _without_repeats(t_ns: IntArray, channels: Channels) -> tuple[BoolArray, IntArray]:
    """Return the rows to keep, all but those that repeat the row before including its time, and their times."""
    keep = np.ones(len(t_ns), dtype=bool)
    same = np.diff(t_ns) == 0
    if same.any():
        for array in channels.values.values():
            same &= np.all((array[1:] == array[:-1]) | (np.isnan(array[1:]) & np.isnan(array[:-1])), axis=1)
        keep[1:] = ~same
    return keep, t_ns[keep]


def _repeated(values: MappingType[str, FloatArray]) -> int:
    """Count samples whose measured values all equal those of the sample before."""
    measured = [array for name, array in values.items() if name != "setpoint"]
    same = np.all([np.all(array[1:] == array[:-1], axis=1) for array in measured or list(values.values())], axis=0)
    return int(np.count_nonzero(same))


def _check_counters(path: Path, values: MappingType[str, FloatArray], joint_names: tuple[str, ...]) -> None:
    """Raise `DataError` if currents or torques are signed numbers that were read as unsigned."""
    for name in filter(values.__contains__, ("current", "tau")):
        for joint, x in zip(joint_names, values[name].T, strict=True):
            if rolls_over(x):
                raise DataError(
                    f"{path}: {name} of joint {joint} jumps by nearly its whole range, between {np.nanmin(x):.4g} and "
                    f"{np.nanmax(x):.4g}, {int(np.sum(np.abs(np.diff(x)) > 0.9 * np.ptp(x[np.isfinite(x)])))} times: "
                    "signed numbers of 16 bit were read as unsigned (65536 too large below zero); log them as signed"
                )


def _repair_positions(
    t: FloatArray, values: dict[str, FloatArray], channels: Channels, limits: FloatArray | None, masking: bool,
    warnings: list[str],
) -> list[ChannelFault]:  # fmt: skip
    """Unwrap positions, and mark samples of dropouts missing if `masking`; returns what was found."""
    turns = channels.position_turns
    if turns is None:  # no positions
        return []
    faults = position_faults(t, values["q"], list(turns), max_velocity=limits)
    for fault in faults:
        joint = channels.joint_names[fault.joint]
        if fault.kind == "wrap":
            values["q"][:, fault.joint] = unwrapped(values["q"][:, fault.joint], turns[fault.joint])
            warnings.append(
                f"joint {joint}: q wraps by one turn {fault.count} times, first at {t[fault.first]:.6g} s; unwrapped"
            )
        elif fault.kind == "dropout" and masking:
            values["q"][fault.samples, fault.joint] = np.nan
            warnings.append(
                f"joint {joint}: q drops out {fault.count} times, first at {t[fault.first]:.6g} s; "
                f"{fault.samples.size} samples are marked invalid"
            )
    return faults


def _missing(
    path: Path, t: FloatArray, values: dict[str, FloatArray], joint_names: tuple[str, ...], masking: bool
) -> tuple[BoolArray | None, int]:
    """Return which joint samples are complete; raises `DataError` for the first incomplete one unless `masking`."""
    valid = np.ones((len(t), len(joint_names)), dtype=bool)
    for name, array in values.items():
        bad = ~np.isfinite(array)
        if not bad.any():
            continue
        row, joint = (int(i) for i in np.argwhere(bad)[0])
        if not masking:
            what = "NaN" if np.isnan(array[row, joint]) else "infinite"
            raise DataError(
                f"{path}: {name} of joint {joint_names[joint]} is {what} at sample {row} (from 0, t = {t[row]:.6f} s), "
                f"{int(bad.sum())} values in all; set missing = 'mask' in the mapping to mark such samples invalid"
            )
        if bad.all(axis=0).any():
            empty = joint_names[int(np.argmax(bad.all(axis=0)))]
            raise DataError(f"{path}: {name} of joint {empty} has no finite value at all")
        array[bad] = np.nan
        valid &= ~bad
    if masking and not valid.any(axis=0).all():
        rows = {name: int(np.isfinite(array).all(axis=1).sum()) for name, array in values.items()}
        found = ", ".join(f"{name} in {count} rows" for name, count in rows.items())
        raise DataError(
            f"{path}: no row holds a value of every channel ({found}): "
            "they were recorded at different times; export them at common times (PlotJuggler and MATLAB interpolate)"
        )
    masked = int(np.count_nonzero(~valid))
    return (valid if masked else None), masked


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
