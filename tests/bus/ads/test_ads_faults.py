"""What goes wrong while the driver runs: nothing ends, all is counted, and nothing switches on by itself."""

import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from drivers.ads.driver import AdsDriver
from drivers.ads.link.link import VALUE_BY_HANDLE, Link
from drivers.driver import CommandRefusedError
from drivers.frame import JointFrame
from sim_backend.plc._plc import SimulatedPlc
from sim_backend.plc._variables import Alteration
from tests.lab.ads.configs import config
from tests.lab.ads.plcs import RunningPlc, new_address, plc_process, running_plc
from tests.lab.ads.reading import enabled, more, read_until, seqs

PlcTask = Callable[[SimulatedPlc], None]


def steady(driver: AdsDriver, frames: list[JointFrame]) -> None:
    """Each number has a frame or is counted as lost, and the times are those of the numbers."""
    report = driver.report()
    steps = seqs(frames)
    assert np.all(steps > 0)
    assert frames[-1].seq - frames[0].seq + 1 == len(frames) + int(np.sum(steps - 1))
    assert report["lost_cycles"] >= int(np.sum(steps - 1))
    np.testing.assert_array_equal(np.diff([f.t_bus_ns for f in frames]), steps * 1_000_000)


@pytest.mark.parametrize("transfer", ["poll", "notification"])
def test_dropped_connection_loses_nothing_that_the_ring_still_has(own_plc: RunningPlc, transfer: str) -> None:
    with AdsDriver(config(own_plc.address, transfer=transfer)) as driver:
        got = more(driver, 200)
        for _ in range(3):
            own_plc.do(lambda p: p.drop_connections())
            before = driver.report()["reconnects"]
            got += read_until(driver, lambda before=before: driver.report()["reconnects"] > before)  # type: ignore[misc]
            got += more(driver, 300)
        report = driver.report()
        steady(driver, got)
    if not report["ring_overruns"]:
        assert np.all(seqs(got) == 1)
    assert report["state"] == "running"
    assert len(report["last_recoveries"]) == 3
    assert report["plc_restarts"] == 0


@pytest.mark.parametrize("down_s", [0.0, 0.7])
def test_restart_of_the_program(own_plc: RunningPlc, down_s: float) -> None:
    with AdsDriver(config(own_plc.address)) as driver:
        got = more(driver, 200)
        own_plc.do(lambda p: p.restart(down_s))
        got += read_until(driver, lambda: driver.report()["plc_restarts"] == 1)
        got += more(driver, 300)
        report = driver.report()
        steady(driver, got)
    assert report["state"] == "running"
    assert report["lost_cycles"] >= 850 * down_s  # the time without a program
    assert own_plc.do(lambda p: p.program.counter) < got[-1].seq


@pytest.mark.parametrize(
    ("halt", "start", "problem"),
    [
        (SimulatedPlc.stop, SimulatedPlc.run, "the PLC is in stop mode: start it"),
        (SimulatedPlc.config_mode, SimulatedPlc.run_mode, "config mode"),
        (SimulatedPlc.refuse_routes, lambda p: p.refuse_routes(False), "no route back"),
    ],
)
def test_a_state_in_which_nothing_comes_is_named_and_gone_on_from(
    own_plc: RunningPlc, halt: PlcTask, start: PlcTask, problem: str
) -> None:
    with AdsDriver(config(own_plc.address, timeout_ms=100.0)) as driver:
        got = more(driver, 100)
        own_plc.do(halt)
        got += read_until(driver, lambda: problem in driver.report()["problem"])
        own_plc.do(start)
        got += read_until(driver, lambda: driver.report()["state"] == "running")
        got += more(driver, 200)
        steady(driver, got)
        told = [notice.kind for notice in driver.notices]
        assert (told[0], told[-1]) == ("bus_lost", "bus_recovered")


@pytest.mark.parametrize(("transfer", "keep_handles"), [("poll", True), ("poll", False), ("notification", False)])
def test_an_online_change_loses_nothing_and_nothing_is_left_on_the_server(
    own_plc: RunningPlc, transfer: str, keep_handles: bool
) -> None:
    def taken() -> tuple[int, int]:
        handles, notifications = own_plc.do(
            lambda p: (p.services.handles.count, sum(session.notifications for session in p.sessions))
        )
        return handles, notifications

    with AdsDriver(config(own_plc.address, transfer=transfer)) as driver:
        got = more(driver, 50)
        first = taken()
        assert first[0] > 64  # blocks of the ring
        assert first[1] == (1 if transfer == "notification" else 0)
        for count in range(1, 4):
            own_plc.do(lambda p: p.online_change([], keep_handles))
            got += read_until(driver, lambda count=count: driver.report()["online_changes"] == count)  # type: ignore[misc]
            got += more(driver, 50)
            assert taken() == first
        steady(driver, got)
        assert np.all(seqs(got) == 1)
    assert taken() == (0, 0)


def test_what_piles_up_before_the_first_read_is_not_lost(own_plc: RunningPlc) -> None:
    with AdsDriver(config(own_plc.address)) as driver:
        time.sleep(1.5)  # longer than the ring
        assert driver.read(5.0).seq == 0
        report = driver.report()
    assert report["ring_overruns"] == report["lost_blocks"] == report["lost_cycles"] == 0
    assert report["block_ms"] == 10.0


def test_online_change_of_a_structure_is_named_until_it_is_taken_back(own_plc: RunningPlc) -> None:
    with AdsDriver(config(own_plc.address)) as driver:
        got = more(driver, 100)
        own_plc.do(lambda p: p.online_change([Alteration("ST_ThetaAxis", "fTorque", "LREAL")]))
        got += read_until(driver, lambda: "ST_ThetaAxis.fTorque" in driver.report()["problem"])
        own_plc.do(lambda p: p.online_change([]))
        got += read_until(driver, lambda: driver.report()["state"] == "running")
        got += more(driver, 200)
        assert np.all(seqs(got) > 0)


def test_ring_overrun_is_counted() -> None:
    with running_plc(blocks=4) as plc, AdsDriver(config(plc.address, mode="none")) as driver:
        got = more(driver, 100)
        time.sleep(0.5)  # a consumer that stalls
        got += more(driver, 300)
        report = driver.report()
        steady(driver, got)
    assert report["ring_overruns"] >= 1
    assert report["lost_blocks"] * 10 == report["lost_cycles"] >= 400


def test_lost_notifications_come_from_the_ring(own_plc: RunningPlc) -> None:
    with AdsDriver(config(own_plc.address, transfer="notification")) as driver:
        got = more(driver, 200)
        own_plc.do(lambda p: p.lose_notifications(7))
        got += more(driver, 500)
        assert np.all(seqs(got) == 1)
        assert driver.report()["lost_cycles"] == 0
        assert driver.report()["blocks_notified"] < driver.report()["blocks"]


def test_cycles_that_the_task_left_out_are_a_gap(own_plc: RunningPlc) -> None:
    with AdsDriver(config(own_plc.address)) as driver:
        got = more(driver, 100)
        own_plc.do(lambda p: p.exceed_task(7))
        got += more(driver, 200)
        steady(driver, got)
        assert driver.report()["lost_cycles"] == 7
        assert driver.report()["exceeded_cycles"] == 1


@pytest.mark.parametrize("fault", ["restart", "drop", "axis"])
def test_axes_stay_off_after_a_fault_until_they_are_enabled(own_plc: RunningPlc, fault: str) -> None:
    with AdsDriver(config(own_plc.address, timeout_ms=100.0)) as driver:
        enabled(driver)
        if fault == "restart":
            own_plc.do(lambda p: p.restart())
        elif fault == "drop":
            own_plc.do(lambda p: p.drop_connections())
        else:
            own_plc.do(lambda p: p.machine.faulty.__setitem__(2, True))
        read_until(driver, lambda: not driver.enabled)
        if fault == "axis":
            own_plc.do(lambda p: p.machine.faulty.__setitem__(2, False))
        read_until(driver, lambda: driver.report()["axes_state"] in ("off", "fault"))
        more(driver, 500)
        report = driver.report()
        assert not report["enabled"]
        assert report["axes_state"] == "off"
        assert report["enable_failure"]
        if fault == "axis":
            assert "an axis reports a fault" in report["enable_failure"]
        enabled(driver)
        assert driver.enabled


@pytest.mark.parametrize("transfer", ["poll", "notification"])
def test_plc_that_is_killed_and_comes_back(transfer: str) -> None:
    address = new_address()
    with plc_process(address):
        driver = AdsDriver(config(address, transfer=transfer, timeout_ms=200.0))
        driver.open()
        got = more(driver, 200)
        enabled(driver)
    for round_ in range(2):
        read_until(driver, lambda: "no connection" in driver.report()["problem"])
        with plc_process(address):
            got += read_until(driver, lambda round_=round_: driver.report()["plc_restarts"] == round_ + 1)  # type: ignore[misc]
            got += more(driver, 200)
            assert not driver.enabled
    driver.close()
    assert np.all(seqs(got) > 0)
    assert sum(frame.valid is not None for frame in got) == 2  # the first of each: drives may have lost their position


SPEED = 0.2e-3  # rad a cycle
ON = 0x1237
LEAD = 1500


@pytest.fixture
def plc() -> Iterator[RunningPlc]:
    """One whose ring keeps what happens while nobody reads, and whose set positions last longer than the heartbeat."""
    with running_plc(heartbeat_ms=1000, blocks=600, setpoints=2000) as running:
        yield running


def moving(driver: AdsDriver) -> list[JointFrame]:
    """Enable, and command a motion of constant speed until the axes are under way."""
    frame = enabled(driver)
    start, frames = frame.setpoint, [frame]
    for k in range(LEAD + 500):
        driver.command(start + k * SPEED)
        frames.append(driver.read(5.0))
    np.testing.assert_allclose(steps(frames)[-100:], SPEED, rtol=1e-6)
    return frames


def steps(frames: list[JointFrame]) -> Any:
    return np.diff([frame.setpoint for frame in frames], axis=0)


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
    on = np.array([np.any(frame.status_word == ON) for frame in frames])
    assert on[0]
    assert not np.any(on[int(np.argmin(on)) :]), "off for good"
    # In the last cycle in which they are on the power goes, and set positions are the actual ones.
    moved = steps([frame for frame in frames if np.any(frame.status_word == ON)])[LEAD:-1]
    assert np.all(np.diff(moved, axis=0) <= 1e-9), "slower and slower"
    assert np.all(np.diff(moved, axis=0) >= -SPEED / 3.0), "along a ramp"
    assert np.all(moved >= -1e-9), "not back"
    np.testing.assert_allclose(moved[-1], 0.0, atol=1e-9)


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
