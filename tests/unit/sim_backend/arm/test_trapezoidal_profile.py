"""Paul profiles: there and back at constant speed, continuous to the acceleration, within limits, in whole strokes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from rt_core.model.dynamics import inverse_dynamics
from sim_backend.arm._trapezoidal_profile import profile_at
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import MotionSettings, PieceSettings, SimSettings
from sim_backend.arm.trajectory import MotionLimits, plan_motion
from sim_backend.errors import MotionError
from tests.lab.arms.simulated import random_arm

ARM = random_arm(6, 4)


@given(speed=st.floats(0.05, 5.0), share=st.floats(0.01, 1.0), strokes=st.integers(0, 5), place=st.floats(0.0, 1.0))
@hypothesis_settings(max_examples=200)
def test_speed_and_acceleration_are_derivatives(speed: float, share: float, strokes: int, place: float) -> None:
    ramp = share / speed
    whole = 2.0 * (1.0 / speed + ramp) + strokes * (2.0 / speed + ramp)
    t, h = place * whole, 1e-6 * ramp
    p, v, a = profile_at(t, speed, ramp, float(strokes))
    before, after = (profile_at(max(t + step, 0.0), speed, ramp, float(strokes)) for step in (-h, h))
    if t > h:
        assert v == pytest.approx((after[0] - before[0]) / (2.0 * h), abs=1e-4 * speed)
        assert a == pytest.approx((after[1] - before[1]) / (2.0 * h), abs=1e-3 * speed / ramp)
    assert abs(p) <= 1.0 + 1e-12
    assert abs(v) <= speed * (1.0 + 1e-12)
    assert abs(a) <= 1.5 * speed / ramp * (1.0 + 1e-12)


@pytest.mark.parametrize("strokes", [0.0, 1.0, 2.0, 5.0])
def test_it_goes_to_both_sides_and_comes_back(strokes: float) -> None:
    speed, ramp = 0.5, 1.0
    ends = np.cumsum([3.0, *[5.0] * int(strokes), 3.0])
    sides = [profile_at(end, speed, ramp, strokes) for end in ends]
    expected = [(-1.0) ** k for k in range(int(strokes) + 1)] + [0.0]
    np.testing.assert_allclose(sides, [(side, 0.0, 0.0) for side in expected], atol=1e-12)
    assert profile_at(ends[-1] + 1.0, speed, ramp, strokes) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("settings", [{}, {"speed": 0.1}, {"ramp_s": 2.0}, {"amplitude": 0.2, "duration_s": 40.0}])
def test_limits_are_kept_and_the_nearest_is_used(settings: dict[str, float]) -> None:
    wanted = MotionSettings(kind="paul", **settings)
    motion, limits = plan_motion(ARM, wanted), MotionLimits.of(ARM)
    q, dq, ddq = motion.sample(np.arange(0.0, 60.0, 0.001))
    assert (q >= limits.lower).all()
    assert (q <= limits.upper).all()
    speeds, accelerations = np.abs(dq).max(axis=0) / limits.velocity, np.abs(ddq).max(axis=0) / limits.acceleration
    assert max(speeds.max(), accelerations.max()) <= wanted.speed * (1.0 + 1e-9)
    room = np.minimum(limits.upper - motion.centre, motion.centre - limits.lower)
    np.testing.assert_allclose(np.abs(q - motion.centre).max(axis=0) / room, wanted.amplitude, rtol=1e-6)


def test_most_of_it_has_constant_speed() -> None:
    motion = plan_motion(ARM, MotionSettings(kind="paul", speed=0.1, duration_s=120.0))
    _, dq, ddq = motion.sample(np.arange(0.0, 100.0, 0.01))
    steady = (ddq == 0.0).all(axis=1) & (dq != 0.0).all(axis=1)
    assert steady.mean() > 0.5
    speeds = np.abs(dq[steady])
    np.testing.assert_allclose(speeds, np.broadcast_to(speeds[0], speeds.shape), rtol=1e-12)


def test_a_schedule_is_a_grid_of_speeds() -> None:
    speeds = (0.05, 0.1, 0.2, 0.4)
    pieces = tuple(PieceSettings(kind="paul", speed=speed, duration_s=60.0, amplitude=0.3) for speed in speeds)
    motion = plan_motion(ARM, MotionSettings(kind="schedule", segments=pieces))
    t = np.arange(0.0, 240.0, 0.01)
    _, dq, ddq = motion.sample(t)
    fastest = [np.abs(dq[(t >= 60.0 * k) & (t < 60.0 * (k + 1))]).max() for k in range(4)]
    np.testing.assert_allclose(np.array(fastest) / fastest[0], np.array(speeds) / speeds[0], rtol=1e-6)
    for k in range(5):  # pieces join at rest
        np.testing.assert_allclose(motion.sample(60.0 * k)[0], motion.centre, atol=1e-12)
    finer = motion.sample(np.arange(0.0, 240.0, 0.001))[2]  # acceleration is continuous
    assert np.abs(np.diff(finer, axis=0)).max() < 0.11 * np.abs(np.diff(ddq, axis=0)).max()


def test_effort_limits_scale_it_down() -> None:
    free = plan_motion(ARM, MotionSettings(kind="paul"))
    needed = np.abs(inverse_dynamics(ARM.geometry, ARM.gravity, ARM.inertial, *free.sample(np.arange(0.0, 20.0, 0.01))))
    limited = plan_motion(ARM, MotionSettings(kind="paul", effort_fraction=0.5))
    after = np.abs(
        inverse_dynamics(ARM.geometry, ARM.gravity, ARM.inertial, *limited.sample(np.arange(0.0, 20.0, 0.01)))
    )
    effort = np.array([joint.effort for joint in ARM.joints])
    assert (after.max(axis=0) <= effort).all()
    assert (np.abs(limited.coefficients) <= np.abs(free.coefficients)).all()
    assert needed.max() >= after.max()


def test_held_joints_stand_and_others_go_on() -> None:
    motion = plan_motion(ARM, MotionSettings(kind="paul", held=("joint_2",)))
    q, dq, _ = motion.sample(np.arange(0.0, 20.0, 0.01))
    assert (q[:, 1] == motion.centre[1]).all()
    assert (np.abs(np.delete(dq, 1, axis=1)).max(axis=0) > 0.0).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"duration_s": 0.5}, r"a Paul profile within duration_s = 0.5 .* there and back take"),
        ({"held": tuple(joint.name for joint in ARM.joints)}, "moves no joint"),
    ],
)
def test_what_is_impossible_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(MotionError, match=message):
        plan_motion(ARM, MotionSettings(kind="paul", **changes))


def test_an_arm_follows_it() -> None:
    motion = MotionSettings(kind="paul", speed=0.2, duration_s=30.0)
    data = SimulatedArm(ARM, SimSettings(rate_hz=500.0, encoder_bits=None, velocity_noise=0.0), motion).simulate(20.0)
    wanted, speed, _ = plan_motion(ARM, motion).sample(data.t)
    assert np.abs(data.channels["q"] - wanted).max() < 0.02
    assert np.abs(data.channels["dq"] - speed)[2000:].max() < 0.1
