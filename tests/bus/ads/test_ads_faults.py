"""What goes wrong while the driver runs: nothing ends, nothing is invented, all of it is counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from drivers.ads.driver import AdsDriver
from drivers.driver import DriverTimeoutError
from drivers.frame import JointFrame
from sim_backend.plc._variables import Alteration
from tests.lab.ads.configs import config
from tests.lab.ads.plcs import RunningPlc, new_address, plc_process, running_plc

_MAX_S = 20.0


def read_until(driver: AdsDriver, enough: Callable[[], bool]) -> list[JointFrame]:
    """Frames until `enough`, over time-outs."""
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


def seqs(frames: list[JointFrame]) -> Any:
    return np.diff([frame.seq for frame in frames])


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


def test_route_taken_away_and_given_back(own_plc: RunningPlc) -> None:
    with AdsDriver(config(own_plc.address, timeout_ms=100.0)) as driver:
        got = more(driver, 100)
        own_plc.do(lambda p: p.refuse_routes(True))
        read_until(driver, lambda: "no route back" in driver.report()["problem"])
        with pytest.raises(DriverTimeoutError, match="no route back"):
            driver.read(0.05)
        own_plc.do(lambda p: p.refuse_routes(False))
        got += read_until(driver, lambda: driver.report()["state"] == "running")
        got += more(driver, 300)
        steady(driver, got)


def test_restart_of_the_program(own_plc: RunningPlc) -> None:
    with AdsDriver(config(own_plc.address)) as driver:
        got = more(driver, 200)
        own_plc.do(lambda p: p.restart())
        got += read_until(driver, lambda: driver.report()["plc_restarts"] == 1)
        got += more(driver, 300)
        report = driver.report()
        steady(driver, got)
    assert report["state"] == "running"
    assert own_plc.do(lambda p: p.program.counter) < got[-1].seq


def test_restart_that_takes_its_time(own_plc: RunningPlc) -> None:
    with AdsDriver(config(own_plc.address)) as driver:
        got = more(driver, 100)
        own_plc.do(lambda p: p.restart(0.7))
        read_until(driver, lambda: driver.report()["state"] != "running")
        got += read_until(driver, lambda: driver.report()["state"] == "running")
        got += more(driver, 300)
        report = driver.report()
        steady(driver, got)
    assert report["plc_restarts"] == 1
    assert report["lost_cycles"] >= 600  # the time without a program


def test_stopped_and_started(own_plc: RunningPlc) -> None:
    with AdsDriver(config(own_plc.address)) as driver:
        got = more(driver, 100)
        own_plc.do(lambda p: p.stop())
        got += read_until(driver, lambda: driver.report()["state"] == "PLC in stop")
        assert driver.report()["problem"] == "the PLC is in stop mode: start it"
        own_plc.do(lambda p: p.run())
        got += read_until(driver, lambda: driver.report()["state"] == "running")
        got += more(driver, 200)
        steady(driver, got)


def test_config_mode_and_back(own_plc: RunningPlc) -> None:
    with AdsDriver(config(own_plc.address)) as driver:
        got = more(driver, 100)
        own_plc.do(lambda p: p.config_mode())
        read_until(driver, lambda: "config mode" in driver.report()["problem"])
        own_plc.do(lambda p: p.run_mode())
        got += read_until(driver, lambda: driver.report()["state"] == "running")
        got += more(driver, 200)
        steady(driver, got)


@pytest.mark.parametrize("keep_handles", [True, False])
def test_online_change_that_leaves_the_structures(own_plc: RunningPlc, keep_handles: bool) -> None:
    with AdsDriver(config(own_plc.address)) as driver:
        got = more(driver, 100)
        own_plc.do(lambda p: p.online_change([], keep_handles))
        got += read_until(driver, lambda: driver.report()["online_changes"] == 1)
        got += more(driver, 300)
        steady(driver, got)
        assert np.all(seqs(got) == 1)


@pytest.mark.parametrize("keep_handles", [True, False])
@pytest.mark.parametrize("transfer", ["poll", "notification"])
def test_nothing_is_left_on_the_server(own_plc: RunningPlc, transfer: str, keep_handles: bool) -> None:
    def taken() -> tuple[int, int]:
        handles, notifications = own_plc.do(
            lambda p: (p.services.handles.count, sum(session.notifications for session in p.sessions))
        )
        return handles, notifications

    with AdsDriver(config(own_plc.address, transfer=transfer)) as driver:
        more(driver, 50)
        first = taken()
        assert first[0] > 64  # blocks of the ring
        assert first[1] == (1 if transfer == "notification" else 0)
        for count in range(1, 4):
            own_plc.do(lambda p: p.online_change([], keep_handles))
            read_until(driver, lambda count=count: driver.report()["online_changes"] == count)  # type: ignore[misc]
            more(driver, 50)
            assert taken() == first
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


def test_late_and_split_replies(own_plc: RunningPlc) -> None:
    def late(p: Any) -> None:
        p.line.delay_ns, p.line.piece_bytes, p.line.piece_gap_ns = 30_000_000, 1000, 500_000

    with AdsDriver(config(own_plc.address)) as driver:
        got = more(driver, 100)
        own_plc.do(late)
        got += more(driver, 300)
        assert np.all(seqs(got) == 1)
        assert driver.report()["reconnects"] == 0


def test_cycles_that_the_task_left_out_are_a_gap(own_plc: RunningPlc) -> None:
    with AdsDriver(config(own_plc.address)) as driver:
        got = more(driver, 100)
        own_plc.do(lambda p: p.exceed_task(7))
        got += more(driver, 200)
        steady(driver, got)
        assert driver.report()["lost_cycles"] == 7
        assert driver.report()["exceeded_cycles"] == 1


def enabled(driver: AdsDriver) -> JointFrame:
    driver.enable()
    return read_until(driver, lambda: driver.enabled)[-1]


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


def test_without_heartbeat_the_axes_stop(own_plc: RunningPlc) -> None:
    with AdsDriver(config(own_plc.address)) as driver:
        enabled(driver)
        time.sleep(2.0)  # the reader hangs
        assert own_plc.do(lambda p: (p.program.state, p.program.reason)) == (0, 2)
        read_until(driver, lambda: not driver.enabled)
        assert "the heartbeat stopped" in driver.report()["enable_failure"]


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
