"""Temperatures that cannot be, of invalid joints, and too far apart: online and in batch."""

import numpy as np
import pytest

from rt_core.identification.preprocess import DataError, SignalSettings, prepare
from rt_core.model.friction import Friction
from rt_core.model.temperature import possible_of
from rt_core.online import OnlineEstimator, OnlineSettings
from rt_core.types import BoolArray, FloatArray
from tests.lab.arms.warm import warm_arm

RATE = 100.0
MODEL = warm_arm(Friction("coulomb_viscous", temperature="coulomb"))
SETTINGS = SignalSettings(cutoff_hz=10.0)


def recorded(temperature: FloatArray, t: FloatArray, valid: BoolArray | None = None) -> tuple[FloatArray, int]:
    """Temperatures that rows get, of a recording with these, and how many were left out."""
    motion = np.sin(t)[:, None] * np.ones(3)
    signals = prepare(t, motion, 2.0 * motion, SETTINGS, valid=valid, temperature=temperature)
    found = [piece.temperature for piece in signals.pieces if piece.temperature is not None]
    assert len(found) == len(signals.pieces)
    return np.concatenate(found), signals.impossible_temperatures


def ramp(seconds: float) -> tuple[FloatArray, FloatArray]:
    """Times, and temperatures of three joints that rise from 25 degC by 0.1 K/s."""
    t = np.arange(round(seconds * RATE)) / RATE
    return t, (25.0 + 0.1 * t)[:, None] * np.ones(3)


def started() -> OnlineEstimator:
    """An estimator whose joints are at 25 degC since 2 s."""
    online = OnlineEstimator(MODEL, OnlineSettings(update_hz=50.0), RATE)
    step(online, 0, 200, np.full(3, 25.0))
    return online


def step(online: OnlineEstimator, first: int, last: int, told: FloatArray, valid: BoolArray | None = None) -> None:
    for k in range(first, last):
        motion = np.full(3, np.sin(k / RATE))
        online.step(round(k * 1e9 / RATE), k, motion, 2.0 * motion, valid, temperature=told)


@pytest.mark.parametrize("wrong", [3276.7, 0.0, np.inf])
@pytest.mark.parametrize("at", [0, 500, 1999])
def test_a_wrong_value_among_right_ones_is_left_out_in_batch(wrong: float, at: int) -> None:
    t, T = ramp(20.0)
    told = T.copy()
    told[at, 1] = wrong
    found, left_out = recorded(told, t)
    assert left_out == 1
    np.testing.assert_allclose(found, T, atol=0.002)


@pytest.mark.parametrize("wrong", [3276.7, 0.0, -273.15, 201.0, np.inf, -np.inf])
def test_a_wrong_value_among_right_ones_is_left_out_online(wrong: float) -> None:
    online = started()
    step(online, 200, 201, np.array([25.0, wrong, 25.0]))
    step(online, 201, 400, np.full(3, 25.0))
    assert online.refused_temperatures == 1
    assert online.temperatures.plain == [[25.0] * 3, [25.0] * 3]
    assert online.report().masked == 0


def test_a_sensor_that_stays_wrong_beyond_the_bounds_is_not_known() -> None:
    online = started()
    step(online, 200, 1301, np.array([25.0, 3276.7, 25.0]))
    assert online.lacks_temperature.tolist() == [False, True, False]
    with pytest.raises(DataError, match=r"joint 2: no value that can be, the first is 3276\.7 degC: check its unit"):
        recorded(np.full((2000, 3), [25.0, 3276.7, 25.0]), np.arange(2000) / RATE)


def test_steps_noise_and_fast_changes_are_accepted() -> None:
    t, T = ramp(60.0)
    rng = np.random.default_rng(0)
    for told in (np.round(T), T + rng.normal(0.0, 0.8, T.shape), T + 1.9 * t[:, None], np.round(T / 4.0) * 4.0):
        assert possible_of(t, told[:, 0]).all()


def test_of_an_invalid_joint_nothing_is_taken() -> None:
    valid = np.array([True, False, True])
    online = started()
    step(online, 200, 210, np.array([25.0, 26.0, 25.0]), valid)
    assert online.temperature.tolist() == [25.0] * 3
    step(online, 210, 1301, np.full(3, 25.0), valid)
    assert online.lacks_temperature.tolist() == [False, True, False]
    t, T = ramp(20.0)
    told, use = T.copy(), np.ones(t.size, dtype=bool)
    told[500:520, 1], use[500:520] = 27.0, False
    found, _ = recorded(told, t, use)
    assert found[:, 1].max() == pytest.approx(T.max())
    assert np.abs(found[:480] - T[:480]).max() < 0.002


def test_values_too_far_apart_are_refused_as_they_are_online() -> None:
    t, T = ramp(60.0)
    told = np.full_like(T, np.nan)
    told[:: round(20.0 * RATE)] = T[:: round(20.0 * RATE)]  # within 10 s of each sample, but 20 s apart
    told[-1] = T[-1]
    with pytest.raises(DataError, match=r"joint 1: at .* no value for more than 10 s"):
        recorded(told, t)
    told[:: round(10.0 * RATE)] = T[:: round(10.0 * RATE)]
    np.testing.assert_allclose(recorded(told, t)[0], T, atol=0.002)


def test_a_pause_of_the_recording_is_no_gap_of_its_temperature() -> None:
    t, T = ramp(60.0)
    pause = (t > 20.0) & (t < 45.0)
    found, _ = recorded(T[~pause] + np.where(t[~pause] > 30.0, 40.0, 0.0)[:, None], t[~pause])
    assert found.max() > 65.0
