"""Signals: no delay, no invention, clear refusals."""

from __future__ import annotations

import numpy as np
import pytest

from rt_core.batch.preprocess import DataError, SignalSettings, nominal_rate, prepare, zero_phase
from tests.batch.batch_arms import arm, motion

SETTINGS = SignalSettings(cutoff_hz=10.0)


@pytest.fixture(scope="module")
def data():
    return motion(arm(), seconds=12.0)


def test_states_have_no_delay_and_exact_derivatives(data):
    piece = prepare(data.t, data.q, data.tau, SETTINGS).pieces[0]
    inner = slice(500, -500)
    for name in ("q", "dq", "ddq"):
        exact = getattr(data, name)[inner]
        found = getattr(piece, name)[: data.t.size][inner]
        assert np.abs(found - exact).max() < 2e-3 * np.abs(exact).max(), name
    np.testing.assert_allclose(piece.tau[:-1], data.tau[: piece.tau.shape[0] - 1], rtol=1e-9)


def test_a_shift_of_one_sample_would_be_seen(data):
    piece = prepare(data.t, data.q, data.tau, SETTINGS).pieces[0]
    right = np.abs(piece.dq[500:-500] - data.dq[500:-500]).max()
    late = np.abs(piece.dq[501:-499] - data.dq[500:-500]).max()
    assert late > 20 * right


def test_zero_phase_filter_keeps_a_slow_sine_in_place():
    t = np.arange(5000) / 1000
    x = np.sin(2 * np.pi * 1.0 * t)[:, None]
    y = zero_phase(x, 10.0, 1000.0, 4)
    lag = np.argmax(np.correlate(y[1000:-1000, 0], x[1000:-1000, 0], "full")) - (y.shape[0] - 2000 - 1)
    assert lag == 0
    assert abs(np.abs(y[1000:-1000]).max() - 1.0) < 1e-3


def test_a_measured_velocity_is_used(data):
    signals = prepare(data.t, data.q, data.tau, SETTINGS, dq=2.0 * data.dq)
    assert signals.measured_velocity
    ratio = signals.pieces[0].dq[500:-500] / data.dq[500:-500]
    assert np.median(ratio) == pytest.approx(2.0, rel=1e-3)


def test_irregular_stamps_give_the_same_states(data):
    rng = np.random.default_rng(1)
    keep = np.sort(rng.choice(data.t.size, int(0.8 * data.t.size), replace=False))
    keep[0], keep[-1] = 0, data.t.size - 1
    piece = prepare(data.t[keep], data.q[keep], data.tau[keep], SETTINGS, rate_hz=500.0).pieces[0]
    exact = np.interp(piece.t, data.t, data.ddq[:, 1])
    assert np.abs(piece.ddq[500:-500, 1] - exact[500:-500]).max() < 5e-3 * np.abs(exact).max()


def test_repeated_samples_are_dropped_and_counted(data):
    q, tau = data.q.copy(), data.tau.copy()
    q[100::50], tau[100::50] = q[99:-1:50][: q[100::50].shape[0]], tau[99:-1:50][: q[100::50].shape[0]]
    signals = prepare(data.t, q, tau, SETTINGS)
    assert signals.repeated == q[100::50].shape[0]
    assert np.abs(signals.pieces[0].dq[500:-500] - data.dq[500:-500]).max() < 5e-3


def test_long_gaps_cut_and_short_ones_are_bridged(data):
    long = (data.t < 5.0) | (data.t > 5.5)
    signals = prepare(data.t[long], data.q[long], data.tau[long], SETTINGS)
    assert signals.gaps == 1
    assert len(signals.pieces) == 2
    short = (data.t < 5.0) | (data.t > 5.01)
    signals = prepare(data.t[short], data.q[short], data.tau[short], SETTINGS)
    assert signals.gaps == 0
    assert np.abs(signals.pieces[0].dq[500:-500] - data.dq[500:-500]).max() < 5e-3


def test_invalid_samples_are_left_out(data):
    q = data.q.copy()
    valid = np.ones(data.t.size, dtype=bool)
    valid[1000:1005] = False
    q[1000:1005] = np.nan
    signals = prepare(data.t, q, data.tau, SETTINGS, valid=valid)
    assert signals.invalid == 5
    assert np.isfinite(signals.pieces[0].q).all()


def test_refusals_name_channel_joint_and_sample(data):
    q = data.q.copy()
    q[123, 2] = np.nan
    with pytest.raises(DataError, match=r"channel q, joint 3: not a number at sample 123"):
        prepare(data.t, q, data.tau, SETTINGS)
    t = data.t.copy()
    t[[10, 11]] = t[[11, 10]]
    with pytest.raises(DataError, match=r"time does not increase: sample 11"):
        prepare(t, data.q, data.tau, SETTINGS)
    with pytest.raises(DataError, match="too few"):
        prepare(data.t[:8], data.q[:8], data.tau[:8], SETTINGS)
    with pytest.raises(DataError, match="too short or too fragmented"):
        prepare(data.t[:60], data.q[:60], data.tau[:60], SETTINGS)
    with pytest.raises(DataError, match="shapes disagree"):
        prepare(data.t, data.q, data.tau[:, :2], SETTINGS)
    with pytest.raises(DataError, match="repeats the one before"):
        prepare(data.t, 0.0 * data.q, 0.0 * data.tau, SETTINGS)


def test_nominal_rate_is_rounded_only_when_near():
    assert nominal_rate(np.arange(100) * 1.0003e-3) == 1000.0
    assert nominal_rate(np.arange(100) / 978.0) == pytest.approx(978.0)
    assert nominal_rate(np.arange(100) / 250.0) == 250.0
