"""The active model of a daemon's arm beyond the temperatures that it was identified at, and guiding by it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.files.robots.file import RobotFile, load_robot
from rt_core.hand_guiding import GuidingModel
from rt_core.model.parameters import standard_parameters
from rt_core.online import OnlineEstimator, OnlineSettings
from service.config.load import ArmConfig
from service.estimator._active_model import ActiveModel
from service.estimator._hand_guiding_model import HandGuidingModelSource
from service.io.state_file import load_state, save_state
from service.protocol.control import ControlError

SETTINGS = OnlineSettings(update_hz=50.0, memory_s=20.0)
RATE = 250.0
LIMITS = {"temperatures": [[10.0] * 6, [40.0] * 5 + [30.0]]}


@pytest.fixture(scope="module")
def robot() -> RobotFile:
    return load_robot("space6_temperature")


class Arm:
    """An estimator with an active model, and what it told of."""

    def __init__(self, robot: RobotFile) -> None:
        self.told: list[tuple[str, str]] = []
        self.estimator = OnlineEstimator(robot.model, SETTINGS, RATE)
        self.active = ActiveModel(self.estimator, robot, lambda kind, text, data: self.told.append((kind, text)))
        base = self.estimator.base
        self.theta = base.theta(standard_parameters(robot.model, base.standard))
        self._seq = 0

    def request(self, **more: Any) -> dict[str, Any]:
        covariance = np.diag((0.01 * np.abs(self.theta)) ** 2)
        return {"theta": self.theta.tolist(), "covariance": covariance.tolist(), "model": "one", "adopt": True} | more

    def pause(self) -> None:
        """Let so much time pass that any temperature may follow."""
        self._seq += round(11 * RATE)

    def frames(self, count: int, temperature: list[float] | None) -> None:
        rng = np.random.default_rng(self._seq)
        for _ in range(count):
            q, tau = rng.normal(size=(2, 6))
            told = None if temperature is None else np.array(temperature)
            self.estimator.step(round(self._seq * 1e9 / RATE), self._seq, q, tau, temperature=told)
            self._seq += 1


def test_beyond_its_temperatures_the_model_is_doubted_after_a_restart_too(robot: RobotFile, tmp_path: Path) -> None:
    first, arm = Arm(robot), Arm(robot)
    first.active.activate(first.request(**LIMITS))
    save_state(tmp_path / "state", first.active.state(), "owner")
    arm.active.restore(load_state(tmp_path / "state", "owner"))
    arm.active.start(None)
    assert arm.active.invalid_reason == ""
    arm.frames(5, [20.0, 25.0, 30.0, 35.0, 40.0, 30.0])
    arm.active.check_temperature()
    found = arm.active.report()["temperature"]
    assert (found["state"], found["joints"], found["reason"]) == ("ok", [], "")
    assert found["fitted"] == LIMITS["temperatures"]
    assert found["present"] == [20.0, 25.0, 30.0, 35.0, 40.0, 30.0]
    arm.pause()
    arm.frames(5, [20.0, 25.0, 30.0, 35.0, 50.0, 30.0])
    for _ in range(3):
        arm.active.check_temperature()
    found = arm.active.report()["temperature"]
    assert (found["state"], found["joints"]) == ("outside", ["joint_5"])
    assert "it is at 50.0 degC, and was identified at 10.0 to 40.0 degC" in found["reason"]
    assert arm.active.invalid_reason == found["reason"]
    arm.pause()
    arm.frames(5, [20.0] * 6)
    arm.active.check_temperature()
    kinds = [kind for kind, _ in arm.told if kind.startswith("temperature")]
    assert kinds == ["temperature_outside", "temperature_ok"]


def test_a_missing_temperature_is_an_event(robot: RobotFile) -> None:
    arm = Arm(robot)
    arm.active.start(None)
    arm.frames(10, [20.0] * 6)
    arm.active.check_temperature()
    assert arm.told == []
    arm.frames(round(11 * RATE), None)
    arm.active.check_temperature()
    assert [kind for kind, _ in arm.told] == ["temperature_missing"]
    found = arm.active.report()["temperature"]
    assert found["joints"] == [joint.name for joint in robot.model.joints]
    assert found["present"] == [None] * 6
    assert "joint_1" in arm.active.invalid_reason


def test_friction_of_the_controllers_model_is_that_of_the_temperature(robot: RobotFile) -> None:
    arm = Arm(robot)
    base, d = arm.estimator.base, robot.model.dynamics
    with pytest.raises(ValueError, match="follows temperature"):
        GuidingModel.of(robot.model, base, arm.theta)
    for T in (-10.0, 20.0, 50.0):
        model = GuidingModel.of(robot.model, base, arm.theta, temperature=np.full(6, T))
        np.testing.assert_allclose(model.coordinates[:, 0], d.coulomb + d.coulomb_temperature * (T - 20.0), rtol=1e-6)


def test_a_model_without_its_temperatures_is_not_activated(robot: RobotFile) -> None:
    arm = Arm(robot)
    arm.active.start(None)
    for adopt in (True, False):
        with pytest.raises(ControlError, match="does not say at which it was identified"):
            arm.active.activate(arm.request(adopt=adopt))
    for limits in ([[1.0]], "hot", [[0.0] * 6]):
        with pytest.raises(ControlError, match="temperatures"):
            arm.active.activate(arm.request(temperatures=limits))
    assert arm.active.theta is None
    arm.active.activate({"theta": None})  # the estimate


class Guided(Arm):
    """The same, with the answers that guiding asks for."""

    def __init__(self, robot: RobotFile) -> None:
        super().__init__(robot)
        table = {"name": "one", "robot": "space6_temperature", "driver": {"kind": "sim", "mode": "csp"}, "guiding": {}}
        self.handlers = HandGuidingModelSource(ArmConfig.model_validate(table, strict=False), self.active).handlers
        self.given = {
            "theta": self.theta.tolist(), "constants": self.estimator.base.layout.shape[:, 0].tolist(),
            "robot": robot.sha256, "name": "mine.yaml",
        }  # fmt: skip

    def ask(self, verb: str, **args: Any) -> dict[str, Any]:
        return dict(self.handlers[verb]({"arm": "one", **args}))


def test_guiding_by_the_active_model_needs_the_present_temperature(robot: RobotFile) -> None:
    arm = Guided(robot)
    arm.active.activate(arm.request(**LIMITS))
    with pytest.raises(ControlError, match="that of a joint is not known"):
        arm.ask("guiding_model")  # no frame yet
    arm.frames(3, [30.0] * 6)
    assert arm.ask("guiding_model")
    arm.frames(round(11 * RATE), None)
    with pytest.raises(ControlError, match="not valid: no temperature of joint_1"):
        arm.ask("guiding_model")
    arm.frames(3, [60.0] * 6)
    with pytest.raises(ControlError, match="friction is not known there"):
        arm.ask("guiding_model")


def test_a_model_of_the_request_holds_at_its_temperatures(robot: RobotFile) -> None:
    arm = Guided(robot)
    arm.frames(3, [30.0] * 6)
    with pytest.raises(ControlError, match="does not say at which it holds") as error:
        arm.ask("guiding_model", **arm.given)
    assert error.value.type == "bad_argument"
    given = arm.given | LIMITS
    assert arm.ask("guiding_model", **given)["temperature"] == [30.0] * 6
    said = arm.ask("validity", **given, started=[30.0] * 6)
    assert (said["model"], said["doubt"]) == ("mine.yaml", "")
    assert said["digest"] == arm.ask("guiding_model", **given)["digest"]
    arm.pause()
    arm.frames(3, [60.0] * 6)
    with pytest.raises(ControlError, match="friction is not known there"):
        arm.ask("guiding_model", **given)
    assert "friction is not known there" in arm.ask("validity", **given, started=[30.0] * 6)["doubt"]
    arm.estimator.restart_stream(1)
    assert "no temperature of joint_1" in arm.ask("validity", **given, started=[30.0] * 6)["doubt"]


def test_friction_that_is_left_is_that_of_the_present_temperature(robot: RobotFile) -> None:
    arm = Guided(robot)
    d = robot.model.dynamics
    given = arm.given | {"temperatures": [[-40.0] * 6, [60.0] * 6]}
    for present in (-20.0, 0.0, 50.0):
        arm.pause()
        arm.frames(3, [present] * 6)
        said = arm.ask("validity", **given, started=[-20.0] * 6)
        level, warm = (d.coulomb + d.coulomb_temperature * (T - 20.0) for T in (-20.0, present))
        # viscous friction does not follow: where the arm is slowest the share is least
        v = robot.model.standstill_velocity
        least = ((warm + d.viscous * v) / (level + d.viscous * v)).min()
        assert said["friction"] == pytest.approx(least, rel=0.02)
    arm.active.activate(arm.request(temperatures=given["temperatures"]))
    assert arm.ask("validity", started=[-20.0] * 6)["friction"] == pytest.approx(least, rel=0.02)
    assert "friction" not in arm.ask("validity")
