"""The arm moved by drive commands: equations of motion at every sample, brakes, modes, limits, divergence."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from drivers.files.robots.file import load_robot
from rt_core.model.robot import RobotModel
from sim_backend.arm.settings import SimSettings
from sim_backend.drive.drive_arm import DRIVE_ARM_SETTINGS, DriveArm
from sim_backend.drive.modes import BRAKED, CSP, CST, CSV, OFF
from sim_backend.drive.sample import DriveSample
from sim_backend.errors import SimulationConfigError, SimulationDivergedError
from tests.lab.arms.simulated import random_arm, rigid_torque, single_joint

T = 1e-3


def run(arm: DriveArm, mode: int, target: Callable[[float], np.ndarray], duration_s: float) -> list[DriveSample]:
    start = arm.time_s
    steps = range(1, round(duration_s / T) + 1)
    return [arm.step([mode] * arm.n, target(start + k * T)) for k in steps]


def column(samples: list[DriveSample], name: str) -> np.ndarray:
    return np.array([getattr(sample, name) for sample in samples])


def residual(model: RobotModel, samples: list[DriveSample]) -> np.ndarray:
    """Torque that Pinocchio, rotors and the reported friction leave unexplained (N, n)."""
    C, d = model.coupling, model.dynamics
    ddq, friction = column(samples, "true_ddq"), column(samples, "true_friction")
    rigid = rigid_torque(model, column(samples, "true_q"), column(samples, "true_dq"), ddq)
    return column(samples, "true_tau") - rigid - (ddq @ C.T * d.armature) @ C - d.offset - friction


@given(n=st.integers(1, 7), seed=st.integers(0, 1000), coupled=st.booleans())
@hypothesis_settings(max_examples=12)
def test_samples_obey_the_equations_of_motion_under_changing_commands(n: int, seed: int, coupled: bool) -> None:
    model = random_arm(n, seed, coupled=coupled and n > 1)
    d = model.dynamics
    rng = np.random.default_rng(seed)
    arm = DriveArm(model)
    samples: list[DriveSample] = []
    closed: list[np.ndarray] = []
    for _ in range(12):
        mode = rng.choice([BRAKED, OFF, CSP, CSV, CST], n)
        speed, torque = rng.uniform(-0.5, 0.5, n), rng.uniform(-20.0, 20.0, n)
        start = arm.sample().x
        for k in range(1, 41):
            target = np.select([mode == CSP, mode == CSV, mode == CST], [start + speed * k * T, speed, torque])
            samples.append(arm.step(mode, target))
            closed.append(mode == BRAKED)
    scale = max(np.abs(column(samples, "true_tau")).max(), np.abs(column(samples, "true_friction")).max())
    assert np.abs(residual(model, samples)).max() < 1e-9 * scale
    # Friction is that of the written law wherever a motor turns, plus the brake's where one is closed.
    motor = column(samples, "v")
    own = np.linalg.solve(model.coupling.T, column(samples, "true_friction").T).T
    brake = np.array(closed) * arm.brake_torque
    law = d.viscous * motor + (d.coulomb + brake) * np.sign(motor)
    turning = np.abs(motor) > 1e-9
    assert turning.mean() > 0.1
    assert np.abs(own - law)[turning].max() < 1e-9 * scale
    assert np.all(np.abs(own)[~turning] <= (d.coulomb + brake)[~turning] * (1 + 1e-9))


def test_an_arm_with_closed_brakes_stays_to_the_bit_and_falls_when_they_open() -> None:
    model = load_robot("arm9").model
    arm = DriveArm(model, start=np.full(9, 0.4))
    samples = run(arm, BRAKED, lambda _: np.zeros(9), 0.5)
    assert np.all(column(samples, "true_q") == arm.sample().true_q)
    assert not column(samples, "true_dq").any()
    assert not column(samples, "true_tau").any()
    holding = samples[-1].true_friction
    weight = rigid_torque(model, np.full((1, 9), 0.4), np.zeros((1, 9)), np.zeros((1, 9)))[0]
    assert np.allclose(holding, -(weight + model.dynamics.offset))
    fallen = run(arm, OFF, lambda _: np.zeros(9), 0.5)
    assert np.abs(fallen[-1].true_q - 0.4).max() > 0.05
    assert not fallen[-1].true_tau.any()


def test_a_brake_that_closes_on_a_moving_joint_stops_it_by_its_torque() -> None:
    inertia = 2.0 * 0.5**2
    model = replace(single_joint("revolute"), gravity=np.zeros(3))
    arm = DriveArm(model, start=[0.0], brake_torque=[5.0])
    moving = run(arm, CSV, lambda _: np.array([1.0]), 1.0)[-1]
    assert moving.true_dq[0] == pytest.approx(1.0, abs=1e-6)
    samples = run(arm, BRAKED, lambda _: np.zeros(1), 0.3)
    stopped = inertia * moving.true_dq[0] / 5.0
    k = int(stopped / T)
    fade = 0.5e-3  # the torque that kept it moving is nought; the brake alone decelerates
    assert samples[k // 2].true_dq[0] == pytest.approx(1.0 - 5.0 / inertia * (k // 2 + 1) * T, abs=5.0 / inertia * fade)
    assert samples[k + 2].true_dq[0] == 0.0
    assert samples[-1].true_q[0] == pytest.approx(moving.true_q[0] + 0.5 * stopped, rel=1e-3)


def test_torque_keeps_to_the_limits_and_says_so() -> None:
    joint = replace(single_joint("revolute").joints[0], effort=4.0)
    arm = DriveArm(replace(single_joint("revolute"), joints=(joint,), gravity=np.zeros(3)), start=[0.0])
    assert arm.step([CST], [9.0]).true_tau[0] == 4.0
    assert arm.step([CST], [9.0]).limited.all()
    assert arm.step([CST], [9.0], torque_limit=[2.5]).true_tau[0] == 2.5
    assert arm.step([CST], [9.0], torque_limit=[100.0]).true_tau[0] == 4.0
    assert not arm.step([CST], [3.9]).limited.any()


@pytest.mark.parametrize("first", [CSP, CSV, CST, OFF])
@pytest.mark.parametrize("second", [CSP, CSV, CST])
def test_a_change_of_mode_makes_no_jump(first: int, second: int) -> None:
    arm = DriveArm(load_robot("space6").model)
    start = arm.sample().x
    zero = np.zeros(arm.n)
    for k in range(1, 301):
        last = arm.step([first] * arm.n, {CSP: start + 0.3 * (k * T) ** 2, CSV: zero + 0.1, CST: zero}.get(first, zero))
    now = {CSP: last.x + last.v * T, CSV: last.v, CST: last.u}[second]
    after = arm.step([second] * arm.n, now)
    assert np.abs(after.x - last.x).max() < 2.0 * np.abs(last.v).max() * T + 1e-3
    assert np.abs(after.v - last.v).max() < 0.1


def test_a_drive_that_is_too_fast_for_its_substeps_raises() -> None:
    nervous = DRIVE_ARM_SETTINGS.drive.model_copy(update={"velocity_bandwidth_hz": 20_000.0})
    arm = DriveArm(single_joint("revolute"), DRIVE_ARM_SETTINGS.model_copy(update={"drive": nervous}))
    with pytest.raises(SimulationDivergedError, match="drive bandwidths suit the rate"):
        run(arm, CSV, lambda _: np.ones(1), 1.0)


def test_invalid_settings_are_refused() -> None:
    model = random_arm(2, 1)
    for robot, options, message in (
        (model, {"settings": SimSettings()}, "feedforward"),
        (model, {"start": [0.0]}, "start of robot 'random' must be 2"),
        (replace(model, inertial=None), {}, "no inertial parameters"),
        (model, {"period_s": 0.0}, "period"),
    ):
        with pytest.raises(SimulationConfigError, match=message):
            DriveArm(robot, **options)
