"""Reading of a driver until something has happened, over time-outs."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from drivers.ads.driver import AdsDriver
from drivers.driver import DriverTimeoutError
from drivers.frame import JointFrame

_MAX_S = 20.0


def read_until(driver: AdsDriver, enough: Callable[[], bool]) -> list[JointFrame]:
    frames = []
    until = time.monotonic() + _MAX_S
    while not enough():
        if time.monotonic() > until:
            pytest.fail(f"it did not come: {driver.report()}")
        try:
            frames.append(driver.read(0.1))
        except DriverTimeoutError:
            continue
    return frames


def more(driver: AdsDriver, count: int) -> list[JointFrame]:
    got: list[JointFrame] = []
    while len(got) < count:
        got += read_until(driver, lambda: bool(driver._stream.frames))
        got.append(driver.read(1.0))
    return got


def enabled(driver: AdsDriver) -> JointFrame:
    """Switch the axes on; returns the first frame with them on."""
    driver.enable()
    return read_until(driver, lambda: driver.enabled)[-1]


def seqs(frames: list[JointFrame]) -> Any:
    return np.diff([frame.seq for frame in frames])
