"""Spring and friction of an elastic joint, from a recording."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from drivers.files.recordings.recording import Recording
from drivers.files.recordings.span import Span
from rt_core.elastic.hysteresis import hysteresis
from rt_core.elastic.identify import ElasticFit, ElasticJoint, identify_elastic_joint
from rt_core.elastic.rows import Drive, ElasticRows, elastic_rows
from rt_core.identification.preprocess import DataError, SignalSettings
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from service.operations.elastic._prior import NoStartError, online_start, top_velocity

if TYPE_CHECKING:
    from service.operations.elastic.parameters import ElasticJointJob

FORMAT = "thetad-elastic-joint/1"
VERDICT_TEXT = {
    "ok": "spring and friction are determined",
    "partly_determined": "the stiffness is determined, but these data do not tell everything else",
    "doubtful": "the stiffness may be off by more than noise; the reasons say why",
    "not_determined": "there is no stiffness in these data; no parameters are reported",
}
_CONSTANTS = (1e-6, 1e6)  # range of torque constants [N*m/A]
_DERIVED = 1e-6  # a torque that follows the current so closely was computed from it
_FIELDS = ("value", "unit", "std", "lower", "upper", "status", "reason")


class ElasticJointError(ValueError):
    """A joint that cannot be identified as requested: reason and remedy; `parameter` is the one at fault, if any."""

    def __init__(self, message: str, parameter: str = "") -> None:
        super().__init__(f"{parameter}: {message}" if parameter else message)
        self.parameter, self.message = parameter, message


@dataclass(frozen=True)
class JointSignals:
    """Channels (N,) of one joint: angles of link and motor (motor side, zero taken off), torques of motor and sensor.

    `torque_constant` is None where the motor's torque is not from a current; `motor_offset` [rad] is the zero.
    """

    recording: Recording
    index: int
    drive: Drive
    torque_constant: float | None
    theta_out: FloatArray
    theta_in: FloatArray
    motor_torque: FloatArray
    sensor_torque: FloatArray | None
    motor_offset: float

    @property
    def name(self) -> str:
        """Name of the joint."""
        return self.recording.joint_names[self.index]

    @property
    def top_velocity(self) -> float:
        """Velocity [rad/s] that only frames with a wrong angle exceed."""
        return top_velocity(self.recording.t, self.theta_in / self.drive.gear_ratio, self.theta_out)


@dataclass(frozen=True)
class ElasticIdentification:
    """An identified stage and its input; `document` is the content of `elastic.json`."""

    found: ElasticJoint
    signals: JointSignals
    rows: ElasticRows
    document: dict[str, Any]

    @property
    def answer(self) -> ElasticFit:
        """The fit that uses all rows."""
        return self.found.answer

    @property
    def accepted(self) -> bool:
        """Whether the data determine a stiffness."""
        return self.answer.verdict != "not_determined"

    def summary(self) -> str:
        """Return the result in one line."""
        fit = self.answer
        k1 = fit["k1"]
        if k1.value is None:
            return f"{fit.verdict}: {self.signals.name}: k1: {k1.reason}"
        text = f"{fit.verdict}: {self.signals.name}: k1 {k1.value:.4g} N*m/rad, 95 % {k1.lower:.4g} to {k1.upper:.4g}"
        for lag in (q for q in fit.parameters if q.name in fit.fit.terms.lags):
            if lag.value is None:
                continue
            cause = "link encoder late by" if lag.name == "lag" else lag.name.replace("_", " ")
            text += f"; {cause} {1e3 * lag.value:.3g} ms"
        open_ = [q.name for q in fit.parameters if q.value is None]
        return text + (f"; undetermined: {', '.join(open_)}" if open_ else "")

    def table(self) -> str:
        """Return deflection and torque of every row, as CSV.

        With undetermined stiffness the deflection is the difference of the encoders, and the spring has no torque.
        """
        fit = self.answer
        known = {q.name: q.value for q in fit.parameters}
        spring = [known.get(name, 0.0) for name in ("k1", "k2")]
        sides = fit.fit.terms.sides
        deflection = fit.fit.difference if spring[0] is None else fit.fit.deflection
        lines = [",".join(("t_s", "deflection_rad", *(f"{side}_torque_nm" for side in sides), "spring_torque_nm"))]
        for t, d, torques in zip(fit.fit.rows.t, deflection, fit.fit.measured, strict=True):
            fitted = "" if None in spring else f"{spring[0] * d + spring[1] * d**3:.9g}"
            lines.append(",".join((f"{t:.9g}", f"{d:.9g}", *(f"{x:.9g}" for x in torques), fitted)))
        return "\n".join(lines) + "\n"


def identify_joint(
    p: ElasticJointJob, whole: Recording, model: RobotModel | None, *, created: str,
    progress: Callable[[float, str], None] = lambda _share, _what: None,
) -> ElasticIdentification:  # fmt: skip
    """Identify the joint `p` from a recording, with the drive from the robot `model`.

    Raises `ElasticJointError` if joint, drive or channels do not serve, or there are no rows; `SpanError` if the span
    lies outside the recording.
    """
    recording = whole.span(None if p.span is None else Span.parse(p.span))
    signals = joint_signals(p, recording, model)
    progress(0.3, "filtering")
    try:
        rows = joint_rows(p, signals)
        progress(0.5, f"fitting, stage {p.stage}")
        found = joint_fit(p, [rows])
    except DataError as error:
        raise ElasticJointError(f"{recording.path}, joint {signals.name}: {error}") from error
    return ElasticIdentification(found, signals, rows, _document(p, created, whole, signals, rows.min_velocity, found))


def joint_fit(p: ElasticJointJob, rows: Sequence[ElasticRows]) -> ElasticJoint:
    """Fit the joint from rows of recordings with the settings of `p`; `DataError` as `identify_elastic_joint`.

    Raises `ElasticJointError` if a velocity constant is given to a stage that has none.
    """
    if p.stage != "full":
        for name in ("omega1", "omega_s"):
            if getattr(p, name) != "estimate":
                raise ElasticJointError(f"is of stage full, and this is stage {p.stage}", name)
    known = {name: getattr(p, name) for name in ("lag", "zero", "omega1", "omega_s")}
    known = {name: None if value == "estimate" else value for name, value in known.items()}
    return identify_elastic_joint(
        rows, p.stage, cubic=p.cubic, lag_s=known["lag"], zero=known["zero"], omega1=known["omega1"],
        omega_s=known["omega_s"],
    )  # fmt: skip


def joint_rows(p: ElasticJointJob, signals: JointSignals) -> ElasticRows:
    """Return rows of the joint, prepared with the settings of `p`; `DataError` as `elastic_rows`."""
    recording = signals.recording
    return elastic_rows(
        recording.t, signals.theta_in, signals.theta_out, signals.motor_torque, signals.drive,
        SignalSettings(cutoff_hz=p.cutoff_hz), sensor_torque=signals.sensor_torque, min_velocity=p.min_velocity,
        smoothing=p.smoothing,
        valid=None if recording.valid is None else np.ascontiguousarray(recording.valid[:, signals.index]),
        seq=recording.seq, spans=recording.spans,
    )  # fmt: skip


def joint_signals(p: ElasticJointJob, recording: Recording, model: RobotModel | None) -> JointSignals:
    """Return channels and drive of the joint that `p` names.

    Raises `ElasticJointError` if the joint is not there or slides, a channel is missing, or the drive is not known.
    """
    j = _joint(p, recording)
    drive, constant, offset = _drive(p, recording.joint_names[j], model)
    theta_out, theta_in, motor, sensor = _channels(p, recording, j, drive.gear_ratio, constant)
    return JointSignals(recording, j, drive, constant, theta_out, theta_in - offset, motor, sensor, offset)


def _joint(p: ElasticJointJob, recording: Recording) -> int:
    """Return the index of the joint in the recording."""
    names = recording.joint_names
    if isinstance(p.joint, int):
        if p.joint > len(names):
            raise ElasticJointError(f"{p.joint} of a recording of {len(names)} joints; they count from 1", "joint")
        j = p.joint - 1
    elif p.joint in names:
        j = names.index(p.joint)
    else:
        raise ElasticJointError(f"the recording has no joint {p.joint!r}; it has {', '.join(names)}", "joint")
    if recording.units[j] != "rad":
        raise ElasticJointError(f"{names[j]} slides; only the stiffness of joints that turn can be identified", "joint")
    return j


def _drive(p: ElasticJointJob, name: str, model: RobotModel | None) -> tuple[Drive, float | None, float]:
    """Return drive, torque constant or None, and the motor's angle where the joint's is zero."""
    ratio, constant, inertia, offset = p.gear_ratio, p.torque_constant, p.rotor_inertia, 0.0
    if model is not None:
        known = [joint.name for joint in model.joints]
        if name not in known:
            raise ElasticJointError(f"{model.name} has no joint {name}; it has {', '.join(known)}", "robot")
        i = known.index(name)
        gears = model.transmission
        if gears is not None:
            coupled = [k for k in range(model.n) if k != i and gears.matrix[i, k] != 0.0]
            coupled += [k for k in range(model.n) if k != i and gears.matrix[k, i] != 0.0]
            if coupled:
                raise ElasticJointError(
                    f"motor and joint {name} are coupled with {', '.join(sorted({known[k] for k in coupled}))}: the "
                    "deflection of one spring cannot be determined there",
                    "robot",
                )
            ratio = float(gears.matrix[i, i]) if ratio is None else ratio
            constant = float(gears.torque_constant[i]) if constant is None and gears.known else constant
            offset = float(gears.offset[i])
        if inertia is None and model.dynamics is not None and ratio and model.dynamics.armature[i] > 0.0:
            inertia = float(model.dynamics.armature[i]) / ratio**2
    if ratio is None:
        raise ElasticJointError("is not given, nor is there a robot whose file has a [transmission]", "gear_ratio")
    try:
        return Drive(ratio, inertia), constant, offset
    except DataError as error:
        raise ElasticJointError(str(error)) from error


def _channels(
    p: ElasticJointJob, recording: Recording, j: int, ratio: float, constant: float | None
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray | None]:
    """Return angles of link and motor, motor torque on the motor side, torque of the sensor or None."""
    channels = recording.channels
    there = f"it has {', '.join(channels)}"
    for name, what in (("q", "the angle of the link"), ("q_motor", "the angle of the motor")):
        if name not in channels or not np.isfinite(channels[name][:, j]).any():
            raise ElasticJointError(
                f"{recording.path}: no channel {name}, {what}, for joint {recording.joint_names[j]}; {there}. The "
                "deflection is the difference of the two encoders: record both"
            )
    sensor = None
    if p.sensor:
        if "tau" not in channels:
            raise ElasticJointError(
                f"{recording.path}: no channel tau for the torque sensor that `sensor` speaks of; {there}"
            )
        sensor = channels["tau"][:, j]
    if "current" in channels:
        current = channels["current"][:, j]
        if constant is None:
            raise ElasticJointError(
                "is not given, nor is there a robot whose file has one: what is the current?", "torque_constant"
            )
        low, high = _CONSTANTS
        if not low <= abs(constant) <= high:
            raise ElasticJointError(f"{constant:g} N*m/A; give a number of size {low:g} to {high:g}", "torque_constant")
        with np.errstate(over="ignore"):  # impossible values are reported with the rows
            motor = constant * current
        if sensor is not None and _follows(sensor, current):
            raise ElasticJointError(
                f"{recording.path}: tau is the current times a constant: no torque sensor; leave `sensor` out"
            )
    elif sensor is not None:
        raise ElasticJointError(
            f"{recording.path}: no channel current: with `sensor` it tells the motor's torque; {there}"
        )
    elif "tau" in channels:
        motor = channels["tau"][:, j] / ratio
    else:
        raise ElasticJointError(
            f"{recording.path}: no channel current or tau: one of them must tell the motor's torque; {there}"
        )
    return channels["q"][:, j], channels["q_motor"][:, j], motor, sensor


def _follows(sensor: FloatArray, current: FloatArray) -> bool:
    """Return whether the sensor's torque is the current times a constant."""
    both = np.isfinite(sensor) & np.isfinite(current)
    x, y = current[both], sensor[both]
    if not (x.any() and y.any()):
        return False
    x, y = x / np.abs(x).max(), y / np.abs(y).max()
    return bool(np.abs(y - x * (x @ y) / (x @ x)).max() <= _DERIVED * np.abs(y).max())


def _document(
    p: ElasticJointJob, created: str, recording: Recording, signals: JointSignals, min_velocity: float,
    found: ElasticJoint,
) -> dict[str, Any]:  # fmt: skip
    fits = [fit_document(fit) for fit in found.fits]
    drive = signals.drive
    constants = ("omega1", "omega_s") if found.stage == "full" else ()
    return {
        "format": FORMAT, "created": created, "robot": recording.robot, "joint": signals.name,
        "convention": "deflection = theta_in/gear_ratio - theta_out + zero; spring torque = k1*d + k2*d^3 on the link",
        "data": {"sha256": recording.sha256, "span": "0:1" if p.span is None else p.span},
        "drive": {
            "gear_ratio": drive.gear_ratio,
            "torque_constant": signals.torque_constant,
            "rotor_inertia": drive.rotor_inertia,
        },
        "settings": {
            **{name: getattr(p, name) for name in ("sensor", "cubic", "lag", "zero", "cutoff_hz", "smoothing")},
            **{name: getattr(p, name) for name in constants},
            "min_velocity": min_velocity,
        },
        "stage": found.stage, **fits[-1], "other_fits": fits[:-1],
        "online_start": _online_start(p, signals, min_velocity, found),
    }  # fmt: skip


def _online_start(
    p: ElasticJointJob, signals: JointSignals, min_velocity: float, found: ElasticJoint
) -> dict[str, Any]:
    """Return the start of a daemon's estimate, or the `reason` why there is none."""
    try:
        return online_start(
            found, motor_offset=signals.motor_offset, cutoff_hz=p.cutoff_hz, min_velocity=min_velocity,
            smoothing=p.smoothing, top_velocity=signals.top_velocity,
        ).model_dump()  # fmt: skip
    except NoStartError as error:
        return {"reason": str(error)}


def fit_document(fit: ElasticFit) -> dict[str, Any]:
    """Return a fit as plain data."""
    sides = fit.fit.terms.sides
    return {
        "rows": fit.rows, "verdict": fit.verdict, "reasons": list(fit.reasons),
        "parameters": {q.name: {k: getattr(q, k) for k in _FIELDS} for q in fit.parameters},
        "relative_error": fit.metrics.relative_error,
        "rmse_nm": dict(zip(sides, fit.metrics.rmse.tolist(), strict=True)),
        "hysteresis_nm": {
            side: None if loop is None else {"half_width": loop.half_width, "std": loop.std}
            for side, loop in zip(sides, hysteresis(fit.fit), strict=True)
        },
        "spring_share": fit.fit.share, "row_count": int(fit.fit.deflection.size),
        "scaled_condition_number": fit.fit.solution.scaled_condition_number,
        "inflation": dict(zip(sides, fit.fit.uncertainty.inflation.tolist(), strict=True)),
    }  # fmt: skip
