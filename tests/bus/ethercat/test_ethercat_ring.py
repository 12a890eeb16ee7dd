"""Cable redundancy: a ring on two interfaces goes on with one cable broken."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drivers.ethercat.config import EthercatConfig
from tests.lab.ethercat.configs import settings
from tests.lab.ethercat.network import SegmentProcess, Segments
from tests.lab.ethercat.patient_driver import PatientDriver


@pytest.fixture(scope="module")
def ring(segment: Segments) -> Iterator[SegmentProcess]:
    with segment(*["generic_servo"] * 3, interfaces=["s0", "s1"]) as process:
        yield process


def config() -> EthercatConfig:
    return EthercatConfig.model_validate(
        settings(3, interface="m0", redundant_interface="m1", watchdog_ms=1000.0, cycle_hz=500)
    )


@pytest.mark.parametrize("after", [1, 2])
def test_a_broken_cable_loses_no_drive(ring: SegmentProcess, after: int) -> None:
    with PatientDriver(config()) as driver:
        for _ in range(50):
            driver.read()
        driver.enable()
        for _ in range(500):
            driver.read()
        assert driver.report()["enabled"]
        assert driver.report()["ring_open_at"] == []
        ring.tell("cut", after)
        broken = [driver.read(2.0) for _ in range(200)]
        assert sum(frame.valid is None for frame in broken) > 100
        assert driver.report()["enabled"]
        assert driver.report()["ring_open_at"] == [after - 1, after]
        ring.tell("mend")
        mended = [driver.read(2.0) for _ in range(200)]
        assert sum(frame.valid is None for frame in mended) > 100
        report = driver.report()
        assert report["enabled"]
        assert report["ring_open_at"] == []
        assert all(drive["al_state"] == "OP" for drive in report["drives"])
        print({name: report[name] for name in ("frames", "lost_cycles", "overruns", "wkc_errors")}, report["timing"])
