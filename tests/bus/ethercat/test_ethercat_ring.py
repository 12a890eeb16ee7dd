"""Cable redundancy: a ring on two interfaces goes on with one cable broken."""

from collections.abc import Iterator

import pytest

from drivers.driver import DriverTimeoutError
from drivers.ethercat.config import EthercatConfig
from tests.lab.ethercat.configs import settings
from tests.lab.ethercat.network import SegmentProcess, Segments, await_link, ip
from tests.lab.ethercat.patient_driver import PatientDriver


@pytest.fixture(scope="module")
def whole_ring(segment: Segments) -> Iterator[SegmentProcess]:
    with segment(*["generic_servo"] * 3, interfaces=["s0", "s1"]) as process:
        yield process


@pytest.fixture
def ring(whole_ring: SegmentProcess) -> SegmentProcess:
    """A ring without a cut, also after a test that failed with one."""
    whole_ring.tell("heal")
    return whole_ring


def config() -> EthercatConfig:
    """Many cycles are bridged: a machine that is elsewhere for some milliseconds does not stop the drives."""
    tables = settings(3, interface="m0", redundant_interface="m1", watchdog_ms=1000.0, cycle_hz=250, bridge_cycles=50)
    return EthercatConfig.model_validate(tables)


def whole(driver: PatientDriver, count: int) -> None:
    """Read until so many frames have had all drives."""
    for _ in range(20 * count):
        count -= driver.read(2.0).valid is None
        if not count:
            return
    pytest.fail(f"{count} frames too few: {driver.report()}")


@pytest.mark.parametrize("after", [1, 2])
def test_a_broken_cable_loses_no_drive(ring: SegmentProcess, after: int) -> None:
    with PatientDriver(config()) as driver:
        whole(driver, 50)
        driver.enable()
        whole(driver, 250)
        assert driver.report()["enabled"]
        assert driver.report()["ring_open_at"] == []
        ring.tell("cut", after)
        whole(driver, 100)
        assert driver.report()["enabled"]
        assert driver.report()["ring_open_at"] == [after - 1, after]
        ring.tell("mend")
        whole(driver, 100)
        report = driver.report()
        assert report["enabled"]
        assert report["ring_open_at"] == []
        assert all(drive["al_state"] == "OP" for drive in report["drives"])
        assert [notice.kind for notice in driver.notices] == ["ring_open", "ring_closed"]


def test_a_cable_out_at_the_master_does_not_stop_what_is_sent(ring: SegmentProcess) -> None:
    """After a silence it goes on as well: frames can go out on the other one."""
    with PatientDriver(config()) as driver:
        whole(driver, 50)
        ring.tell("cut", 3)
        ip("link", "set", "s1", "down")
        await_link("m1", False)
        whole(driver, 20)
        ring.tell("drop_frames", 25)
        with pytest.raises(DriverTimeoutError, match=r"frames had no answer$"):
            driver.read(0.4)
        whole(driver, 20)
        told = [notice.kind for notice in driver.notices if notice.subject == "bus"]
        assert told == ["bus_lost", "bus_recovered"]
        assert driver.report()["ring_open_at"] == [2]
