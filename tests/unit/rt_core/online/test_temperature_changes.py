"""Sudden changes of an arm whose friction follows temperature: told as ever, and never for want of a temperature."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from benchmarks.coverage import correlated_noise
from benchmarks.detector_cases import CORRELATED, RATE_HZ, SETTINGS, TORQUE_NOISE, Alteration, torque
from drivers.files.robots.file import load_robot
from rt_core.model.base import base_parameters
from rt_core.model.parameters import standard_parameters
from rt_core.online import OnlineEstimator
from rt_core.online._state import EXTRA, PAYLOAD
from rt_core.online.monitors.residual_evidence import friction_columns
from rt_core.types import FloatArray
from service.config.load import ArmConfig
from service.estimator._active_model import ActiveModel
from service.estimator._hand_guiding_model import HandGuidingModelSource
from service.io.state_file import load_state, save_state
from service.protocol.control import ControlError
from sim_backend.arm.packed import torque_scale
from sim_backend.arm.settings import MotionSettings
from sim_backend.arm.trajectory import motor_torque, plan_motion
from tests.unit.rt_core.online.test_estimator import earlier

ROBOT = load_robot("space6_temperature")
MODEL = ROBOT.model
BASE = base_parameters(MODEL)
TRUTH = BASE.theta(standard_parameters(MODEL, BASE.standard))
COVARIANCE = np.diag((0.01 * np.abs(TRUTH) + 1e-4) ** 2)
assert MODEL.inertial is not None
NOISE = TORQUE_NOISE * np.hypot(1.0, CORRELATED) * torque_scale(MODEL, MODEL.inertial)
LIMITS = [[10.0] * 6, [70.0] * 6]
LOOK = 25  # frames
BEGIN_S = 45.0  # of what changes


@cache
def motion(seconds: float) -> tuple[FloatArray, list[FloatArray]]:
    t = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    planned = plan_motion(MODEL, MotionSettings(seed=5, candidates=2))
    return t, [np.asarray(x) for x in planned.sample(t)]


@dataclass
class Arm:
    """A moving arm with noise, whose true model is active; and what was told of it."""

    seconds: float
    changes: list[Alteration] = field(default_factory=list)
    celsius: FloatArray | float = 40.0
    told: list[tuple[float, str, dict[str, object]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.t, states = motion(self.seconds)
        self.q = states[0]
        self.T = np.broadcast_to(np.reshape(self.celsius, (-1, 1)), self.q.shape)
        assert MODEL.inertial is not None
        assert MODEL.dynamics is not None
        d = MODEL.dynamics
        warm = replace(MODEL, dynamics=replace(d, coulomb=d.coulomb + d.coulomb_temperature))
        per_kelvin = motor_torque(warm, MODEL.inertial, *states) - motor_torque(MODEL, MODEL.inertial, *states)
        self.tau = torque(MODEL, self.t, states, self.changes) + per_kelvin * (self.T - 20.0)
        rng = np.random.default_rng(7)
        white = NOISE / np.hypot(1.0, CORRELATED)
        self.tau += white * rng.standard_normal(self.q.shape)
        self.tau += correlated_noise(rng, len(self.t), RATE_HZ, CORRELATED * white)
        self.at = 0
        self.estimator = OnlineEstimator(MODEL, SETTINGS, RATE_HZ, base=BASE)
        self.active = ActiveModel(self.estimator, ROBOT, lambda *event: self._hear(*event))
        self.active.start(None, None)
        self.active.activate(
            {"theta": TRUTH.tolist(), "covariance": COVARIANCE.tolist(), "model": "one", "adopt": True}
            | {"temperatures": LIMITS}
        )

    def _hear(self, kind: str, text: str, data: dict[str, object]) -> None:
        self.told.append((self.at / RATE_HZ, kind, data))

    def go(self, until_s: float, *, known: bool = True, watched: bool = True) -> None:
        """Take frames, with a temperature now and then or with none."""
        for k in range(self.at, round(until_s * RATE_HZ)):
            self.at = k
            T = self.T[k] if known and k % LOOK == 0 else None
            t_ns = round(self.t[k] * 1e9)
            self.estimator.step(t_ns, k, self.q[k], self.tau[k], temperature=T)
            if watched and k % LOOK == 0:
                self.active.observe_changes(t_ns)
        self.at += 1

    @property
    def kinds(self) -> list[str]:
        return [kind for _, kind, _ in self.told if kind != "model_adopted"]


def test_friction_over_temperature_is_friction_of_its_joint() -> None:
    wrong = TRUTH.copy()
    slopes = np.flatnonzero(BASE.layout.follows_temperature)
    wrong[slopes] -= 3.0 / 20.0 * NOISE
    places = friction_columns(BASE.layout, MODEL.n)
    assert set(slopes) <= set(places.ravel())
    arm = Arm(15.0)
    arm.estimator.set_active(wrong)
    arm.go(15.0, watched=False)
    evidence = arm.estimator.take_evidence()
    baseline = np.zeros((MODEL.n, EXTRA - 1 + places.shape[1]))
    for j in range(MODEL.n):
        for at, c in enumerate(places[j]):
            if c in slopes:
                assert BASE.layout.source[c] == j
                baseline[j, PAYLOAD + at] = (TRUTH - wrong)[c]
    found, left = evidence.gram[:, -1, -1], evidence.about(baseline).gram[:, -1, -1]
    assert (found > 5.0 * NOISE**2 * evidence.rows).all()
    assert (left < 1.5 * NOISE**2 * evidence.rows).all()


def test_a_change_of_friction_is_reported_and_stays_explained_as_the_arm_warms_up() -> None:
    end_s = BEGIN_S + 110.0
    at = np.arange(round(end_s * RATE_HZ)) / RATE_HZ
    celsius = 40.0 + 0.01 * at + np.interp(at, [BEGIN_S + 65.0, end_s], [0.0, 20.0])
    arm = Arm(end_s, [Alteration("friction", 1.5, 1, at_s=BEGIN_S)], celsius)
    arm.go(end_s)
    assert arm.kinds == ["change", "friction_changed"]
    told_s, _, data = arm.told[-1]
    assert told_s - BEGIN_S < 20.0
    assert data["joints"] == ["joint_2"]
    found = {p["name"]: p for p in data["parameters"]}  # type: ignore[attr-defined]
    assert set(found) == {"fv2", "fc2", "alpha2"}
    assert abs(found["alpha2"]["change"]) * 20.0 < 0.1 * 0.5 * MODEL.dynamics.coulomb[1]
    assert arm.active.status()["temperature"]["state"] == "ok"


def test_without_a_temperature_nothing_is_learned_or_told() -> None:
    arm = Arm(BEGIN_S + 40.0, [Alteration("payload", 3.0, at_s=BEGIN_S + 12.0)])
    arm.go(BEGIN_S)
    arm.go(BEGIN_S + 11.0, known=False)  # the temperature held for 10 s of it
    before = arm.active.change.state()
    assert arm.active.change.status == "watching"
    arm.go(BEGIN_S + 30.0, known=False)
    assert arm.kinds == []
    assert "no temperature of joint_1" in arm.active.invalid_reason
    for name, value in arm.active.change.state().items():
        np.testing.assert_array_equal(value, before[name])
    arm.go(BEGIN_S + 40.0)
    assert arm.kinds == ["change", "payload_attached"]
    assert arm.told[-1][0] - BEGIN_S - 30.0 < 4.0


def test_guiding_and_the_status_know_of_both(tmp_path: Path) -> None:
    arm = Arm(BEGIN_S + 20.0, [Alteration("payload", 3.0, at_s=BEGIN_S)])
    table = {"name": "one", "robot": "space6_temperature", "driver": {"kind": "sim", "mode": "csp"}, "guiding": {}}
    source = HandGuidingModelSource(ArmConfig.model_validate(table), arm.active).handlers["guiding_model"]
    arm.go(BEGIN_S)
    assert source({"arm": "one"})
    arm.go(BEGIN_S + 10.0)
    status = arm.active.status()
    assert status["change"]["payload"]["mass"]["value"] == pytest.approx(3.0, rel=0.1)
    assert (status["temperature"]["state"], status["temperature"]["fitted"]) == ("ok", LIMITS)
    with pytest.raises(ControlError, match="not valid: the arm carries a payload"):
        source({"arm": "one"})
    save_state(tmp_path / "state", {**arm.estimator.state(), **arm.active.state()}, "owner")
    other = Arm(1.0)
    state = load_state(tmp_path / "state", "owner")
    saved = other.active.read(state)
    other.estimator.restore(state)
    other.active.start(None, saved)
    assert other.active.status()["temperature"]["fitted"] == LIMITS
    assert other.active.status()["change"]["payload"] == arm.active.status()["change"]["payload"]
    assert "payload" in other.active.invalid_reason
    later_ns = round((arm.t[arm.at] + 60.0) * 1e9)  # nothing warms up so far within a frame
    arm.estimator.step(later_ns, arm.at, arm.q[arm.at], arm.tau[arm.at], temperature=np.full(6, 90.0))
    with pytest.raises(ControlError, match="friction is not known there"):
        source({"arm": "one"})
    assert arm.active.status()["change"]["payload"] is not None
    arm.active.activate({"theta": TRUTH.tolist(), "model": "two", "temperatures": [[80.0] * 6, [95.0] * 6]})
    assert arm.active.invalid_reason == ""  # another model: of these temperatures, and compared anew
    assert arm.active.status()["change"]["state"] == "learning"


def test_a_state_from_before_the_watch_for_changes_keeps_its_temperatures() -> None:
    arm = Arm(12.0)
    arm.go(10.0)
    old, new = (OnlineEstimator(MODEL, SETTINGS, RATE_HZ, base=BASE) for _ in range(2))
    old.restore(earlier(arm.estimator, 5))
    new.restore(arm.estimator.state())
    seen, kept = arm.estimator.temperatures, old.temperatures
    assert kept.plain == seen.plain
    assert not old.take_evidence().rows.any()
    for k in range(round(10.0 * RATE_HZ), round(12.0 * RATE_HZ)):
        for estimator in (old, new):
            estimator.step(round(arm.t[k] * 1e9), k, arm.q[k], arm.tau[k], temperature=arm.T[k])
    assert new.report().updates > arm.estimator.report().updates
    np.testing.assert_array_equal(old.theta, new.theta)
    np.testing.assert_array_equal(old.covariance, new.covariance)
