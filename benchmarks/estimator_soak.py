"""The online estimator over rich motion, a joint at rest, all at rest, rich motion again, and a step of friction.

The arm is simulated, so that the truth is known at every instant.  What the `excited` flags ought to say follows
from the exact motion alone: `ExcitationOracle` does a singular value decomposition of the weighted regressor.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from drivers.files.robots.file import load_robot
from rt_core.model.base import BaseParameters
from rt_core.model.parameters import standard_parameters
from rt_core.model.regressor import regressor
from rt_core.model.robot import RobotModel
from rt_core.online import OnlineEstimator, OnlineSettings
from sim_backend.arm.packed import torque_scale
from sim_backend.arm.robot import SimulatedArm, SimulatedData
from sim_backend.arm.settings import EventSettings, MotionSettings, PieceSettings, SimSettings

RATE_HZ = 1000.0
TORQUE_NOISE = 0.002  # of each joint's effort limit
STEP = 1.2  # factor on one joint's Coulomb friction
STEP_ALLOWANCE_S = 5.0
CHUNK_S = 5.0
#: After a change of phase the flags may lag: the window of the report has to empty or fill.
FLAG_LAG_S = 12.0


@dataclass(frozen=True)
class Phases:
    """Durations [s]: rich motion, one joint held, all held, rich motion again, and that with changed friction."""

    rich: float = 60.0
    one_held: float = 80.0
    all_held: float = 60.0
    rich_again: float = 60.0
    step: float = 40.0

    @property
    def ends(self) -> dict[str, float]:
        """End of each phase [s] by its name."""
        times = np.cumsum([self.rich, self.one_held, self.all_held, self.rich_again, self.step])
        names = ("rich", "one_held", "all_held", "rich_again", "step")
        return {name: float(t) for name, t in zip(names, times, strict=True)}

    def at(self, t: float) -> tuple[str, float]:
        """Name of the phase at time `t` [s], and for how long it has lasted."""
        start = 0.0
        for name, end in self.ends.items():
            if t < end:
                return name, t - start
            start = end
        return "step", t - self.ends["rich_again"]


@dataclass
class SoakResult:
    """Figures of one run; `problems` lists what went wrong, in sentences."""

    frames: int = 0
    parameters: int = 0
    error: dict[str, float] = field(default_factory=dict)  # worst torque-weighted error of each phase, and at its end
    step_error: float = float("nan")  # of the step's size, `STEP_ALLOWANCE_S` after it
    step_error_after: float = float("nan")  # worst from then on
    flags_checked: int = 0
    flags_wrong: int = 0
    flags_open: int = 0  # so close to the limit that either answer is right
    problems: list[str] = field(default_factory=list)


class ExcitationOracle:
    """Which base parameters the motion of the last few seconds determines.

    Rows of the exact motion, weighted by the known noise and by age, are decomposed by SVD; the standard deviation
    of each parameter, in units of what it has to move to show in the torque like the noise, is compared with a limit.
    """

    LIMIT = 2.0
    MARGIN = 2.5

    def __init__(self, model: RobotModel, base: BaseParameters, noise: np.ndarray, settings: OnlineSettings) -> None:
        self.model, self.base, self.settings = model, base, settings
        self.min_velocity = np.array([0.005 * joint.velocity for joint in model.joints])
        self.noise = noise
        self.power = np.zeros(len(base))
        self.seen_s = 0.0

    def rows(self, data: SimulatedData, every: int) -> np.ndarray:
        """(K, n, p) rows of the exact motion divided by the noise; zero where a joint hardly moves."""
        pick = slice(None, None, every)
        Y = regressor(self.model, self.base.layout, data.q[pick], data.dq[pick], data.ddq[pick])
        moving = np.abs(data.dq[pick]) > self.min_velocity
        return np.asarray(Y * (moving / self.noise)[:, :, None])

    def weigh(self, data: SimulatedData) -> None:
        """Learn how much each parameter has weighed in one instant's rows, over the estimator's longest memory."""
        duration = data.t.size / RATE_HZ
        self.seen_s += duration
        gain = max(1.0 - np.exp(-duration / self.settings.memory_s), duration / self.seen_s)
        self.power += gain * ((self.rows(data, 20) ** 2).sum(axis=1).mean(axis=0) - self.power)

    def effect(self, data: SimulatedData) -> np.ndarray:
        """(p,) uncertainty of each parameter from `data` alone, in units of the noise; huge if it is free."""
        every = 10
        rows = self.rows(data, every)
        # Rows of white noise filtered to the cut-off count as independent only at twice its frequency.
        independent = 2.0 * self.settings.cutoff_hz * every / RATE_HZ
        W = rows.reshape(-1, len(self.base)) * np.sqrt(independent)
        W = W / np.sqrt(np.maximum(self.power, 1e-30))
        _, values, Vt = np.linalg.svd(W, full_matrices=False)
        return np.asarray(np.sqrt((Vt.T**2 / np.maximum(values, 1e-9) ** 2).sum(axis=1)))

    def judge(self, data: SimulatedData, flags: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which flags are wrong, and which are too close to the limit to tell.

        `data` are the last seconds, two windows long; the report may rest on anything from one to two windows.
        """
        short = self.effect(last(data, self.settings.excitation_s))
        long = self.effect(last(data, 2.0 * self.settings.excitation_s))
        excited, free = short < self.LIMIT / self.MARGIN, long > self.LIMIT * self.MARGIN
        return np.where(flags, free, excited), ~excited & ~free


def make_arm(robot: str, seed: int, phases: Phases, held: int, stepped: int) -> SimulatedArm:
    """The arm of this scenario; joints are counted from 0."""
    model = load_robot(robot).model
    names = [joint.name for joint in model.joints]
    segments = (
        PieceSettings(duration_s=phases.rich, seed=seed),
        PieceSettings(duration_s=phases.one_held, seed=seed + 1, held=(names[held],)),
        PieceSettings(kind="hold", duration_s=phases.all_held),
        PieceSettings(duration_s=phases.rich_again + phases.step, seed=seed),
    )
    event = EventSettings(time_s=phases.ends["rich_again"], joint=names[stepped], parameter="coulomb", factor=STEP)
    settings = SimSettings(rate_hz=RATE_HZ, seed=seed, torque_noise=TORQUE_NOISE, events=(event,))
    return SimulatedArm(model, settings, MotionSettings(kind="schedule", seed=seed, segments=segments), seed=seed)


def last(data: SimulatedData, duration_s: float) -> SimulatedData:
    """The exact states of the last `duration_s`."""
    pick = slice(-round(duration_s * RATE_HZ), None)
    exact = (getattr(data, name)[pick] for name in ("q", "dq", "ddq", "tau", "friction"))
    return SimulatedData(data.t[pick], {}, *exact)


def chunks(arm: SimulatedArm, duration_s: float) -> Iterator[SimulatedData]:
    """Samples of `duration_s`, a few seconds at a time."""
    done = 0.0
    while done < duration_s - 1e-9:
        size = min(CHUNK_S, duration_s - done)
        yield arm.simulate(size)
        done += size


def soak(
    robot: str = "space6",
    seed: int = 1,
    phases: Phases | None = None,
    *,
    held: int = 2,
    stepped: int = 1,
    settings: OnlineSettings | None = None,
    progress: Callable[[float, str, float], None] | None = None,
) -> SoakResult:
    """Run the scenario; `progress` is told time [s], phase and present error every few seconds."""
    phases = Phases() if phases is None else phases
    settings = OnlineSettings() if settings is None else settings
    arm = make_arm(robot, seed, phases, held, stepped)
    model = arm.model
    estimator = OnlineEstimator(model, settings, RATE_HZ)
    estimator.warm_up()
    base = estimator.base
    noise = TORQUE_NOISE * torque_scale(model, np.asarray(model.inertial))
    oracle = ExcitationOracle(model, base, noise, settings)
    true = base.theta(standard_parameters(model, base.standard))
    friction = base.names.index(f"fc{stepped + 1}")
    step_at = phases.ends["rich_again"]
    step_size = (STEP - 1.0) * true[friction]
    result = SoakResult(parameters=len(base))
    W = np.zeros((0, len(base)))
    history: list[SimulatedData] = []
    for data in chunks(arm, phases.ends["step"]):
        for q, tau, t_ns, seq in _frames(data):
            estimator.step(t_ns, seq, q, tau)
            if seq % 1000 == 999:
                _watch_step(result, estimator, friction, true[friction] + step_size, step_size, t_ns * 1e-9 - step_at)
        result.frames += data.t.size
        now = result.frames / RATE_HZ
        phase, since = phases.at(now - 1e-6)
        history = [*history, data][-int(np.ceil(2.0 * settings.excitation_s / CHUNK_S)) :]
        if phase == "rich" and since > 20.0 and not W.size:
            exact = regressor(model, base.layout, data.q[::20], data.dq[::20], data.ddq[::20])
            W = exact.reshape(-1, len(base))
        elif phase == "rich" and W.size < 40 * 50 * len(base) * model.n:
            exact = regressor(model, base.layout, data.q[::20], data.dq[::20], data.ddq[::20])
            W = np.concatenate((W, exact.reshape(-1, len(base)))) if W.size else W
        if phase != "all_held":
            oracle.weigh(data)
        truth = true.copy()
        if phase == "step":
            truth[friction] += step_size
        report = estimator.report()
        _check_state(result, estimator, now)
        error = float(np.linalg.norm(W @ (report.theta - truth)) / np.linalg.norm(W @ truth)) if W.size else np.inf
        if progress is not None:
            progress(now, phase, error)
        if (phase != "rich" or now > phases.rich - 1e-6) and (phase != "step" or since > STEP_ALLOWANCE_S):
            result.error[phase] = max(result.error.get(phase, 0.0), error)
        if W.size and (since > FLAG_LAG_S or phase == "step"):
            _check_flags(result, oracle, _joined(history), report.excited, base, phase, now)
    return result


def _frames(data: SimulatedData) -> Iterator[tuple[np.ndarray, np.ndarray, int, int]]:
    q, tau = data.channels["q"], data.channels["tau"]
    for k, t in enumerate(data.t):
        yield q[k], tau[k], round(t * 1e9), round(t * RATE_HZ)


def _joined(history: list[SimulatedData]) -> SimulatedData:
    def join(name: str) -> Any:
        return np.concatenate([getattr(part, name) for part in history])

    return SimulatedData(join("t"), {}, *(join(name) for name in ("q", "dq", "ddq", "tau", "friction")))


def _watch_step(
    result: SoakResult, estimator: OnlineEstimator, friction: int, goal: float, size: float, since: float
) -> None:
    if since - estimator.delay_s < STEP_ALLOWANCE_S - 0.5:
        return
    error = abs(float(estimator.theta[friction]) - goal) / abs(size)
    if np.isnan(result.step_error):
        result.step_error = error
        result.step_error_after = error
    result.step_error_after = max(result.step_error_after, error)


def _check_state(result: SoakResult, estimator: OnlineEstimator, now: float) -> None:
    R = estimator.information_root
    if not np.isfinite(estimator.theta).all() or not np.isfinite(R).all():
        result.problems.append(f"{now:.0f} s: the estimate is not finite")
    elif not (np.diag(R) != 0.0).all() or not np.linalg.cond(R / np.linalg.norm(R, axis=0)) < 1e12:
        result.problems.append(f"{now:.0f} s: the information matrix is not positive definite")


def _check_flags(
    result: SoakResult,
    oracle: ExcitationOracle,
    data: SimulatedData,
    flags: np.ndarray,
    base: BaseParameters,
    phase: str,
    now: float,
) -> None:
    if phase == "all_held":
        wrong, near = flags, np.zeros_like(flags)
    elif phase == "one_held":
        wrong, near = oracle.judge(data, flags)
    else:
        wrong, near = ~flags, np.zeros_like(flags)
    result.flags_checked += flags.size
    result.flags_wrong += int(wrong.sum())
    result.flags_open += int(near.sum())
    for k in np.flatnonzero(wrong):
        result.problems.append(f"{now:.0f} s, {phase}: {base.names[k]} is called {'' if flags[k] else 'not '}excited")
