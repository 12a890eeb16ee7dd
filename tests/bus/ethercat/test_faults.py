"""What happens on the bus while it runs: who is valid, what is said, and the way back without a restart."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from drivers.driver import CommandRefusedError, DriverConnectionError, DriverTimeoutError
from drivers.ethercat.config import EthercatConfig
from drivers.frame import JointFrame
from tests.lab.ethercat.configs import settings
from tests.lab.ethercat.namespace import wait_until
from tests.lab.ethercat.network import SegmentProcess, Segments, await_link, ip
from tests.lab.ethercat.patient_driver import PatientDriver

N = 3


@pytest.fixture(scope="module")
def line(segment: Segments) -> Iterator[SegmentProcess]:
    with segment(*["generic_servo"] * N) as process:
        yield process


@pytest.fixture
def drives(line: SegmentProcess) -> Iterator[SegmentProcess]:
    """Drives without a fault, also after a test that failed with one."""
    yield line
    ip("link", "set", "s0", "up")
    line.tell("heal")


def config(**changes: Any) -> EthercatConfig:
    return EthercatConfig.model_validate(settings(N, interface="m0", watchdog_ms=500.0) | changes)


@pytest.fixture
def driver(drives: SegmentProcess) -> Iterator[PatientDriver]:
    driver = PatientDriver(config())
    driver.open()
    run(driver, 50)
    yield driver
    driver.close()


def run(driver: PatientDriver, count: int, timeout_s: float = 5.0) -> list[JointFrame]:
    return [driver.read(timeout_s) for _ in range(count)]


def until(driver: PatientDriver, condition: Callable[[dict[str, Any]], bool], limit: int = 5000) -> list[JointFrame]:
    """Read until the report fulfils a condition."""
    seen = []
    for _ in range(limit):
        seen.append(driver.read(5.0))
        if condition(driver.report()):
            return seen
    pytest.fail(f"not within {limit} frames: {driver.report()}")


def enable(driver: PatientDriver) -> None:
    driver.enable()
    until(driver, lambda report: bool(report["enabled"]))


def valid(frame: JointFrame) -> list[bool]:
    return [True] * N if frame.valid is None else list(frame.valid.tolist())


def back(driver: PatientDriver, times: int = 1) -> list[JointFrame]:
    seen = until(driver, lambda r: r["recoveries"] >= times and r["state"] == "operational")
    seen += until(driver, lambda r: all(d["al_state"] == "OP" for d in r["drives"]))
    return seen


def accounted(driver: PatientDriver, last: JointFrame) -> None:
    report = driver.report()
    assert report["frames"] + report["lost_cycles"] + report["overruns"] == last.seq + 1


def test_a_lost_frame_is_a_lost_cycle(driver: PatientDriver, drives: SegmentProcess) -> None:
    enable(driver)
    lost, unanswered = (driver.report()[name] for name in ("lost_cycles", "unanswered_exchanges"))
    for _ in range(30):  # some of the frames ask for states: SOEM sends those again by itself
        drives.tell("drop_frames", 1)
        run(driver, 10)
    report = driver.report()
    assert report["unanswered_exchanges"] - unanswered >= 10
    assert report["lost_cycles"] - lost >= 10
    assert report["enabled"]  # no reason to stop
    accounted(driver, driver.read())
    assert report["recoveries"] == 0


def test_a_slave_that_does_not_take_part_makes_its_cycle_invalid(driver: PatientDriver, drives: SegmentProcess) -> None:
    drives.tell("deaf", 1, 1)
    seen = run(driver, 50)
    invalid = [frame for frame in seen if not all(valid(frame))]
    assert len(invalid) <= 1  # the frame it slept through may have been one that asks for states
    assert not any(any(valid(frame)) for frame in invalid)  # not known who it was
    assert driver.report()["wkc_errors"] == len(invalid)
    accounted(driver, seen[-1])


def test_a_lost_slave_masks_its_joint_and_comes_back(driver: PatientDriver, drives: SegmentProcess) -> None:
    enable(driver)
    drives.tell("deaf", 1, 10**6)
    seen = run(driver, 200)
    assert valid(seen[-1]) == [True, False, True]
    report = driver.report()
    assert report["state"] == "recovering"
    assert report["drives"][1]["al_state"] == "not answering"
    assert report["drives"][1]["dropped_out"]
    assert not report["enabled"]  # the others were stopped with it
    drives.tell("deaf", 1, 0)
    seen += back(driver)
    assert all(valid(seen[-1]))
    with pytest.raises(CommandRefusedError):
        driver.command(np.zeros(N))
    enable(driver)  # by its user, not by itself
    accounted(driver, driver.read())


def test_a_slave_comes_back_while_a_working_counter_is_unexplained(
    driver: PatientDriver, drives: SegmentProcess
) -> None:
    """Another slave says that it is in OP, but sends no inputs: no state tells whose values are missing."""
    drives.tell("poke", 1, 0x0600 + 16 + 12, "00")  # its second FMMU, of the inputs, is off
    assert not any(valid(until(driver, lambda report: report["wkc_errors"] > 100)[-1]))
    drives.tell("al_error", 0, 0x001B)
    until(driver, lambda report: report["recoveries"] == 1, limit=1000)
    assert driver.report()["drives"][0]["al_state"] == "OP"


def test_a_slave_that_is_configured_again_has_no_valid_values_meanwhile(
    driver: PatientDriver, drives: SegmentProcess
) -> None:
    """In PRE-OP it must not count in the working counter: the memory that its FMMUs point to is not kept any more."""
    drives.tell("mute", 1, True)  # so that it stays there
    drives.tell("al_error", 1, 0x0011, 2)
    seen = run(driver, 1500)
    masks = [all(valid(frame)) for frame in seen]
    assert not any(masks[masks.index(False) :])
    assert valid(seen[-1]) == [True, False, True]
    drives.tell("mute", 1, False)
    back(driver)
    assert all(valid(run(driver, 50)[-1]))


def test_a_slave_that_was_without_power_is_configured_again(driver: PatientDriver, drives: SegmentProcess) -> None:
    position = run(driver, 1)[0].q
    drives.tell("power_off", 2)
    assert valid(run(driver, 200)[-1]) == [True, True, False]
    drives.tell("power_on", 2)
    back(driver)
    frame = driver.read()
    assert all(valid(frame))
    np.testing.assert_allclose(frame.q, position, atol=1e-3)
    assert [n.kind for n in driver.notices if n.subject == "slave 2"] == ["slave_lost", "slave_recovered"]
    enable(driver)
    accounted(driver, driver.read())


def test_a_mailbox_that_does_not_answer_leaves_the_others_in_operation(drives: SegmentProcess) -> None:
    """A drive that comes back without a mailbox is configured in vain, between the cycles of the others."""
    with PatientDriver(config(watchdog_ms=100.0)) as driver:
        run(driver, 50)
        drives.tell("power_off", 2)
        until(driver, lambda r: r["state"] == "recovering")
        drives.tell("mute", 2, True)
        drives.tell("power_on", 2)
        unheard = 0
        for _ in range(2500):
            driver.read(5.0)
            if [drive["al_state"] for drive in driver.report()["drives"][:2]] != ["OP", "OP"]:
                assert drives.tell("states")[:2] == [8, 8]  # an answer that came late
                unheard += 1
        assert unheard < 100
        drives.tell("mute", 2, False)
        back(driver)
        recovery = driver.report()["last_recoveries"][-1]
        assert recovery["position"] == 2
        assert recovery["failures"] > 1


def test_deaf_to_process_data_in_op(drives: SegmentProcess) -> None:
    """A slave that takes no part and says that it is in OP, for good: its drive is not believed to be enabled."""
    with PatientDriver(config(watchdog_ms=6000.0)) as driver:
        run(driver, 50)
        enable(driver)
        drives.tell("poke", 1, 0x060C, "00")  # its FMMUs
        drives.tell("poke", 1, 0x061C, "00")
        assert len(until(driver, lambda r: not r["enabled"], 200)) < 50
        report = driver.report()
        assert report["drives"][1]["al_state"] == "OP"
        assert report["drives"][1]["state"] == "unknown"
        assert report["drives"][1]["dropped_out"]
        with pytest.raises(CommandRefusedError):
            driver.command(np.zeros(N))
        run(driver, 600)
        states = drives.tell("drive_states")
        assert (states[0], states[2]) == ("SWITCH_ON_DISABLED", "SWITCH_ON_DISABLED")


def test_an_al_error_is_said_and_repaired(driver: PatientDriver, drives: SegmentProcess) -> None:
    enable(driver)
    drives.tell("al_error", 0, 0x001B)
    texts: list[str] = []
    until(driver, lambda r: texts.append(r["drives"][0]["al_state"]) or r["recoveries"] == 1)  # type: ignore[func-returns-value]
    assert any("0x001B" in text and "watchdog" in text.lower() for text in texts), set(texts)
    back(driver)
    assert not driver.report()["enabled"]
    enable(driver)


def test_emergencies_are_reported(driver: PatientDriver, drives: SegmentProcess) -> None:
    drives.tell("emergency", 1, 0x7121, 0x03)
    until(driver, lambda r: r["emergencies"] == 1)
    message = driver.report()["last_emergencies"][-1]
    assert (message["position"], message["code"], message["register"]) == (1, 0x7121, 3)


def test_a_drive_s_fault_stops_the_arm_and_is_reset_by_enable(driver: PatientDriver, drives: SegmentProcess) -> None:
    enable(driver)
    drives.tell("drive_fault", 2, 0x3210)
    until(driver, lambda r: r["drives"][2]["state"] == "fault")
    run(driver, 800)
    report = driver.report()
    assert report["drives"][2]["error_code"] == 0x3210
    assert [drive["enabled"] for drive in report["drives"]] == [False] * N
    assert drives.tell("drive_states")[:2] == ["SWITCH_ON_DISABLED"] * 2
    enable(driver)


def test_slow_replies_are_lost_cycles_not_mixed_up(driver: PatientDriver, drives: SegmentProcess) -> None:
    for delay_ms in (2, 5, 12):
        drives.tell("delay_replies", delay_ms * 1_000_000, 3)
        seen = run(driver, 40)
        accounted(driver, seen[-1])
    assert np.all(np.diff(np.array([frame.t_bus_ns for frame in seen])) > 0)
    assert driver.report()["lost_cycles"] > 0


def test_after_a_stall_the_answers_are_new_ones(driver: PatientDriver, drives: SegmentProcess) -> None:
    before = run(driver, 1000)[-1]
    drives.tell("delay_replies", 60_000_000, 40)
    run(driver, 300)
    after = driver.read(5.0)
    elapsed_ns = after.t_host_ns - before.t_host_ns
    assert after.t_bus_ns - before.t_bus_ns == pytest.approx(elapsed_ns, abs=5_000_000)
    report = driver.report()
    assert report["clock_steps"] == 0
    assert [drive["al_state"] for drive in report["drives"]] == ["OP"] * N
    accounted(driver, after)


def test_drift_is_followed(driver: PatientDriver, drives: SegmentProcess) -> None:
    """Late replies hide the drift for as long as they last: it is followed within seconds that had few of them."""
    drives.tell("drift_clock", 0, 80.0)
    drift = [0.0]
    while abs(drift[-1] - 80.0) > 20.0:
        assert len(drift) < 8, drift
        run(driver, 2000)
        drift.append(driver.report()["clock_drift_ppm"])
    drives.tell("drift_clock", 0, 0.0)


@pytest.mark.parametrize("step_ns", [70_000_000, -70_000_000])
def test_a_step_of_the_reference_clock(driver: PatientDriver, drives: SegmentProcess, step_ns: int) -> None:
    before = run(driver, 1500)[-1]
    drives.tell("step_clock", 0, step_ns)
    seen = [before, *run(driver, 500)]
    assert np.all(np.diff([frame.seq for frame in seen]) > 0)
    assert np.all(np.diff([frame.t_bus_ns for frame in seen]) > 0)
    assert driver.report()["clock_steps"] == 1
    elapsed_ns = seen[-1].t_host_ns - before.t_host_ns
    assert (seen[-1].seq - before.seq) * 1e6 == pytest.approx(elapsed_ns, rel=0.05)
    accounted(driver, seen[-1])


def test_the_reference_slave_is_lost(driver: PatientDriver, drives: SegmentProcess) -> None:
    """Nobody tells the time then; it goes on by the last drift."""
    before = run(driver, 1000)[-1]
    drives.tell("deaf", 0, 10**6)
    seen = run(driver, 500)
    elapsed_ns = seen[-1].t_host_ns - before.t_host_ns
    assert seen[-1].t_bus_ns - before.t_bus_ns == pytest.approx(elapsed_ns, abs=3_000_000)
    assert valid(seen[-1]) == [False, True, True]
    drives.tell("deaf", 0, 0)
    back(driver)
    accounted(driver, driver.read())


def test_the_cable_at_the_master(driver: PatientDriver, drives: SegmentProcess) -> None:
    ip("link", "set", "s0", "down")
    with pytest.raises(DriverTimeoutError, match="had no answer"):
        run(driver, 1000, 0.3)
    assert driver.report()["state"] == "no answer"
    with pytest.raises(CommandRefusedError, match="no slave answers"):
        driver.enable()
    ip("link", "set", "s0", "up")
    for _ in range(20):
        try:
            driver.read(1.0)
            break
        except DriverTimeoutError:
            continue
    until(driver, lambda r: r["state"] == "operational" and all(d["al_state"] == "OP" for d in r["drives"]))
    accounted(driver, driver.read())
    told = [notice.kind for notice in driver.notices if notice.subject == "bus"]
    assert (told[0], told[-1]) == ("interface_lost", "bus_recovered")


def test_an_interface_that_is_there_again_is_opened_again(driver: PatientDriver, drives: SegmentProcess) -> None:
    ip("link", "delete", "m0")
    with pytest.raises(DriverTimeoutError, match="there is no network interface 'm0'"):
        run(driver, 1000, 2.0)
    ip("link", "add", "m0", "type", "veth", "peer", "name", "s0")
    for name in ("m0", "s0"):
        ip("link", "set", name, "up")
    drives.tell("plug_in", "s0")
    await_link("m0", True)
    with pytest.raises(DriverConnectionError, match="removed and is there again"):
        driver.read(5.0)
    assert "interface_lost" in {notice.kind for notice in driver.notices}
    driver.close()
    driver.open()
    assert all(valid(run(driver, 20)[-1]))


def test_close_with_nobody_there(drives: SegmentProcess) -> None:
    driver = PatientDriver(config())
    driver.open()
    run(driver, 10)
    ip("link", "set", "s0", "down")
    driver.close()
    ip("link", "set", "s0", "up")
    time.sleep(0.6)  # the drives' watchdogs
    assert 8 not in drives.tell("states")


def test_a_reader_that_stops_stops_the_drives(driver: PatientDriver, drives: SegmentProcess) -> None:
    enable(driver)
    wait_until(lambda: "ENABLED" not in drives.tell("drive_states"))
    back(driver, N)
    assert not driver.report()["enabled"]
    assert "bus" not in {notice.subject for notice in driver.notices}  # the reader was held up, not the bus
