"""Signs, frames and sizes of every part of the torque, by hand on single joints and against Pinocchio."""

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from rt_core.hand_guiding.model import DEADBAND, RISE
from rt_core.model.robot import RobotModel
from rt_core.settings import MAX_SHARE
from tests.lab.arms.simulated import random_arm, single_joint, twin
from tests.lab.hand_guiding.frames import AT_ONCE, guiding_model, limited, torque

WEIGHT = 2.0 * 9.81


def pendulum(coulomb: float = 0.0, viscous: float = 0.0) -> RobotModel:
    """About +y, 2 kg at 0.5 m along x: gravity turns it the positive way at q = 0."""
    return limited(single_joint("revolute", coulomb, viscous), lower=-2.0, upper=2.0, velocity=2.0, effort=100.0)


@pytest.mark.parametrize("v", [-0.5, -0.1, 0.1, 0.5])
@pytest.mark.parametrize("asked", [0.0, 0.4, 1.0])
def test_friction_is_helped_along_the_motion_by_the_share_and_damped(v: float, asked: float) -> None:
    share = min(asked, MAX_SHARE)
    model = pendulum(coulomb=3.0, viscous=2.0)
    extra = torque(model, 0.0, v, friction_share=asked, damping_time_s=0.25)[0] + WEIGHT * 0.5
    damping = guiding_model(model).inertia[0] / 0.25
    assert extra == pytest.approx(share * (3.0 * np.sign(v) + 2.0 * v) - damping * v)
    assert guiding_model(model).inertia[0] == pytest.approx(2.0 * 0.5**2)


def test_friction_is_not_helped_within_the_deadband_and_rises_from_there() -> None:
    model = pendulum(coulomb=3.0)
    standstill = 0.005 * 2.0
    given_ = np.array(
        [
            torque(model, 0.0, v, damping_time_s=1e9, friction_share=0.8)[0] + WEIGHT * 0.5
            for v in np.linspace(0.0, 6.0, 61) * standstill
        ]
    )
    assert np.allclose(given_[: round(10 * DEADBAND) + 1], 0.0, atol=1e-9)
    assert np.all(np.diff(given_) > -1e-9)
    assert np.abs(np.diff(given_)).max() < 0.06 * 0.8 * 3.0
    assert np.allclose(given_[round(10 * (DEADBAND + RISE)) :], 0.8 * 3.0)


def test_walls_push_back_and_never_pull() -> None:
    model = replace(pendulum(), gravity=np.zeros(3))
    width = AT_ONCE.wall_share * 4.0
    for side in (-1.0, 1.0):
        inside, edge = side * (2.0 - 1.1 * width), side * (2.0 - 0.5 * width)
        assert torque(model, inside)[0] == 0.0
        at_rest = -side * torque(model, edge)[0]
        assert at_rest > 0.0
        assert -side * torque(model, side * (2.0 - 0.25 * width))[0] > at_rest
        inwards = -side * torque(model, edge, -side * 0.2, damping_time_s=1e9)[0]
        outwards = -side * torque(model, edge, side * 0.2, damping_time_s=1e9)[0]
        assert 0.0 <= inwards < at_rest < outwards
        assert torque(model, edge, -side * 1.3, damping_time_s=1e9)[0] == pytest.approx(0.0, abs=1e-6)


def test_braking_begins_below_the_speed_limit_and_grows() -> None:
    model = replace(pendulum(), gravity=np.zeros(3))
    v = np.array([0.3, 0.69, 0.75, 0.9, -0.9])
    tau = np.array([torque(model, 0.0, x, damping_time_s=1e9, speed_share=0.5, torque_share=1.0)[0] for x in v])
    assert np.allclose(tau[:2], 0.0, atol=1e-6)
    inertia, time = 0.5, AT_ONCE.braking_time_s
    assert tau[2:] == pytest.approx([-0.05 * inertia / time, -0.2 * inertia / time, 0.2 * inertia / time])


@given(n=st.integers(1, 7), seed=st.integers(0, 5000), coupled=st.booleans())
@hypothesis_settings(max_examples=25)
def test_torque_is_gravity_offset_and_coriolis_without_friction_and_damping(n: int, seed: int, coupled: bool) -> None:
    model = random_arm(n, seed, coupled=coupled and n > 1)
    q, dq = np.random.default_rng(seed).uniform(-0.3, 0.3, (2, n))
    oracle = twin(model)
    store = oracle.createData()
    weight = pin.rnea(oracle, store, q, np.zeros(n), np.zeros(n))
    assert np.allclose(torque(model, q), weight + model.dynamics.offset, atol=1e-9 * np.abs(weight).max())
    coriolis = pin.rnea(oracle, store, q, dq, np.zeros(n)) - weight
    extra = torque(model, q, dq, friction_share=0.0, damping_time_s=1e9) - weight - model.dynamics.offset
    scale = np.abs(weight).max() + np.abs(coriolis).max()
    # All of it, unless that would feed the arm more than friction takes away.
    along = float(extra @ coriolis / (coriolis @ coriolis)) if np.abs(coriolis).max() > 1e-6 * scale else 0.0
    assert np.allclose(extra, along * coriolis, atol=1e-6 * scale)
    assert -1e-3 <= along <= 1.0 + 1e-3
    if along < 1.0 - 1e-3 and np.abs(coriolis).max() > 1e-6 * scale:
        assert dq @ coriolis > 0.0


@given(n=st.integers(1, 7), seed=st.integers(0, 5000), coupled=st.booleans())
@hypothesis_settings(max_examples=25)
def test_power_given_beyond_gravity_is_never_more_than_friction_takes(n: int, seed: int, coupled: bool) -> None:
    """Kinetic energy changes by `dq . (tau - gravity - offset - friction)`: whatever the speed, it does not grow."""
    model = random_arm(n, seed, coupled=coupled and n > 1)
    d, C = model.dynamics, model.coupling
    rng = np.random.default_rng(seed)
    q = rng.uniform(-0.4, 0.4, n)
    top = np.array([joint.velocity for joint in model.joints])  # beyond, there is no torque at all
    dq = np.clip(rng.normal(size=n) * 10.0 ** rng.uniform(-3.0, -0.3), -0.5 * top, 0.5 * top)
    weight = pin.rnea(twin(model), twin(model).createData(), q, np.zeros(n), np.zeros(n))
    motor = C @ dq
    friction = C.T @ (d.viscous * motor + d.coulomb * np.sign(motor))
    tau = torque(model, q, dq, friction_share=1.0, damping_time_s=10.0)
    power = dq @ (tau - weight - d.offset - friction)
    assert power < -0.1 * (1.0 - MAX_SHARE) * (dq @ friction) + 1e-9 * np.abs(weight).max()
