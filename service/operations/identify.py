"""Identification of a model from a recording and a robot file, and validation of a model on a recording.

The only place where files meet the numerics of `rt_core.identification`; commands, jobs and the demonstration use it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from drivers.files.importing.checks import velocity_ratio
from drivers.files.recordings.recording import Recording, Span
from drivers.files.robots.file import RobotFile
from rt_core.channels import velocity_relation
from rt_core.identification.estimate import EstimatorOptions, disturb, estimate
from rt_core.identification.identify import EXPLAINED_LIMIT, RELATIVE_ERROR_LIMIT, Identification, identify, weighs
from rt_core.identification.periods import average_periods
from rt_core.identification.preprocess import DataError, Signals, SignalSettings, prepare
from rt_core.identification.rows import Rows, build_rows
from rt_core.identification.status import parameter_status
from rt_core.identification.temperature import outside_reasons, share_outside
from rt_core.model.base import BaseParameters, base_parameters
from rt_core.model.frames import inertial_in_frames_of
from rt_core.model.robot import RobotModel
from rt_core.model.temperature import TemperatureRange
from rt_core.optimise.run import Callback
from rt_core.types import FloatArray
from rt_core.validation import Metrics, torque_metrics
from service.models.origin import Dataset

#: Channels whose values repeat with the motion; a temperature, for one, does not.
_CHANNELS = ("q", "dq", "current", "tau", "q_motor", "setpoint")
#: A position this far outside its limits (in ranges of the joint) indicates a wrong unit.
_LIMIT_SLACK = 1.0
#: A revolute joint without limits that turns further than this indicates a wrong unit [rad]; as at import.
_MAX_RADIANS = 20.0 * np.pi
#: Torque beyond this many times the effort limit indicates a wrong unit.
_EFFORT_SLACK = 3.0
#: Velocity and the change of position that correlate like this are the same signal, whatever their units.
_SAME_SIGNAL = 0.9
#: A validation error above this many times the identification's gets the verdict worse than the fit.
WORSE_LIMIT = 2.5

ValidationVerdict = Literal["ok", "worse_than_fit", "outside_temperatures", "not_explained"]


def average_recording(recording: Recording, period_s: float) -> Recording:
    """Return one period of `recording`, each sample the mean over all whole periods in which the motion repeats.

    Raises `DataError` if samples are missing or invalid, or there are no two whole periods.
    """
    valid = None if recording.valid is None else np.asarray(recording.valid.all(axis=1))
    channels = {
        name: values if valid is None else np.where(valid[:, None], values, np.nan)
        for name, values in recording.channels.items()
        if name in _CHANNELS
    }
    position = "q" if "q" in channels else "q_motor"
    found = average_periods(recording.t, channels, period_s, position=position)
    first = recording.t_ns[found.first]
    return replace(
        recording, t=found.t, t_ns=first + np.round(found.t * 1e9).astype(np.int64),
        seq=np.arange(found.t.size, dtype=np.int64), channels=found.channels, valid=None,
    )  # fmt: skip


def signal_settings(robot: RobotFile, **overrides: float | FloatArray | None) -> SignalSettings:
    """Return the settings of a robot file's `[identification]`, replaced by `overrides` that are not None.

    Without `min_velocity` in the file, samples at standstill are left out; see `slowest_velocity` to set it.
    """
    given = robot.identification
    table: dict[str, Any] = {
        "cutoff_hz": given.cutoff_hz, "rate_hz": given.rate_hz, "filter_order": given.filter_order,
        "trim_s": given.trim_s,
        "min_velocity": robot.model.standstill_velocity
        if given.min_velocity is None
        else np.asarray(given.min_velocity, dtype=np.float64),
    }  # fmt: skip
    chosen = {k: v for k, v in (table | {k: v for k, v in overrides.items() if v is not None}).items() if v is not None}
    return SignalSettings(**chosen)


def slowest_velocity(robot: RobotFile, given: Sequence[float] | None) -> FloatArray | None:
    """Return the slowest velocity (n,) [rad/s or m/s] from one value for all joints or one for each; None for None.

    Raises `DataError` if the number of values is another, or one is negative or not finite.
    """
    if given is None:
        return None
    n = robot.model.n
    if len(given) not in (1, n) or not all(0.0 <= v < np.inf for v in given):
        raise DataError(f"the slowest velocity takes one value or {n}, finite and not negative")
    return np.broadcast_to(np.asarray(given, dtype=np.float64), (n,)).copy()


def prior_model(model: RobotModel, given: RobotModel) -> RobotModel:
    """Return `model` with the links and friction of the robot `given`, as a prior for `physical`."""
    return replace(model, name=given.name, inertial=inertial_in_frames_of(model, given), dynamics=given.dynamics)


def check_recording(recording: Recording, model: RobotModel) -> None:
    """Check that a recording can be of this robot: number of joints, channels, units.

    Raises `DataError`, which names the joint, the values, and what to do.
    """
    where = str(recording.path or "recording")
    if recording.n != model.n:
        raise DataError(f"{where}: {recording.n} joints, but robot {model.name} has {model.n}")
    for channel in ("q", "tau"):
        if channel not in recording.channels:
            raise DataError(
                f"{where}: no channel {channel}; it has {', '.join(recording.channels)}. "
                f"Identification needs joint position and torque: add [{channel}] to the mapping"
            )
    if model.friction.temperature != "none" and "temperature" not in recording.channels:
        raise DataError(
            f"{where}: no channel temperature; it has {', '.join(recording.channels)}. Friction of robot {model.name} "
            'follows temperature: add [temperature] to the mapping, or set friction_temperature = "none" in [model]'
        )
    expected = tuple("rad" if joint.kind == "revolute" else "m" for joint in model.joints)
    if recording.units != expected:
        raise DataError(
            f"{where}: positions are in {', '.join(recording.units)}, but the joints of robot {model.name} take "
            f"{', '.join(expected)}: the recording is of another robot, or [q] of the mapping has the wrong unit"
        )
    q, tau = recording.channels["q"], recording.channels["tau"]
    for j, joint in enumerate(model.joints):
        finite = q[np.isfinite(q[:, j]), j]
        if np.isfinite(joint.lower) and np.isfinite(joint.upper) and finite.size:
            slack = _LIMIT_SLACK * (joint.upper - joint.lower)
            worst = float(finite[np.argmax(np.abs(finite - 0.5 * (joint.lower + joint.upper)))])
            if not joint.lower - slack <= worst <= joint.upper + slack:
                raise DataError(
                    f"{where}: joint {joint.name} reaches {worst:.4g}, far outside its limits "
                    f"[{joint.lower:.4g}, {joint.upper:.4g}]: check the unit (degrees for radians is a factor 57.3), "
                    "the zero offset and motor side against joint side in the mapping"
                )
        elif joint.kind == "revolute" and finite.size and np.ptp(finite) > _MAX_RADIANS:
            raise DataError(
                f"{where}: joint {joint.name} turns by {np.ptp(finite):.4g} rad: its unit is likely degrees (a factor "
                "57.3), or the motor side; if it does turn that far, give its limits in the robot file"
            )
        if np.isfinite(joint.effort):
            peak = float(np.nanmax(np.abs(tau[:, j]), initial=0.0))
            if peak > _EFFORT_SLACK * joint.effort:
                raise DataError(
                    f"{where}: joint {joint.name} shows a torque of {peak:.4g}, {peak / joint.effort:.1f} times its "
                    f"effort limit {joint.effort:.4g}: check the unit, the gear ratio and the torque constant"
                )
    _check_velocity(recording, model, where)


def _check_velocity(recording: Recording, model: RobotModel, where: str) -> None:
    if "dq" not in recording.channels:
        return
    t, q, dq = recording.t, recording.channels["q"], recording.channels["dq"]
    for j, joint in enumerate(model.joints):
        ratio, correlation = velocity_ratio(t, q[:, j], dq[:, j])
        if correlation is not None and abs(correlation) > _SAME_SIGNAL and not 0.1 < ratio < 10.0:
            raise DataError(
                f"{where}: joint {joint.name}: its velocity is {ratio:.3g} times the change of its position: "
                "their units differ (degrees for radians is a factor 57.3); check [q] and [dq] of the mapping"
            )


def prepare_recording(recording: Recording, model: RobotModel, settings: SignalSettings) -> Signals:
    """Check a whole recording and filter its signals."""
    check_recording(recording, model)
    return _prepare(recording, recording.channels, model, settings)


def _prepare(
    recording: Recording, channels: Mapping[str, FloatArray], model: RobotModel, settings: SignalSettings
) -> Signals:
    valid = None if recording.valid is None else np.asarray(recording.valid.all(axis=1))
    dq = channels.get("dq")
    temperature = None if model.friction.temperature == "none" else channels["temperature"]
    try:
        return prepare(
            recording.t, channels["q"], channels["tau"], settings, dq=dq, valid=valid,
            rate_hz=nominal_rate_of(recording), seq=recording.seq, temperature=temperature, spans=recording.spans,
        )  # fmt: skip
    except DataError as error:
        raise DataError(f"{recording.path or 'recording'}: {error}") from error


def disturbed_signals(recording: Recording, model: RobotModel, settings: SignalSettings) -> Signals:
    """Filter a recording with as much noise again on its position and velocity, for `tls`."""
    channels = dict(recording.channels)
    for seed, name in enumerate(("q", "dq")):
        if name in channels:
            channels[name] = disturb(channels[name], seed)
    return _prepare(recording, channels, model, settings)


def nominal_rate_of(recording: Recording) -> float | None:
    """Return the nominal rate of a recording, unless its time stamps contradict it."""
    if recording.samples < 2 or not recording.rate_hz > 0.0:
        return None
    measured = 1.0 / float(np.median(np.diff(recording.t)))
    return recording.rate_hz if 0.8 < recording.rate_hz / measured < 1.25 else None


def span_bounds(recording: Recording, span: Span | None) -> tuple[float, float]:
    """Return first and last time [s] of a span of a recording; the last is open unless it is the recording's end."""
    if span is None:
        return -np.inf, np.inf
    first, last = float(recording.t[0]), float(recording.t[-1])
    start, stop = span.bounds(first, last)
    return start, np.inf if stop >= last else stop


def identify_recording(
    data: Dataset, *, options: EstimatorOptions | None = None, base: BaseParameters | None = None,
    callback: Callback | None = None,
) -> Identification:  # fmt: skip
    """Fit the robot's model to a span of a recording.

    The whole recording is filtered, then the rows of the span are taken, so that a span has no edges of its own; rows
    next to a cut depend on a little of the other side, within the filter's length.
    """
    options = EstimatorOptions() if options is None else options
    recording, model, settings = data.recording, data.robot.model, data.settings
    signals = prepare_recording(recording, model, settings)
    part = span_bounds(recording, data.span)
    base = base_parameters(model) if base is None else base
    note = _late_velocity(data, base, replace(signals, part=part))
    if note is not None:
        settings = replace(settings, velocity="position")
        signals = prepare_recording(recording, model, settings)
    disturbed = disturbed_signals(recording, model, settings) if options.method == "tls" else None
    signals = replace(signals, part=part, disturbed=disturbed)
    found = identify(model, base, signals, settings, options, callback)
    return replace(found, notes=(*([] if note is None else [note]), *recording.notes, *found.notes))


#: A lag of the measured velocity does harm if without it a value that was determined differs by this many of its
#: standard deviations, and the residual is smaller.
_HARMFUL = 4.0


def _late_velocity(data: Dataset, base: BaseParameters, signals: Signals) -> str | None:
    """Return that the measured velocity disagrees with the position so that it does harm; None if it does not.

    Filters of a millisecond or two are common and harmless, so two fits decide, with and without the measured velocity.
    """
    recording, model, settings = data.recording, data.robot.model, data.settings
    if settings.velocity == "position":
        return None
    dead = dead_velocities(recording, model)
    if dead:
        return _dead_text(dead)
    odd = odd_velocities(recording, model)
    if not odd:
        return None
    options = EstimatorOptions(constants="given")
    try:
        without = prepare_recording(recording, model, replace(settings, velocity="position"))
        both = signals, replace(without, part=signals.part)
        measured, derived = (estimate(model, base, s, settings, options) for s in both)
    except DataError:
        return None
    if not np.all(derived.solution.sigma > 0.0) or not np.all(measured.solution.sigma > 0.0):
        return None
    status = parameter_status(measured.rows, measured.solution, measured.std)
    known = np.array([s == "determined" for s in status])
    moved = np.abs(derived.theta - measured.theta)[known] > _HARMFUL * measured.std[known]
    lower = np.mean(np.log(derived.solution.sigma / measured.solution.sigma)) < 0.0
    if not (moved.any() and lower):
        return None
    shown = ", ".join(f"{name} {text}" for name, text in odd.items())
    return (
        f"the measured velocity (dq) does not follow the change of the position: {shown}; that would have moved "
        f"{int(moved.sum())} of {int(known.sum())} determined values by more than {_HARMFUL:g} standard deviations, so "
        "the velocity was taken from the position instead"
    )


#: A measured velocity whose scale is off by more is said to be, if that is significant.
_SCALE = 0.02


def odd_velocities(recording: Recording, model: RobotModel) -> dict[str, str]:
    """Return how the measured velocity of a joint disagrees with its position: by a lag, or by its scale."""
    if "dq" not in recording.channels:
        return {}
    good = np.ones(recording.samples, dtype=bool) if recording.valid is None else recording.valid.all(axis=1)
    found: dict[str, str] = {}
    step = float(np.median(np.diff(recording.t)))
    for j, joint in enumerate(model.joints):
        q, dq = recording.channels["q"][good, j], recording.channels["dq"][good, j]
        relation = velocity_relation(recording.t[good], q, dq)
        if relation is None:
            continue
        texts = []
        if abs(relation.lag_s) > max(step, _HARMFUL * relation.lag_std_s):
            texts.append(f"{1e3 * relation.lag_s:.3g} ms behind")
        if abs(relation.scale - 1.0) > max(_SCALE, _HARMFUL * relation.scale_std):
            texts.append(f"{relation.scale:.3g} times as large")
        if texts:
            found[joint.name] = ", ".join(texts)
    return found


def dead_velocities(recording: Recording, model: RobotModel) -> tuple[str, ...]:
    """Return the joints whose measured velocity never changes although their position moves."""
    if "dq" not in recording.channels:
        return ()
    good = np.ones(recording.samples, dtype=bool) if recording.valid is None else recording.valid.all(axis=1)
    t, q, dq = recording.t[good], recording.channels["q"][good], recording.channels["dq"][good]
    at = np.unique(np.searchsorted(t, np.arange(t[0], t[-1], 1.0))) if t.size else np.zeros(0, dtype=np.int64)
    found = []
    for j, joint in enumerate(model.joints):
        # the joint would have to move more slowly than what counts as rest to have a velocity that rounds to a constant
        moved = (np.abs(np.diff(q[at, j])) > model.standstill_velocity[j] * np.diff(t[at])).any()
        if moved and np.ptp(dq[:, j]) == 0.0:
            found.append(joint.name)
    return tuple(found)


def _dead_text(joints: Sequence[str]) -> str:
    return (
        f"the measured velocity (dq) of {', '.join(joints)} never changes although the position does, so the velocity "
        "was taken from the position instead"
    )


@dataclass(frozen=True)
class Validation:
    """A model's prediction compared with a recording.

    `outside` (n,) is the share of each joint's rows at temperatures outside those of the model's identification.
    `settings` are those that were used, `notes` state what was done to the data.
    """

    rows: Rows
    predicted: FloatArray
    metrics: Metrics
    verdict: ValidationVerdict
    reasons: tuple[str, ...]
    outside: FloatArray
    settings: SignalSettings
    notes: tuple[str, ...] = ()


def validate_recording(
    data: Dataset, base: BaseParameters, theta: FloatArray, *, fit_error: float | None = None,
    temperatures: TemperatureRange | None = None, rows: Rows | None = None,
) -> Validation:  # fmt: skip
    """Predict the torque of a span of a recording with base parameters `theta`, and compare.

    `fit_error` is the relative error of the identification, for the verdict; `temperatures` are those that its friction
    was identified at. `rows` are those to predict, where motors and links move apart.
    """
    recording, model, settings = data.recording, data.robot.model, data.settings
    dead = () if settings.velocity == "position" else dead_velocities(recording, model)
    settings = replace(settings, velocity="position") if dead else settings
    if rows is None:
        signals = prepare_recording(recording, model, settings)
        start, stop = span_bounds(recording, data.span)
        rows = build_rows(model, base, signals, settings, load_theta=theta, slow=False).select(start, stop)
    if rows.t.size == 0:
        raise DataError(f"{recording.path}: no rows within the span: it is shorter than the filters, or trimmed away")
    predicted = rows.predict(theta)
    metrics = torque_metrics(rows.tau, predicted, rows.use)
    verdict: ValidationVerdict = "ok"
    reasons, small = unexplained(metrics, model)
    colder = () if temperatures is None else outside_reasons(model, temperatures, rows)
    if reasons:
        verdict = "not_explained"
    elif colder:
        verdict = "outside_temperatures"
    elif fit_error is not None and fit_error > 0.0 and metrics.relative_error > WORSE_LIMIT * fit_error:
        verdict = "worse_than_fit"
        reasons.append(
            f"the relative torque error is {metrics.relative_error / fit_error:.1f} times that of the identification "
            f"({100 * fit_error:.2f} %): the model does not carry over to this motion"
        )
    notes = (*((_dead_text(dead),) if dead else ()), *recording.notes)
    outside = np.zeros(model.n) if temperatures is None else share_outside(model, temperatures, rows)
    return Validation(rows, predicted, metrics, verdict, (*reasons, *colder, *small), outside, settings, notes)


def unexplained(metrics: Metrics, model: RobotModel) -> tuple[list[str], list[str]]:
    """Return why a prediction does not explain the torque, and where a joint has too little torque to count."""
    reasons: list[str] = []
    small: list[str] = []
    for j, joint in enumerate(model.joints):
        explained = metrics.explained[j]
        if metrics.count[j] and not explained >= EXPLAINED_LIMIT:
            share = (
                "no signal" if np.isnan(explained) else f"{100 * max(explained, 0.0):.0f} % of the variance explained"
            )
            (reasons if weighs(metrics, j) else small).append(
                f"joint {joint.name}: {share}, error {metrics.rmse[j]:.3g} rms"
            )
    if not metrics.relative_error <= RELATIVE_ERROR_LIMIT:
        reasons.append(f"the relative torque error is {100 * metrics.relative_error:.1f} %")
    return reasons, small


def span_text(span: Span | None) -> str:
    """Return the used part of a recording, in words."""
    return "0:1" if span is None else str(span)


def band_text(settings: SignalSettings, rate_hz: float, band_hz: float) -> str:
    """Return how signals were filtered, in words."""
    return (
        f"zero-phase low-pass {settings.cutoff_hz:g} Hz (order {settings.filter_order}); "
        f"rows at {rate_hz:g} Hz, both sides kept up to {band_hz:g} Hz"
        + ("; velocity from the position" if settings.velocity == "position" else "")
    )


def selection_text(settings: SignalSettings) -> str:
    """Return which slow samples were left out, in words."""
    if settings.min_velocity is None or not settings.min_velocity.any():
        return ", all samples"
    return ", samples with |dq| of at least " + " ".join(f"{v:g}" for v in settings.min_velocity)
