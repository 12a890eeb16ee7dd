"""The motion of `[arm.motion]`: when it begins, within which limits, what stops it, and what happens afterwards."""

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from drivers.driver import CommandRefusedError
from rt_core.types import FloatArray
from service.config.load import ArmConfig
from service.motion import run_verbs
from service.motion._standing_motion import StandingMotion
from service.worker.worker import FatalError, Worker
from sim_backend.arm.settings import FaultSettings
from sim_backend.drive.commanded_driver import CommandedDriver
from tests.lab.daemon.motion_bench import ACCELERATION, MODEL, PERIOD_S, QUIET, ROBOT, START, N

SPEED, ENABLED = ACCELERATION / 5.0, 0x0237


class Arm:
    """A simulated arm, and its motion as a process has it."""

    def __init__(
        self, *faults: dict[str, Any], restarts: int = 0, safety: dict[str, Any] | None = None,
        robot: Any = ROBOT, **motion: Any,
    ) -> None:  # fmt: skip
        given = [FaultSettings.model_validate(fault) for fault in faults]
        self.driver = CommandedDriver(MODEL, QUIET, pace=1e6, start=START, faults=given)
        self.driver.open()
        self.events: list[tuple[str, str]] = []
        worker = SimpleNamespace(
            restarts=restarts, log=SimpleNamespace(info=lambda *_, **__: None),
            event=lambda kind, _, reason: self.events.append((kind, reason)),
        )  # fmt: skip
        table = {"duration_s": 4.0, "candidates": 1, "approach": 0.5} | motion
        arm = {"name": "a", "robot": "arm7", "driver": {"kind": "sim", "mode": "csp"}, "safety": safety or {}}
        config = ArmConfig.model_validate(arm | {"motion": table})
        found = run_verbs.make_runs(cast(Worker, worker), config, robot, self.driver, 1.0 / PERIOD_S)
        assert isinstance(found, StandingMotion)
        self.motion, self.setpoints = found, [START]

    @property
    def phase(self) -> str:
        return str(self.motion._controller.state.phase)

    def turns(self, count: int) -> None:
        for _ in range(count):
            frame = self.driver.read(0.0)
            self.motion.step(frame)
            if frame.status_word[0] == ENABLED:
                self.setpoints.append(frame.setpoint)

    def until(self, state: str, phase: str = "") -> None:
        for _ in range(20_000):
            if self.motion.state == state and phase in ("", self.phase):
                return
            self.turns(1)
        pytest.fail(f"{self.motion.report()} {self.phase}")

    def enable(self) -> None:
        self.driver.enable()
        self.motion.enable()

    def within_limits(self) -> FloatArray:
        """Check all set positions of drives that are on, and return them."""
        q = np.array(self.setpoints)
        assert (np.abs(np.diff(q, axis=0)) <= SPEED * PERIOD_S * (1.0 + 1e-6)).all()
        assert (np.abs(np.diff(q, 2, axis=0)) <= ACCELERATION * PERIOD_S**2 * (1.0 + 1e-5)).all()
        return q


@pytest.mark.parametrize("at_end", ["hold", "stop"])
def test_from_the_present_position_to_its_end(at_end: str) -> None:
    arm = Arm(at_end=at_end)
    arm.turns(200)
    assert arm.motion.report() == {"state": "waiting", "reason": ""}
    arm.enable()
    for state in ("approach", "running", "ended"):
        arm.until(state)
    q = arm.within_limits()
    np.testing.assert_allclose(q[-1], arm.motion._motion.centre, atol=1e-6)
    assert arm.motion.info() == {"motion": "ended", "motion_s": pytest.approx(4.0)}
    assert (arm.motion.over, arm.driver.enabled) == ((False, True) if at_end == "hold" else (True, False))
    if at_end == "hold":
        arm.turns(100)
        arm.enable()
        arm.until("approach")  # again, from where the drives hold
        arm.until("ended")
        arm.within_limits()
    assert not arm.events


JAM = {"kind": "jam", "joint": "joint_2", "value": 900.0, "after_s": 0.3}
JUMP = {"kind": "encoder_jump", "joint": "joint_4", "value": 0.5, "after_s": 0.3}
HEAT = {"kind": "heat", "joint": "joint_3", "value": 90.0, "after_s": 0.3}
TRIP = {"kind": "drive_fault", "joint": "joint_3", "after_s": 0.3}


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (JAM, "joint_2: torque 1"), (JUMP, "joint_4 is 0.5 rad from"), (HEAT, "temperature 90 degC"),
        (TRIP, "no longer enabled (drive of joint_3 in state 'fault')"), (None, "aborted by request"),
    ],
)  # fmt: skip
def test_what_stops_it_and_that_it_begins_again_when_enabled(fault: dict[str, Any] | None, words: str) -> None:
    arm = Arm(*([] if fault is None else [fault]), following_error=0.4 if fault is JUMP else 3.0)
    arm.enable()
    arm.until("approach")
    arm.turns(700)
    if fault is None:
        arm.motion.handlers["abort"]({"arm": "a"})
        assert arm.phase == "stopping"
        with pytest.raises(CommandRefusedError, match="still stopping"):
            arm.enable()
    arm.until("stopped", "disarmed")
    assert words in arm.motion.report()["reason"]
    assert arm.events == [("motion_stopped", arm.motion.report()["reason"])]
    if fault is not TRIP:
        arm.within_limits()
    arm.turns(500)
    assert not arm.driver.enabled
    assert arm.motion.state == "stopped"
    if fault is None:
        arm.enable()
        arm.until("running")


def test_a_request_to_switch_off_stops_what_waits_too_and_a_restart_waits_for_nothing() -> None:
    arm = Arm()
    arm.motion.off("the drives were switched off by request")
    arm.driver.enable()
    arm.turns(300)
    assert arm.motion.report() == {"state": "stopped", "reason": "the drives were switched off by request"}
    again = Arm(restarts=1)
    again.driver.enable()
    again.turns(300)
    assert "restarted; thetad control enable" in again.motion.report()["reason"]
    assert not again.events
    again.enable()
    again.until("approach")


def test_the_stricter_acceleration_of_motion_and_arm_counts_joint_by_joint() -> None:
    asked = tuple((ACCELERATION * np.where(np.arange(N) < 3, 0.5, 2.0)).tolist())
    arm = Arm(acceleration=asked, safety={"following_error": 0.3, "velocity_fraction": 0.9})
    limits = arm.motion._controller.limits
    np.testing.assert_allclose(limits.acceleration, np.minimum(asked, ACCELERATION))
    np.testing.assert_array_equal(limits.following_error, np.full(N, 0.3))
    arm.enable()
    arm.until("ended")
    q = arm.within_limits()
    assert (np.abs(np.diff(q[:, :3], 2, axis=0)) <= 0.5 * ACCELERATION[:3] * PERIOD_S**2 * (1.0 + 1e-5)).all()
    with pytest.raises(FatalError, match="acceleration has 2 values"):
        Arm(acceleration=(1.0, 1.0))
    bare = replace(MODEL, joints=(replace(MODEL.joints[0], velocity=np.inf), *MODEL.joints[1:]))
    with pytest.raises(FatalError, match="states no velocity of joint_1"):
        Arm(robot=SimpleNamespace(model=bare, sha256=""))


def test_each_step_is_of_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a process was away between two of them: the motion is not a client that is late."""
    clock = itertools.count(0.0, 2.0)
    monkeypatch.setattr(run_verbs.time, "monotonic", lambda: next(clock))
    arm = Arm()
    arm.enable()
    arm.until("approach")
    arm.turns(50)
    assert arm.motion.report() == {"state": "approach", "reason": ""}
