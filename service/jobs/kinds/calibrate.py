"""Kinematic calibration of an arm from a table of postures and measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rt_core.calibration.settings import CalibrationError, CalibrationSettings, FitSettings, Method
from service.operations.errors import OperationError
from service.operations.kind import Kind, Outcome, Parameters
from service.operations.parameter_types import Positive, Reference, RobotText, Seed, option, settings_in
from service.operations.workspace import Workspace
from service.protocol.json_values import json_values

if TYPE_CHECKING:
    from drivers.files.robots.file import RobotFile
    from rt_core.calibration.result import Accuracy, Calibration
    from rt_core.calibration.sample import Contacts, Distances
    from rt_core.types import BoolArray, FloatArray
    from service.operations.calibration.table import MeasurementTable

Socket = Annotated[int, Field(ge=0, le=1_000_000)]


class CalibrateJob(Parameters, FitSettings):
    """Which arm, what was measured, and what of it is unknown.

    `measurements` is a table of comma-separated values whose first line names the columns: `q1` to `qn`, joint
    positions [rad] or [m]; and what was measured, one of

    - `x`, `y`, `z`, position [m], and where orientation was measured `qx`, `qy`, `qz`, `qw`, a unit quaternion, or
      where several points on the tool were measured in turns, `head`, the number of the one; where the instrument was
      moved, `station`, the number of its place;
    - `distance` [m] from a fixed point, and if there are several, `centre`, its number;
    - `socket`, the number of the one in which the ball at the tool sat.

    `FitSettings` explains the settings of the fit; without a measuring frame `base` says nothing, and joints give way
    by the masses of the robot file.  `spacings` are distances between sockets, each `[number, number, metres]`, known
    to `spacing_std` [m].  `train_share` of the distinct postures, drawn with `seed`, are fitted, the others test the
    result; or with `train_sockets` the poses in these sockets.  `priors` are standard deviations by name.  `check` is
    another table of the same arm: the errors of the nominal and of the corrected arm there, base and tool fitted again.
    """

    robot: RobotText | None = None
    measurements: Reference
    check: Reference | None = option(None, "another table of the arm: errors there, base and tool fitted again", "FILE")
    method: Method = option("lm", "solver")
    robust: bool = option(False, "poses that do not fit lose weight")
    spacings: Annotated[list[tuple[Socket, Socket, Positive]], Field(max_length=1000)] = Field(default=[])
    spacing_std: Positive = 1e-4
    excluded: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(max_length=1000)] = ()
    train_share: Annotated[float, Field(gt=0.0, le=1.0)] = 0.8
    train_sockets: Annotated[list[Socket], Field(max_length=1000)] = Field(default=[])
    seed: Seed = option(0, "of the test poses, and of swarms", "N")
    priors: Annotated[dict[str, Positive], Field(max_length=1000)] = Field(default={})

    def settings(self) -> CalibrationSettings:
        """Return the settings of the fit."""
        return settings_in(self, CalibrationSettings, priors=tuple(self.priors.items()))


_NOT_SETTINGS = ("robot", "measurements", "check")
#: Names of all files that a calibration can write.
FILES = ("calibration.json", "residuals.csv", "report.html", "calibrated.urdf", "calibrated_dh.csv")


def clear(folder: Path) -> None:
    """Remove the files of an earlier calibration from a folder."""
    for name in FILES:
        (folder / name).unlink(missing_ok=True)


def _run(p: CalibrateJob, ws: Workspace) -> Outcome:
    return calibrated_arm(p, ws)[1]


def calibrated_arm(p: CalibrateJob, ws: Workspace) -> tuple[Calibration, Outcome]:
    """Calibrate one arm and write the results; `OperationError` if table or parameters do not allow it."""
    from rt_core.calibration.calibrate import calibrate
    from service.operations.calibration.document import calibration_document, residual_table, summary
    from service.operations.calibration.export import calibrated_dh, calibrated_urdf
    from service.operations.calibration.nominal_geometry import gravity_load, nominal_geometry
    from service.operations.calibration.table import read_table
    from service.operations.inputs import open_robot
    from service.reports.calibration import calibration_html

    robot = open_robot(p.robot)
    clear(ws.folder)
    geometry = nominal_geometry(robot)
    ws.progress(0.0, "reading the measurements")
    where = f"measurements: {ws.inputs['measurements'].label}" if "measurements" in ws.inputs else "measurements"
    path = ws.path("measurements")
    table = read_table(path, where, geometry.n)
    measured = _with_spacings(p, table, where)
    use = _training(p, table, where)
    load = gravity_load(robot.model, table.q) if p.compliance else None
    try:
        found = calibrate(
            geometry, table.q, measured, p.settings(), use=use, load=load, head=table.head, station=table.station,
            on_progress=lambda share, what: ws.progress(share, what),
        )  # fmt: skip
        elsewhere = None if p.check is None else _elsewhere(found, p, ws, robot)
    except CalibrationError as error:
        raise OperationError(f"{where}: {error}") from None
    given = {name: getattr(p, name) for name in CalibrateJob.model_fields if name not in _NOT_SETTINGS}
    metrics = json_values(calibration_document(found, robot, table, given, ws, elsewhere))
    ws.write_json("calibration.json", metrics)
    ws.write("residuals.csv", residual_table(found, use, table.lines))
    ws.write("report.html", calibration_html(found, metrics, found.predict(table.q, load, table.head)[0], use))
    if metrics["geometry"] is not None:
        ws.write("calibrated.urdf", calibrated_urdf(robot.model, found))
        rows = calibrated_dh(found)
        if rows is not None:
            ws.write("calibrated_dh.csv", rows)
    return found, Outcome(found.verdict, summary(found), metrics, found.verdict == "ok")


def _elsewhere(found: Calibration, p: CalibrateJob, ws: Workspace, robot: RobotFile) -> Accuracy:
    """Return the errors on the table `check`."""
    from rt_core.calibration.checking import errors_elsewhere
    from service.operations.calibration.nominal_geometry import gravity_load
    from service.operations.calibration.table import read_table

    where = f"check: {ws.inputs['check'].label}"
    table = read_table(ws.path("check"), where, robot.model.n)
    load = gravity_load(robot.model, table.q) if p.compliance else None
    if table.head is not None or table.station is not None:
        raise OperationError(f"{where}: has columns head or station: check with one point from one place")
    try:
        return errors_elsewhere(found, table.q, table.measured, p.settings(), load)
    except CalibrationError as error:
        raise OperationError(f"{where}: {error}") from None


def _with_spacings(p: CalibrateJob, table: MeasurementTable, where: str) -> FloatArray | Contacts | Distances:
    """Return the measurements, with the sockets' spacings by the numbers of the table."""
    from rt_core.calibration.sample import Contacts, Spacing

    if not p.spacings:
        return table.measured
    if not isinstance(table.measured, Contacts):
        raise OperationError(f"spacings: {where} has no column socket: leave spacings out")
    order = {number: k for k, number in enumerate(table.known_numbers)}
    for one, other, _ in p.spacings:
        for number in (one, other):
            if number not in order:
                raise OperationError(f"spacings: {where} has no pose in socket {number}")
    known = [Spacing(order[one], order[other], distance, p.spacing_std) for one, other, distance in p.spacings]
    return Contacts(table.measured.socket, known)


def _training(p: CalibrateJob, table: MeasurementTable, where: str) -> BoolArray:
    """Return which poses to fit (N,)."""
    import numpy as np

    from rt_core.calibration.repeats import distinct_postures
    from rt_core.calibration.sample import Distances

    if p.train_sockets:
        if isinstance(table.measured, Distances):
            raise OperationError(
                f"train_sockets: {where} has distances, and where a centre is only fitted poses show: use train_share"
            )
        if table.numbers is None:
            raise OperationError(f"train_sockets: {where} has no column socket: use train_share")
        missing = sorted(set(p.train_sockets) - set(table.known_numbers))
        if missing:
            raise OperationError(f"train_sockets: {where} has no pose in socket {missing[0]}")
        return np.isin(table.numbers, p.train_sockets)
    posture = distinct_postures(table.q)  # repeats of a fitted posture would test nothing
    postures = int(posture.max()) + 1
    use = np.zeros(postures, dtype=np.bool_)
    use[np.random.default_rng(p.seed).permutation(postures)[: max(1, round(p.train_share * postures))]] = True
    return np.asarray(use[posture])


KIND = Kind(
    "calibrate", "geometric errors of an arm from measured positions, poses or distances, or a ball in sockets",
    CalibrateJob, _run, recordings=("measurements", "check"),
)  # fmt: skip
