"""Rows: the kernel against the obvious computation, and no bias from friction steps."""

from __future__ import annotations

import numpy as np
import pytest

from rt_core.batch.preprocess import DataError, SignalSettings, prepare
from rt_core.batch.rows import build_rows, low_pass_taps, row_filter
from rt_core.model.base import base_parameters
from rt_core.model.regressor import regressor
from tests.batch.batch_arms import arm, motion, truth


def slow_rows(model, base, piece, taps, factor, threshold):
    """The whole regressor at the full rate, masked, filtered by convolution, every `factor`-th sample."""
    Y = np.array(regressor(model, base.layout, piece.q, piece.dq, piece.ddq))
    moving = np.abs(piece.dq) >= threshold
    half = taps.size // 2
    centres = np.arange(half, piece.t.size - half, factor)
    rows, tau, share = [], [], []
    for c in centres:
        window = slice(c - half, c + half + 1)
        weight = taps[:, None] * moving[window]
        rows.append(np.einsum("kn,knp->np", weight, Y[window]))
        tau.append((weight * piece.tau[window]).sum(axis=0))
        share.append(weight.sum(axis=0))
    return piece.t[centres], np.array(rows), np.array(tau), np.array(share)


@pytest.mark.parametrize("rate_hz", [20.0, 100.0])
def test_kernel_equals_the_obvious_computation(rate_hz):
    model = arm()
    base = base_parameters(model)
    data = motion(model, seconds=4.0, rate_hz=200.0)
    threshold = np.array([0.3, 0.0, 0.2])
    settings = SignalSettings(cutoff_hz=8.0, rate_hz=rate_hz, trim_s=0.0, min_velocity=threshold)
    signals = prepare(data.t, data.q, data.tau, settings)
    rows = build_rows(model, base, signals, settings)
    factor = round(200.0 / rate_hz)
    taps = row_filter(settings, 200.0, factor)
    t, Y, tau, share = slow_rows(model, base, signals.pieces[0], taps, factor, threshold)
    use = (share > 0.5) & (np.abs(rows.dq) >= threshold)
    np.testing.assert_array_equal(rows.t, t)
    np.testing.assert_array_equal(rows.use, use)
    scale = np.abs(Y).max()
    np.testing.assert_allclose(rows.Y.transpose(2, 0, 1), np.where(use[:, :, None], Y, 0.0), atol=1e-12 * scale)
    np.testing.assert_allclose(rows.tau, np.where(use, tau, 0.0), atol=1e-10)
    assert 0.2 < use.mean() < 1.0


def test_exact_data_give_exact_parameters_in_spite_of_friction_steps():
    """Both sides are filtered alike: with the true states the model holds to rounding, reversals included."""
    model = arm()
    base = base_parameters(model)
    data = motion(model, seconds=20.0)
    settings = SignalSettings(cutoff_hz=10.0, trim_s=1.0, min_velocity=np.full(3, 0.015))
    signals = prepare(data.t, data.q, data.tau, settings)
    rows = build_rows(model, base, signals, settings)
    error = rows.tau - rows.predict(truth(model, base))
    assert np.linalg.norm(error) < 2e-3 * np.linalg.norm(rows.tau)


def test_low_pass_taps_are_the_forward_backward_butterworth():
    taps = low_pass_taps(SignalSettings(cutoff_hz=10.0), 1000.0)
    frequency = np.fft.rfftfreq(20000, 1e-3)
    response = np.abs(np.fft.rfft(taps, 20000))
    expected = 1.0 / (1.0 + (np.tan(np.pi * frequency / 1000) / np.tan(np.pi * 10 / 1000)) ** 8)
    assert np.abs(response - expected).max() < 5e-3
    np.testing.assert_allclose(taps, taps[::-1], atol=1e-12)


def test_anti_aliasing_only_where_it_is_needed():
    slow = SignalSettings(cutoff_hz=100.0)
    assert row_filter(slow, 5000.0, 100).size > row_filter(slow, 5000.0, 1).size
    fast = SignalSettings(cutoff_hz=10.0)
    assert row_filter(fast, 1000.0, 20).size == row_filter(fast, 1000.0, 1).size


def test_nothing_left_and_wrong_threshold_are_refused():
    model = arm()
    base = base_parameters(model)
    data = motion(model, seconds=4.0)
    settings = SignalSettings(cutoff_hz=10.0, trim_s=3.0)
    signals = prepare(data.t, data.q, data.tau, settings)
    with pytest.raises(DataError, match="nothing is left of 4 s"):
        build_rows(model, base, signals, settings)
    with pytest.raises(DataError, match="min_velocity has 2 values for 3 joints"):
        build_rows(model, base, signals, SignalSettings(min_velocity=np.zeros(2)))
