"""An encoder that sticks on an arm that somebody else moves is told, and the estimate is what it was before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.files.recordings.format import RecordingMeta
from drivers.files.recordings.recording import Recording, write_recording
from drivers.files.robots.file import load_robot
from rt_core.model.regressor import regressor
from rt_core.online import OnlineEstimator, OnlineSettings
from service.client import BodyMessage, Control, Subscriber
from service.estimator._active_model import ActiveModel
from service.estimator._encoder_monitor import EncoderMonitor
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import MotionSettings, SimSettings
from tests.lab.daemon.daemons import await_message, await_status, config, replayed, start

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
        self.encoders = EncoderMonitor(self.estimator, self._report_event)

    def _report_event(self, kind: str, _text: str, data: dict[str, Any]) -> None:
        self.told.append((self.t, kind, data))

    def take(self, t: np.ndarray, q: np.ndarray, tau: np.ndarray, first: int = 0) -> None:
        """Take frames one after the other."""
        for k, self.t in enumerate(t.tolist()):
            t_ns = round(self.t * 1e9)
            self.estimator.step(t_ns, first + k, q[k], tau[k], masked=self.encoders.stuck)
            self.encoders.push(t_ns, q[k])


def at(seconds: float) -> int:
    return round(seconds * RATE_HZ)


def test_a_stuck_encoder_is_reported_and_nothing_is_learned_from_it() -> None:
    t, q, tau = motion()
    q = q.copy()
    q[at(STICK_S) : at(AGAIN_S), JOINT] = q[at(STICK_S) - 1, JOINT]
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
    assert arm.encoders.document() == {"stuck": ["joint_2"]}

    rest = at(AGAIN_S)
    arm.take(t[rest:], q[rest:], tau[rest:], rest)
    assert [kind for _, kind, _ in arm.told] == ["encoder_stuck", "encoder_moves"]
    assert arm.told[1][0] < AGAIN_S + 1.0
    assert not arm.encoders.stuck
    later = arm.estimator.report()
    assert later.used > report.used
    assert (np.array(later.status) == "estimated").sum() >= known.sum()
    assert np.abs(((later.theta - before.theta) / before.std)[known]).max() < 4.0


def test_without_the_watch_the_estimate_would_be_wrong() -> None:
    """What the watch is for, and that this arm shows it."""
    t, q, tau = motion()
    q = q.copy()
    q[at(STICK_S) : at(AGAIN_S), JOINT] = q[at(STICK_S) - 1, JOINT]
    arm = Arm()
    good, end = at(STICK_S - 0.5), at(AGAIN_S)
    arm.take(t[:good], q[:good], tau[:good])
    before = arm.estimator.report()
    for k in range(good, end):
        arm.estimator.step(round(t[k] * 1e9), k, q[k], tau[k])
    after = arm.estimator.report()
    known = np.array(before.status) == "estimated"
    assert np.abs(((after.theta - before.theta) / before.std)[known]).max() > 20.0


def braked(tau: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Let the motor of the joint do nothing from `STICK_S` on, but for noise."""
    tau = tau.copy()
    tau[at(STICK_S) :, JOINT] = 0.05 * rng.standard_normal(tau.shape[0] - at(STICK_S))
    return tau


def test_a_brake_is_no_encoder_that_sticks() -> None:
    """The joint stands, its motor does nothing, and what the others need is as the arm that stands so needs it."""
    t, q, tau = motion()
    q = q.copy()
    q[at(STICK_S) :, JOINT] = q[at(STICK_S) - 1, JOINT]
    arm = Arm()
    arm.take(t, q, braked(tau, np.random.default_rng(0)))
    assert arm.told == []


def test_nor_is_one_that_takes_over_later() -> None:
    """The joint is held by its motor first, as the model asks, and the brake takes over at once after three seconds."""
    t, q, tau = motion()
    stand, brake = at(STICK_S), at(STICK_S + 3.0)
    q = q.copy()
    q[stand:, JOINT] = q[stand - 1, JOINT]
    arm = Arm()
    arm.take(t[:stand], q[:stand], tau[:stand])
    tau = braked(tau, np.random.default_rng(0))
    base, model = arm.estimator.base, arm.estimator.model
    dq = np.gradient(q[stand:], 1.0 / RATE_HZ, axis=0)
    ddq = np.gradient(dq, 1.0 / RATE_HZ, axis=0)
    held = regressor(model, base.layout, q[stand:], dq, ddq) @ arm.estimator.theta
    tau[stand:brake, JOINT] = held[: brake - stand, JOINT]
    arm.take(t[stand:], q[stand:], tau[stand:], stand)
    assert np.ptp(held[: brake - stand, JOINT]) > 20.0
    assert arm.told == []


def test_a_joint_that_stands_by_its_own_motor_is_none_either() -> None:
    """Its torque is what the others' motion asks of it, and half as much again as its dry friction, to and fro."""
    t, q, tau = motion()
    stand = at(STICK_S)
    q, tau = q.copy(), tau.copy()
    q[stand:, JOINT] = q[stand - 1, JOINT]
    arm = Arm()
    arm.take(t[:stand], q[:stand], tau[:stand])
    base, model = arm.estimator.base, arm.estimator.model
    dq = np.gradient(q[stand:], 1.0 / RATE_HZ, axis=0)
    ddq = np.gradient(dq, 1.0 / RATE_HZ, axis=0)
    tau[stand:] = regressor(model, base.layout, q[stand:], dq, ddq) @ arm.estimator.theta
    friction = arm.estimator.theta[base.names.index("fc2")]
    assert friction > 5.0
    tau[stand:, JOINT] += 1.5 * friction * np.sin(np.arange(t.size - stand) / 40.0)
    arm.take(t[stand:], q[stand:], tau[stand:], stand)
    assert arm.told == []


def test_the_watch_of_the_active_model_goes_back_too() -> None:
    t, q, tau = motion()
    q = q.copy()
    q[at(STICK_S) : at(AGAIN_S), JOINT] = q[at(STICK_S) - 1, JOINT]
    arm = Arm()
    told: list[str] = []
    active = ActiveModel(arm.estimator, load_robot("space6"), lambda kind, _text, _data: told.append(kind))
    asked: list[int] = []

    def rollback(watched: Mapping[str, Any], since_ns: int) -> dict[str, Any]:
        active.rollback(watched)
        asked.append(since_ns)
        return {"still": active.reported}

    arm.encoders = EncoderMonitor(arm.estimator, arm._report_event, active.snapshot, rollback)
    for k, arm.t in enumerate(t.tolist()):
        t_ns = round(arm.t * 1e9)
        arm.estimator.step(t_ns, k, q[k], tau[k], masked=arm.encoders.stuck)
        arm.encoders.push(t_ns, q[k])
        if k == at(20.0):
            values = {"theta": arm.estimator.theta.tolist(), "covariance": arm.estimator.covariance.tolist()}
            active.activate({**values, "model": "learnt", "adopt": True})
        if k % at(0.1) == 0 and not arm.encoders.stuck:
            active.observe_changes(t_ns)
        if k % at(1.0) == 0 and not arm.encoders.stuck:
            active.observe(arm.estimator.report())
    assert [kind for _, kind, _ in arm.told] == ["encoder_stuck", "encoder_moves"]
    assert asked == [pytest.approx((STICK_S - 0.2) * 1e9, abs=5e7)]
    assert arm.told[0][2]["still"] == []
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
    base, model = arm.estimator.base, arm.estimator.model
    dq = np.gradient(q[rest:], 1.0 / RATE_HZ, axis=0)
    ddq = np.gradient(dq, 1.0 / RATE_HZ, axis=0)
    tau[rest:] = regressor(model, base.layout, q[rest:], dq, ddq) @ arm.estimator.theta
    q[at(STICK_S) : at(AGAIN_S), JOINT] = q[at(STICK_S) - 1, JOINT]
    arm.take(t[rest:], q[rest:], tau[rest:], rest)
    assert [(kind, data["joints"]) for _, kind, data in arm.told] == [
        ("encoder_stuck", ["joint_2"]), ("encoder_moves", ["joint_2"]),
    ]  # fmt: skip
    assert arm.told[0][2]["since"] == pytest.approx(STICK_S, abs=0.05)
    assert not arm.encoders.stuck


def test_an_estimate_that_began_anew_just_before_goes_back_no_further() -> None:
    """A model that was adopted half a second before the encoder stuck is what the estimate goes back to."""
    t, q, tau = motion()
    q = q.copy()
    q[at(STICK_S) : at(AGAIN_S), JOINT] = q[at(STICK_S) - 1, JOINT]
    adopt = at(STICK_S - 0.5)
    arm = Arm()
    arm.take(t[:adopt], q[:adopt], tau[:adopt])
    theta, covariance = arm.estimator.theta, arm.estimator.covariance
    theta[0] += 20.0 * np.sqrt(covariance[0, 0])  # to be told apart from what was before
    arm.estimator.adopt(theta, covariance)
    arm.take(t[adopt : at(AGAIN_S)], q[adopt : at(AGAIN_S)], tau[adopt : at(AGAIN_S)], adopt)
    assert [kind for _, kind, _ in arm.told] == ["encoder_stuck"]
    moved = np.abs(arm.estimator.theta - theta) / np.sqrt(np.diag(covariance))
    assert np.median(moved) < 2.0
    assert moved[0] < 10.0


def test_of_a_joint_that_has_stood_for_long_it_goes_back_a_minute_at_most() -> None:
    """While something speaks against an encoder for minutes one state a minute is kept."""
    arm = Arm()
    begun = arm.estimator.checkpoint()
    arm.encoders._checkpoints.extend((t, begun, {}) for t in (100.0, 161.0, 222.0, 283.0))
    arm.encoders._on_stuck(300.0, 50.0)
    assert [data["back_s"] for _, _, data in arm.told] == [17.0]
    arm.encoders._checkpoints.extend((t, begun, {}) for t in (291.0, 292.0, 299.0))
    arm.encoders._on_stuck(300.0, 50.0)
    assert arm.told[1][2]["back_s"] == 9.0


def test_no_report_where_all_joints_stand() -> None:
    t, q, tau = motion()
    q = q.copy()
    q[at(STICK_S) :] = q[at(STICK_S) - 1]
    arm = Arm()
    arm.take(t, q, tau)
    assert arm.told == []
    assert not arm.encoders.stuck


def test_a_gap_begins_anew_and_a_reset_is_not_gone_back_behind() -> None:
    t, q, tau = motion()
    arm = Arm()
    arm.take(t[:2000], q[:2000], tau[:2000])
    checkpoint = arm.estimator.checkpoint()
    arm.estimator.reset()
    assert not arm.estimator.rollback(checkpoint)
    assert not arm.estimator.theta.any()
    arm.estimator.restart_stream()
    arm.encoders.restart_stream()
    arm.take(t[:2000] + 7.0, q[:2000], tau[:2000])
    assert arm.told == []
    assert not arm.encoders.stuck


def test_one_that_sticks_over_a_gap_is_held_until_it_moves() -> None:
    t, q, tau = motion()
    q = q.copy()
    q[at(STICK_S) : at(AGAIN_S), JOINT] = q[at(STICK_S) - 1, JOINT]
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


def test_a_daemon_reports_it_and_holds_the_estimate(tmp_path: Path) -> None:
    t, q, tau = (x[: at(AGAIN_S)] for x in motion())
    q = q.copy()
    q[at(STICK_S) :, JOINT] = q[at(STICK_S) - 1, JOINT]
    names = tuple(joint.name for joint in load_robot("space6").model.joints)
    meta = RecordingMeta("space6", names, ("rad",) * len(names), RATE_HZ)
    channels = {"q": q, "tau": tau}
    times_ns = np.rint(t * 1e9).astype(np.int64)
    recording = Recording(t, times_ns, np.arange(t.size), channels, meta)
    write_recording(tmp_path / "stuck.mcap", recording)
    arm = replayed(tmp_path / "stuck.mcap", name="lab", robot="space6", speed="max")
    daemon = start(config(tmp_path, {**arm, "hold": True}), tmp_path)
    try:
        with (
            Control(daemon.endpoints["control"]) as control,
            Subscriber(daemon.endpoints["estimates"], ["lab/event"]) as stream,
        ):
            control.request("start")
            event = await_message(stream, lambda m: m.kind == "event")
            assert isinstance(event, BodyMessage)
            assert event.body["event"] == "encoder_stuck"
            assert event.body["data"]["joints"] == ["joint_2"]
            found = await_status(control, lambda found: found["lab/estimator"]["info"].get("state") == "drained")
            assert found["lab/estimator"]["info"]["encoders"] == {"stuck": ["joint_2"]}
            snapshot = control.request("snapshot")
            assert set(snapshot["status"]) <= {"frozen", "unestimated"}
            assert snapshot["masked"] > RATE_HZ * (AGAIN_S - STICK_S - SOON_S)
            assert snapshot["frames"] == t.size
    finally:
        daemon.stop()
