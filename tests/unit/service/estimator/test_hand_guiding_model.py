"""What the estimator answers to guiding: its active model as a controller's, or why there is none that holds."""

import contextlib
import random
from typing import Any

import numpy as np
import pytest

from drivers.files.robots.file import RobotFile, load_robot
from rt_core.model.parameters import standard_parameters
from rt_core.online import OnlineEstimator, OnlineSettings
from rt_core.online.report import EstimateReport
from service.config.load import ArmConfig
from service.estimator._active_model import ActiveModel
from service.estimator._hand_guiding_model import HandGuidingModelSource
from service.models.hand_guiding_arrays import guiding_model
from service.protocol.control import ControlError
from tests.lab.hand_guiding.rig import exact
from tests.lab.odd_values import REQUESTS, changed

ARM = {"name": "one", "robot": "space6", "driver": {"kind": "sim", "mode": "csp"}, "guiding": {}}


@pytest.fixture(scope="module")
def robot() -> RobotFile:
    return load_robot("space6")


class Source:
    """An estimator's answers, and its active model."""

    def __init__(self, robot: RobotFile, **arm: Any) -> None:
        estimator = OnlineEstimator(robot.model, OnlineSettings(update_hz=50.0, memory_s=20.0), 250.0)
        self.active = ActiveModel(estimator, robot, lambda kind, text, data: None)
        self.active.start(None)
        base = estimator.base
        self.theta = base.theta(standard_parameters(robot.model, base.standard))
        self.handlers = HandGuidingModelSource(ArmConfig.model_validate(ARM | arm, strict=False), self.active).handlers

    def activate(self, model: str) -> None:
        covariance = np.diag((0.01 * np.abs(self.theta)) ** 2)
        values = {"theta": self.theta.tolist(), "covariance": covariance.tolist()}
        self.active.activate({**values, "model": model, "adopt": True})

    def observe(self, looks: range, factor: float) -> None:
        """Let the detector see an estimate that is `factor` times the model."""
        p = len(self.theta)
        for k in looks:
            report = EstimateReport(
                t_ns=k * 10**9, theta=factor * self.theta, validated=self.theta, std=0.01 * np.abs(self.theta),
                status=("estimated",) * p, excited=np.ones(p, bool), scale=np.full(p, 50.0), lam=np.zeros(6),
                innovation=np.zeros(6), sigma=np.zeros(6), delay_s=0.3, frames=0, used=0, masked=0, repeated=0,
                lost=0, resets=0, updates=50 * k,
            )  # fmt: skip
            self.active.observe(report)

    def ask(self, verb: str, **args: Any) -> dict[str, Any]:
        return dict(self.handlers[verb]({"arm": "one", **args}))


def test_the_active_model_as_a_controller_takes_it(robot: RobotFile) -> None:
    source = Source(robot)
    source.activate("first")
    said = source.ask("guiding_model")
    assert said["model"] == "first" == source.ask("validity")["model"]
    made, wanted = guiding_model(robot.model, said["values"]), exact("space6")
    for name in ("arm", "rotor", "effects", "coordinates", "inertia"):
        np.testing.assert_allclose(getattr(made, name), getattr(wanted, name), rtol=1e-9, atol=1e-12)


def test_without_a_model_the_error_has_a_remedy(robot: RobotFile) -> None:
    source = Source(robot)
    with pytest.raises(ControlError, match="no model of arm one is active") as error:
        source.ask("guiding_model")
    assert error.value.type == "unavailable"
    assert source.ask("validity") == {"arm": "one", "model": "", "digest": "", "doubt": ""}
    with pytest.raises(ControlError, match="no table"):
        Source(robot, guiding=None).ask("guiding_model")


def test_a_model_that_has_drifted_is_not_guided_by(robot: RobotFile) -> None:
    source = Source(robot)
    source.activate("first")
    source.observe(range(1, 20), 1.0)
    assert source.ask("validity")["doubt"] == ""
    source.observe(range(20, 50), 1.5)
    assert "standard deviations" in source.ask("validity")["doubt"]
    with pytest.raises(ControlError, match="the active model is not valid") as error:
        source.ask("guiding_model")
    assert error.value.type == "unavailable"
    source.activate("second")
    assert source.ask("validity")["doubt"] == ""


def test_a_model_that_comes_with_the_request(robot: RobotFile) -> None:
    source = Source(robot)
    constants = [0.0] * len(source.theta)
    given = {"theta": source.theta.tolist(), "constants": constants, "robot": robot.sha256}
    said = source.ask("guiding_model", **given, name="mine.yaml", speeds=[1.0] * 6)
    assert (said["model"], said["speeds"]) == ("mine.yaml", [1.0] * 6)
    for change, words in (
        ({"robot": "0" * 64}, "of another robot"),
        ({"theta": [1.0]}, "theta of the model: expected"),
        ({"constants": [np.nan] * len(constants)}, "constants of the model: expected"),
        ({"constants": "none"}, "constants of the model: "),
        ({"speeds": [-1.0] * 6}, "speeds of the model: "),
    ):
        with pytest.raises(ControlError, match=words) as error:
            source.ask("guiding_model", **given | change)
        assert error.value.type == "bad_argument"
    with pytest.raises(ControlError, match="not physical"):
        source.ask("guiding_model", **given | {"theta": (-source.theta).tolist()})
    rng, known = random.Random(1), given | {"speeds": [1.0] * 6}
    handlers = {**source.handlers, "activate": source.active.activate}
    more = {"covariance": np.eye(len(constants)).tolist(), "model": "m", "adopt": True}
    requests = {"guiding_model": known, "validity": known | {"started": [25.0] * 6}, "activate": known | more}
    for _ in range(REQUESTS):  # whatever the numbers are
        verb = rng.choice(tuple(requests))
        with contextlib.suppress(ControlError):
            handlers[verb]({**changed(rng, requests[verb]), "arm": "one"})
