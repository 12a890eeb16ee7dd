"""Whatever frames arrive: the estimate stays finite, the information positive definite, and nothing is raised."""

from functools import cache

import numpy as np
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rt_core.model.regressor import regressor
from rt_core.online import OnlineEstimator, OnlineSettings
from sim_backend.arm.robot import SimulatedArm, SimulatedData
from sim_backend.arm.settings import MotionSettings, SimSettings
from tests.lab.arms.simulated import random_arm

RATE = 200.0
N = 3
MODEL = random_arm(N, 21)
SETTINGS = OnlineSettings(update_hz=50.0, memory_s=4.0, excitation_s=1.0)


@cache
def recorded() -> SimulatedData:
    motion = MotionSettings(candidates=1, base_frequency_hz=0.3)
    return SimulatedArm(MODEL, SimSettings(rate_hz=RATE), motion).simulate(6.0)


number = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, -0.0, 1e-320, 1e300, -1e300, 1e15, np.nan, np.inf, 1e-12]),
    st.floats(-10.0, 10.0),
)
vector = st.lists(number, min_size=N, max_size=N).map(np.array)


def check(estimator: OnlineEstimator) -> None:
    R = estimator.information_root
    assert np.isfinite(estimator.theta).all()
    assert np.isfinite(R).all()
    assert (np.diag(R) != 0.0).all()


class Stream(RuleBasedStateMachine):
    """Stretches of a real motion, spoilt frames between, time that jumps, resets, saved states."""

    @initialize()
    def start(self) -> None:
        self.estimator = OnlineEstimator(MODEL, SETTINGS, RATE, base=BASE)
        self.at = 0
        self.time_s = 0.0
        self.seq = 0

    def frame(self, q: np.ndarray, tau: np.ndarray) -> None:
        self.estimator.step(round(self.time_s * 1e9), self.seq, q, tau)
        self.time_s += 1.0 / RATE
        self.seq += 1

    @rule(count=st.integers(1, 300))
    def move(self, count: int) -> None:
        for _ in range(count):
            k = self.at % recorded().t.size
            self.frame(recorded().channels["q"][k], recorded().channels["tau"][k])
            self.at += 1

    @rule(q=vector, tau=vector, count=st.integers(1, 60))
    def nonsense(self, q: np.ndarray, tau: np.ndarray, count: int) -> None:
        rng = np.random.default_rng(count)
        for _ in range(count):
            with np.errstate(over="ignore", invalid="ignore"):
                self.frame(q * rng.uniform(0.9, 1.1, N), tau * rng.uniform(-1.0, 1.0, N))

    @rule(count=st.integers(1, 200))
    def stand_still(self, count: int) -> None:
        for k in range(count):
            self.frame(recorded().channels["q"][0], np.full(N, 1e-3 * k))

    @rule(jump=st.one_of(st.floats(-5.0, 5.0), st.sampled_from([-1e6, 1e6, 1e-9, 0.0049, 0.02])))
    def time_jumps(self, jump: float) -> None:
        self.time_s = max(0.0, self.time_s + jump)

    @rule(seq=st.integers(-5, 2**40))
    def sequence_jumps(self, seq: int) -> None:
        self.seq = seq

    @rule()
    def gap(self) -> None:
        self.estimator.restart_stream(3)

    @rule()
    def reset(self) -> None:
        self.estimator.reset()

    @rule()
    def save_and_restore(self) -> None:
        other = OnlineEstimator(MODEL, SETTINGS, RATE, base=BASE)
        other.restore(self.estimator.state())
        self.estimator = other

    @rule()
    def report(self) -> None:
        report = self.estimator.report()
        assert np.isfinite(report.std).all()
        assert (report.std > 0.0).all()
        assert ((report.lam > 0.0) & (report.lam <= 1.0)).all()
        self.estimator.torque()

    @invariant()
    def sound(self) -> None:
        if hasattr(self, "estimator"):
            check(self.estimator)


BASE = OnlineEstimator(MODEL, SETTINGS, RATE).base

TestStream = Stream.TestCase
TestStream.settings = hypothesis_settings(
    max_examples=15, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)


@given(scale=st.floats(-30.0, 30.0))
@hypothesis_settings(max_examples=15)
def test_torque_of_any_size(scale: float) -> None:
    factor = 2.0 ** round(scale)
    estimator = OnlineEstimator(MODEL, SETTINGS, RATE, base=BASE)
    for k, t in enumerate(recorded().t):
        estimator.step(round(t * 1e9), k, recorded().channels["q"][k], factor * recorded().channels["tau"][k])
    check(estimator)
    assert np.isfinite(estimator.report().std).all()


def _torque_error(estimator: OnlineEstimator, data: SimulatedData) -> float:
    pick = slice(0, None, 20)
    Y = regressor(MODEL, BASE.layout, data.q[pick], data.dq[pick], data.ddq[pick])
    moving = np.abs(data.dq[pick]) > MODEL.standstill_velocity
    error = np.where(moving, Y @ estimator.theta - data.tau[pick], 0.0)
    return float(np.linalg.norm(error) / np.linalg.norm(data.tau[pick]))


def test_a_disturbance_of_a_few_frames_is_forgotten() -> None:
    long = SimulatedArm(MODEL, SimSettings(rate_hz=RATE), MotionSettings(candidates=1, base_frequency_hz=0.3))
    data = long.simulate(50.0)
    disturbed, calm = (OnlineEstimator(MODEL, SETTINGS, RATE, base=BASE) for _ in range(2))
    rng = np.random.default_rng(0)
    for k, t in enumerate(data.t):
        q, tau = data.channels["q"][k], data.channels["tau"][k]
        calm.step(round(t * 1e9), k, q, tau)
        wild = 6000 <= k < 6020
        disturbed.step(round(t * 1e9), k, q, tau + 100.0 * rng.standard_normal(N) if wild else tau)
        if k == 6100:
            assert _torque_error(disturbed, data) > 10.0 * _torque_error(calm, data)
    assert _torque_error(disturbed, data) < 0.02
    assert _torque_error(calm, data) < 0.02
