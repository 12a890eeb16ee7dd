"""What every driver must do.  A driver's tests subclass `DriverContract` and say how to make it.

pytest collects the subclass, not this file.
"""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from drivers.driver import Driver, DriverClosedError, DriverError, DriverInfo, DriverTimeoutError, EndOfStream
from drivers.frame import CHANNELS, JointFrame

#: Values of a moving arm in SI units lie within these, whatever the arm; a wrong unit mostly does not.
PLAUSIBLE = {
    "q": 50.0, "dq": 50.0, "current": 200.0, "tau": 5000.0, "q_motor": 50_000.0, "temperature": 150.0, "setpoint": 50.0,
}  # fmt: skip


def drain(driver: Driver, limit: int = 1_000_000) -> Iterator[JointFrame]:
    """Frames of an open driver until its stream ends."""
    for _ in range(limit):
        try:
            yield driver.read(timeout_s=5.0)
        except EndOfStream:
            return
    pytest.fail(f"the stream did not end within {limit} frames")


class Ending:
    """A stream without end, ended: a base before the driver."""

    def __init__(self, config: Any, frames: int) -> None:
        super().__init__(config)  # type: ignore[call-arg]
        self._left = self._frames = frames

    def open(self) -> None:
        super().open()  # type: ignore[misc]
        self._left = self._frames

    def read(self, timeout_s: float = 1.0) -> JointFrame:
        if self._info is not None and self._left == 0:  # type: ignore[attr-defined]
            raise EndOfStream("enough")
        frame: JointFrame = super().read(timeout_s)  # type: ignore[misc]
        self._left -= 1
        return frame


class DriverContract:
    """Subclass, implement `make` and `make_slow`, and let the class name start with `Test`."""

    #: A channel that the source may leave out of some frames.
    sparse_channels: frozenset[str] = frozenset({"temperature"})

    def make(self, tmp_path: Path) -> Driver:
        """Make a driver, not yet open, whose stream ends after 10 to 100,000 frames without much waiting."""
        pytest.fail(f"{type(self).__name__} does not define make")

    def make_slow(self, tmp_path: Path) -> Driver:
        """Make a driver, not yet open, with at least 0.2 s between its first and its second frame."""
        pytest.fail(f"{type(self).__name__} does not define make_slow")

    @pytest.fixture
    def driver(self, tmp_path: Path) -> Iterator[Driver]:
        driver = self.make(tmp_path)
        yield driver
        driver.close()

    def test_before_open_there_is_nothing(self, driver: Driver) -> None:
        driver.close()
        with pytest.raises(DriverClosedError):
            _ = driver.info
        with pytest.raises(DriverClosedError):
            driver.read()

    def test_info(self, driver: Driver) -> None:
        driver.open()
        assert isinstance(driver, Driver)
        info = driver.info
        assert info.n == len(info.joint_names) == len(set(info.joint_names)) > 0
        assert info.source
        assert info.clock
        assert np.isfinite(info.rate_hz)
        assert info.rate_hz > 0.0
        assert info.channels
        assert list(info.channels) == [name for name in CHANNELS if name in info.channels]

    def test_frames_have_what_info_says(self, driver: Driver) -> None:
        """In SI units, with counts and times that only go forward, at the nominal rate, up to an end that stays."""
        before = time.monotonic_ns()
        driver.open()
        info = driver.info
        frames = list(drain(driver))
        after = time.monotonic_ns()
        for _ in range(3):
            with pytest.raises(EndOfStream):
                driver.read()
        assert {name for frame in frames for name in CHANNELS if getattr(frame, name) is not None} == set(info.channels)
        for frame in frames:
            self._check_arrays(frame, info)
        assert len(frames) >= 10
        assert frames[0].seq >= 0
        counts, times = (np.diff([getattr(frame, name) for frame in frames]) for name in ("seq", "t_bus_ns"))
        assert np.all(counts > 0)
        assert np.all(times > 0)
        assert np.median(times / counts) * 1e-9 * info.rate_hz == pytest.approx(1.0, rel=0.1)
        host = [frame.t_host_ns for frame in frames]
        assert np.all(np.diff(host) >= 0)
        assert before <= host[0] <= host[-1] <= after
        assert all(type(value) is int for f in frames[:3] for value in (f.seq, f.t_bus_ns, f.t_host_ns))

    def _check_arrays(self, frame: JointFrame, info: DriverInfo) -> None:
        for name in CHANNELS:
            array = getattr(frame, name)
            if array is None:
                assert name not in info.channels or name in self.sparse_channels
                continue
            assert array.shape == (info.n,)
            assert array.dtype == np.float64
            usable = array if frame.valid is None else array[frame.valid]
            assert np.all(np.isfinite(usable)) or name in self.sparse_channels
            assert np.nanmax(np.abs(array), initial=0.0) < PLAUSIBLE[name], name
        for words, kind in ((frame.valid, np.bool_), (frame.status_word, np.int64)):
            assert words is None or (words.shape, words.dtype) == ((info.n,), kind)

    def test_frames_are_not_reused(self, driver: Driver) -> None:
        driver.open()
        first = driver.read(5.0)
        kept = {name: getattr(first, name) for name in driver.info.channels if getattr(first, name) is not None}
        copies = {name: array.copy() for name, array in kept.items()}
        for _ in range(5):
            driver.read(5.0)
        for name, array in kept.items():
            np.testing.assert_array_equal(array, copies[name])

    def test_opens_once_closes_twice_and_opens_again(self, driver: Driver) -> None:
        driver.open()
        with pytest.raises(DriverError):
            driver.open()
        channels = driver.info.channels
        driver.read(5.0)
        driver.close()
        driver.close()
        with pytest.raises(DriverClosedError):
            driver.read()
        with pytest.raises(DriverClosedError):
            _ = driver.info
        driver.open()
        assert driver.info.channels == channels
        driver.read(5.0)

    def test_context_manager_closes_and_passes_errors_on(self, driver: Driver) -> None:
        class SomeError(Exception):
            pass

        with pytest.raises(SomeError), driver:
            raise SomeError
        with pytest.raises(DriverClosedError):
            driver.read()

    def test_timeout_loses_nothing(self, tmp_path: Path) -> None:
        with self.make_slow(tmp_path) as driver:
            first = driver.read(5.0)
            started = time.monotonic()
            with pytest.raises(DriverTimeoutError):
                driver.read(timeout_s=0.02)
            assert time.monotonic() - started < 0.15
            assert driver.read(5.0).seq == first.seq + 1

    def test_leaves_nothing_open(self, driver: Driver) -> None:
        process = psutil.Process()
        driver.open()  # what the first use of a library opens for good does not count
        driver.close()
        files, threads = process.num_fds(), threading.active_count()
        for _ in range(3):
            driver.open()
            driver.read(5.0)
            driver.close()
        assert process.num_fds() == files
        assert threading.active_count() == threads
