"""The driver against a simulated PLC: the contract of all drivers, values, notifications, motion."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.ads.driver import AdsDriver
from drivers.driver import CommandRefusedError, Driver
from drivers.frame import JointFrame
from tests.lab.ads.configs import config
from tests.lab.ads.plcs import RunningPlc, plc_process, running_plc
from tests.lab.ads.reading import enabled
from tests.lab.driver_contract import DriverContract, Ending


class EndingDriver(Ending, AdsDriver):
    """A stream without end, ended."""


@pytest.fixture(scope="module")
def plc_address() -> Iterator[str]:
    with plc_process() as address:
        yield address


@pytest.fixture(scope="module")
def slow_address() -> Iterator[str]:
    with plc_process(cycle_us=100_000, block_samples=1) as address:
        yield address


class TestContract(DriverContract):
    @pytest.fixture(autouse=True)
    def _addresses(self, plc_address: str, slow_address: str) -> None:
        self.address, self.slow_address = plc_address, slow_address

    def make(self, tmp_path: Path) -> Driver:
        return EndingDriver(config(self.address), 200)

    def make_slow(self, tmp_path: Path) -> Driver:
        return AdsDriver(config(self.slow_address, mode="none"))


def frames(driver: Driver, count: int) -> list[JointFrame]:
    return [driver.read(5.0) for _ in range(count)]


@pytest.mark.parametrize("transfer", ["poll", "notification"])
def test_nothing_is_lost_repeated_or_torn(transfer: str) -> None:
    with running_plc() as plc, AdsDriver(config(plc.address, transfer=transfer)) as driver:
        plc.do(lambda p: setattr(p.services, "torn_reads", 5))
        got = frames(driver, 3000)
        report = driver.report()
    assert [f.seq for f in got] == list(range(3000))
    assert np.all(np.diff([f.t_bus_ns for f in got]) == 1_000_000)
    assert report["lost_cycles"] == report["corrupt_samples"] == report["ring_overruns"] == 0
    if transfer == "notification":
        assert report["blocks_notified"] > 250
    else:
        assert report["torn_reads"] > 0


def test_values_are_those_of_the_machine(own_plc: RunningPlc) -> None:
    with AdsDriver(config(own_plc.address)) as driver:
        frame = frames(driver, 300)[-1]
        truth = own_plc.do(lambda p: p.machine.sample)
        assert driver.info.clock == "dc"
    np.testing.assert_allclose(frame.q, truth.x, atol=1e-5)
    np.testing.assert_allclose(frame.tau, truth.u, atol=1e-3 * np.abs(truth.u).max())
    assert set(frame.status_word.tolist()) == {0x1250}


def test_plc_time_without_distributed_clock() -> None:
    with running_plc(dc=False, clock_offset_ms=-86_400_000.0) as plc, AdsDriver(config(plc.address)) as driver:
        got = frames(driver, 50)
        assert driver.info.clock == "plc"
        seen_ns = plc.do(lambda p: p.clock.time_100ns(p.next_cycle))
    assert np.all(np.diff([f.t_bus_ns for f in got]) == 1_000_000)
    now_ns = (seen_ns - 116_444_736_000_000_000) * 100
    assert 0 < now_ns - got[-1].t_bus_ns < 10_000_000_000


def sine(k: int, n: int) -> Any:
    return 0.05 * math.sin(2.0 * math.pi * k / 1000.0) * np.ones(n)


def test_motion_is_played_cycle_by_cycle_with_a_constant_lead(own_plc: RunningPlc) -> None:
    with AdsDriver(config(own_plc.address, lead_ms=350.0)) as driver:
        frame = enabled(driver)
        start, first = frame.setpoint, frame.seq
        sent, seen = {}, {}
        for k in range(1500):
            target = start + sine(k, 6)
            driver.command(target)
            sent[frame.seq + 350] = target
            frame = driver.read(5.0)
            assert frame.setpoint is not None
            seen[frame.seq] = frame.setpoint
        report = driver.report()
    assert report["setpoint_underruns"] == report["setpoints_refused"] == 0
    assert report["enabled"]
    common = sorted(sent.keys() & seen.keys())
    assert len(common) > 1000
    assert common[0] == first + 350
    for seq in common:
        np.testing.assert_allclose(seen[seq], sent[seq], atol=1e-12)


def test_axes_hold_where_the_last_command_led(own_plc: RunningPlc) -> None:
    with AdsDriver(config(own_plc.address, lead_ms=350.0)) as driver:
        start = enabled(driver).setpoint
        for k in range(300):
            driver.command(start + sine(k, 6))
            driver.read(5.0)
        end = start + sine(299, 6)
        held = frames(driver, 1500)[-1].setpoint
        driver.command(end)  # a motion begins anew, also after a long rest
        last = frames(driver, 500)[-1].setpoint
        assert driver.enabled
        assert driver.report()["setpoint_underruns"] == 0
    np.testing.assert_allclose([held, last], [end, end], atol=1e-12)


def test_disable_stops_and_a_second_enable_begins_anew(own_plc: RunningPlc) -> None:
    with AdsDriver(config(own_plc.address)) as driver:
        for _ in range(2):
            frame = enabled(driver)
            assert frame.setpoint is not None
            driver.command(frame.setpoint)
            frames(driver, 200)
            driver.disable()
            assert not driver.enabled
            with pytest.raises(CommandRefusedError, match="not enabled"):
                driver.command(frame.setpoint)
            for _ in range(3000):
                driver.read(5.0)
                if driver.report()["axes_state"] == "off":
                    break
            assert driver.report()["axes_state"] == "off"
            assert driver.report()["axes_reason"] == "by command"


def test_close_switches_the_axes_off(own_plc: RunningPlc) -> None:
    with AdsDriver(config(own_plc.address)) as driver:
        enabled(driver)
    assert own_plc.do(lambda p: (p.program.state, p.program.reason)) == (0, 1)


def test_nothing_is_written_before_enable(own_plc: RunningPlc) -> None:
    with AdsDriver(config(own_plc.address)) as driver:
        frames(driver, 200)
        assert own_plc.do(lambda p: int(p.services.memory.array("GVL_Theta.stCommand")["nHeartbeat"])) == 0


def test_axes_are_found_by_name_and_some_may_be_left_out(own_plc: RunningPlc) -> None:
    tables = config().model_dump()["axis"]
    with AdsDriver(config(own_plc.address)) as driver:
        whole = driver.read()
    chosen = [tables[4], tables[1]]
    with AdsDriver(config(own_plc.address, axis=chosen, mode="none")) as driver:
        part = driver.read()
        assert driver.info.joint_names == ("joint_5", "joint_2")
        with pytest.raises(CommandRefusedError, match='mode = "none"'):
            driver.enable()
    np.testing.assert_allclose(part.q, whole.q[[4, 1]], atol=1e-4)
