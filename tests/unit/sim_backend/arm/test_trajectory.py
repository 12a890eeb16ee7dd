"""Set trajectories against the formula, their limits and derivatives; Paul profiles in whole strokes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rt_core.model.dynamics import inverse_dynamics
from rt_core.model.robot import RobotModel
from sim_backend.arm._trapezoidal_profile import profile_at
from sim_backend.arm.settings import MotionSettings, PieceSettings
from sim_backend.arm.trajectory import Motion, MotionLimits, plan_motion
from sim_backend.errors import MotionError
from tests.lab.arms.simulated import random_arm

ARM = random_arm(6, 4)


def by_formula(motion: Motion, t: float) -> np.ndarray:
    """Positions by the written formula, term by term."""
    q = motion.centre.copy()
    for k, (start, duration, ramp, w, _, _) in enumerate(motion.table):
        s = t - start
        if not 0.0 <= s < duration or w == 0.0:
            continue
        x = min(s / ramp, (duration - s) / ramp, 1.0)
        envelope = 10 * x**3 - 15 * x**4 + 6 * x**5
        for i in range(motion.n):
            for h, (a, b) in enumerate(motion.coefficients[k, i]):
                angle = (h + 1) * w * s
                q[i] += envelope * (a * np.sin(angle) - b * np.cos(angle))
    return q


SCHEDULE = MotionSettings(
    kind="schedule", seed=3,
    segments=(PieceSettings(duration_s=12.0), PieceSettings(kind="hold", duration_s=3.0),
              PieceSettings(duration_s=15.0, held=("joint_2",), seed=9, harmonics=3, base_frequency_hz=0.2)),
)  # fmt: skip


@pytest.mark.parametrize("settings", [MotionSettings(duration_s=17.0, seed=5), SCHEDULE])
def test_values_and_derivatives(settings: MotionSettings) -> None:
    motion = plan_motion(ARM, settings)
    t = np.random.default_rng(0).uniform(0.0, 40.0, 200)
    q, dq, ddq = motion.sample(t)
    assert np.allclose(q, [by_formula(motion, x) for x in t], atol=1e-12)
    h = 1e-4
    after, before = motion.sample(t + h), motion.sample(t - h)
    assert np.allclose(dq, (after[0] - before[0]) / (2 * h), atol=1e-5)
    assert np.allclose(ddq, (after[1] - before[1]) / (2 * h), atol=1e-2)  # the envelope's jerk jumps at its ends
    one = motion.sample(float(t[7]))
    assert [x.shape for x in one] == [(6,)] * 3
    assert all(np.array_equal(x, y[7]) for x, y in zip(one, (q, dq, ddq), strict=True))


@given(n=st.integers(1, 9), arm=st.integers(0, 50), seed=st.integers(0, 1000))
@hypothesis_settings(max_examples=25)
def test_limits_are_kept_and_used(n: int, arm: int, seed: int) -> None:
    model = random_arm(n, arm)
    motion = plan_motion(model, MotionSettings(seed=seed, amplitude=0.7, duration_s=21.0, candidates=1))
    q, dq, ddq = motion.sample(np.arange(0.0, 21.0, 0.003))
    share = np.zeros(n)
    for i, joint in enumerate(model.joints):
        assert np.all((q[:, i] > joint.lower) & (q[:, i] < joint.upper))
        assert np.abs(dq[:, i]).max() <= 0.702 * joint.velocity
        assert np.abs(ddq[:, i]).max() <= 0.702 * 5.0 * joint.velocity
        reach = np.where(q[:, i] > motion.centre[i], joint.upper - motion.centre[i], motion.centre[i] - joint.lower)
        share[i] = max(np.abs(dq[:, i]).max() / joint.velocity, (np.abs(q[:, i] - motion.centre[i]) / reach).max())
    assert share.max() - share.min() < 0.3  # scaled down for effort all together, or not at all
    tau = inverse_dynamics(model.geometry, model.gravity, model.inertial, q, dq, ddq)
    assert np.all(np.abs(tau).max(axis=0) < [joint.effort for joint in model.joints])


def test_held_joints_stand_exactly_while_the_others_move() -> None:
    _, dq, ddq = plan_motion(ARM, SCHEDULE).sample(np.arange(15.5, 29.5, 0.01))
    assert np.all(dq[:, 1] == 0.0)
    assert np.all(ddq[:, 1] == 0.0)
    assert np.all(np.abs(np.delete(dq, 1, axis=1)).max(axis=0) > 0.05)


WEAK_ARM = replace(ARM, joints=tuple(replace(joint, effort=0.01) for joint in ARM.joints))


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        (ARM, MotionSettings(held=("elbow",)), r"'elbow' is not a joint .*joint_1"),
        (ARM, MotionSettings(centre=(0.0,)), r"centre has 1 values, .* has 6"),
        (ARM, MotionSettings(centre=(99.0, 0, 0, 0, 0, 0)), r"'joint_1' is 99, outside its limits"),
        (ARM, MotionSettings(acceleration=(1.0, 1.0)), r"acceleration has 2 values"),
        (WEAK_ARM, MotionSettings(), r"needs .* at rest .* effort limit 0.01"),
    ],
)
def test_impossible_motions_are_refused(model: RobotModel, settings: MotionSettings, message: str) -> None:
    with pytest.raises(MotionError, match=message):
        plan_motion(model, settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"knid": "hold"}, "knid"),
        ({"kind": "schedule"}, "at least one entry"),
        ({"repeat": True}, "repeat belong"),
        ({"kind": "schedule", "segments": [{}, {"duration_s": 1.0}]}, r"segments\[0\] needs duration_s"),
        ({"kind": "schedule", "segments": [{"duration_s": 1.0}], "duration_s": 3.0}, "leave out duration_s"),
    ],
)
def test_bad_settings_name_the_field(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        MotionSettings.model_validate(settings)


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


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"duration_s": 0.5}, r"a Paul profile within duration_s = 0.5 .* there and back take"),
     ({"held": tuple(joint.name for joint in ARM.joints)}, "moves no joint")],
)  # fmt: skip
def test_what_is_impossible_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(MotionError, match=message):
        plan_motion(ARM, MotionSettings(kind="paul", **changes))
