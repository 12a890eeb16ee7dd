"""The driver on simulated drives at a real interface: the contract of all drivers, values, motion, account."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.driver import Commandable, CommandRefusedError, Driver, EndOfStream, Reporting
from drivers.ethercat.config import EthercatConfig
from drivers.ethercat.driver import EthercatDriver
from drivers.frame import JointFrame
from tests.lab.driver_contract import DriverContract
from tests.lab.ethercat.configs import SERVO, make_config, settings
from tests.lab.ethercat.network import SegmentProcess

Segments = Callable[..., AbstractContextManager[SegmentProcess]]
OFF, ON = ["SWITCH_ON_DISABLED"] * 3, ["ENABLED"] * 3
MOUNTINGS = [
    {"gear_ratio": 101.0},
    {"gear_ratio": 50.0, "sign": -1, "offset_rad": 0.3},
    {"gear_ratio": 160.0, "offset_rad": -1.1},
]


@pytest.fixture(scope="module")
def drives(segment: Segments) -> Iterator[SegmentProcess]:
    with segment(*["generic_servo"] * 3, mountings=MOUNTINGS, drifts_ppm=[20.0, -30.0, 45.0]) as process:
        yield process


def config(**changes: Any) -> EthercatConfig:
    tables = settings(3, interface="m0", watchdog_ms=1000.0)
    for table, mounting in zip(tables["drive"], MOUNTINGS, strict=True):
        table.update(mounting)
    return EthercatConfig.model_validate(tables | changes)


class Ending(EthercatDriver):
    """A stream without end, ended."""

    def __init__(self, config: EthercatConfig, frames: int) -> None:
        super().__init__(config)
        self._left = self._frames = frames

    def open(self) -> None:
        super().open()
        self._left = self._frames

    def read(self, timeout_s: float = 1.0) -> JointFrame:
        if self._info is not None and self._left == 0:
            raise EndOfStream("enough")
        frame = super().read(timeout_s)
        self._left -= 1
        return frame


class TestEthercatDriver(DriverContract):
    @pytest.fixture(autouse=True)
    def _drives(self, drives: SegmentProcess) -> None:
        """The drives are there for every test."""

    def make(self, tmp_path: Path) -> Driver:
        return Ending(config(), 200)

    def make_slow(self, tmp_path: Path) -> Driver:
        slow = config(dc=False).model_copy(update={"cycle_hz": 4, "watchdog_ms": 2000.0, "answer_timeout_us": 5e4})
        return EthercatDriver(slow)


def frames(driver: EthercatDriver, count: int) -> list[JointFrame]:
    return [driver.read() for _ in range(count)]


def enable(driver: EthercatDriver) -> None:
    driver.enable()
    for _ in range(3000):
        driver.read()
        if driver.report()["enabled"]:
            return
    pytest.fail(f"not enabled: {driver.report()}")


def test_has_the_protocols(drives: SegmentProcess) -> None:
    with EthercatDriver(config()) as driver:
        assert isinstance(driver, Commandable)
        assert isinstance(driver, Reporting)
        assert driver.info.clock == "dc"
        assert driver.info.channels == ("q", "dq", "current", "tau", "setpoint")


def test_each_cycle_is_a_frame_or_counted(drives: SegmentProcess) -> None:
    with EthercatDriver(config()) as driver:
        seen = frames(driver, 3000)
        report = driver.report()
    seq = np.array([frame.seq for frame in seen])
    assert seq[0] >= 0
    assert report["frames"] == 3000
    assert report["frames"] + report["lost_cycles"] + report["overruns"] == seq[-1] + 1
    assert np.all(np.diff(seq) > 0)
    bus_ns = np.array([frame.t_bus_ns for frame in seen])
    np.testing.assert_array_equal(np.diff(bus_ns), np.diff(seq) * 1_000_000)
    assert (bus_ns[0] - 500_000) % 1_000_000 == 0  # SYNC0 is half a cycle off the grid of the frames
    print({name: report[name] for name in ("frames", "lost_cycles", "overruns", "clock_drift_ppm")}, report["timing"])


def test_the_bus_clock_is_that_of_the_reference(drives: SegmentProcess) -> None:
    with EthercatDriver(config()) as driver:
        frames(driver, 3000)
        assert driver.report()["clock_steps"] == 0
        assert driver.report()["clock_drift_ppm"] == pytest.approx(20.0, abs=15.0)


def test_positions_are_those_of_the_arm(drives: SegmentProcess) -> None:
    """Gear, sign and offset of each joint are undone."""
    with EthercatDriver(config()) as driver:
        q = frames(driver, 5)[-1].q
    assert q is not None
    np.testing.assert_allclose(q, drives.tell("truth")["x"], atol=1e-6)


def test_stays_off_until_it_is_told(drives: SegmentProcess) -> None:
    with EthercatDriver(config()) as driver:
        frames(driver, 200)
        assert not driver.report()["enabled"]
        assert drives.tell("drive_states") == OFF
        with pytest.raises(CommandRefusedError, match="not enabled: joint_1 switch on disabled"):
            driver.command(np.zeros(3))


def test_moves_in_csp_and_stops_on_close(drives: SegmentProcess) -> None:
    with EthercatDriver(config()) as driver:
        start = frames(driver, 10)[-1].q
        assert start is not None
        enable(driver)
        held = frames(driver, 100)[-1].q
        assert held is not None
        np.testing.assert_allclose(held, start, atol=0.01)  # it holds where it was
        first = driver.read()
        assert first.setpoint is not None
        base = first.setpoint.copy()
        goal = base
        for _ in range(1500):
            frame = driver.read()
            phase = (frame.seq - first.seq) * 1e-3
            goal = base + 0.2 * (1.0 - math.cos(2.0 * phase))
            driver.command(goal)
        end = frames(driver, 100)[-1]
        assert end.q is not None
        assert end.setpoint is not None
        np.testing.assert_allclose(end.setpoint, goal, atol=1e-6)
        np.testing.assert_allclose(end.q, goal, atol=0.02)
        np.testing.assert_allclose(end.q, drives.tell("truth")["x"], atol=0.01)
        assert end.tau is not None
        np.testing.assert_allclose(end.tau, drives.tell("truth")["u"], atol=3.0)
    assert drives.tell("drive_states") == OFF
    assert drives.tell("states") == [1, 1, 1]


def test_disable_stops_and_enable_starts_again(drives: SegmentProcess) -> None:
    with EthercatDriver(config()) as driver:
        frames(driver, 10)
        enable(driver)
        driver.disable()
        frames(driver, 600)
        assert drives.tell("drive_states") == OFF
        enable(driver)
        assert drives.tell("drive_states") == ON


def test_enables_at_start_if_configured(drives: SegmentProcess) -> None:
    with EthercatDriver(config(enable=True)) as driver:
        frames(driver, 500)
        assert driver.report()["enabled"]


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ([0.0, 0.0], "not 3 finite"),
        ([0.0, math.nan, 0.0], "not 3 finite"),
        ([3.5, 0.0, 0.0], "joint_1.*position_max_rad"),
        ([0.0, -3.5, 0.0], "joint_2.*position_min_rad"),
        ([0.0, 0.0, 1.0], "joint_3.*velocity_max_rad_s"),
    ],
)
def test_targets_outside_the_limits_are_refused(drives: SegmentProcess, target: list[float], says: str) -> None:
    tables = config().model_dump()
    for drive in tables["drive"]:
        drive.update(position_min_rad=-3.0, position_max_rad=3.0)
    tables["drive"][2].update(velocity_max_rad_s=2.0)
    with EthercatDriver(EthercatConfig.model_validate(tables)) as driver:
        frames(driver, 10)
        enable(driver)
        here = driver.read().setpoint
        assert here is not None
        driver.command(here)
        wanted = np.array(target)
        if len(wanted) == 3:
            wanted = np.where((np.abs(wanted) < 3.0) & (wanted == 0.0), here, wanted + (np.abs(wanted) == 1.0) * here)
        with pytest.raises(CommandRefusedError, match=says):
            driver.command(wanted)
        driver.command(driver.read().setpoint)  # type: ignore[arg-type]


@pytest.mark.parametrize("cycle_hz", [250, 500, 2000])
def test_other_rates(drives: SegmentProcess, cycle_hz: int) -> None:
    with EthercatDriver(config(cycle_hz=cycle_hz)) as driver:
        seen = frames(driver, cycle_hz)
        report = driver.report()
    steps = np.diff([frame.t_bus_ns for frame in seen]) / np.diff([frame.seq for frame in seen])
    assert np.all(steps == 10**9 / cycle_hz)
    print(cycle_hz, {name: report[name] for name in ("frames", "lost_cycles", "overruns")}, report["timing"])


def test_without_distributed_clocks(drives: SegmentProcess) -> None:
    with EthercatDriver(config(dc=False)) as driver:
        assert driver.info.clock == "monotonic"
        before = time.monotonic_ns()
        seen = frames(driver, 500)
        after = time.monotonic_ns()
        report = driver.report()
    assert report["frames"] + report["lost_cycles"] + report["overruns"] == seen[-1].seq + 1
    assert before - 2_000_000 < seen[0].t_bus_ns < seen[-1].t_bus_ns < after


def test_torque_and_velocity_modes(drives: SegmentProcess) -> None:
    device = dict(SERVO)
    device["rx"] = {
        "1600": [
            "6040:00:16 controlword",
            "60FF:00:32 target_velocity",
            "6071:00:16 target_torque",
            "6060:00:8 mode",
            "0000:00:8",
        ]
    }
    with EthercatDriver(config(mode="csv", device={"servo": device})) as driver:
        frames(driver, 10)
        enable(driver)
        for _ in range(300):
            driver.read()
            driver.command(np.array([0.1, -0.1, 0.05]))
        frame = driver.read()
        assert frame.dq is not None
        assert frame.setpoint is None
        np.testing.assert_allclose(frame.dq, [0.1, -0.1, 0.05], atol=0.05)
    with EthercatDriver(config(mode="cst", device={"servo": device})) as driver:
        frames(driver, 10)
        enable(driver)
        for _ in range(1000):
            frame = driver.read()
            driver.command(np.array([1.0, -1.0, 0.5]))
            if frame.dq is not None and np.all(np.abs(frame.dq) > 1e-3):  # the brakes are open
                break
        frame = driver.read()
        assert frame.tau is not None
        np.testing.assert_allclose(frame.tau, [1.0, -1.0, 0.5], atol=0.2)


def test_nothing_is_open_after_an_exception(drives: SegmentProcess) -> None:
    driver = EthercatDriver(make_config(3, interface="m0"))

    def interrupted() -> None:
        with driver:
            enable(driver)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert drives.tell("states") == [1, 1, 1]
    assert drives.tell("drive_states") == OFF
