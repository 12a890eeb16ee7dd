"""The simulated 9-joint arm under zero-force control: it hovers, yields, stops, and says when the model is wrong.

With sensor noise, 20-bit encoders and a cycle of delay between measurement and torque.
"""

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest

from rt_core.hand_guiding import GuidingState, ZeroForceSettings
from rt_core.hand_guiding import rows as c
from rt_core.hand_guiding.rows import C_BREAKAWAY
from rt_core.model.robot import RobotModel
from sim_backend.arm.settings import SimSettings
from tests.lab.arms.simulated import twin
from tests.lab.hand_guiding.rig import (
    IDEAL,
    SENSORS,
    Rig,
    T,
    Trace,
    believed,
    exact,
    random_poses,
    robot,
    tip_jacobian,
    with_payload,
)

HAND = 20.0
POSES = random_poses(robot(), 20, seed=1)
MEASURED = {"velocity and torque": ("dq", "tau"), "torque": ("tau",), "position only": ()}


def speed_limit(rig: Rig) -> np.ndarray:
    limit: np.ndarray = rig.controller._limits[c.SPEED]
    return limit


def guide(rig: Rig, push_s: float = 1.5, after_s: float = 3.0) -> tuple[Trace, Trace]:
    rig.run(2.1)
    q = rig.sample.true_q
    direction = tip_jacobian(rig.truth, q) @ np.random.default_rng(round(1e6 * abs(q[0]))).normal(size=rig.arm.n)
    rig.push(HAND * direction / np.linalg.norm(direction))
    pushed = rig.run(push_s)
    rig.push(np.zeros(3))
    return pushed, rig.run(after_s)


def stands(trace: Trace, last_s: float = 0.5) -> bool:
    return bool(np.abs(trace.dq[-round(last_s / T) :]).max() < 1e-4)


@pytest.mark.parametrize("channels", MEASURED.values(), ids=MEASURED.keys())
def test_it_hovers(channels: tuple[str, ...]) -> None:
    rig = Rig(robot(), exact(), start=POSES[0], channels=channels)
    trace = rig.run(3.0)
    assert trace.states[-1] is GuidingState.GUIDING
    assert np.degrees(np.abs(trace.q - POSES[0])).max() < 0.05
    assert stands(trace)


@pytest.mark.parametrize(("pose", "channels"), [(3, ("dq", "tau")), (5, ())])
def test_a_hand_moves_it_and_it_stops_when_let_go(pose: int, channels: tuple[str, ...]) -> None:
    rig = Rig(robot(), exact(), start=POSES[pose], channels=channels)
    pushed, after = guide(rig)
    jacobian = tip_jacobian(rig.truth, pushed.q[0])
    assert pushed.force[0] @ jacobian @ (pushed.q[400] - pushed.q[0]) > 0.01  # the hand's way
    assert np.abs(pushed.q[-1] - pushed.q[0]).max() > 0.2
    assert np.all(np.abs(pushed.dq) < speed_limit(rig))
    assert set(pushed.states + after.states) == {GuidingState.GUIDING}
    assert stands(after)


def test_the_residual_is_the_torque_of_the_hand() -> None:
    rig = Rig(robot(), exact(), start=POSES[4])
    pushed, _ = guide(rig, after_s=0.0)
    filter_s = rig.settings.residual_filter_s
    hand = np.array([tip_jacobian(rig.truth, q).T @ pushed.force[0] for q in pushed.q[::50]])
    moving = np.abs(pushed.dq[::50]) > 0.1
    late = T * np.arange(0, len(pushed.q), 50) > 10.0 * filter_s
    error = np.abs(pushed.residual[::50] - hand)[moving & late[:, None]]
    assert error.size > 50
    assert np.sqrt(np.mean(error**2)) < 0.05 * np.abs(hand).max()


def check_alarm(rig: Rig, trace: Trace, wrong: RobotModel, allowed: float) -> None:
    """The alarm names a joint and what the links lack there, to within `allowed` of its breakaway and of the error."""
    status = rig.controller.status
    assert "model not valid" in status.reason
    assert status.joint in status.reason
    row, joint = trace.states.index(GuidingState.ALARM), [j.name for j in robot().joints].index(status.joint)
    rows = range(max(0, row - 100), row)  # two time constants of the residual
    needed = [
        [pin.rnea(arm, arm.createData(), trace.q[k], trace.dq[k], trace.ddq[k])[joint] for k in rows]
        for arm in (twin(rig.truth), twin(wrong))
    ]
    error = np.mean(np.subtract(*needed))
    assert abs(status.value + error) < allowed * rig.model.coordinates[joint, C_BREAKAWAY] + 0.1 * abs(error)
    assert abs(status.value) > status.limit
    assert np.all(np.abs(trace.dq) < speed_limit(rig))
    after = rig.run(1.0)
    assert rig.controller.state is GuidingState.HOLD_REQUESTED
    assert np.abs(after.dq[-1]).max() < 1e-3


def test_an_arm_that_moves_by_itself_after_the_takeover_is_held_soon() -> None:
    arm = with_payload(robot(), 6.0)
    rig = Rig(with_payload(robot(), 4.8), believed(arm), start=POSES[14])
    trace = rig.run(3.0)
    assert 0.01 < np.abs(trace.q[trace.states.index(GuidingState.ALARM)] - POSES[14]).max() < 0.15
    check_alarm(rig, trace, arm, allowed=0.1)


def test_an_error_above_the_friction_margin_that_lasts_raises_the_alarm_with_its_numbers() -> None:
    """At rest friction holds 20 % of 2 kg; once moved, the arm goes on."""
    arm = with_payload(robot(), 2.0)
    rig = Rig(with_payload(robot(), 2.4), believed(arm), start=POSES[1])
    _, after = guide(rig, after_s=5.0)
    assert after.states[0] is GuidingState.GUIDING
    check_alarm(rig, after, arm, allowed=0.1)


@pytest.mark.parametrize(
    ("factor", "delay", "sensors", "channels"),
    [(1.2, 1, SENSORS, ()), (1.2, 2, SENSORS, ("dq", "tau")), (0.9, 2, IDEAL, ())],
    ids=["noise, no dq", "two cycles late", "too much, without noise, no dq"],
)
def test_full_friction_compensation_asked_for_does_not_limit_cycle(
    sensors: SimSettings, delay: int, factor: float, channels: tuple[str, ...]
) -> None:
    settings = ZeroForceSettings(friction_share=1.0, delay_cycles=delay)
    d = robot().dynamics
    other = replace(d, coulomb=factor * d.coulomb, breakaway=factor * d.breakaway, viscous=factor * d.viscous)
    rig = Rig(replace(robot(), dynamics=other), exact(), settings, POSES[6], sensors, delay, channels)
    pushed, after = guide(rig, push_s=0.6, after_s=3.5)
    assert np.abs(pushed.dq).max() > 0.1
    assert not after.dq[-500:].any()  # at rest to the bit
    # No joint turns over again and again on its way to rest.
    turns = (np.diff(np.sign(after.dq), axis=0) != 0).sum(axis=0)
    assert turns.max() <= 4
