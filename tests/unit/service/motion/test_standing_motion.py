"""The motion of `[arm.motion]`: when it begins, within which limits, what stops it, and what happens afterwards."""

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from drivers.driver import CommandRefusedError
from service.config.load import ArmConfig
from service.motion import arm_motion, run_verbs
from service.motion._standing_motion import StandingMotion
from service.worker.worker import FatalError
from tests.lab.daemon.motion_bench import ACCELERATION, MODEL, PERIOD_S, ROBOT, Bench, N


class Arm(Bench):
    """A simulated arm, and its motion as a process has it."""

    def __init__(self, *faults: dict[str, Any], restarts: int = 0, robot: Any = ROBOT, **motion: Any) -> None:
        super().__init__(*faults)
        self.worker = Mock(restarts=restarts)
        arm = {
            "name": "a",
            "robot": "arm7",
            "driver": {"kind": "sim", "mode": "csp"},
            "safety": {"following_error": 0.3},
        }
        table = {"duration_s": 4.0, "candidates": 1, "approach": 0.5} | motion
        config = ArmConfig.model_validate({**arm, "motion": table})
        found = arm_motion.make_runs(self.worker, config, robot, self.driver, 1.0 / PERIOD_S)
        assert isinstance(found, StandingMotion)
        self.motion, self.controller = found, found._controller

    def turn(self) -> None:
        self.frames.append(self.driver.read(0.0))
        self.motion.step(self.frames[-1])

    def enable(self) -> None:
        self.driver.enable()
        self.motion.enable()


@pytest.mark.parametrize("at_end", ["hold", "stop"])
def test_from_the_present_position_to_its_end(at_end: str) -> None:
    arm = Arm(at_end=at_end)
    arm.turns(200)
    assert arm.motion.state == "waiting"
    arm.enable()
    arm.until("running")
    arm.until("armed", "disarmed")
    arm.turns(2)
    np.testing.assert_allclose(arm.controller._follower.position, arm.motion._motion.centre, atol=1e-6)
    assert arm.motion.info() == {"motion": "ended", "motion_s": pytest.approx(4.0)}
    assert (arm.motion.over, arm.driver.enabled) == (at_end == "stop", at_end == "hold")
    if at_end == "hold":
        arm.enable()
        arm.until("approach")  # again, from where the drives hold
        arm.until("armed")
    arm.commanded_within_limits()
    assert not arm.worker.event.called


@pytest.mark.parametrize(("jams", "words"), [(True, "joint_2: torque 1"), (False, "aborted by request")])
def test_what_stops_it_and_that_it_begins_again_when_enabled(jams: bool, words: str) -> None:
    fault = {"kind": "jam", "joint": "joint_2", "value": 900.0, "after_s": 0.3}
    arm = Arm(*([fault] if jams else []), following_error=3.0)
    arm.enable()
    arm.until("approach")
    arm.turns(700)
    if not jams:
        arm.motion.handlers["abort"]({"arm": "a"})
        with pytest.raises(CommandRefusedError, match="still stopping"):
            arm.enable()
    arm.until("disarmed")
    reason = arm.motion.report()["reason"]
    assert words in reason
    arm.worker.event.assert_called_once_with("motion_stopped", f"the motion was stopped: {reason}", reason=reason)
    arm.commanded_within_limits()
    arm.turns(500)
    assert (arm.motion.state, arm.driver.enabled) == ("stopped", False)
    if not jams:
        arm.enable()
        arm.until("running")


@pytest.mark.parametrize("restarts", [0, 1])
def test_nothing_waits_after_a_request_or_a_restart(restarts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the motion is never a late client, however long a process was away: each step is of one time."""
    clock = itertools.count(0.0, 2.0)
    monkeypatch.setattr(run_verbs.time, "monotonic", lambda: next(clock))
    arm = Arm(restarts=restarts)
    if not restarts:
        arm.motion.off("switched off by request")
    arm.driver.enable()
    arm.turns(300)
    assert ("restarted" if restarts else "switched off") in arm.motion.report()["reason"]
    assert arm.worker.event.called is (not restarts)
    arm.enable()
    arm.until("running")
    assert arm.motion.report() == {"state": "running", "reason": ""}


def test_the_stricter_acceleration_of_motion_and_arm_counts_joint_by_joint() -> None:
    asked = ACCELERATION * np.where(np.arange(N) < 3, 0.5, 2.0)
    arm = Arm(acceleration=tuple(asked.tolist()))
    limits = arm.controller.limits
    np.testing.assert_array_equal(limits.acceleration, np.minimum(asked, ACCELERATION))
    np.testing.assert_array_equal(limits.following_error, np.full(N, 0.3))
    arm.enable()
    arm.until("running")
    begun = len(arm.frames)
    arm.until("armed")
    assert (np.abs(np.diff(arm.setpoints()[begun:], 2, axis=0)) <= asked * PERIOD_S**2 * (1.0 + 1e-5)).all()
    bare = replace(MODEL, joints=(replace(MODEL.joints[0], velocity=np.inf), *MODEL.joints[1:]))
    with pytest.raises(FatalError, match="states no velocity of joint_1"):
        Arm(robot=SimpleNamespace(model=bare, sha256=""))
