"""Motions there and back, and two of them along one path compared at the places that both have."""

import numpy as np
import pytest

from rt_core.commissioning._hysteresis import passes, turning_time
from rt_core.commissioning.bidirectional import both_ways, same_places
from rt_core.commissioning.findings import CommissioningError
from rt_core.commissioning.profiles import EASE_PEAK, Sweep, aligned, there_and_back
from rt_core.types import FloatArray

RATE_HZ, LEG_S, DWELL_S = 500.0, 1.0, 0.3
START, WAY = np.array([0.2, -0.1]), np.array([0.4, 0.3])


def motion() -> tuple[FloatArray, FloatArray, FloatArray]:
    rows = there_and_back(START, WAY, LEG_S, DWELL_S, RATE_HZ)
    q = np.vstack((np.repeat(rows[:1], 100, axis=0), rows, np.repeat(rows[-1:], 100, axis=0)))
    return np.arange(len(q)) / RATE_HZ, q, np.sin(3.0 * q)


def test_a_place_that_one_motion_lacks_shifts_nothing() -> None:
    t, q, signal = motion()
    share = (q[:, 0] - START[0]) / WAY[0]
    hole = (share > 0.4) & (share < 0.5)
    holed = signal.copy()
    holed[hole] = np.nan
    a = both_ways(t, q, signal, START, WAY, LEG_S, DWELL_S)
    b = both_ways(t, q, holed + 2.0, START, WAY, LEG_S, DWELL_S)
    assert len(b.place) < len(a.place)
    first, second = same_places(a, b)
    np.testing.assert_array_equal(first.place, second.place)
    np.testing.assert_allclose(second.level - first.level, 2.0, atol=5e-3)
    np.testing.assert_allclose(first.q, second.q, atol=5e-3)


def test_half_difference_and_half_sum() -> None:
    share = np.concatenate((np.linspace(0.0, 1.0, 4001), np.linspace(1.0, 0.0, 4001)))
    out = np.arange(share.size) < 4001
    even, odd = 3.0 + 5.0 * share, np.where(out, 0.7, -0.7)
    found = passes(share, (even + odd)[:, None], out, ~out, 0.1, 0.9, 16)
    np.testing.assert_allclose(found.half_difference, 0.7, atol=1e-3)
    np.testing.assert_allclose(found.half_sum[:, 0], 3.0 + 5.0 * found.place, atol=2e-3)


def test_the_last_stay_at_the_far_end() -> None:
    t = np.arange(0.0, 10.0, 0.01)
    share = np.zeros_like(t)
    share[(t >= 1.0) & (t <= 2.0)] = 1.0  # on the way to the start, say
    share[(t >= 6.0) & (t <= 7.0)] = 1.0
    share[650] = 0.5  # noise is no end of it
    assert turning_time(t, share) == pytest.approx(6.5, abs=0.02)
    with pytest.raises(CommissioningError, match="not reached"):
        turning_time(t, 0.5 * share)


def test_a_recording_without_the_whole_way_is_refused() -> None:
    t, q, signal = motion()
    with pytest.raises(CommissioningError, match="whole way"):
        both_ways(t[:900], q[:900], signal[:900], START, WAY, LEG_S, DWELL_S)


FINE_HZ = 1000.0
BEGIN, STEP = np.array([0.1, -0.2]), np.array([0.5, -0.3])


def test_there_and_back_rests_at_both_ends_and_closes() -> None:
    q = there_and_back(BEGIN, STEP, 1.0, 0.2, FINE_HZ)
    dq, ddq = np.gradient(q, 1.0 / FINE_HZ, axis=0), np.diff(q, 2, axis=0) * FINE_HZ**2
    np.testing.assert_array_equal(q[0], BEGIN)
    np.testing.assert_allclose(q[-1], BEGIN, atol=1e-12)
    np.testing.assert_allclose(q[1100], BEGIN + STEP, atol=1e-12)
    np.testing.assert_allclose(dq[[0, -1]], 0.0, atol=1e-5)
    np.testing.assert_allclose(ddq[[0, -1]], 0.0, atol=0.05)
    np.testing.assert_allclose(np.abs(dq).max(axis=0), EASE_PEAK * np.abs(STEP), rtol=1e-4)


def test_a_sweep_keeps_its_speed_between_its_ramps() -> None:
    sweep = Sweep(2.0, 0.4, 0.3)
    assert sweep.leg_s == pytest.approx(2.8)
    assert sweep.duration_s == pytest.approx(5.9)
    q = sweep.rows(BEGIN, BEGIN + STEP, FINE_HZ)
    speed = np.gradient(q[:, 0], 1.0 / FINE_HZ)
    np.testing.assert_allclose(speed[450:2350], STEP[0] / sweep.reach_s, rtol=1e-9)
    np.testing.assert_allclose(speed[3550:5450], -STEP[0] / sweep.reach_s, rtol=1e-9)
    np.testing.assert_allclose(q[[0, -1]], [BEGIN, BEGIN], atol=1e-12)
    np.testing.assert_allclose(q[2950], BEGIN + STEP, atol=1e-12)
    ramp = np.abs(np.diff(q[:, 0], 2)).max() * FINE_HZ**2
    assert ramp == pytest.approx(1.5 * STEP[0] / sweep.reach_s / 0.4, rel=0.01)


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
    rows = there_and_back(BEGIN, np.array([0.0, 0.06]), 1.0, 0.3, FINE_HZ)
    q = np.vstack((np.repeat(rows[:1], 437, axis=0), rows, np.repeat(rows[-1:], 210, axis=0)))
    t = np.arange(len(q)) / FINE_HZ
    found = aligned(t, q + 1e-6 * rng.normal(size=q.shape), 0.06, 1.0, 0.3)
    np.testing.assert_allclose(found, q[:, 1] - BEGIN[1], atol=1e-3)
