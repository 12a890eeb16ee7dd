"""Motions there and back: they rest at their ends, keep their speed, and are the same both ways."""

from __future__ import annotations

import numpy as np
import pytest

from rt_core.commissioning.findings import CommissioningError
from rt_core.commissioning.profiles import EASE_PEAK, Sweep, aligned, there_and_back

RATE_HZ = 1000.0
START, WAY = np.array([0.1, -0.2]), np.array([0.5, -0.3])


def test_there_and_back_rests_at_both_ends_and_closes() -> None:
    q = there_and_back(START, WAY, 1.0, 0.2, RATE_HZ)
    dq, ddq = np.gradient(q, 1.0 / RATE_HZ, axis=0), np.diff(q, 2, axis=0) * RATE_HZ**2
    np.testing.assert_array_equal(q[0], START)
    np.testing.assert_allclose(q[-1], START, atol=1e-12)
    np.testing.assert_allclose(q[1100], START + WAY, atol=1e-12)
    np.testing.assert_allclose(dq[[0, -1]], 0.0, atol=1e-5)
    np.testing.assert_allclose(ddq[[0, -1]], 0.0, atol=0.05)
    np.testing.assert_allclose(np.abs(dq).max(axis=0), EASE_PEAK * np.abs(WAY), rtol=1e-4)


def test_a_sweep_keeps_its_speed_between_its_ramps() -> None:
    sweep = Sweep(2.0, 0.4, 0.3)
    assert sweep.leg_s == pytest.approx(2.8)
    assert sweep.duration_s == pytest.approx(5.9)
    q = sweep.rows(START, START + WAY, RATE_HZ)
    speed = np.gradient(q[:, 0], 1.0 / RATE_HZ)
    np.testing.assert_allclose(speed[450:2350], WAY[0] / sweep.reach_s, rtol=1e-9)
    np.testing.assert_allclose(speed[3550:5450], -WAY[0] / sweep.reach_s, rtol=1e-9)
    np.testing.assert_allclose(q[[0, -1]], [START, START], atol=1e-12)
    np.testing.assert_allclose(q[2950], START + WAY, atol=1e-12)
    ramp = np.abs(np.diff(q[:, 0], 2)).max() * RATE_HZ**2
    assert ramp == pytest.approx(1.5 * WAY[0] / sweep.reach_s / 0.4, rel=0.01)


def test_windows_of_a_sweep_are_those_of_constant_speed() -> None:
    sweep = Sweep(2.0, 0.4, 0.3)
    (a, b), (c, d) = sweep.windows(2.95, 0.1)
    assert (a, b, c, d) == pytest.approx((0.5, 2.3, 3.6, 5.4))
    with pytest.raises(CommissioningError, match="leave nothing"):
        sweep.windows(2.95, 1.0)
    with pytest.raises(CommissioningError, match="above 0"):
        Sweep(0.0, 0.1, 0.1)


def test_a_command_that_is_not_told_is_laid_over_the_recording() -> None:
    rng = np.random.default_rng(1)
    rows = there_and_back(START, np.array([0.0, 0.06]), 1.0, 0.3, RATE_HZ)
    q = np.vstack((np.repeat(rows[:1], 437, axis=0), rows, np.repeat(rows[-1:], 210, axis=0)))
    t = np.arange(len(q)) / RATE_HZ
    found = aligned(t, q + 1e-6 * rng.normal(size=q.shape), 0.06, 1.0, 0.3)
    np.testing.assert_allclose(found, q[:, 1] - START[1], atol=1e-3)
