"""The driver on simulated drives at a real interface: the contract of all drivers, values, motion, account."""

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.driver import CommandRefusedError, Driver
from drivers.ethercat.config import EthercatConfig
from drivers.frame import JointFrame
from tests.lab.driver_contract import DriverContract, Ending
from tests.lab.ethercat.configs import SERVO, settings
from tests.lab.ethercat.network import SegmentProcess, Segments
from tests.lab.ethercat.patient_driver import PatientDriver

OFF = ["SWITCH_ON_DISABLED"] * 3
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


class EndingDriver(Ending, PatientDriver):
    """A stream without end, ended."""


class TestEthercatDriver(DriverContract):
    @pytest.fixture(autouse=True)
    def _drives(self, drives: SegmentProcess) -> None:
        """The drives are there for every test."""

    def make(self, tmp_path: Path) -> Driver:
        return EndingDriver(config(), 200)

    def make_slow(self, tmp_path: Path) -> Driver:
        slow = config(dc=False).model_copy(update={"cycle_hz": 4, "watchdog_ms": 2000.0, "answer_timeout_us": 5e4})
        return PatientDriver(slow)


def frames(driver: PatientDriver, count: int) -> list[JointFrame]:
    return [driver.read() for _ in range(count)]


def enable(driver: PatientDriver) -> None:
    driver.enable()
    for _ in range(3000):
        driver.read()
        if driver.report()["enabled"]:
            return
    pytest.fail(f"not enabled: {driver.report()}")


@pytest.mark.parametrize("cycle_hz", [1000, 2000])
def test_each_cycle_is_a_frame_or_counted(drives: SegmentProcess, cycle_hz: int) -> None:
    with PatientDriver(config(cycle_hz=cycle_hz)) as driver:
        seen = frames(driver, 2000)
        report = driver.report()
    seq = np.array([frame.seq for frame in seen])
    assert seq[0] >= 0
    assert report["frames"] == 2000
    assert report["frames"] + report["lost_cycles"] + report["overruns"] == seq[-1] + 1
    assert np.all(np.diff(seq) > 0)
    bus_ns = np.array([frame.t_bus_ns for frame in seen])
    period_ns = 10**9 // cycle_hz
    np.testing.assert_array_equal(np.diff(bus_ns), np.diff(seq) * period_ns)
    assert (bus_ns[0] - period_ns // 2) % period_ns == 0  # SYNC0 is half a cycle off the grid of the frames


def test_moves_in_csp_and_stops_on_close(drives: SegmentProcess) -> None:
    with PatientDriver(config()) as driver:
        start = frames(driver, 10)[-1].q
        np.testing.assert_allclose(start, drives.tell("truth")["x"], atol=1e-6)
        assert drives.tell("drive_states") == OFF
        with pytest.raises(CommandRefusedError, match="not enabled: joint_1 switch on disabled"):
            driver.command(np.zeros(3))
        enable(driver)
        np.testing.assert_allclose(frames(driver, 100)[-1].q, start, atol=0.01)  # it holds where it was
        first = driver.read()
        base = first.setpoint.copy()
        goal = base
        for _ in range(1500):
            phase = (driver.read().seq - first.seq) * 1e-3
            goal = base + 0.2 * (1.0 - math.cos(2.0 * phase))
            driver.command(goal)
        end = frames(driver, 100)[-1]
        np.testing.assert_allclose(end.setpoint, goal, atol=1e-6)
        np.testing.assert_allclose(end.q, goal, atol=0.02)
        np.testing.assert_allclose(end.q, drives.tell("truth")["x"], atol=0.01)
        np.testing.assert_allclose(end.tau, drives.tell("truth")["u"], atol=3.0)
    assert drives.tell("drive_states") == OFF
    assert drives.tell("states") == [1, 1, 1]


def test_without_distributed_clocks(drives: SegmentProcess) -> None:
    with PatientDriver(config(dc=False)) as driver:
        assert driver.info.clock == "monotonic"
        before = time.monotonic_ns()
        seen = frames(driver, 500)
        after = time.monotonic_ns()
        report = driver.report()
    assert report["frames"] + report["lost_cycles"] + report["overruns"] == seen[-1].seq + 1
    assert before - 2_000_000 < seen[0].t_bus_ns < seen[-1].t_bus_ns < after


def test_torque_and_velocity_modes(drives: SegmentProcess) -> None:
    entries = ["6040:00:16 controlword", "60FF:00:32 target_velocity", "6071:00:16 target_torque"]
    device = SERVO | {"rx": {"1600": [*entries, "6060:00:8 mode", "0000:00:8"]}}
    with PatientDriver(config(mode="csv", device={"servo": device})) as driver:
        frames(driver, 10)
        enable(driver)
        for _ in range(300):
            driver.read()
            driver.command(np.array([0.1, -0.1, 0.05]))
        frame = driver.read()
        assert frame.setpoint is None
        np.testing.assert_allclose(frame.dq, [0.1, -0.1, 0.05], atol=0.05)
    with PatientDriver(config(mode="cst", device={"servo": device})) as driver:
        frames(driver, 10)
        enable(driver)
        for _ in range(1000):
            frame = driver.read()
            driver.command(np.array([1.0, -1.0, 0.5]))
            if frame.dq is not None and np.all(np.abs(frame.dq) > 1e-3):  # the brakes are open
                break
        np.testing.assert_allclose(driver.read().tau, [1.0, -1.0, 0.5], atol=0.2)
