"""Two motions along one path are compared at the places that both have."""

from __future__ import annotations

import numpy as np
import pytest

from rt_core.commissioning._hysteresis import passes, turning_time
from rt_core.commissioning.bidirectional import both_ways, same_places
from rt_core.commissioning.findings import CommissioningError
from rt_core.commissioning.profiles import there_and_back
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
