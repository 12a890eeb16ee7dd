"""A recording averaged over its periods: one period, better than any of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from drivers.files.recordings.recording import RecordingMeta, RecordingWriter, read_recording
from drivers.frame import JointFrame
from rt_core.identification.preprocess import DataError
from service.operations.identify import average_recording
from tests.lab.command_line import thetad

RATE_HZ, PERIOD_S, PERIODS, COUNT = 200.0, 2.0, 8, 400
NOISE = 2.0


def write(path: Path, spoilt: int | None = None) -> Path:
    """A linear axis that rests, goes to and fro eight times, and rests."""
    rng = np.random.default_rng(4)
    meta = RecordingMeta("axis", ("joint_1",), ("m",), RATE_HZ)
    with RecordingWriter(path, meta) as writer:
        for k in range(PERIODS * COUNT + 600):
            t = min(max(k / RATE_HZ - 1.0, 0.0), PERIODS * PERIOD_S)
            w = np.pi  # of a period of two seconds
            q = 0.1 * (1.0 - np.cos(w * t)) ** 2
            tau = 100.0 * q + NOISE * rng.normal()
            values = {"q": np.array([q]), "tau": np.array([tau]), "temperature": np.array([20.0 + 0.01 * k])}
            valid = np.array([k != spoilt])
            writer.write(JointFrame(k, round(k / RATE_HZ * 1e9), 0, valid=valid, **values))
    return path


def test_one_period_is_left_and_its_noise_is_small(tmp_path: Path) -> None:
    recording = read_recording(write(tmp_path / "a.mcap"))
    one = average_recording(recording, PERIOD_S)
    assert one.t.size == COUNT
    assert (np.diff(one.t_ns) > 0).all()
    assert set(one.channels) == {"q", "tau"}  # a temperature that rises is not the same in each period
    error = one.channels["tau"] - 100.0 * one.channels["q"]
    assert error.std() == pytest.approx(NOISE / np.sqrt(PERIODS), rel=0.15)
    assert np.ptp(one.channels["q"]) == pytest.approx(0.4, rel=0.01)


def test_a_sample_that_is_not_valid_is_not_averaged_over(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no numbers"):
        average_recording(read_recording(write(tmp_path / "a.mcap", spoilt=900)), PERIOD_S)


def test_the_command_refuses_a_period_that_there_is_not(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mcap")
    thetad("identify", path, "--robot", "emps", "--period", 1.37).refused("no two periods of 1.37 s")
    thetad("identify", path, "--robot", "emps", "--period", -1).refused("positive")
