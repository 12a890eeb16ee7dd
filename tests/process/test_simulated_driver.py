"""The simulated driver: the contract of all drivers, its pace and its end."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from drivers.driver import Driver, DriverConfigError, EndOfStream
from sim_backend.arm.driver import SimDriver
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import MotionSettings, SimSettings
from tests.lab.arms.simulated import random_arm
from tests.lab.driver_contract import DriverContract

ARM = random_arm(3, 1, coupled=True)
SHORT = MotionSettings(duration_s=0.5, candidates=1)


class TestContract(DriverContract):
    def make(self, tmp_path: Path) -> Driver:
        return SimDriver(ARM, motion=SHORT, pace=50.0)

    def make_slow(self, tmp_path: Path) -> Driver:
        return SimDriver(ARM, SimSettings(rate_hz=4.0), MotionSettings(candidates=1))


def test_frames_are_the_arms_samples() -> None:
    with SimDriver(ARM, SimSettings(seed=3), SHORT, pace="max") as driver:
        assert driver.info.lossless
        assert driver.info.channels == ("q", "dq", "current", "tau", "q_motor", "temperature", "setpoint")
        frames = [driver.read() for _ in range(501)]
        with pytest.raises(EndOfStream, match="501 samples"):
            driver.read()
    data = SimulatedArm(ARM, SimSettings(seed=3), SHORT).simulate(0.501)
    assert np.array_equal([f.t_bus_ns for f in frames], np.arange(501) * 1_000_000)
    for channel, values in data.channels.items():
        assert np.array_equal([getattr(f, channel) for f in frames], values)


def test_pace_is_kept_and_a_late_reader_misses_nothing() -> None:
    with SimDriver(ARM, SimSettings(rate_hz=200.0), MotionSettings(candidates=1), pace=2.0) as driver:
        assert not driver.info.lossless
        start = time.monotonic_ns()
        host = []
        for seq in range(41):
            if seq == 20:
                time.sleep(0.03)  # the reader is late by twelve frames
            frame = driver.read()
            assert frame.seq == seq
            host.append(frame.t_host_ns - start)
    due = np.arange(41) * 2_500_000
    late = np.array(host) - due
    assert np.all(late > -100_000)  # never early, but for the clock's reading before the first
    assert late[20] >= 27_000_000 - 2_500_000
    assert np.sum(late < 20_000_000) > 25  # it caught up


def test_what_cannot_be_simulated_is_refused_on_open() -> None:
    for driver, words in (
        (SimDriver(replace(ARM, inertial=None)), "no inertial parameters"),
        (SimDriver(ARM, pace=0.0), "pace"),
        (SimDriver(ARM, motion=MotionSettings(held=("elbow",))), "'elbow' is not a joint"),
    ):
        with pytest.raises(DriverConfigError, match=words):
            driver.open()
