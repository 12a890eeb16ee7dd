"""Faults of the data of a moving arm, and what the online estimator says of its parameters after each.

An arm moves as in `benchmarks.detector_cases`; from `CLEAN_S` on its data have a fault.  The truth is that of the arm:
a fault of a sensor does not change it, a payload or more friction does.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from typing import Any, Literal

import numpy as np
from scipy.signal import lfilter

from benchmarks.coverage import correlated_noise
from benchmarks.detector_cases import CORRELATED, ENCODER, TORQUE_NOISE, Alteration, arm, loaded, torque, watcher
from rt_core.identification.preprocess import DataError, SignalSettings, prepare
from rt_core.model.base import payload_columns
from rt_core.model.parameters import standard_parameters
from rt_core.model.robot import RobotModel
from rt_core.online import OnlineEstimator, OnlineSettings
from rt_core.online.monitors.change import ChangeDetector
from rt_core.online.monitors.change_report import ArmChange
from rt_core.online.monitors.change_rules import VELOCITY_KNOWN_S
from rt_core.online.monitors.examination import ExaminationTimes
from rt_core.online.monitors.frame_diagnosis import examine
from rt_core.online.monitors.payload_estimate import payload_information
from rt_core.statistics import NORMAL_QUANTILE_95
from rt_core.types import BoolArray, FloatArray, IntArray
from sim_backend.arm.packed import torque_scale
from sim_backend.arm.settings import MotionSettings
from sim_backend.arm.trajectory import plan_motion

CLEAN_S = 45.0
FAULT_S = 60.0
ADOPT_S = 44.0  # the model is what has been learned until then, where one is active
WATCH_S = 90.0  # and the fault comes so late, for the watch learns its levels first
VELOCITY_NOISE = 2e-4  # [rad/s]

#: What is right to say: nothing at all, that the numbers are not to be believed, or new numbers that are right.
Kind = Literal["clean", "wrong", "usable", "changed"]
#: After clean motion; that, with an active model; or from the first frame on, where no clean motion was seen.
Mode = Literal["later", "model", "first"]


@dataclass
class Data:
    """Frames of an arm: times (N,) [s], channels (N, n), and the frames that arrive.

    `at` is the first with the fault, and `usual` the torque without it.
    """

    t: FloatArray
    q: FloatArray
    dq: FloatArray
    tau: FloatArray
    usual: FloatArray
    arrives: BoolArray
    at: int
    joint: int
    rng: np.random.Generator
    rate_hz: float
    moved: list[FloatArray]  # true positions, velocities and accelerations (N, n)
    noise: FloatArray

    def late(self, values: FloatArray, seconds: float) -> FloatArray:
        """Channel as it was `seconds` before."""
        return np.stack([np.interp(self.t - seconds, self.t, x) for x in values.T], axis=1)


@dataclass(frozen=True)
class Fault:
    """A fault: changes the data from `Data.at` on; `alteration` changes the arm instead.

    `causes` are the events that name it rightly where a model is active; `ambiguous` is never wrong.  `common` is a
    factor of all torques: parameters are known up to it, and from the first frame on that is all that can be right.
    """

    name: str
    kind: Kind
    apply: Callable[[Data], None] | None = None
    velocity: bool = False  # concerns the measured velocity
    alteration: Alteration | None = None
    causes: tuple[str, ...] = field(default=())
    common: float = 1.0


def _scale(channel: str, factor: float, *, every: bool = False) -> Callable[[Data], None]:
    def apply(d: Data) -> None:
        values = getattr(d, channel)
        if every:
            values[d.at :] *= factor
        else:
            values[d.at :, d.joint] *= factor

    return apply


def _late(channel: str, seconds: float) -> Callable[[Data], None]:
    def apply(d: Data) -> None:
        getattr(d, channel)[d.at :] = d.late(getattr(d, channel), seconds)[d.at :]

    return apply


def _swap(*channels: str) -> Callable[[Data], None]:
    def apply(d: Data) -> None:
        pair = [d.joint, (d.joint + 1) % d.q.shape[1]]
        for channel in channels:
            values = getattr(d, channel)
            values[d.at :, pair] = values[d.at :, pair[::-1]]

    return apply


def _clip(d: Data) -> None:
    limit = 0.6 * np.abs(d.usual[:, d.joint]).max()
    d.tau[d.at :, d.joint] = np.clip(d.tau[d.at :, d.joint], -limit, limit)


def _offset(channel: str, size: float) -> Callable[[Data], None]:
    def apply(d: Data) -> None:
        values = getattr(d, channel)
        values[d.at :, d.joint] += size * (np.std(d.usual[:, d.joint]) if channel == "tau" else 1.0)

    return apply


def _clock(factor: float) -> Callable[[Data], None]:
    def apply(d: Data) -> None:
        d.t[d.at :] = d.t[d.at] + factor * (d.t[d.at :] - d.t[d.at])

    return apply


def _spikes(d: Data) -> None:
    hit = d.rng.random(d.tau.shape) < 0.02
    hit[: d.at] = False
    d.tau[hit] += np.broadcast_to(3.0 * np.abs(d.usual).max(axis=0), d.tau.shape)[hit] * d.rng.choice(
        [-1, 1], int(hit.sum())
    )


def _wrap(d: Data) -> None:
    centre = np.median(d.q[:, d.joint])  # as an absolute encoder whose zero is in the middle of the motion
    after = d.q[d.at :, d.joint]
    after[after > centre] -= 2.0 * np.pi


def _hold(count: int, *channels: str) -> Callable[[Data], None]:
    def apply(d: Data) -> None:
        taken = d.at + (np.arange(d.t.size - d.at) // count) * count
        for channel in channels:
            values = getattr(d, channel)
            values[d.at :] = values[taken]

    return apply


def _lose(share: float) -> Callable[[Data], None]:
    def apply(d: Data) -> None:
        d.arrives[d.at :] = d.rng.random(d.t.size - d.at) >= share

    return apply


def _every_second(d: Data) -> None:
    d.arrives[d.at :: 2] = False


def _nan(d: Data) -> None:
    d.tau[d.at :][d.rng.random(d.t.size - d.at) < 0.05] = np.nan


def _noise(d: Data) -> None:
    std = 10.0 * TORQUE_NOISE * np.abs(d.usual).max(axis=0)
    d.tau[d.at :] += std * d.rng.standard_normal((d.t.size - d.at, d.tau.shape[1]))


def _coarse(d: Data) -> None:
    step = 0.3 * np.std(d.usual, axis=0)
    d.tau[d.at :] = np.round(d.tau[d.at :] / step) * step


def _stuck(d: Data) -> None:
    d.tau[d.at :, d.joint] = d.tau[d.at, d.joint]


def _filtered(d: Data) -> None:
    a = np.exp(-1.0 / (0.03 * d.rate_hz))
    d.tau[d.at :] = lfilter([1.0 - a], [1.0, -a], d.tau, axis=0)[d.at :]


def _dropouts(d: Data) -> None:
    d.tau[d.at :][d.rng.random((d.t.size - d.at, d.tau.shape[1])) < 0.1] = 0.0


def _position_dropouts(d: Data) -> None:
    d.q[d.at :, d.joint][d.rng.random(d.t.size - d.at) < 0.01] = 0.0


def _position_stuck(d: Data) -> None:
    d.q[d.at :, d.joint] = d.q[d.at, d.joint]


def _degrees(d: Data) -> None:
    d.q[d.at :] = np.degrees(d.q[d.at :])


_SENSOR = ("sensor_fault",)
FAULTS = (
    Fault("clean", "clean"),
    Fault("torque sign, one joint", "wrong", _scale("tau", -1.0), causes=_SENSOR),
    Fault("torque sign, all", "wrong", _scale("tau", -1.0, every=True)),
    Fault("torques swapped", "wrong", _swap("tau")),
    Fault("positions swapped", "wrong", _swap("q")),
    Fault("joints swapped", "wrong", _swap("q", "dq", "tau")),
    Fault("velocities swapped", "wrong", _swap("dq"), velocity=True),
    Fault("velocity sign", "wrong", _scale("dq", -1.0), velocity=True),
    Fault("velocity +10 %", "wrong", _scale("dq", 1.1), velocity=True),
    Fault("velocity 20 ms late", "wrong", _late("dq", 0.02), velocity=True),
    Fault("clipping", "wrong", _clip, causes=_SENSOR),
    Fault("torque 5 ms late", "wrong", _late("tau", 0.005)),
    Fault("torque 20 ms late", "wrong", _late("tau", 0.02)),
    Fault("torque filtered, 30 ms", "wrong", _filtered),
    Fault("encoder offset 3 deg", "wrong", _offset("q", np.radians(3.0))),
    Fault("encoder scale +3 %", "wrong", _scale("q", 1.03)),
    Fault("clock 5 % slow", "wrong", _clock(0.95)),
    Fault("clock 5 % fast", "wrong", _clock(1.05)),
    Fault("torque spikes", "wrong", _spikes),
    Fault("wrap", "wrong", _wrap),
    Fault("torque gain +5 %", "wrong", _scale("tau", 1.05), causes=_SENSOR),
    Fault("torque gain +20 %", "wrong", _scale("tau", 1.2), causes=_SENSOR),
    Fault("all torques +5 %", "wrong", _scale("tau", 1.05, every=True), common=1.05),
    Fault("torque offset", "wrong", _offset("tau", 0.3), causes=_SENSOR),
    Fault("torque noise", "usable", _noise),
    Fault("torque coarse", "usable", _coarse),
    Fault("torque stuck", "wrong", _stuck, causes=_SENSOR),
    Fault("torque dropouts", "wrong", _dropouts),
    Fault("position dropouts", "wrong", _position_dropouts),
    Fault("position stuck", "wrong", _position_stuck),
    Fault("degrees", "usable", _degrees),
    Fault("torque x 1000", "usable", _scale("tau", 1000.0, every=True)),
    Fault("20 % lost", "usable", _lose(0.2)),
    Fault("every second lost", "usable", _every_second),
    Fault("5 % NaN", "usable", _nan),
    Fault("hold by ten", "usable", _hold(10, "q", "dq", "tau")),
    Fault("payload 1 kg", "changed", alteration=Alteration("payload", 1.0), causes=("payload_attached",)),
    Fault("payload 3 kg", "changed", alteration=Alteration("payload", 3.0), causes=("payload_attached",)),
    Fault("friction +20 %", "changed", alteration=Alteration("friction", 1.2), causes=("friction_changed",)),
    Fault("friction x 2", "changed", alteration=Alteration("friction", 2.0), causes=("friction_changed",)),
)
BY_NAME = {fault.name: fault for fault in FAULTS}


def truths(model: RobotModel, base: Any, change: Alteration | None) -> FloatArray:
    """Base parameters (p,) of the arm after a change of it."""
    altered = model
    if change is not None and change.what == "payload":
        altered = replace(model, inertial=loaded(model, change.size))
    elif change is not None:
        assert model.dynamics is not None
        grown = {name: np.array(getattr(model.dynamics, name)) for name in ("viscous", "coulomb", "breakaway")}
        for values in grown.values():
            values[change.joint] *= change.size
        altered = replace(model, dynamics=replace(model.dynamics, **grown))
    return np.asarray(base.theta(standard_parameters(altered, base.standard)))


@dataclass
class Motion:
    """A moving arm before any fault: its data, and what was learned of it until the fault begins."""

    data: Data
    truth: FloatArray
    estimator: OnlineEstimator
    detector: ChangeDetector
    before: int  # parameters that were called estimated
    times: ExaminationTimes = field(default_factory=ExaminationTimes)


_clean_motion: Motion  # of this process


def cases(names: Sequence[str], robot: str, seed: int, rate_hz: float, mode: Mode) -> list[dict[str, Any]]:
    """Run each fault in the same motion, and return what was said of the parameters each second after it.

    The clean motion before the fault is run once; each fault goes on from there in a fork.
    """
    global _clean_motion  # a fork has it
    found: list[dict[str, Any]] = []
    about = {"robot": robot, "seed": seed, "rate_hz": rate_hz, "mode": mode}
    for has_dq in (False, True):
        mine = [name for name in names if (BY_NAME[name].velocity or bool(seed % 2)) == has_dq]
        if mine:
            _clean_motion = _clean(robot, seed, rate_hz, mode, has_dq)
            with get_context("fork").Pool(1, maxtasksperchild=1) as pool:
                found += [rest | about for rest in pool.map(partial(_faulty, mode=mode), mine, chunksize=1)]
    return found


def _clean(robot: str, seed: int, rate_hz: float, mode: Mode, has_dq: bool) -> Motion:
    model, base = arm(robot)
    clean_s = {"later": CLEAN_S, "model": WATCH_S, "first": 0.0}[mode]
    tail_s = CLEAN_S + FAULT_S if mode == "first" else FAULT_S
    rng = np.random.default_rng(1000 + seed)
    joint = int(rng.integers(model.n))
    at = round(clean_s * rate_hz)
    count = at + round(tail_s * rate_hz)
    t = np.arange(count) / rate_hz
    moved = [np.asarray(x) for x in plan_motion(model, MotionSettings(seed=seed, candidates=2)).sample(t)]
    q, dq, _ = moved
    tau = torque(model, t, moved, [])
    assert model.inertial is not None
    std = TORQUE_NOISE * torque_scale(model, model.inertial)
    noise = std * rng.standard_normal(tau.shape) + correlated_noise(rng, count, rate_hz, CORRELATED * std)
    dq = dq + VELOCITY_NOISE * rng.standard_normal(dq.shape)
    q = np.round(q / ENCODER) * ENCODER
    data = Data(t.copy(), q, dq, tau + noise, tau + noise, np.ones(count, bool), at, joint, rng, rate_hz, moved, noise)
    estimator = OnlineEstimator(model, OnlineSettings(update_hz=50.0), rate_hz, has_dq=has_dq, base=base)
    detector = watcher(
        estimator, capacity_kg=model.payload_bound or np.inf, least_s=VELOCITY_KNOWN_S if has_dq else 0.0
    )
    motion = Motion(data, truths(model, base, None), estimator, detector, 0)
    for _ in _steps(motion, range(at), mode == "model"):
        pass
    motion.before = sum(s == "estimated" for s in estimator.report().status) if at else len(base)
    return motion


def _steps(motion: Motion, frames: range, active: bool) -> Iterator[tuple[int, list[ArmChange]]]:
    """Feed frames, and yield each with the changes of the arm that it showed."""
    data, estimator, detector = motion.data, motion.estimator, motion.detector
    names = tuple(joint.name for joint in estimator.model.joints)
    look, adopt = round(data.rate_hz / 10), round(ADOPT_S * data.rate_hz)
    for k in frames:
        changes: list[ArmChange] = []
        if data.arrives[k]:
            dq = data.dq[k] if estimator.has_dq else None
            estimator.step(round(data.t[k] * 1e9), k, data.q[k], data.tau[k], None, dq)
        t_ns, trust = round(data.t[k] * 1e9), estimator.trust
        if motion.times.due(trust.motion_s, t_ns, believed=not trust.doubted):
            first = int(np.searchsorted(data.t, motion.times.begin_ns(t_ns, data.rate_hz) * 1e-9))
            kept = np.flatnonzero(data.arrives[first : k + 1]) + first
            measured = data.dq[kept] if estimator.has_dq else None
            examine_frames(estimator, kept, data.t[kept], data.q[kept], data.tau[kept], measured)
        if active and k == adopt:
            theta, covariance = estimator.theta, estimator.covariance
            estimator.adopt(theta, covariance)
            columns = payload_columns(estimator.base, estimator.model)
            detector.set_model(True, payload_information(columns, covariance), theta)
        if active and k % look == 0 and k > adopt:
            changes = detector.observe(estimator.take_evidence(), t_ns, estimator.trust.broken(names))
        yield k, changes


def examine_frames(
    estimator: OnlineEstimator, seq: IntArray, t: FloatArray, q: FloatArray, tau: FloatArray, dq: FloatArray | None
) -> None:
    """Examine the frames that an estimator has taken, as its process does."""
    valid = np.isfinite(np.column_stack((q, tau))).all(axis=1)
    settings = SignalSettings(estimator.settings.cutoff_hz, min_velocity=estimator.model.standstill_velocity)
    try:
        signals = prepare(t, q, tau, settings, dq=dq, valid=valid, rate_hz=estimator.rate_hz, seq=seq)
        estimator.take_examination(examine(estimator.model, estimator.base, signals, settings))
    except DataError:  # too few frames of use
        return


def _faulty(name: str, mode: Mode) -> dict[str, Any]:
    fault, motion = BY_NAME[name], _clean_motion
    data, estimator, truth = motion.data, motion.estimator, motion.truth
    model, active = estimator.model, mode == "model"
    begun = data.t[data.at]
    if fault.alteration is not None:
        change = replace(fault.alteration, joint=data.joint, at_s=float(begun))
        data.tau = torque(model, data.t, data.moved, [change]) + data.noise
        data.usual = data.tau.copy()
        truth = truths(model, estimator.base, change)
    if fault.apply is not None:
        fault.apply(data)
    truth = truth * (fault.common if mode == "first" else 1.0)
    second = round(data.rate_hz)
    told: list[tuple[float, str, str]] = []
    seconds: list[tuple[int, int, float, str]] = []  # estimated, of them inside, largest error, and another status
    for k, changes in _steps(motion, range(data.at, data.t.size), active):
        told += [(float(data.t[k] - begun), change.kind, change.text) for change in changes]
        if k % second == 0:
            report = estimator.report()
            given = np.array([s == "estimated" for s in report.status])
            # the latest data are older than the frame by the filters' delay
            now = truth if report.t_ns * 1e-9 > begun else motion.truth
            error = np.abs(report.theta - now) / report.std
            inside = int((error[given] <= NORMAL_QUANTILE_95).sum())
            rest = [s for s in report.status if s != "estimated"]
            common = max(set(rest), key=rest.count) if rest else ""
            seconds.append((int(given.sum()), inside, float(error[given].max(initial=0.0)), common))
    return {
        "before": motion.before, "seconds": seconds, "told": told, "fault": fault.name, "kind": fault.kind,
        "active": active, "joint": model.joints[data.joint].name, "causes": list(fault.causes),
    }  # fmt: skip
