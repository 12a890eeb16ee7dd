"""Breakaway friction of simulated arms, by the estimate's own knowledge of what holds the links."""

from typing import Any

import numpy as np
import pytest

from drivers.files.recordings.recording import Recording
from drivers.frame import JointFrame
from rt_core.model.robot import RobotModel, Transmission
from rt_core.online import OnlineEstimator, OnlineSettings
from service.estimator._breakaway import BreakawayTracking, why_not_tracked
from service.estimator._frame_consumer import FrameBlock
from tests.lab.arms.starting import CHANGED, FACTOR, JOINTS, RATE, STARTS, robot, started
from tests.unit.service.cli.test_environment import described


def followed(recording: Recording, model: RobotModel) -> tuple[BreakawayTracking, list[Any], dict[str, Any]]:
    """The tracking of a recording, its events, and what it held and said after half of it."""
    events: list[Any] = []
    kept: dict[str, Any] = {}
    estimator = OnlineEstimator(model, OnlineSettings(update_hz=50.0), RATE, has_dq=True)
    tracking = BreakawayTracking(estimator, lambda: True, lambda *event: events.append(event))
    for k, frame in enumerate(recording.frames()):
        if k == recording.samples // 2:
            kept = {"snapshot": tracking.snapshot(), "document": tracking.report()["breakaway"]}
        take(tracking, frame)
    return tracking, events, kept


def take(tracking: BreakawayTracking, frame: JointFrame) -> None:
    """Let a frame reach the estimate and then the tracking, as in the estimator's process."""
    tracking.estimator.step(frame.t_bus_ns, frame.seq, frame.q, frame.tau, None, frame.dq)
    tracking.push(FrameBlock.of([frame], (frame.q[None], frame.tau[None], None, None)))


@pytest.mark.slow
@pytest.mark.parametrize("environment", ["microgravity", "ground"])
def test_intervals_hold_the_truth_of_a_simulated_arm(environment: str) -> None:
    model = robot(environment).model
    tracking, events, _ = followed(started(environment), model)
    said = tracking.report()["breakaway"]
    for j, (name, truth) in enumerate(zip(tracking.names, model.dynamics.breakaway, strict=True)):
        found = said[name]
        if j >= JOINTS:  # never started by itself
            assert found["status"] == "unestimated"
            assert found["value"] is None
            assert found["reason"]
            continue
        assert found["status"] == "estimated", (name, found)
        assert found["starts"] >= STARTS - 1
        assert found["lower"] < truth < found["upper"], (name, truth, found)
        assert found["value"] == pytest.approx(truth, rel=0.1)
        assert found["upper"] - found["lower"] < 0.5 * truth
    assert not events


def test_a_change_is_reported_once_and_rolled_back_on_the_same_clock() -> None:
    model = robot("microgravity").model
    tracking, events, kept = followed(started("microgravity", changes=True), model)
    name, truth = tracking.names[CHANGED], FACTOR * model.dynamics.breakaway[CHANGED]
    assert [(kind, data["joint"]) for kind, _, data in events] == [("breakaway_changed", name)]
    assert events[0][2]["old"] == pytest.approx(model.dynamics.breakaway[CHANGED], rel=0.1)
    assert events[0][2]["new"] == pytest.approx(truth, rel=0.1)
    found = tracking.report()["breakaway"][name]
    assert found["changes"] == 1
    assert found["lower"] < truth < found["upper"]
    tracking.rollback(kept["snapshot"])
    before, after = kept["document"], tracking.report()["breakaway"]
    for name in tracking.names:
        own = {"status", "reason", "last_t"}  # it may be stale by now
        assert after[name]["last_t"] == pytest.approx(before[name]["last_t"])
        assert {k: v for k, v in after[name].items() if k not in own} == {
            k: v for k, v in before[name].items() if k not in own
        }


def test_joints_whose_starts_show_no_breakaway_are_not_tracked() -> None:
    from dataclasses import replace

    model = robot("microgravity").model
    assert why_not_tracked(model) == {}
    matrix = np.diag(np.full(model.n, 100.0))
    matrix[2, 1] = 100.0
    coupled = replace(model, transmission=Transmission(matrix, np.zeros(model.n), np.ones(model.n)))
    assert why_not_tracked(coupled) == dict.fromkeys((1, 2), "its motor turns with another joint")
    from drivers.files.robots.file import robot_from_source

    loaded = robot_from_source(described(model_friction_load=True)).model
    assert set(why_not_tracked(loaded)) == set(range(model.n))
