"""Paul profiles: there and back at constant speed, continuous to the acceleration, within limits, in whole strokes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from sim_backend.arm._trapezoidal_profile import profile_at
from sim_backend.arm.settings import MotionSettings
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
