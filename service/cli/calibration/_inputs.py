"""Inputs of `thetad calibrate`: parameters, measurements in one table, an output folder without earlier results."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from drivers.files.atomic_write import write_text
from drivers.files.importing.pose_mapping import read_poses
from drivers.files.robots.file import RobotFile
from rt_core.calibration.sample import Contacts, Distances
from rt_core.types import FloatArray
from service.cli._common import CliError
from service.cli._options import given
from service.cli.jobs.values import parse_parameters
from service.jobs.kinds.calibrate import FILES, KIND, clear
from service.operations.calibration.table import MeasurementTable, as_stations, columns_of, read_table, table_text


def given_values(args: argparse.Namespace, **values: Any) -> dict[str, Any]:
    """Return `values` and all parameters of the options and of --set, which must not repeat them (`CliError`)."""
    values |= given(args, KIND)
    for name in (*values, "robot", "measurements"):
        if any(pair.partition("=")[0] == name for pair in args.pairs):
            raise CliError(f"--set {name}=...: {name} is given by an option or as FILE")
    return values | parse_parameters(KIND, args.pairs)


def clear_results(folder: Path, inputs: Sequence[Path]) -> None:
    """Remove the results of an earlier run from a folder; `CliError` if one of them is an input of this run."""
    results = {(folder / name).resolve() for name in FILES}
    for path in inputs:
        if path.resolve() in results:
            raise CliError(f"{path}: would be overwritten by the results: give another --output")
    clear(folder)


def converted(paths: list[Path], mapping: Any, robot: RobotFile, folder: Path) -> Path:
    """Write the data as one table in SI units, with several files as several stations; return its path."""
    table, n = folder / "measurements.csv", robot.model.n
    if any(path.resolve() == table.resolve() for path in paths):
        raise CliError(f"{table}: would be overwritten by the table of all that was measured: give another --output")
    if mapping is None:
        write_text(table, as_stations([(str(path), read_table(path, str(path), n)) for path in paths], n))
        return table
    read = [read_poses(path, mapping, n, tuple(joint.name for joint in robot.model.joints)) for path in paths]
    if len(read) == 1:
        write_text(table, _text(*read[0]))
    else:
        found = [MeasurementTable(q, measured, None, []) for q, measured in read]
        write_text(table, as_stations(list(zip(map(str, paths), found, strict=True)), n))
    return table


def _text(q: FloatArray, measured: FloatArray | Contacts | Distances) -> str:
    """Return a table of joint positions (N, n) and the measurements there."""
    if isinstance(measured, Contacts):
        values = measured.socket[:, None].astype(np.float64)
    elif isinstance(measured, Distances):
        values = np.column_stack((measured.length, measured.centre))
    else:
        values = measured
    return table_text(columns_of(q.shape[1], measured), np.hstack((q, values)))
