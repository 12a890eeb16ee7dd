"""What changes with the direction, and what does not, place by place; and how sure a mean over places is."""

from __future__ import annotations

import numpy as np
import pytest

from rt_core.commissioning._hysteresis import mean_with_std, passes, turning_time
from rt_core.commissioning.errors import CommissioningError


def test_half_difference_and_half_sum() -> None:
    share = np.concatenate((np.linspace(0.0, 1.0, 4001), np.linspace(1.0, 0.0, 4001)))
    out = np.arange(share.size) < 4001
    even, odd = 3.0 + 5.0 * share, np.where(out, 0.7, -0.7)
    found = passes(share, (even + odd)[:, None], out, ~out, 0.1, 0.9, 16)
    np.testing.assert_allclose(found.half_difference, 0.7, atol=1e-3)
    np.testing.assert_allclose(found.half_sum[:, 0], 3.0 + 5.0 * found.place, atol=2e-3)


def test_a_way_that_is_missing_is_refused() -> None:
    share = np.linspace(0.0, 1.0, 1000)
    out = np.ones(1000, dtype=bool)
    with pytest.raises(CommissioningError, match="0 of 20 places in common"):
        passes(share, share[:, None], out, ~out, 0.0, 1.0)


def test_values_that_are_not_finite_are_left_out() -> None:
    share = np.concatenate((np.linspace(0.0, 1.0, 500), np.linspace(1.0, 0.0, 500)))
    values = np.ones((1000, 1))
    values[::7] = np.nan
    out = np.arange(1000) < 500
    found = passes(share, values, out, ~out, 0.0, 1.0, 10)
    np.testing.assert_array_equal(found.half_sum, 1.0)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
def test_the_stated_deviation_of_a_mean_holds_what_it_says(correlation: float) -> None:
    """Of processes with this correlation, the true mean is within two stated deviations about as often."""
    rng = np.random.default_rng(3)
    count, trials = 20, 2000
    x = np.empty((count, trials))
    x[0] = rng.normal(size=trials)
    for k in range(1, count):
        x[k] = correlation * x[k - 1] + np.sqrt(1.0 - correlation**2) * rng.normal(size=trials)
    mean, std = mean_with_std(x)
    within = np.mean(np.abs(mean) < 2.0 * std)
    assert 0.8 < within < 0.995  # twenty places that go together this much do not show all of it


def test_the_last_stay_at_the_far_end() -> None:
    t = np.arange(0.0, 10.0, 0.01)
    share = np.zeros_like(t)
    share[(t >= 1.0) & (t <= 2.0)] = 1.0  # on the way to the start, say
    share[(t >= 6.0) & (t <= 7.0)] = 1.0
    share[650] = 0.5  # noise is no end of it
    assert turning_time(t, share) == pytest.approx(6.5, abs=0.02)
    with pytest.raises(CommissioningError, match="not reached"):
        turning_time(t, 0.5 * share)
