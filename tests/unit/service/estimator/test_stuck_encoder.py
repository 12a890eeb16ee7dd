"""An encoder that sticks on an arm that somebody else moves: what the estimator and the watch of its residual say.

Positions of a joint that stands and of one whose encoder sticks are the same.  Where all seem to stand the estimate is
frozen.  Where one does while the others move, the active model no longer explains their torques, and that is told; what
has changed is not known to be an encoder, and the cause that is named is the one of those that the watch knows of that
fits best.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from drivers.files.robots.file import load_robot
from rt_core.online import OnlineEstimator, OnlineSettings
from service.estimator._active_model import ActiveModel
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import MotionSettings, SimSettings

RATE_HZ = 200.0
LEARNT_S, STICK_S, END_S = 40.0, 80.0, 86.0
SOON_S = 5.0


class Watched:
    """An arm of six joints that moves all the time; its model is what has been learned by `LEARNT_S`.

    From `STICK_S` on the encoders of the joints `stuck` show the same; `told` are the events, with their times.
    """

    def __init__(self, stuck: slice) -> None:
        robot = load_robot("space6")
        motion = MotionSettings(seed=1, candidates=1, base_frequency_hz=0.1, duration_s=END_S)
        data = SimulatedArm(robot.model, SimSettings(rate_hz=RATE_HZ, seed=1), motion).simulate(END_S)
        first = round(STICK_S * RATE_HZ)
        q = data.channels["q"].copy()
        q[first:, stuck] = q[first - 1, stuck]
        self.told: list[tuple[float, str]] = []
        self.estimator = OnlineEstimator(robot.model, OnlineSettings(), RATE_HZ)
        self.active = ActiveModel(self.estimator, robot, self._report_event)
        for k, self._t in enumerate(data.t):
            t_ns = round(self._t * 1e9)
            self.estimator.step(t_ns, k, q[k], data.channels["tau"][k])
            if k == round(LEARNT_S * RATE_HZ):
                values = {"theta": self.estimator.theta.tolist(), "covariance": self.estimator.covariance.tolist()}
                self.active.activate({**values, "model": "learnt", "adopt": True})
            if k % round(0.1 * RATE_HZ) == 0:
                self.active.observe_changes(t_ns)
            if k % round(RATE_HZ) == 0:
                self.active.observe(self.estimator.report())

    def _report_event(self, kind: str, text: str, data: dict[str, Any]) -> None:
        self.told.append((float(self._t), kind))


def test_a_stuck_encoder_is_reported_as_a_change_of_the_arm() -> None:
    watched = Watched(slice(1, 2))
    assert [kind for at_s, kind in watched.told if at_s < STICK_S] == ["model_adopted"]
    at_s, kind = next(each for each in watched.told if each[0] > STICK_S)
    assert kind == "change"
    assert at_s < STICK_S + SOON_S
    assert watched.active.invalid_reason != ""  # so that the drift of the arm is not judged by it
    assert np.isnan(watched.estimator.report().innovation[1])  # of the joint itself nothing is used


def test_where_all_stick_the_estimate_is_frozen() -> None:
    watched = Watched(slice(None))
    assert set(watched.estimator.report().status) == {"frozen"}
    assert [kind for _, kind in watched.told] == ["model_adopted"]
