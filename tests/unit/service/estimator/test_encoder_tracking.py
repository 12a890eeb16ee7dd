"""An encoder that sticks on an arm that somebody else moves is told, and the estimate is what it was before."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from drivers.frame import JointFrame
from rt_core.model.regressor import regressor
from rt_core.online import OnlineEstimator, OnlineSettings
from service.estimator._active_model import ActiveModel
from service.estimator._encoder_monitor import EncoderMonitor
from service.estimator._frame_consumer import FrameBlock, FrameConsumer
from service.estimator._rigid_estimate import RigidEstimate
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import MotionSettings, SimSettings

RATE_HZ = 200.0
STICK_S, AGAIN_S, END_S = 40.0, 50.0, 60.0
SOON_S = 4.0
JOINT = 1


@lru_cache
def motion() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times (K,), positions and torques (K, 6) of an arm that moves all the time."""
    robot = load_robot("space6")
    settings = MotionSettings(seed=1, candidates=1, base_frequency_hz=0.1, duration_s=END_S)
    data = SimulatedArm(robot.model, SimSettings(rate_hz=RATE_HZ, seed=1), settings).simulate(END_S)
    return data.t, data.channels["q"], data.channels["tau"]


@dataclass
class Arm:
    """An arm whose frames an estimator and the watch of its encoders take, as its process does."""

    estimator: OnlineEstimator = field(
        default_factory=lambda: OnlineEstimator(load_robot("space6").model, OnlineSettings(), RATE_HZ)
    )
    told: list[tuple[float, str, dict[str, Any]]] = field(default_factory=list)
    t: float = 0.0

    def __post_init__(self) -> None:
        self.consumers: list[FrameConsumer] = [RigidEstimate(self.estimator)]
        self.encoders = EncoderMonitor(self.estimator, self._report_event, self.consumers, lambda ns: {"since_ns": ns})
        self.consumers.append(self.encoders)

    def _report_event(self, kind: str, _text: str, data: dict[str, Any]) -> None:
        self.told.append((self.t, kind, data))

    def take(self, t: np.ndarray, q: np.ndarray, tau: np.ndarray, first: int = 0) -> None:
        """Take frames one after the other."""
        for k, self.t in enumerate(t.tolist()):
            self.push(first + k, q[k], tau[k])

    def push(self, seq: int, q: np.ndarray, tau: np.ndarray) -> None:
        frame = JointFrame(seq, round(self.t * 1e9), 0, q, tau=tau)
        block = FrameBlock.of([frame], (q[None], tau[None], None, None), masked=self.encoders.stuck)
        for consumer in self.consumers:
            consumer.push(block)


def at(seconds: float) -> int:
    return round(seconds * RATE_HZ)


def sticking(until_s: float = AGAIN_S) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The motion, with positions of the joint that stay the same from `STICK_S` on."""
    t, q, tau = motion()
    q = q.copy()
    q[at(STICK_S) : at(until_s), JOINT] = q[at(STICK_S) - 1, JOINT]
    return t, q, tau.copy()


def explained(estimator: OnlineEstimator, q: np.ndarray) -> np.ndarray:
    """Torques that the estimate expects of these positions."""
    dq = np.gradient(q, 1.0 / RATE_HZ, axis=0)
    ddq = np.gradient(dq, 1.0 / RATE_HZ, axis=0)
    return regressor(estimator.model, estimator.base.layout, q, dq, ddq) @ estimator.theta


def test_a_stuck_encoder_is_reported_and_nothing_is_learned_from_it() -> None:
    t, q, tau = sticking()
    arm = Arm()
    good = at(STICK_S - 0.5)
    arm.take(t[:good], q[:good], tau[:good])
    before = arm.estimator.report()
    arm.take(t[good : at(AGAIN_S)], q[good : at(AGAIN_S)], tau[good : at(AGAIN_S)], good)

    assert [(kind, data["joints"]) for _, kind, data in arm.told] == [("encoder_stuck", ["joint_2"])]
    at_s, _, data = arm.told[0]
    assert STICK_S < at_s < STICK_S + SOON_S
    assert data["since"] == pytest.approx(STICK_S, abs=0.05)
    assert data["back_s"] == pytest.approx(at_s - STICK_S, abs=1.3)
    report = arm.estimator.report()
    assert set(report.status) <= {"frozen", "unestimated"}
    known = np.array(before.status) == "estimated"
    assert known.sum() > 30
    assert np.abs(((report.theta - before.theta) / before.std)[known]).max() < 2.0
    assert report.frames > before.frames  # all are counted
    assert STICK_S - 1.0 < report.t_ns * 1e-9 < at_s  # of the same clock
    assert arm.encoders.invalid_reason == "the encoder of joint_2 seems to stick"
    assert arm.encoders.report() == {"encoders": {"stuck": ["joint_2"]}}

    rest = at(AGAIN_S)
    arm.take(t[rest:], q[rest:], tau[rest:], rest)
    assert [kind for _, kind, _ in arm.told] == ["encoder_stuck", "encoder_moves"]
    assert arm.told[1][0] < AGAIN_S + 1.0
    assert not arm.encoders.stuck
    later = arm.estimator.report()
    assert later.used > report.used
    assert (np.array(later.status) == "estimated").sum() >= known.sum()
    assert np.abs(((later.theta - before.theta) / before.std)[known]).max() < 4.0


def test_blocks_go_back_to_the_same() -> None:
    (t, q, tau), single, other = sticking(STICK_S + 6.0), Arm(), Arm()
    t, q, tau = t[at(20.0) : at(55.0)], q[at(20.0) : at(55.0)], tau[at(20.0) : at(55.0)]
    single.take(t, q, tau)
    frames = [JointFrame(k, round(t[k] * 1e9), 0, q[k], tau=tau[k]) for k in range(t.size)]
    for begin in range(0, t.size, 77):
        part = slice(begin, begin + 77)
        rest: FrameBlock | None = FrameBlock.of(frames[part], (q[part], tau[part], None, None))
        while rest is not None:
            rest.masked = other.encoders.stuck
            block, rest = rest.split(min(consumer.limit(rest) for consumer in other.consumers))
            other.t = block.t_ns[-1] * 1e-9
            for consumer in other.consumers:
                consumer.push(block)
    assert [kind for _, kind, _ in single.told] == ["encoder_stuck", "encoder_moves"]
    assert [(round(t, 6), kind, data) for t, kind, data in other.told] == [
        (round(t, 6), kind, data) for t, kind, data in single.told
    ]
    for name, value in single.estimator.state().items():
        np.testing.assert_array_equal(other.estimator.state()[name], value)


def test_a_brake_is_no_encoder_that_sticks() -> None:
    """The joint stands, its motor does nothing, and what the others need is as the arm that stands so needs it."""
    t, q, tau = sticking(END_S)
    arm = Arm()
    tau = tau.copy()
    tau[at(STICK_S) :, JOINT] = 0.05 * np.random.default_rng(0).standard_normal(tau.shape[0] - at(STICK_S))
    arm.take(t, q, tau)
    assert arm.told == []


def test_the_watch_of_the_active_model_goes_back_too() -> None:
    t, q, tau = sticking()
    arm = Arm()
    told: list[str] = []
    active = ActiveModel(arm.estimator, load_robot("space6"), lambda kind, _text, _data: told.append(kind))
    arm.consumers.append(active)
    for k, arm.t in enumerate(t.tolist()):
        arm.push(k, q[k], tau[k])
        if k == at(20.0):
            values = {"theta": arm.estimator.theta.tolist(), "covariance": arm.estimator.covariance.tolist()}
            active.activate({**values, "model": "learnt", "adopt": True})
        if k % at(0.1) == 0 and not arm.encoders.stuck:
            active.observe_changes(round(arm.t * 1e9))
        if k % at(1.0) == 0 and not arm.encoders.stuck:
            active.observe(arm.estimator.report())
    assert [kind for _, kind, _ in arm.told] == ["encoder_stuck", "encoder_moves"]
    assert arm.told[0][2]["since_ns"] == pytest.approx((STICK_S - 0.2) * 1e9, abs=5e7)
    assert active.reported == []
    assert active.change.status in ("learning", "watching")
    assert active.invalid_reason == ""
    assert not {"payload_attached", "friction_changed", "sensor_fault", "ambiguous"} & set(told)


def test_a_joint_that_rests_is_not_blamed_with_it_and_does_not_hold_the_estimate_after_it() -> None:
    """Joint 5 stands from 30 s on, and its torque is not explained where the arm seems to be."""
    t, q, tau = motion()
    rest, wrist = at(30.0), 4
    q, tau = q.copy(), tau.copy()
    q[rest:, wrist] = q[rest - 1, wrist]
    arm = Arm()
    arm.take(t[:rest], q[:rest], tau[:rest])
    tau[rest:] = explained(arm.estimator, q[rest:])
    q[at(STICK_S) : at(AGAIN_S), JOINT] = q[at(STICK_S) - 1, JOINT]
    arm.take(t[rest:], q[rest:], tau[rest:], rest)
    assert [(kind, data["joints"]) for _, kind, data in arm.told] == [
        ("encoder_stuck", ["joint_2"]), ("encoder_moves", ["joint_2"]),
    ]  # fmt: skip
    assert arm.told[0][2]["since"] == pytest.approx(STICK_S, abs=0.05)
    assert not arm.encoders.stuck


def test_where_all_stick_the_estimate_is_frozen() -> None:
    """As where all stand, which is no sign of an encoder that sticks."""
    t, q, tau = sticking(END_S)
    q[at(STICK_S) :] = q[at(STICK_S) - 1]
    arm = Arm()
    arm.take(t, q, tau)
    assert set(arm.estimator.report().status) == {"frozen"}
    assert arm.told == []
    assert not arm.encoders.stuck


def test_one_that_sticks_over_a_gap_is_held_until_it_moves() -> None:
    t, q, tau = sticking()
    arm = Arm()
    gap = at(STICK_S + SOON_S)
    arm.take(t[:gap], q[:gap], tau[:gap])
    assert arm.encoders.stuck
    learned = arm.estimator.report().used
    arm.estimator.restart_stream()
    arm.encoders.restart_stream()
    arm.take(t[gap : at(AGAIN_S)] - 30.0, q[gap : at(AGAIN_S)], tau[gap : at(AGAIN_S)])
    assert arm.encoders.stuck
    assert arm.estimator.report().used == learned
    rest = at(AGAIN_S)
    arm.take(t[rest:] - 30.0, q[rest:], tau[rest:], rest)
    assert [kind for _, kind, _ in arm.told] == ["encoder_stuck", "encoder_moves"]
    assert arm.estimator.report().used > learned
