"""The functions of `thetad`: from recordings and tables to results, and to a running daemon.

Options of operations are those of the command of the same name, called as the parameters of its job (`thetad jobs
kinds`): numbers, texts, lists and maps.  An unknown one, or one out of range, is refused with `OperationError`.
"""

from __future__ import annotations

import base64
import json
import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from drivers.files.atomic_write import write_bytes, write_text
from drivers.files.importing.importer import DataError, load_data, parse_mapping
from drivers.files.recordings.recording import Recording, RecordingMeta, read_recording
from drivers.files.robots.file import RobotFile, load_robot
from drivers.frame import CHANNELS
from rt_core.model.base import link_torque
from rt_core.model.ranges import LEAVES
from rt_core.model.regressor import regressor
from rt_core.types import FloatArray
from service.client import ESTIMATES, ClientKey, Subscriber
from service.io.toml_text import toml_text
from service.models.document import ModelFile, load_model, model_from_document, model_text
from service.models.export_code import to_code
from service.models.export_urdf import to_mjcf, to_ros2, to_sdf, to_urdf
from service.operations.inputs import span_of
from service.operations.kind import Kind
from service.protocol.json_values import json_values

File = str | Path
_FIGURE = re.compile(r'<img alt="[^"]*" src="data:image/png;base64,([^"]+)"')
#: SI units of a revolute and of a prismatic joint.
_POSITION = ("rad", "m")
_UNITS = {"dq": ("rad/s", "m/s"), "tau": ("N*m", "N"), "current": ("A", "A"), "temperature": ("degC", "degC")}


def _table(rows: list[dict[str, Any]]) -> Any:
    """Return rows as a DataFrame where pandas is installed, else a copy of them."""
    try:
        from pandas import DataFrame
    except ImportError:
        return [dict(row) for row in rows]
    return DataFrame(rows)


class Model:
    """An identified model, from `identify` or a model file (.yaml); `ModelFileError` if it cannot be read.

    Where its joints are elastic, `regressor`, `torque` and exports have the motors move as the links do.
    `theta` (p,) are the base parameters `names`, with `covariance` (p, p); both cannot be written to, and are NaN where
    `parameters` has no value or no standard deviation.  `file` has everything of it, also what torque is computed with.
    """

    def __init__(self, source: File | ModelFile | Model) -> None:
        given = source.file if isinstance(source, Model) else source
        self.file: ModelFile = given if isinstance(given, ModelFile) else load_model(given)
        self.names, self.verdict = self.file.base.names, str(self.file.document["verdict"])
        rows = self.file.document["parameters"]
        known, sure = (np.array([row[key] is not None for row in rows]) for key in ("value", "std"))
        self.theta: FloatArray = np.where(known, self.file.theta, np.nan)
        self.covariance: FloatArray = np.where(np.outer(known & sure, known & sure), self.file.covariance, np.nan)
        for array in (self.theta, self.covariance):
            array.setflags(write=False)

    @property
    def parameters(self) -> Any:
        """Base parameters: a DataFrame where pandas is installed, else a list of rows."""
        return _table(self.file.document["parameters"])

    def regressor(
        self, q: ArrayLike, dq: ArrayLike, ddq: ArrayLike, temperature: ArrayLike | None = None
    ) -> FloatArray:
        """Return the base regressor (N, n, p) at states (N, n) [rad or m, and their rates]: `tau = Y @ file.theta`.

        A model whose friction follows temperature needs that of the joints (N, n) [degC].
        """
        model, base = self.file.robot.model, self.file.base
        states = [np.atleast_2d(np.asarray(x, dtype=np.float64)) for x in (q, dq, ddq)]
        if any(x.shape != states[0].shape or x.shape[1] != model.n for x in states):
            raise ValueError(f"q, dq, ddq: expected shape (N, {model.n}) each, not {[x.shape for x in states]}")
        load = link_torque(model, base, self.file.theta, *states) if base.layout.has_load else None
        warm = None if temperature is None else np.asarray(temperature, dtype=np.float64)
        return regressor(model, base.layout, *states, load=load, temperature=warm)

    def torque(self, q: ArrayLike, dq: ArrayLike, ddq: ArrayLike, temperature: ArrayLike | None = None) -> FloatArray:
        """Return the joint torque (N, n) [N*m or N] at states (N, n), or (n,) at one state (n,).

        Warns beyond speeds and temperatures that friction was identified at, as the module of `to_python` does.
        """
        tau = np.asarray(self.regressor(q, dq, ddq, temperature) @ self.file.theta)
        for text in self._beyond(np.atleast_2d(np.asarray(dq, dtype=np.float64)), temperature):
            warnings.warn(text, stacklevel=2)
        return tau[0] if np.ndim(q) == 1 else tau

    def _beyond(self, dq: FloatArray, temperature: ArrayLike | None) -> Iterator[str]:
        """Yield what `torque` of the exported module says, once for all states."""
        ranges, seen, where = self.file.ranges, self.file.temperatures, "where its friction was identified"
        if ranges is not None:
            for joint, (v, limit) in enumerate(zip(np.fmax.reduce(np.abs(dq), initial=0.0), ranges.speed, strict=True)):
                if limit > 0.0 and v > LEAVES * limit:
                    yield f"joint {joint + 1} is faster than {LEAVES:g} x {limit:.3g}, {where}"
        if seen is not None and temperature is not None:
            lower, upper = seen.plain
            outside = seen.outside(np.atleast_2d(np.asarray(temperature, dtype=np.float64)))
            for joint in map(int, np.flatnonzero(outside.any(axis=0))):
                yield f"joint {joint + 1} is outside {lower[joint]} to {upper[joint]} degC, {where}"

    def to_urdf(self, into: File | None = None, *, allow_impossible: bool = False) -> str:
        """Return a URDF with the identified links and friction; `into`, a file, is one in which they are replaced.

        Warns where no possible links have the model's torque: the nearest are written, or with `allow_impossible` links
        that are not possible.
        """
        given = None if into is None else Path(into).read_bytes().decode()
        return self._described(to_urdf(self.file, given, allow_impossible=allow_impossible))

    def to_mjcf(self) -> str:
        """Return an MJCF for MuJoCo with the identified links, rotor inertia and friction; warns as `to_urdf`."""
        return self._described(to_mjcf(self.file))

    def to_sdf(self) -> str:
        """Return an SDF for Gazebo and Drake with the identified links and friction; warns as `to_urdf`."""
        return self._described(to_sdf(self.file))

    def to_ros2(self) -> str:
        """Return ROS 2 parameters for `inverse_dynamics_solver`, with the URDF; warns as `to_urdf`."""
        return self._described(to_ros2(self.file))

    def _described(self, found: tuple[str, list[str]]) -> str:
        text, told = found
        for warning in told:
            warnings.warn(warning, stacklevel=3)
        return text

    def to_python(self) -> str:
        """Return a module with `torque(q, dq, ddq)` that needs nothing but Python."""
        return to_code(self.file, "python")

    def to_c(self) -> str:
        """Return C99 source with `thetad_torque(q, dq, ddq, tau)`, which allocates nothing."""
        return to_code(self.file, "c")

    def to_structured_text(self) -> str:
        """Return a function block `FB_ThetaTorque` in Structured Text (IEC 61131-3), for a PLC."""
        return to_code(self.file, "st")

    def to_casadi(self) -> str:
        """Return a module with the `casadi.Function`s `torque` and `regressor`; it needs CasADi."""
        return to_code(self.file, "casadi")

    def save(self, path: File) -> None:
        """Write the model file (.yaml)."""
        write_text(Path(path), model_text(self.file.document))

    def __repr__(self) -> str:
        return f"Model of {self.file.robot.model.name}: {len(self.names)} base parameters, {self.verdict}"


class Picture(bytes):
    """The bytes of an image (.png), which a notebook shows."""

    def _repr_png_(self) -> bytes:
        return self


@dataclass(repr=False, eq=False)
class Result:
    """A result: `verdict` is one word, `reasons` say why, `summary` is what the command prints with `--json`.

    `html()` is its report, a self-contained page; `found` has everything of it.
    """

    verdict: str
    reasons: tuple[str, ...]
    summary: dict[str, Any]
    found: Any
    html: Callable[[], str]

    def plot(self, figure: int = 0) -> Picture:
        """Return one of the figures of the report, in its order."""
        return Picture(base64.b64decode(_FIGURE.findall(self.html())[figure]))

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.html())}" width="100%" height="600"></iframe>'

    def __repr__(self) -> str:
        return "\n".join((f"{type(self).__name__}: {self.verdict}", *(f"  - {reason}" for reason in self.reasons)))


class Validation(Result):
    """A validation: `found.result` has torque, prediction and states at the rows."""

    @property
    def relative_error(self) -> float:
        """2-norm of the torque's error over that of the torque, all joints stacked."""
        return float(self.found.result.metrics.relative_error)

    def __repr__(self) -> str:
        return f"{super().__repr__()}\n  relative torque error {100 * self.relative_error:.2f} %"


class Identification(Validation):
    """An identification, with its error on the data of the fit."""

    @cached_property
    def model(self) -> Model:
        """The model; `ValueError` if it does not explain the recording."""
        if not self.found.accepted:
            raise ValueError(f"the model does not explain the recording: {'; '.join(self.reasons)}")
        return Model(model_from_document(Path("model.yaml"), self.found.document))


class Payload(Result):
    """A payload."""

    @property
    def quantities(self) -> Any:
        """Mass, centre of mass and inertia about it: a DataFrame where pandas is installed, else a list of rows."""
        return _table([vars(quantity) for quantity in self.found.quantities])


class Files(Result):
    """A result whose `found` are the files of the command, by name."""

    def save(self, folder: File) -> None:
        """Write the files of the command into a folder that exists."""
        for name, content in self.found.items():
            write_bytes(Path(folder, name), content)


class Calibration(Files):
    """A kinematic calibration."""

    @property
    def parameters(self) -> Any:
        """Corrections of the geometry: a DataFrame where pandas is installed, else a list of rows."""
        return _table(self.summary["parameters"])


class Excitation(Files):
    """A designed trajectory."""

    @property
    def trajectory(self) -> dict[str, FloatArray]:
        """One period: `t` (N,) [s], and `q`, `dq`, `ddq` (N, n)."""
        rows = np.loadtxt(StringIO(self.found["trajectory.csv"].decode()), delimiter=",", skiprows=1)
        return {"t": rows[:, 0], **dict(zip(("q", "dq", "ddq"), np.split(rows[:, 1:], 3, axis=1), strict=True))}


def import_table(
    data: Mapping[str, Any] | File, mapping: File | None = None, *, robot: RobotFile | File | None = None
) -> Recording:
    """Return a log as a recording, checked as `thetad import` does.

    `data` is a file (CSV, NPZ, MAT, MCAP ...), a DataFrame, or a map of arrays; `mapping` the file, or the name of one,
    that says what its columns are (docs/recordings.md); `robot` takes the place of the one that it names.  Without it
    `data` is no file, and the columns are `t` (N,) [s] and those of `q`, `dq`, `tau`, `current`, `q_motor`,
    `temperature` and `setpoint` that were measured, arrays (N, n) or columns `q1` to `qn`, of the joints of `robot`, in
    SI units on the joint side.  Others are left out.  What an import says beside an error is a warning.
    """
    known, chosen = None if robot is None else _robot(robot), mapping
    if not isinstance(data, str | Path):
        data = {str(name): data[name] for name in data.keys()}  # noqa: SIM118 - a DataFrame, too
        chosen = _by_channel(data, known) if mapping is None and known is not None else mapping
    if chosen is None:
        raise ValueError("mapping is missing: robot alone does for columns in SI of a table in memory, not for a file")
    recording, found = load_data(data, chosen, robot=known)
    for text in found["warnings"]:
        warnings.warn(text, stacklevel=2)
    return recording


def simulate(
    robot: RobotFile | File, seconds: float = 60.0, *, trajectory: Excitation | None = None, seed: int = 1,
    **settings: Any,
) -> Recording:  # fmt: skip
    """Return the recording of a simulated arm that repeats a designed trajectory, or a motion drawn by `seed`.

    The robot needs masses.  Settings are those of a simulated arm in a configuration (docs/simulated-arm.md):
    `rate_hz`, `torque_noise`, `encoder_bits`, `channels`, `events` and others.
    """
    from sim_backend.arm.robot import SimulatedArm
    from sim_backend.arm.settings import MotionSettings, SimSettings
    from sim_backend.arm.trajectory import series_motion

    model = _robot(robot).model
    options = SimSettings.model_validate({"seed": seed, "channels": ("q", "dq", "tau"), **settings})
    known = {} if trajectory is None else json.loads(trajectory.found["trajectory.json"])
    series = (np.array(known.get(name)) for name in ("q0", "a", "b"))
    motion = series_motion(known["f0_hz"], *series) if known else MotionSettings(seed=seed)
    data = SimulatedArm(model, options, motion).simulate(seconds)
    names, units = zip(*((joint.name, _POSITION[joint.kind != "revolute"]) for joint in model.joints), strict=True)
    meta = RecordingMeta(model.name, names, units, options.rate_hz, "sim", "sim")
    return Recording(data.t, np.round(data.t * 1e9).astype(np.int64), np.arange(data.t.size), data.channels, meta)


def identify(
    recording: Recording | File, robot: RobotFile | File, *, method: str = "wls", span: str | None = None,
    **options: Any,
) -> Identification:  # fmt: skip
    """Fit the dynamic model of a robot to a recording of joint position and torque.

    `method` is the estimator, `span` the part to use: fractions (`"0:0.6"`) or seconds (`"1s:30s"`).  Options are
    `cutoff_hz`, `rate_hz`, `min_velocity`, `essential`, `prior` and others, as of `thetad identify`.
    """
    from service.jobs.kinds.identify import KIND, best_seed, identified, tried, with_joints

    p = KIND.read(_plain({**options, "recording": "a recording", "method": method, "span": span}))
    arm, data = _robot(robot), _recording(recording)

    def fit(seed: int) -> Any:
        return identified(p.model_copy(update={"seed": seed}), arm, data, lambda *_: None)

    # As in the job the best search is repeated: all of them together would take the memory of each.
    searches = [tried(k, fit(k)) for k in range(p.seed, p.seed + p.multi_start)] if p.multi_start > 1 else []
    report = with_joints(p, fit(best_seed(p, searches) if searches else p.seed))
    found, summary = report.result, report.summary() | ({"multi_start": searches} if searches else {})
    return Identification(found.verdict, found.reasons, json_values(summary), report, report.html)


def validate(model: Model | File, recording: Recording | File, *, span: str | None = None) -> Validation:
    """Compare the torque of a model with that of a recording, or a span of one, that it was not fitted to."""
    from service.reports.validation import report_validation

    report = report_validation(Model(model).file, _recording(recording), span_of(span))
    found = report.result
    return Validation(found.verdict, found.reasons, json_values(report.summary()), report, report.html)


def payload(
    model: Model | File, recording: Recording | File, *, span: str | None = None, refit_effects: bool = False,
    torque_std: float = 0.0, known_mass: float | None = None,
) -> Payload:  # fmt: skip
    """Find mass, centre of mass and inertia of a payload from a recording with it and the model of the arm without.

    With `refit_effects` friction, rotor inertia and offsets may differ between the two.  `torque_std` is the relative
    standard deviation of the torque's scale; `known_mass` [kg], by weighing, tells the factor of the torque.
    """
    from service.operations.payload import payload_in_recording, with_torque_scale
    from service.reports.payload import payload_page, payload_summary

    before, loaded, part = Model(model).file, _recording(recording), span_of(span)
    found = payload_in_recording(before, loaded, span=part, refit_effects=refit_effects)
    found, path = with_torque_scale(found, torque_std, known_mass), loaded.path or Path("a recording")
    summary = payload_summary(found, before, path, part, refit_effects)
    return Payload(found.verdict, found.reasons, json_values(summary), found, lambda: payload_page(found, before, path))


def calibrate(measurements: Mapping[str, Any] | File, robot: RobotFile | File, **options: Any) -> Calibration:
    """Find the geometric errors of an arm from measured poses.

    `measurements` is a table (.csv), a DataFrame or a map of columns: `q1` to `qn` [rad or m], and `x`, `y`, `z` [m],
    `distance` [m] or `socket` (docs/calibration.md).  Options are `method`, `robust`, `base`, `tool` and others.
    """
    from service.jobs.kinds.calibrate import KIND

    with tempfile.TemporaryDirectory() as folder:
        tables = {"measurements": measurements, "check": options.get("check")}
        inputs = {name: _file(table, Path(folder, name)) for name, table in tables.items() if table is not None}
        return Calibration(*_run(KIND, robot, {**options, **inputs}))


def excite(robot: RobotFile | File, **options: Any) -> Excitation:
    """Design a trajectory on which the parameters of a robot show well, within the limits of its joints.

    Options are `objective`, `harmonics`, `period_s`, `starts`, `workspace` and others, as of `thetad excite`.
    """
    from service.jobs.kinds.excite import KIND

    return Excitation(*_run(KIND, robot, options))


def run(kind: str, robot: RobotFile | File | None = None, **parameters: Any) -> Files:
    """Do a job of any kind here, as `thetad jobs run` (`thetad jobs kinds`); recordings and models are files."""
    from service.jobs.kinds import find_kind

    return Files(*_run(find_kind(kind), robot, parameters))


def connect(
    topics: Iterable[str] = ("",), endpoint: str = ESTIMATES, *, timeout_s: float = 5.0,
    key: ClientKey | File | None = None,
) -> Subscriber:  # fmt: skip
    """Listen to `topics` of a running daemon (docs/wire.md), such as `arm/estimate`; by default to all of the endpoint.

    After `timeout_s` without a message `ClientTimeoutError` is raised; `key` is that of a daemon that requires one.
    """
    return Subscriber(endpoint, topics, timeout_s, key=key)


def _robot(robot: RobotFile | File) -> RobotFile:
    return robot if isinstance(robot, RobotFile) else load_robot(robot)


def _recording(recording: Recording | File) -> Recording:
    return recording if isinstance(recording, Recording) else read_recording(recording)


def _file(table: Mapping[str, Any] | File, path: Path) -> Path:
    """Return the file of measurements; those in memory are written to `path`, with all digits."""
    if isinstance(table, str | Path):
        return Path(table)
    rows = np.column_stack([np.asarray(table[name], dtype=np.object_) for name in table.keys()])  # noqa: SIM118
    np.savetxt(path, rows, "%s", ",", header=",".join(map(str, table.keys())), comments="", encoding="utf-8")
    return path


def _plain(options: Mapping[str, Any]) -> Any:
    """Return options as JSON values, but NaN and infinity as they are, for no parameter takes them."""
    return json.loads(json.dumps(options, default=lambda x: x.tolist() if hasattr(x, "tolist") else str(x)))


def _run(
    kind: Kind[Any], robot: RobotFile | File | None, options: Mapping[str, Any]
) -> tuple[str, tuple[str, ...], dict[str, Any], dict[str, bytes], Callable[[], str]]:
    """Run a job and return what a `Result` has."""
    arm = {} if robot is None else {"robot": json.dumps(_robot(robot).source)}
    given = kind.read(_plain({**options, **arm}))
    with tempfile.TemporaryDirectory() as folder:
        outcome = kind.run_here(given, Path(folder))
        files = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    reasons = (*outcome.metrics.get("reasons", ()), *outcome.metrics.get("doubts", ()))
    return outcome.verdict, reasons, outcome.metrics, files, files.get("report.html", b"").decode


def _by_channel(names: Mapping[str, Any], robot: RobotFile) -> Any:
    """Return the mapping of `t` and channels, arrays or columns `q1` to `qn`."""
    slides = [joint.kind != "revolute" for joint in robot.model.joints]
    content: dict[str, Any] = {"format": 1, "name": "table", "missing": "mask", "time": {"column": "t"}}
    for channel in CHANNELS:
        wanted = [f"{channel}{k + 1}" for k in range(len(slides))]
        given = [name for name in names if re.fullmatch(rf"{channel}[0-9]+", name)]
        wrong = [f"there is no {name}" for name in wanted if name not in given]
        wrong += [f"{name} is none of them" for name in given if name not in wanted]
        if channel not in names and given and wrong:
            raise DataError(f"columns of {channel} are {wanted[0]} to {wanted[-1]}: {', '.join(wrong)}")
        if channel in names or given:
            units = [_UNITS.get(channel, _POSITION)[slide] for slide in slides]
            content[channel] = {"columns": channel if channel in names else wanted, "unit": units}
    return parse_mapping(toml_text(content).encode())
