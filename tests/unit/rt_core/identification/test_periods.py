"""Averages over periods: noise falls with their number, only whole periods count, clocks may be a little off."""

import numpy as np
import pytest

from rt_core.identification.periods import average_periods
from rt_core.identification.preprocess import DataError
from rt_core.types import FloatArray

RATE_HZ, PERIOD_S = 200.0, 2.0
COUNT = 400
NOISE = np.array([0.5, 2.0])


def motion(t: FloatArray) -> FloatArray:
    """At rest, in its own place, at the ends of a period."""
    w = 2.0 * np.pi / PERIOD_S
    return np.stack((np.cos(w * t) - 0.5 * np.cos(2.0 * w * t), 0.3 * np.sin(w * t) - 0.15 * np.sin(2.0 * w * t)), 1)


def torque(t: FloatArray) -> FloatArray:
    return 40.0 * np.roll(motion(t), 1, axis=1) + 3.0


def run(periods: int, approach: int = 250, rest: int = 300, seed: int = 0) -> tuple[FloatArray, dict[str, FloatArray]]:
    """A recording of a run: from elsewhere to the start, so many periods, and rest."""
    rng = np.random.default_rng(seed)
    t = np.arange(approach + periods * COUNT + rest) / RATE_HZ
    inner = np.clip(t - approach / RATE_HZ, 0.0, periods * PERIOD_S)
    q, tau = motion(inner), torque(inner)
    x = np.linspace(0.0, 1.0, approach)[:, None]
    q[:approach] -= 0.8 * (1.0 - x**3 * (10.0 + x * (6.0 * x - 15.0)))
    tau += rng.normal(size=tau.shape) * NOISE
    return t, {"q": q, "tau": tau}


@pytest.mark.parametrize("periods", [2, 20])
def test_the_noise_of_the_mean_falls_with_the_root_of_the_periods(periods: int) -> None:
    found = average_periods(*run(periods), PERIOD_S)
    assert found.t.shape == (COUNT,)
    at = (found.first - 250 + np.arange(COUNT)) / RATE_HZ
    np.testing.assert_allclose(found.channels["q"], motion(at), atol=1e-3)
    left = (found.channels["tau"] - torque(at)).std(axis=0)
    np.testing.assert_allclose(left, NOISE / np.sqrt(periods), rtol=0.12)


@pytest.mark.parametrize(("rate_hz", "digits", "drift"), [(300.0, 6, 0.0), (1000.0, 9, 2e-6)])
def test_times_that_are_rounded_or_of_a_clock_a_little_off(rate_hz: float, digits: int, drift: float) -> None:
    """Each period of 10 s has its whole number of rows, whatever the times beside them say."""
    count = round(10.0 * rate_hz)
    rows = np.arange(3 * count + 1)
    q = np.cos(2.0 * np.pi * rows / count)[:, None]
    t = np.round(5.0 + rows / rate_hz * (1.0 + drift), digits)
    found = average_periods(t, {"q": q}, 10.0)
    assert found.t.shape == (count,)
    at = np.cos(2.0 * np.pi * (found.first + np.arange(count)) / count)
    np.testing.assert_allclose(found.channels["q"][:, 0], at, atol=1e-12)


@pytest.mark.parametrize("exact", [1000.25, 999.75])
def test_periods_that_shift_are_not_averaged(exact: float) -> None:
    """The motion itself takes a quarter of a sample more or less: some periods may be averaged, many may not."""
    rows = np.arange(40 * 1000)
    q = np.stack((np.cos(2.0 * np.pi * rows / exact), np.sin(6.0 * np.pi * rows / exact)), axis=1)
    assert average_periods(rows[:4100] / 100.0, {"q": q[:4100]}, 10.0).t.size == 1000
    with pytest.raises(DataError, match="samples in 40 periods of 1000") as refused:
        average_periods(rows / 100.0, {"q": q}, 10.0)
    period = float(str(refused.value).split("it takes ")[1].split(" s")[0])
    assert period == pytest.approx(exact / 100.0, abs=2e-4)


def test_what_cannot_be_averaged() -> None:
    t, channels = run(3)
    with pytest.raises(DataError, match="has to be a whole number"):
        average_periods(t, channels, 2.002)
    with pytest.raises(DataError, match="no two periods"):
        average_periods(t, channels, 1.7)
    with pytest.raises(DataError, match="no two periods"):
        average_periods(*run(1), PERIOD_S)
    with pytest.raises(DataError, match="are no two periods"):
        average_periods(t[:700], {name: x[:700] for name, x in channels.items()}, PERIOD_S)
    gap = np.delete(np.arange(t.size), 700)
    with pytest.raises(DataError, match="samples are missing"):
        average_periods(t[gap], {name: x[gap] for name, x in channels.items()}, PERIOD_S)
    spoilt = channels | {"tau": np.where(np.arange(t.size)[:, None] == 9, np.nan, channels["tau"])}
    with pytest.raises(DataError, match="channel tau"):
        average_periods(t, spoilt, PERIOD_S)
    still = {"q": np.zeros((2000, 2)), "tau": np.ones((2000, 2))}
    with pytest.raises(DataError, match="something moves"):
        average_periods(np.arange(2000) / RATE_HZ, still, PERIOD_S)
