"""The active model of an estimator over restarts: adopted once, compared on, and checked as it is read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.files.robots.file import RobotFile, load_robot
from rt_core.online import OnlineEstimator, OnlineSettings
from rt_core.online.report import EstimateReport
from service.estimator._active_model import ActiveModel
from service.io.state_file import load_state, save_state
from service.protocol.control import ControlError

SETTINGS = OnlineSettings(update_hz=50.0, memory_s=20.0)


@pytest.fixture(scope="module")
def robot() -> RobotFile:
    return load_robot("space6")


@pytest.fixture(scope="module")
def made(robot: RobotFile) -> Callable[[], ActiveModel]:
    base = OnlineEstimator(robot.model, SETTINGS, 250.0).base

    def make() -> ActiveModel:
        estimator = OnlineEstimator(robot.model, SETTINGS, 250.0, base=base)
        return ActiveModel(estimator, robot, lambda kind, text, data: told.append(kind))

    told: list[str] = []
    return make


def values(active: ActiveModel, factor: float = 1.0) -> dict[str, Any]:
    p = len(active.estimator.base)
    theta = factor * np.linspace(1.0, 2.0, p)
    return {"theta": theta.tolist(), "covariance": np.diag((0.01 * theta) ** 2).tolist()}


def observe(active: ActiveModel, looks: range, factor: float) -> None:
    """Let the detector see an estimate that is `factor` times the model."""
    p = len(active.estimator.base)
    theta = np.linspace(1.0, 2.0, p)
    for k in looks:
        report = EstimateReport(
            t_ns=k * 10**9, theta=factor * theta, validated=theta, std=0.01 * theta, status=("estimated",) * p,
            excited=np.ones(p, bool), scale=np.full(p, 50.0), lam=np.zeros(6), innovation=np.zeros(6),
            sigma=np.zeros(6), delay_s=0.3, frames=0, used=0, masked=0, repeated=0, lost=0, resets=0, updates=50 * k,
        )  # fmt: skip
        active.observe(report)


def test_elastic_joints_are_refused_where_no_spring_is_estimated(made: Callable[[], ActiveModel]) -> None:
    active = made()
    with pytest.raises(ControlError, match=r"no \[\[arm.elastic\]\]: identify with --joints rigid"):
        active.activate(values(active) | {"elastic": [{"joint": "joint_1"}]})
    assert active.theta is None


def restarted(active: ActiveModel, made: Callable[[], ActiveModel], folder: Path) -> ActiveModel:
    """Another one that goes on from what the state file holds."""
    save_state(folder / "state", active.state(), "owner")
    other = made()
    other.restore(load_state(folder / "state", "owner"))
    other.start(None)
    return other


@pytest.mark.parametrize("adopt", [True, False])
@pytest.mark.parametrize("model", ["first", None])
def test_the_watch_for_drift_goes_on_after_a_restart(
    made: Callable[[], ActiveModel], tmp_path: Path, adopt: bool, model: str | None
) -> None:
    active = made()
    request = {**values(active), "model": model, "adopt": adopt}
    active.activate(request)
    observe(active, range(1, 20), 1.0)
    observe(active, range(20, 50), 1.5)
    before = active.report()
    assert before["drift"]["state"] == "drifted"
    assert before["drift"]["since"] is not None
    other = restarted(active, made, tmp_path)
    if adopt:
        assert other.report() == before
    other.activate(request)  # the request stands, and is made again
    assert other.report() == before
    third = restarted(other, made, tmp_path)
    third.activate({**request, **values(third, 1.5)} | {"model": "second"})
    assert third.report()["drift"]["state"] == "steady"


def test_a_state_of_a_version_that_did_not_watch_for_changes_is_taken(made: Callable[[], ActiveModel]) -> None:
    active = made()
    active.activate({**values(active), "model": "first", "adopt": True})
    observe(active, range(1, 20), 1.0)
    assert active.report()["change"]["state"] == "learning"
    state = {key: value for key, value in active.state().items() if not key.startswith("change_")}
    other = made()
    other.restore(state)
    other.start(None)
    assert other.report() == active.report()
    other.restore({})  # saved by a version without models


def without(key: str) -> Callable[[dict[str, Any]], None]:
    return lambda state: state.pop(key)


@pytest.mark.parametrize(
    "spoil",
    [
        *map(without, ("adopted", "theta", "drift_joints", "change_watch")),
        lambda state: state.update(theta=np.ones(3)),
        lambda state: state.update(theta=np.full_like(state["theta"], np.nan)),
        lambda state: state.update(constants=-np.ones_like(state["theta"])),
        lambda state: state.update(change_levels=np.zeros((2, 2))),
    ],
)
def test_a_state_that_does_not_fit_is_refused(
    made: Callable[[], ActiveModel], spoil: Callable[[dict[str, Any]], None]
) -> None:
    active = made()
    active.activate({**values(active), "model": "first", "adopt": True})
    state = active.state()
    active.restore(state)
    spoil(state)
    with pytest.raises(ValueError, match=r"saved state|theta of the model: "):
        made().restore(state)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"covariance": None}, "only with its theta and covariance"),
        ({"theta": None}, "covariance needs theta"),
        ({"covariance": [[1.0]]}, "a row and a column for each"),
        ({"covariance": [[1.0], [2.0, 3.0]]}, "covariance"),
        ({"adopt": "yes"}, "adopt is true or false"),
        ({"model": ""}, "model a text"),
        ({"robot": load_robot("ur10").sha256}, "of another robot"),
    ],
)
def test_models_that_cannot_be_adopted(
    made: Callable[[], ActiveModel], robot: RobotFile, changes: dict[str, Any], word: str
) -> None:
    active = made()
    request = {**values(active), "model": "first", "adopt": True, "robot": robot.sha256}
    with pytest.raises(ControlError, match=word) as caught:
        active.activate(request | changes)
    assert caught.value.type == "bad_argument"
    assert not active.estimator.theta.any()
    assert active.report()["drift"]["state"] == "off"
    assert active.activate(request)["active"] == "model"


def test_other_values_under_the_same_id_are_another_model(made: Callable[[], ActiveModel]) -> None:
    active = made()
    assert active.digest == ""
    digests = []
    for factor in (1.0, 1.5, 1.0):
        active.activate({"theta": values(active, factor)["theta"], "model": "one"})
        assert active.identity == "one"
        digests.append(active.digest)
    assert digests[0] == digests[2] != digests[1]
    active.activate({**values(active, 1.5), "model": "two", "adopt": True})
    assert active.digest == digests[1]
    active.activate({"theta": None})
    assert active.digest == ""
