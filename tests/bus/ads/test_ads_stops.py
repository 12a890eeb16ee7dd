"""What ends a motion from outside: axes stop along a ramp or are off, and nothing switches on by itself."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from drivers.ads.driver import AdsDriver
from drivers.ads.link.link import VALUE_BY_HANDLE, Link
from drivers.driver import CommandRefusedError, DriverTimeoutError
from drivers.frame import JointFrame
from tests.lab.ads.configs import config
from tests.lab.ads.plcs import RunningPlc, running_plc

SPEED = 0.2e-3  # rad a cycle
ON = 0x1237
LEAD = 1500


@pytest.fixture
def plc() -> Iterator[RunningPlc]:
    """One whose ring keeps what happens while nobody reads, and whose set positions last longer than the heartbeat."""
    with running_plc(heartbeat_ms=1000, blocks=600, setpoints=2000) as running:
        yield running


def read_until(driver: AdsDriver, enough: Callable[[], bool]) -> list[JointFrame]:
    frames = []
    until = time.monotonic() + 20.0
    while not enough():
        assert time.monotonic() < until, driver.report()
        try:
            frames.append(driver.read(0.1))
        except DriverTimeoutError:
            continue
    return frames


def moving(driver: AdsDriver) -> list[JointFrame]:
    """Enable, and command a motion of constant speed until the axes are under way."""
    driver.enable()
    frame = read_until(driver, lambda: driver.enabled)[-1]
    assert frame.setpoint is not None
    start, frames = frame.setpoint, [frame]
    for k in range(LEAD + 500):
        driver.command(start + k * SPEED)
        frames.append(driver.read(5.0))
    np.testing.assert_allclose(steps(frames)[-100:], SPEED, rtol=1e-6)
    return frames


def steps(frames: list[JointFrame]) -> Any:
    return np.diff([frame.setpoint for frame in frames], axis=0)


def never_on_again(frames: list[JointFrame]) -> None:
    on = np.array([np.any(frame.status_word == ON) for frame in frames])
    assert on[0]
    assert not on[-1]
    assert not np.any(on[int(np.argmin(on)) :]), "off for good"


def test_heartbeat_lost_while_moving(plc: RunningPlc) -> None:
    with AdsDriver(config(plc.address, lead_ms=LEAD)) as driver:
        frames = moving(driver)
        time.sleep(2.0)  # the reader hangs; the PLC has points for longer than it waits for a heartbeat
        frames += read_until(driver, lambda: driver.report()["axes_state"] == "off")
        frames += [driver.read(5.0) for _ in range(2000)]
        report = driver.report()
        assert plc.do(lambda p: (p.machine.power, p.program.reason)) == (False, 2)
    assert report["axes_reason"] == "the heartbeat stopped"
    assert "the heartbeat stopped" in report["enable_failure"]
    assert report["setpoint_underruns"] == 0
    assert report["lost_cycles"] == 0, "the ramp has been seen whole"
    never_on_again(frames)
    # In the last cycle in which they are on the power goes, and set positions are the actual ones.
    moved = steps([frame for frame in frames if np.any(frame.status_word == ON)])[LEAD:-1]
    assert np.all(np.diff(moved, axis=0) <= 1e-9), "slower and slower"
    assert np.all(np.diff(moved, axis=0) >= -SPEED / 3.0), "along a ramp"
    assert np.all(moved >= -1e-9), "not back"
    np.testing.assert_allclose(moved[-1], 0.0, atol=1e-9)


def test_plc_stopped_and_started_while_moving(plc: RunningPlc) -> None:
    with AdsDriver(config(plc.address, lead_ms=LEAD)) as driver:
        frames = moving(driver)
        plc.do(lambda p: p.stop())
        frames += read_until(driver, lambda: driver.report()["state"] == "PLC in stop")
        time.sleep(1.2)
        plc.do(lambda p: p.run())
        frames += read_until(driver, lambda: driver.report()["state"] == "running")
        after = [driver.read(5.0) for _ in range(2000)]
        report = driver.report()
        assert not plc.do(lambda p: p.machine.power or p.machine.follow)
        assert not driver.enabled
        assert (report["axes_state"], report["axes_reason"]) == ("off", "the PLC stood still")
        never_on_again(frames + after)
        for frame in after:
            if not np.any(frame.status_word == ON):
                assert frame.setpoint is not None
                assert frame.q is not None
                np.testing.assert_allclose(frame.setpoint, frame.q, atol=1e-9)  # nothing waits to be caught up with
        driver.enable()
        read_until(driver, lambda: driver.enabled)


def test_a_start_that_may_not_enable_leaves_the_controller_free() -> None:
    with running_plc(heartbeat_ms=20_000) as plc:
        run = plc.do(lambda p: p.program.run)
        other = Link(config(plc.address).target)
        other.open()
        command = other.handle("GVL_Theta.stCommand")
        for enable in range(2):
            other.write(VALUE_BY_HANDLE, command, struct.pack("<QII", run, 1 + enable, enable))
            counter = plc.do(lambda p: p.program.counter)
            until = time.monotonic() + 10.0
            while plc.do(lambda p: p.program.counter) <= counter + 1:
                assert time.monotonic() < until
        other.close()
        driver = AdsDriver(config(plc.address, enable=True))
        with pytest.raises(CommandRefusedError, match="another program commands them"):
            driver.open()
        with AdsDriver(config(plc.address)) as driver:
            driver.read(5.0)


def test_enabled_axes_hold_without_a_command(plc: RunningPlc) -> None:
    with AdsDriver(config(plc.address)) as driver:
        driver.enable()
        read_until(driver, lambda: driver.enabled)
        frames = [driver.read(5.0) for _ in range(2500)]
        assert driver.enabled
        assert driver.report()["setpoint_underruns"] == 0
        assert np.all(steps(frames[500:]) == 0.0)
        held = frames[-1].setpoint
        assert held is not None
        driver.command(held)
        last = [driver.read(5.0) for _ in range(500)][-1]
        assert driver.enabled
    assert last.setpoint is not None
    np.testing.assert_allclose(last.setpoint, held, atol=1e-12)
