"""Set trajectories: finite Fourier series, trapezoidal profiles, rest, and schedules of these.

Within one piece of a motion joint `i` follows, with `w = 2 pi f0` and the time `s` since its start,

    q_i = c_i + e(s) * sum_k [ a_ik/(k w) sin(k w s) - b_ik/(k w) cos(k w s) ]      (Swevers et al., 1997)

where the envelope `e` rises from 0 to 1 over the ramp time and falls again at a finite end, by the quintic
`10 x^3 - 15 x^4 + 6 x^5`.  In a piece of trapezoidal profiles all joints move back and forth together at constant
speed, `q_i = c_i + A_i p(s)` with the `p` of `sim_backend.arm._trapezoidal_profile`.  Every piece starts and ends in
the posture `c` with zero velocity and acceleration.  Derivatives are exact.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rt_core.jit import jit
from rt_core.model.base import base_parameters
from rt_core.model.dynamics import inverse_dynamics
from rt_core.model.friction import LAW_LOAD
from rt_core.model.parameters import ParameterLayout
from rt_core.model.regressor import regressor
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from sim_backend.arm._trapezoidal_profile import profile_at, strokes_within
from sim_backend.arm.friction import friction_batch, friction_terms
from sim_backend.arm.settings import MotionSettings, PieceSettings
from sim_backend.errors import MotionError

#: Stand-ins for limits that a robot description leaves open, by joint kind.
_RANGE = {"revolute": np.pi / 2, "prismatic": 0.3}
_SPEED = {"revolute": 2.0, "prismatic": 0.5}
#: A seed moves the centre of motion by up to this share of half the range.
_CENTRE_SPREAD = 0.15
#: Kinds of pieces, in the table of a motion.
REST, SERIES, TRAPEZOIDAL = 0.0, 1.0, 2.0
_KINDS = {"hold": REST, "fourier": SERIES, "paul": TRAPEZOIDAL}


class MotionArrays(NamedTuple):
    """A motion for the kernels.

    `table` has a row of start, duration, ramp time [s], rate, kind (REST, SERIES, TRAPEZOIDAL) and strokes for each
    piece, the rate being `2 pi f0` [rad/s] or the speed of `p` [1/s].
    """

    table: FloatArray  # (S, 6)
    centre: FloatArray  # (n,)
    coefficients: FloatArray  # (S, n, H, 2) `a/(k w)` and `b/(k w)`, or the first of them `A`
    period: float  # after which a schedule repeats; infinite: never


@jit
def motion_at(motion: MotionArrays, t: float, q: FloatArray, dq: FloatArray, ddq: FloatArray) -> None:
    """Compute one sample of a motion into `q, dq, ddq` (n,)."""
    table, centre, coefficients, period = motion
    n = centre.shape[0]
    for i in range(n):
        q[i] = centre[i]
        dq[i] = 0.0
        ddq[i] = 0.0
    if t >= period:
        t -= period * np.floor(t / period)
    piece = -1
    for k in range(table.shape[0]):
        if table[k, 0] <= t < table[k, 0] + table[k, 1]:
            piece = k
    if piece < 0 or table[piece, 4] == REST:
        return
    s = t - table[piece, 0]
    ramp = table[piece, 2]
    if table[piece, 4] == TRAPEZOIDAL:
        p, v, a = profile_at(s, table[piece, 3], ramp, table[piece, 5])
        for i in range(n):
            reach = coefficients[piece, i, 0, 0]
            q[i] += reach * p
            dq[i] = reach * v
            ddq[i] = reach * a
        return
    left = table[piece, 1] - s
    e0, e1, e2 = 1.0, 0.0, 0.0
    if s < ramp or left < ramp:
        rising = s < left
        x = (s if rising else left) / ramp
        sign = 1.0 if rising else -1.0
        e0 = x * x * x * (10.0 + x * (6.0 * x - 15.0))
        e1 = sign * 30.0 * x * x * (1.0 - x) * (1.0 - x) / ramp
        e2 = 60.0 * x * (1.0 - x) * (1.0 - 2.0 * x) / (ramp * ramp)
    w = table[piece, 3]
    for k in range(coefficients.shape[2]):
        kw = (k + 1) * w
        sine, cosine = np.sin(kw * s), np.cos(kw * s)
        for i in range(n):
            c, d = coefficients[piece, i, k, 0], coefficients[piece, i, k, 1]
            p = c * sine - d * cosine
            v = kw * (c * cosine + d * sine)
            q[i] += e0 * p
            dq[i] += e0 * v + e1 * p
            ddq[i] += (e2 - e0 * kw * kw) * p + 2.0 * e1 * v


@jit
def _motion_batch(motion: MotionArrays, t: FloatArray, q: FloatArray, dq: FloatArray, ddq: FloatArray) -> None:
    for k in range(t.shape[0]):
        motion_at(motion, t[k], q[k], dq[k], ddq[k])


@dataclass(frozen=True)
class Motion:
    """A trajectory of `n` joints; see `MotionArrays` for `table` (S, 6), `centre` (n,), `coefficients` (S, n, H, 2)."""

    table: FloatArray
    centre: FloatArray
    coefficients: FloatArray
    duration_s: float  # infinite for an endless motion; outside `[0, duration_s]` the arm rests at `centre`
    period_s: float = np.inf  # after which the motion starts again; infinite if it does not

    @property
    def n(self) -> int:
        """Number of joints."""
        return int(self.centre.shape[0])

    @property
    def arrays(self) -> MotionArrays:
        """The motion for the kernels."""
        return MotionArrays(self.table, self.centre, self.coefficients, self.period_s)

    def sample(self, t: float | FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return position, velocity and acceleration at `t` [s]: (n,) each for a scalar, (N, n) for an array (N,)."""
        times = np.ascontiguousarray(np.atleast_1d(t), dtype=np.float64)
        q, dq, ddq = (np.empty((times.shape[0], self.n)) for _ in range(3))
        _motion_batch(self.arrays, times, q, dq, ddq)
        if np.ndim(t) == 0:
            return q[0], dq[0], ddq[0]
        return q, dq, ddq


@dataclass(frozen=True)
class MotionLimits:
    """Limits of a motion, each (n,): finite defaults where the robot has none."""

    lower: FloatArray
    upper: FloatArray
    velocity: FloatArray
    acceleration: FloatArray
    effort: FloatArray  # may be infinite

    @classmethod
    def of(cls, model: RobotModel, acceleration: tuple[float, ...] | None = None) -> "MotionLimits":
        """Return the limits of `model`; by default acceleration is five times the velocity limit per second."""
        lower, upper, speed = np.empty(model.n), np.empty(model.n), np.empty(model.n)
        for i, joint in enumerate(model.joints):
            reach = _RANGE[joint.kind]
            low, high = joint.lower, joint.upper
            if not np.isfinite(low) and not np.isfinite(high):
                low, high = -reach, reach
            lower[i] = low if np.isfinite(low) else high - 2.0 * reach
            upper[i] = high if np.isfinite(high) else low + 2.0 * reach
            speed[i] = min(joint.velocity, _SPEED[joint.kind]) if np.isinf(joint.velocity) else joint.velocity
        if acceleration is not None and len(acceleration) != model.n:
            raise MotionError(f"acceleration has {len(acceleration)} values, robot '{model.name}' has {model.n} joints")
        limit = 5.0 * speed if acceleration is None else np.array(acceleration, dtype=np.float64)
        return cls(lower, upper, speed, limit, np.array([joint.effort for joint in model.joints]))


@dataclass(frozen=True)
class _Task:
    """Common data of the pieces of a motion."""

    model: RobotModel
    settings: MotionSettings
    limits: MotionLimits
    centre: FloatArray  # (n,)
    layout: ParameterLayout | None  # columns to judge candidates by


def series_motion(f0_hz: float, q0: FloatArray, a: FloatArray, b: FloatArray) -> Motion:
    """Return an endless motion along a series of `rt_core.excitation.fourier`: `q0` (n,), `a`, `b` (n, H)."""
    rates = 2.0 * np.pi * f0_hz * np.arange(1, a.shape[1] + 1)
    table = np.array([[0.0, np.inf, 0.0, rates[0], SERIES, 0.0]])
    return Motion(table, q0, np.stack((a / rates, b / rates), axis=-1)[None], np.inf)


def plan_motion(model: RobotModel, settings: MotionSettings | None = None) -> Motion:
    """Draw a motion by `settings` within the limits of `model`.

    Raises `MotionError`: an unknown joint, a list of the wrong length, a posture outside the limits, or one that needs
    more than the allowed share of a joint's effort.
    """
    settings = MotionSettings() if settings is None else settings
    model = model.at_reference_temperature  # a motion is planned for one temperature
    limits = MotionLimits.of(model, settings.acceleration)
    drawn = settings.kind in ("fourier", "schedule") and settings.candidates > 1
    layout = base_parameters(model).layout if drawn else None
    if layout is not None and model.inertial is None:
        layout = layout.take(np.flatnonzero(layout.law != LAW_LOAD))  # without links the load is not known
    task = _Task(model, settings, limits, _centre(model, settings, limits), layout)
    pieces = settings.segments
    if settings.kind != "schedule":
        pieces = (PieceSettings(kind=settings.kind, duration_s=settings.duration_s, seed=settings.seed),)
    harmonics = max(piece.harmonics or settings.harmonics for piece in pieces)
    table = np.zeros((len(pieces), 6))
    coefficients = np.zeros((len(pieces), model.n, harmonics, 2))
    start = 0.0
    for index, piece in enumerate(pieces):
        duration = np.inf if piece.duration_s is None else piece.duration_s
        table[index, :2] = start, duration
        table[index, 4] = _KINDS[piece.kind]
        start += duration
        held = _held(model, settings.held + piece.held)
        if piece.kind == "fourier":
            frequency = piece.base_frequency_hz or settings.base_frequency_hz
            ramp = settings.ramp_s or 0.25 / frequency
            table[index, 2:4] = min(ramp, 0.5 * duration), 2.0 * np.pi * frequency
            seed = [settings.seed, index] if piece.seed is None else piece.seed
            _draw(task, piece, held, np.random.default_rng(seed), table[index], coefficients[index])
        elif piece.kind == "paul":
            _profile(task, piece, held, table[index], coefficients[index])
    return Motion(table, task.centre, coefficients, start, start if settings.repeat else np.inf)


def _centre(model: RobotModel, settings: MotionSettings, limits: MotionLimits) -> FloatArray:
    if settings.centre is None:
        shift = np.random.default_rng([settings.seed, 0xC]).uniform(-_CENTRE_SPREAD, _CENTRE_SPREAD, model.n)
        return np.asarray(0.5 * (limits.lower + limits.upper + shift * (limits.upper - limits.lower)))
    if len(settings.centre) != model.n:
        raise MotionError(f"centre has {len(settings.centre)} values, robot '{model.name}' has {model.n} joints")
    centre = np.array(settings.centre, dtype=np.float64)
    for i, joint in enumerate(model.joints):
        if not joint.lower <= centre[i] <= joint.upper:
            raise MotionError(
                f"centre of joint '{joint.name}' is {centre[i]:g}, "
                f"outside its limits {joint.lower:g} to {joint.upper:g}"
            )
    return centre


def _held(model: RobotModel, names: tuple[str, ...]) -> list[int]:
    known = [joint.name for joint in model.joints]
    for name in names:
        if name not in known:
            raise MotionError(f"held joint '{name}' is not a joint of robot '{model.name}': {', '.join(known)}")
    return [known.index(name) for name in names]


def _draw(
    task: _Task, piece: PieceSettings, held: list[int], rng: np.random.Generator, row: FloatArray, out: FloatArray
) -> None:
    """Draw the coefficients of a piece, the best candidate scaled to its limits, into `out` (n, H, 2)."""
    used = piece.harmonics or task.settings.harmonics
    amplitude = piece.amplitude or task.settings.amplitude
    order = np.arange(1, used + 1)[:, None]
    best = np.inf
    for _ in range(task.settings.candidates):
        series = np.zeros_like(out)
        series[:, :used] = rng.standard_normal((out.shape[0], used, 2)) / (order * row[3])
        series[held] = 0.0
        series = _fit_limits(task, amplitude, row, series)
        score = 0.0 if task.layout is None else _condition_number(task, task.layout, row, series)
        if score < best or not np.isfinite(best):
            best = score
            out[:] = series


def _profile(task: _Task, piece: PieceSettings, held: list[int], row: FloatArray, out: FloatArray) -> None:
    """Set reach, speed, ramp and strokes of trapezoidal profiles, in `out` (n, H, 2) and `row` (6,)."""
    settings, limits = task.settings, task.limits
    room = np.minimum(limits.upper - task.centre, task.centre - limits.lower)
    reach = (piece.amplitude or settings.amplitude) * room
    reach[held] = 0.0
    if not reach.any():
        raise MotionError("a Paul profile moves no joint: all are held, or the centre is at their limits")
    share = piece.speed or settings.speed
    with np.errstate(divide="ignore"):
        speed = float((share * limits.velocity / reach).min())
        sharpest = float((share * limits.acceleration / reach).min())
    # The ramp takes 1.5 v/a, and no longer than a stroke to one side does: at least an instant has constant speed.
    ramp = piece.ramp_s or settings.ramp_s
    speed = min(speed, (sharpest / 1.5) ** 0.5) if ramp is None else min(speed, 1.0 / ramp, ramp * sharpest / 1.5)
    row[2], row[3] = 1.5 * speed / sharpest if ramp is None else ramp, speed
    row[5] = strokes_within(row[1], row[3], row[2])
    if row[5] < 0.0:
        least = 2.0 * (1.0 / speed + row[2])
        raise MotionError(
            f"a Paul profile within duration_s = {row[1]:g} is not possible: there and back take {least:.3g} s; "
            "make it longer, amplitude smaller, or speed larger"
        )
    series = np.zeros_like(out)
    series[:, 0, 0] = reach
    out[:] = _fit_effort(task, row, series, _stroke_times(row))


def _stroke_times(row: FloatArray) -> FloatArray:
    """Return times that cover the start and the first stroke."""
    return np.linspace(0.0, min(row[1], 3.0 / row[3] + 2.0 * row[2]), 2000)


def _single(row: FloatArray, centre: FloatArray, series: FloatArray) -> Motion:
    """Return a motion of one piece, starting at zero."""
    table = row[None].copy()
    table[0, 0] = 0.0
    return Motion(table, centre, series[None], float(row[1]))


def _check_times(row: FloatArray, harmonics: int) -> FloatArray:
    """Return times that cover ramps and one base period, 40 to a period of the highest harmonic."""
    duration, ramp, period = row[1], row[2], 2.0 * np.pi / row[3]
    step = period / (40.0 * harmonics)
    end = min(duration, ramp + period)
    times = np.arange(0.0, end, step)
    if np.isfinite(duration):
        times = np.concatenate((times, np.arange(max(end, duration - ramp - step), duration, step)))
    return times


def _fit_limits(task: _Task, amplitude: float, row: FloatArray, series: FloatArray) -> FloatArray:
    """Scale each joint to `amplitude` of its tightest limit, then all joints to the allowed effort."""
    limits, centre = task.limits, task.centre
    times = _check_times(row, series.shape[1])
    q, dq, ddq = _single(row, centre, series).sample(times)
    excess = np.maximum.reduce(
        [
            (q - centre).max(axis=0) / np.maximum(limits.upper - centre, 1e-12),
            (centre - q).max(axis=0) / np.maximum(centre - limits.lower, 1e-12),
            np.abs(dq).max(axis=0) / limits.velocity,
            np.abs(ddq).max(axis=0) / limits.acceleration,
        ]
    )
    series = series * np.where(excess > 0.0, amplitude / np.maximum(excess, 1e-300), 0.0)[:, None, None]
    return _fit_effort(task, row, series, times)


def _fit_effort(task: _Task, row: FloatArray, series: FloatArray, times: FloatArray) -> FloatArray:
    """Scale all joints to the allowed effort at `times` (N,)."""
    model, limits, centre = task.model, task.limits, task.centre
    if model.inertial is None:
        return series
    allowed = task.settings.effort_fraction * limits.effort
    rest = motor_torque(model, model.inertial, centre[None], np.zeros((1, model.n)), np.zeros((1, model.n)))[0]
    for i, joint in enumerate(model.joints):
        if abs(rest[i]) > allowed[i]:
            raise MotionError(
                f"joint '{joint.name}' needs {abs(rest[i]):.3g} at rest in the centre posture, more than "
                f"{task.settings.effort_fraction:g} of its effort limit {limits.effort[i]:g}: choose another centre"
            )
    tau = np.abs(rest)
    for _ in range(60):
        tau = np.abs(motor_torque(model, model.inertial, *_single(row, centre, series).sample(times))).max(axis=0)
        if np.all(tau <= allowed):
            return series
        series = 0.93 * series
    worst = int(np.argmax(tau - allowed))
    raise MotionError(
        f"joint '{model.joints[worst].name}' needs {tau[worst]:.3g} even in slow motion, more than "
        f"{task.settings.effort_fraction:g} of its effort limit {limits.effort[worst]:g}: its friction is too large"
    )


def motor_torque(model: RobotModel, inertial: FloatArray, q: FloatArray, dq: FloatArray, ddq: FloatArray) -> FloatArray:
    """Return motor torques (N, n) on the joint side: rigid links, and rotors and friction if known."""
    links = inverse_dynamics(model.geometry, model.gravity, inertial, q, dq, ddq)
    effects = model.dynamics
    if effects is None:
        return links
    C = model.coupling
    terms = friction_terms(model, effects).values
    motor = np.empty_like(links)
    friction_batch(terms, q @ C.T, dq @ C.T, links, motor)
    motor += effects.armature * (ddq @ C.T)
    return np.asarray(links + motor @ C + effects.offset)


def _condition_number(task: _Task, layout: ParameterLayout, row: FloatArray, series: FloatArray) -> float:
    """Return the condition number of the scaled base regressor along a piece, in directions that it determines."""
    motion = _single(row, task.centre, series)
    times = np.linspace(0.0, min(row[1], row[2] + 2.0 * np.pi / row[3]), 200)
    states = motion.sample(times)
    model = task.model
    load = None
    if layout.has_load and model.inertial is not None:
        load = inverse_dynamics(model.geometry, model.gravity, model.inertial, *states)
    W = regressor(model, layout, *states, load=load).reshape(-1, len(layout))
    length = np.linalg.norm(W, axis=0)
    moved = length > 1e-9 * length.max(initial=0.0)
    values = np.linalg.svd(W[:, moved] / length[moved], compute_uv=False)
    return float(values[0] / values[values > 1e-9 * values[0]][-1]) if values.size else np.inf
