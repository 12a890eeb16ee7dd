"""Preparing signals: no delay, uneven and missing samples, and refusals that say where."""

import numpy as np
import pytest
from scipy.signal import butter, sosfiltfilt

from rt_core.identification.preprocess import DataError, SignalSettings, prepare, zero_phase

RATE = 500.0


def motion(t: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Two joints: position, velocity, acceleration, torque, all exact."""
    w = 2.0 * np.pi * np.array([0.7, 1.3])
    x = t[:, None] * w
    return np.sin(x), w * np.cos(x), -w * w * np.sin(x), 3.0 + np.cos(2.0 * x)


def check(signals, tolerance: float) -> None:  # type: ignore[no-untyped-def]
    for piece in signals.pieces:
        exact = motion(piece.t)
        inner = slice(250, -250)
        for found, true in zip((piece.q, piece.dq, piece.ddq, piece.tau), exact, strict=True):
            assert np.abs(found - true)[inner].max() < tolerance * np.abs(true).max()


@pytest.mark.parametrize("measured", [False, True])
def test_signals_keep_their_place_in_time(measured: bool) -> None:
    t = np.arange(5000) / RATE
    q, dq, _, tau = motion(t)
    signals = prepare(t, q, tau, SignalSettings(), dq=dq if measured else None)
    assert (signals.rate_hz, signals.measured_velocity) == (RATE, measured)
    check(signals, 2e-3)


def test_zero_phase_is_scipys_filter_forwards_and_backwards() -> None:
    x = np.random.default_rng(0).normal(size=(1000, 3))
    expected = sosfiltfilt(butter(4, 20.0, fs=RATE, output="sos"), x, axis=0, padlen=75)
    np.testing.assert_allclose(zero_phase(x, 20.0, RATE, 4), expected, atol=1e-12)
    with pytest.raises(DataError, match="cut-off 250 Hz is not below half"):
        zero_phase(x, 250.0, RATE, 4)


def test_repeated_samples_are_dropped() -> None:
    t = np.arange(5000) / RATE
    q, _, _, tau = motion(t)
    twice = np.sort(np.concatenate((np.arange(5000), np.arange(0, 5000, 9))))
    stamps = t[twice] + np.concatenate(([0.0], np.where(np.diff(twice) == 0, 1e-4, 0.0)))
    signals = prepare(stamps, q[twice], tau[twice], SignalSettings(), rate_hz=RATE)
    assert signals.repeated == np.arange(0, 5000, 9).size
    check(signals, 2e-3)


def test_uneven_time_stamps_are_brought_to_a_grid() -> None:
    t = np.arange(6000) / RATE + np.random.default_rng(2).uniform(-0.3, 0.3, 6000) / RATE
    q, _, _, tau = motion(t)
    signals = prepare(t, q, tau, SignalSettings(), rate_hz=RATE)
    np.testing.assert_allclose(np.diff(signals.pieces[0].t), 1.0 / RATE, atol=1e-9)
    check(signals, 5e-3)


def test_a_long_gap_cuts_and_a_short_one_is_bridged() -> None:
    t = np.arange(8000) / RATE
    keep = np.ones(8000, dtype=bool)
    keep[1000:1005] = False
    keep[4000:4500] = False
    keep[7500:7940] = False  # 60 samples at the end are too short a piece to filter
    q, _, _, tau = motion(t)
    signals = prepare(t[keep], q[keep], tau[keep], SignalSettings())
    assert (signals.gaps, signals.unused) == (2, 60)
    assert [round(float(piece.t[0]), 6) for piece in signals.pieces] == [0.0, 9.0]
    check(signals, 2e-3)


def test_invalid_samples_are_left_out_even_if_they_are_not_numbers() -> None:
    t = np.arange(5000) / RATE
    q, _, _, tau = motion(t)
    valid = np.ones(5000, dtype=bool)
    valid[[70, 2000, 2001]] = False
    q[~valid] = np.nan
    signals = prepare(t, q, tau, SignalSettings(), valid=valid)
    assert signals.invalid == 3
    check(signals, 2e-3)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        ("q", "channel q, joint 2: not a number at sample 1234"),
        ("dq", "channel dq, joint 2: not a number at sample 1234"),
        ("t", "channel t, joint 1: not a number at sample 1234"), ("shuffled", "time does not increase"),
        ("still", "every sample repeats the one before"), ("few", "only 10 samples"), ("shape", "shapes disagree"),
        ("flags", "validity flags"), ("short", "too short or too fragmented"),
    ],
)  # fmt: skip
def test_bad_data_is_named(spoil: str, words: str) -> None:
    t = np.arange(3000) / RATE
    q, dq, _, tau = motion(t)
    valid = None
    if spoil == "shuffled":
        t[[500, 900]] = t[[900, 500]]
    elif spoil == "still":
        q[:], tau[:], dq[:] = q[0], tau[0], dq[0]
    elif spoil == "few":
        t, q, dq, tau = t[:10], q[:10], dq[:10], tau[:10]
    elif spoil == "short":
        t, q, dq, tau = t[:100], q[:100], dq[:100], tau[:100]
    elif spoil == "shape":
        tau = tau[:, :1]
    elif spoil == "flags":
        valid = np.ones(5, dtype=bool)
    elif spoil == "t":
        t[1234] = np.nan
    else:
        {"q": q, "dq": dq}[spoil][1234, 1] = np.nan
    with pytest.raises(DataError, match=words):
        prepare(t, q, tau, SignalSettings(), dq=dq, valid=valid)
