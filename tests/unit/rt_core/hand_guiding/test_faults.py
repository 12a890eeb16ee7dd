"""Wrong signs, clocks and buses in closed loop: how far and how fast the simulated 9-joint arm gets.

A hand goes on pushing after the alarm, and no brake closes.
"""

from dataclasses import dataclass

import numpy as np
import pinocchio as pin
import pytest

from rt_core.hand_guiding import GuidingState, ZeroForceSettings
from rt_core.hand_guiding import rows as c
from rt_core.model.robot import RobotModel
from sim_backend.arm.settings import SimSettings
from tests.lab.arms.simulated import twin
from tests.lab.hand_guiding.rig import IDEAL, SENSORS, Rig, Trace, exact, random_poses, robot

POSES = random_poses(robot(), 20, seed=1)
HAND = (0.0, 0.0, 20.0)
WRONG = {
    "velocity": {"dq": -1.0}, "torque": {"tau": -1.0}, "drive": {"drive": -1.0},
    "torque and drive": {"tau": -1.0, "drive": -1.0},
}  # fmt: skip


@dataclass
class Course:
    """How a part of a session went: largest way of a joint [rad], speed over its limit, torque in the end."""

    way: float
    speed: float
    torque: float


def go(rig: Rig, count: int) -> Course:
    """Run on; ends early where the arm has gone too far to matter."""
    limit, start = rig.controller._limits[c.SPEED], rig.sample.true_q.copy()
    way = speed = 0.0
    for _ in range(count):
        s = rig.cycle(rig.frame())
        way = max(way, float(np.abs(s.true_q - start).max()))
        speed = max(speed, float((np.abs(s.true_dq) / limit).max()))
        if way > 1.0:
            break
    return Course(way, speed, float(np.abs(rig.controller.status.torque).max()))


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_sign_is_found_while_taking_over(wrong: dict[str, float]) -> None:
    rig = Rig(robot(), exact(), start=POSES[6], wrong=wrong)
    found = go(rig, 24)
    course = go(rig, 376)
    if "tau" in wrong:  # by the first sample: the drives stay in position mode
        assert rig.controller.state is GuidingState.HOLD_REQUESTED
        assert "model not valid" in rig.controller.status.reason
        assert course.way < 1e-3
        assert course.torque == 0.0
    elif "drive" in wrong:  # it falls for want of a brake, but is not driven
        assert "check the sign and scale of its torque" in rig.controller.status.reason
        assert found.way < 0.01
        assert course.torque == 0.0
    else:
        assert course.way < 1e-3


@pytest.mark.parametrize("when", ["guiding", "hold"])
def test_a_velocity_of_the_wrong_sign_does_not_drive_the_arm(when: str) -> None:
    rig = Rig(robot(), exact(), start=POSES[6], wrong={"dq": -1.0})
    go(rig, 2150)
    if when == "hold":
        rig.controller.stop()
        go(rig, 1100)
        assert rig.controller.state is GuidingState.HOLD_REQUESTED
    rig.push(HAND)
    course = go(rig, 1000)
    assert course.way < 0.1
    assert course.speed < 0.8
    status = rig.controller.status
    assert "measured velocity" in (status.later[0] if when == "hold" else status.reason)
    assert (status.reason == "stopped") == (when == "hold")


@pytest.mark.parametrize(("when", "name"), [("guiding", "drive"), ("guiding", "tau"), ("hold", "drive")])
def test_a_sign_that_changes_later_takes_the_torque_away(when: str, name: str) -> None:
    rig = Rig(robot(), exact(), start=POSES[6])
    go(rig, 2150)
    if when == "hold":
        rig.controller.stop()
        go(rig, 1100)
    rig.wrong = {name: -1.0}
    rig.push(HAND)
    course = go(rig, 24)
    status = rig.controller.status
    assert rig.controller.state is GuidingState.HOLD_REQUESTED
    assert any("torque goes to zero" in text for text in (status.reason, *status.later))
    assert course.way < 0.02
    assert course.speed < 1.0
    assert go(rig, 60).torque == 0.0


def test_a_drive_whose_torque_nobody_measures_and_has_the_wrong_sign_ends_without_torque() -> None:
    """Speed tells it: too fast, and the hold makes it faster."""
    rig = Rig(robot(), exact(), start=POSES[6], wrong={"drive": -1.0}, channels=("dq",))
    go(rig, 600)
    assert rig.controller.status.later[-1].endswith("torque goes to zero, brake at once")
    assert not rig.controller.status.torque.any()


def test_a_clock_that_is_set_back_does_not_lose_the_hold() -> None:
    rig = Rig(robot(), exact(), start=POSES[6], channels=("tau",))
    go(rig, 2200)
    rig._seq -= 2000
    rig.push(HAND)
    course = go(rig, 1500)
    assert "time does not go on" in rig.controller.status.reason
    assert course.way < 0.05
    assert course.speed < 0.5


@pytest.mark.parametrize("moving", [False, True])
def test_frozen_samples_are_found(moving: bool) -> None:
    rig = Rig(robot(), exact(), start=POSES[7], channels=("tau",))
    go(rig, 2150)
    if moving:
        rig.push(HAND)
        go(rig, 250)
    frozen = rig.frame()
    for _ in range(30):
        frame = rig.frame()
        frame.q, frame.tau = frozen.q.copy(), frozen.tau.copy()
        rig.cycle(frame)
    assert rig.controller.state is GuidingState.HOLD_REQUESTED
    assert "stands still in all joints for 5 ms" in rig.controller.status.reason


def energies(model: RobotModel, trace: Trace) -> np.ndarray:
    oracle = twin(model)
    oracle.armature = model.dynamics.armature
    store = oracle.createData()
    out = []
    for q, v in zip(trace.q, trace.dq, strict=True):
        M = pin.crba(oracle, store, q)
        out.append(0.5 * v @ (np.triu(M) + np.triu(M, 1).T) @ v)
    return np.array(out)


def work_of_the_hand(model: RobotModel, trace: Trace) -> float:
    """Of a constant force: the force times the way of the flange."""
    oracle = twin(model)
    store = oracle.createData()
    ends = []
    for q in (trace.q[0], trace.q[-1]):
        pin.forwardKinematics(oracle, store, q)
        ends.append(store.oMi[model.n].act(model.tip_translation))
    return float(trace.force[0] @ (ends[1] - ends[0]))


@pytest.mark.parametrize(
    ("name", "delay", "sensors"), [("space6", 1, IDEAL), ("space6_stribeck", 2, SENSORS), ("arm9", 2, SENSORS)]
)
def test_no_energy_comes_from_the_controller(name: str, delay: int, sensors: SimSettings) -> None:
    model = robot(name)
    settings = ZeroForceSettings(
        friction_share=1.0, damping_time_s=0.2, delay_cycles=delay, ramp_s=0.1, takeover_watch_s=0.0, speed_share=0.5
    )
    start = random_poses(model, 1, seed=3, share=0.3)[0]
    rig = Rig(model, exact(name), settings, start, sensors, delay)
    rig.run(0.2)
    rig.push(np.array([20.0, -20.0, 25.0]))
    pushed = rig.run(0.25)
    rig.push(np.zeros(3))
    after = rig.run(3.0)
    walls = np.array([(j.lower, j.upper) for j in model.joints]) * 0.9
    assert np.all((after.q > walls[:, 0]) & (after.q < walls[:, 1]))  # a wall's spring would keep energy
    gained = energies(model, pushed)
    assert gained.max() > 0.05
    assert gained[-1] - gained[0] < work_of_the_hand(model, pushed)
    coasting = energies(model, after)
    # The first cycles still have the torque of before; then energy falls, all the way to rest.
    step = 20
    change = coasting[10 + step :: step] - coasting[10:-step:step]
    assert np.all(change <= 1e-6 * coasting[0])
    assert coasting[-1] < 1e-9
