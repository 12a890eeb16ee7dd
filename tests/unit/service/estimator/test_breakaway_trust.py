"""Breakaway friction of a joint that is given a load at rest: what holds its link is not what the estimate says."""

from __future__ import annotations

from typing import Any

import numpy as np

from drivers.frame import JointFrame
from rt_core.model.friction import Friction
from rt_core.model.robot import Joint, RobotModel
from rt_core.online import OnlineEstimator, OnlineSettings
from rt_core.online.breakaway import Start
from service.estimator._breakaway import BreakawayTracking
from tests.lab.arms.sticking_joint import FB, RATE, strokes

SECONDS, LOADED_S, MORE = 66.0, 44.0, 6.0
EVERY = 2  # of the frames
PENDULUM = Joint("arm", "revolute", np.eye(3), np.zeros(3), np.array([0.0, 1.0, 0.0]), -2.0, 2.0, 1.0, 100.0)


def followed(model: RobotModel, tau: np.ndarray[Any, Any], x: np.ndarray[Any, Any]) -> tuple[list[Start], list[Any]]:
    """Starts as they were taken of a joint with positions `x` and torques `tau` (N,), and events."""
    events: list[Any] = []
    estimator = OnlineEstimator(model, OnlineSettings(update_hz=50.0), RATE / EVERY)
    tracking = BreakawayTracking(estimator, lambda: True, lambda *event: events.append(event))
    found: list[Start] = []
    take = tracking.tracker.take
    tracking.tracker.take = lambda start: found.append(start) or take(start)  # type: ignore[method-assign]
    for k in range(0, x.size, EVERY):
        t_ns = round(k * 1e9 / RATE)
        q, torque = x[k : k + 1], tau[k : k + 1]
        frame = JointFrame(k // EVERY, t_ns, t_ns, q=q, tau=torque)
        estimator.step(t_ns, k // EVERY, q, torque)
        tracking.push(frame, q, torque, masked=False)
    return found, events


def test_a_load_that_is_taken_up_at_rest_is_not_taken_for_friction() -> None:
    r = strokes(SECONDS)
    model = RobotModel("pendulum", (PENDULUM,), friction=Friction("coulomb_viscous"))
    tau = r.tau + np.where(r.t > LOADED_S + 0.2, MORE, 0.0)
    found, events = followed(model, tau, r.x)
    before = [s for s in found if s.t_s < LOADED_S]
    after = [s for s in found if s.t_s > LOADED_S]
    assert len([s for s in before if not s.left_out]) >= 15
    assert after[0].left_out == "not trusted"  # nothing had shown the load before it
    assert [s for s in after if not s.left_out]  # until the estimate has learned it
    for start in found:
        if not start.left_out and start.t_s > 10.0:
            assert abs(start.torque - FB) < 4.0 * np.hypot(start.std, start.common_std) + 0.02 * FB, start
    assert not events
