"""Outside forces: `J' f` with a Jacobian from finite differences, work and energy, times, refusals."""

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rt_core.model.robot import RobotModel
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import ForceSettings, SimSettings
from sim_backend.drive.drive_arm import DRIVE_ARM_SETTINGS, DriveArm
from sim_backend.drive.modes import OFF
from sim_backend.errors import SimulationConfigError
from tests.lab.arms.simulated import AT_ZERO, random_arm, single_joint, twin

STEP = 1e-6


def placement(oracle: pin.Model, store: pin.Data, q: np.ndarray, link: int) -> pin.SE3:
    pin.forwardKinematics(oracle, store, q)
    return store.oMi[link + 1].copy()


def outside_torque(
    model: RobotModel, q: np.ndarray, link: int, point: np.ndarray, force: np.ndarray, moment: np.ndarray
) -> np.ndarray:
    """Power of force and moment per unit of each joint's velocity, by central differences of the pose."""
    oracle = twin(model)
    store = oracle.createData()
    tau = np.zeros(model.n)
    for j in range(model.n):
        ahead, behind = (placement(oracle, store, q + s * STEP * np.eye(model.n)[j], link) for s in (1.0, -1.0))
        shift = (ahead.act(point) - behind.act(point)) / (2.0 * STEP)
        turn = pin.log3(ahead.rotation @ behind.rotation.T) / (2.0 * STEP)
        tau[j] = force @ shift + moment @ turn
    return tau


@given(n=st.integers(1, 7), seed=st.integers(0, 1000), coupled=st.booleans(), link=st.integers(0, 6))
@example(n=1, seed=226, coupled=False, link=0)  # its friction holds it
@hypothesis_settings(max_examples=15)
def test_the_equations_of_motion_hold_with_forces_on_a_link_and_the_tip(
    n: int, seed: int, coupled: bool, link: int
) -> None:
    model = random_arm(n, seed, coupled=coupled and n > 1)
    link %= n
    rng = np.random.default_rng(seed)
    tip = (pin.exp3(rng.normal(size=3)), rng.normal(size=3))
    model = replace(model, tip_rotation=tip[0], tip_translation=tip[1])
    d, C, oracle = model.dynamics, model.coupling, twin(model)
    point, force, moment = rng.normal(size=(3, 2, 3)) * np.array([0.3, 50.0, 10.0])[:, None, None]
    arm = DriveArm(model)
    arm.set_outside_force(force[0], moment[0], link=f"joint_{link + 1}", point=point[0])
    if link < n - 1:
        arm.set_outside_force(force[1], moment[1], point=point[1])
    for k in range(200):
        s = arm.step([OFF] * n, np.zeros(n))
        if k % 40 != 39:
            continue
        pushed = outside_torque(model, s.true_q, link, point[0], force[0], moment[0])
        if link < n - 1:
            pushed += outside_torque(model, s.true_q, n - 1, tip[0] @ point[1] + tip[1], force[1], moment[1])
        rigid = pin.rnea(oracle, oracle.createData(), s.true_q, s.true_dq, s.true_ddq)
        needed = rigid + C.T @ (d.armature * (C @ s.true_ddq)) + d.offset + s.true_friction
        scale = np.abs(pushed).max() + np.abs(rigid).max()
        assert np.abs(needed - s.true_tau - pushed).max() < 1e-7 * scale
    assert np.abs(s.true_dq).max() > 1e-3 or np.all(s.true_friction != 0.0)  # it moves, or friction holds it all


def slider(**settings: object) -> DriveArm:
    model = replace(single_joint("prismatic"), gravity=np.zeros(3))
    return DriveArm(model, SimSettings.model_validate({**DRIVE_ARM_SETTINGS.model_dump(), **settings}), start=[0.0])


def test_a_force_of_the_settings_rises_acts_and_ends_in_time() -> None:
    arm = slider(forces=[{"time_s": 0.1, "duration_s": 0.4, "ramp_s": 0.1, "force": [4.0, 0.0, 0.0]}])
    speed = np.array([arm.step([OFF], [0.0]).true_dq[0] for _ in range(700)])
    assert not speed[:100].any()
    assert speed[499] == pytest.approx(4.0 / 2.0 * 0.3, rel=0.02)
    assert speed[299] - speed[249] == pytest.approx(2.0 * 0.05, rel=1e-9)
    assert np.all(speed[500:] == speed[500])


@pytest.mark.parametrize("together", [True, False])
def test_a_following_arm_is_pushed_off_its_way_and_begins_anew_without_a_force(together: bool) -> None:
    drive = {"position_bandwidth_hz": 2.0, "velocity_bandwidth_hz": 10.0, "feedforward": "gravity"}
    force = {"time_s": 0.2, "duration_s": 0.3, "link": "only", "point": [0.5, 0.0, 0.0], "force": [0.0, 0.0, -10.0]}
    settings = SimSettings.model_validate({"encoder_bits": None, "velocity_noise": 0.0, "drive": drive})
    pushed = settings.model_copy(update={"forces": (ForceSettings.model_validate(force),)})
    arm = SimulatedArm(single_joint("revolute", viscous=0.5), pushed, AT_ZERO)
    for _ in range(2):
        arm.reset()
        if together:
            q = arm.simulate(0.8).q[:, 0]
        else:
            q = np.array([frame.q[0] for frame in (arm.step() for _ in range(800)) if frame.q is not None])
        # About +y with the point out along x: a force down turns it the positive way.
        assert np.abs(q[:201]).max() < 1e-12
        assert q[400] > 0.01
        assert abs(q[-1]) < 0.2 * q[400]


def test_bad_forces_are_refused_by_name() -> None:
    arm = slider()
    with pytest.raises(SimulationConfigError, match=r"'elbow' is not a link .* 'tip' or, .* only"):
        arm.set_outside_force([1.0, 0.0, 0.0], link="elbow")
    with pytest.raises(SimulationConfigError, match="force of the outside force on 'tip' must be 3 finite values"):
        arm.set_outside_force([np.nan, 0.0, 0.0])
    first = {"time_s": 1.0, "duration_s": 2.0, "force": [1.0, 0.0, 0.0]}
    with pytest.raises(SimulationConfigError, match="another one acts on that link until 3 s"):
        slider(forces=[first, {**first, "time_s": 2.0, "link": "only"}])
    with pytest.raises(ValidationError, match="room for both ramps"):
        ForceSettings(time_s=0.0, duration_s=1.0, ramp_s=0.6)
