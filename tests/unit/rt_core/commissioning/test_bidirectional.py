"""Two motions along one path are compared at the places that both have."""

from __future__ import annotations

import numpy as np

from rt_core.commissioning.bidirectional import both_ways, same_places
from rt_core.commissioning.profiles import there_and_back
from rt_core.types import FloatArray

RATE_HZ, LEG_S, DWELL_S = 500.0, 1.0, 0.3
START, WAY = np.array([0.2, -0.1]), np.array([0.4, 0.3])


def motion(offset: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    rows = there_and_back(START, WAY, LEG_S, DWELL_S, RATE_HZ)
    q = np.vstack((np.repeat(rows[:1], 100, axis=0), rows, np.repeat(rows[-1:], 100, axis=0)))
    return np.arange(len(q)) / RATE_HZ, q, np.sin(3.0 * q) + offset


def test_a_place_that_one_motion_lacks_shifts_nothing() -> None:
    t, q, signal = motion(0.0)
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
