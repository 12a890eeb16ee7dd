"""Damaged answers, and frames that nobody has asked for: no value of theirs becomes a measurement, and it goes on.

Each answer has a number in all values of all drives: a frame whose values are of two answers would show.
"""

import math
import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from drivers.driver import DriverError, DriverTimeoutError
from drivers.ethercat.config import EthercatConfig
from drivers.ethercat.driver import EthercatDriver
from drivers.frame import JointFrame
from tests.bus.ethercat.test_faults import accounted, run, until, valid
from tests.lab.ethercat.configs import settings
from tests.lab.ethercat.driver_segment_process import signature
from tests.lab.ethercat.network import SegmentProcess, Segments
from tests.lab.ethercat.patient_driver import PatientDriver
from tests.lab.ethercat.spoiling import KINDS

N = 3
RX_BYTES, TX_BYTES, POSITION = 8, 16, 2  # of a drive: bytes out and in, and where its position is
DAMAGED = int(os.environ.get("THETAD_FUZZ", "10000")) // 100  # of each kind
SHARE = 0.4
MAX_S = 60.0 + DAMAGED * 0.05
STARTS = 4
COUNT = 2.0 * math.pi / (1_048_576 * 101.0)


@pytest.fixture(scope="module")
def drives(segment: Segments) -> Iterator[SegmentProcess]:
    with segment(*["generic_servo"] * N) as process:
        yield process


def config(**changes: Any) -> EthercatConfig:
    return EthercatConfig.model_validate(settings(N, interface="m0", watchdog_ms=500.0) | changes)


@pytest.fixture(scope="module")
def driver(drives: SegmentProcess) -> Iterator[PatientDriver]:
    driver = PatientDriver(config())
    driver.open()
    assert driver.report()["frames_filtered"]
    drives.tell("sign", N * RX_BYTES, TX_BYTES, POSITION)
    run(driver, 50)
    yield driver
    driver.close()


def number_of(frame: JointFrame) -> int:
    """Number of the answer that the first drive's position is of."""
    return int(np.rint(frame.q[0] / COUNT))


def of_one_answer(frame: JointFrame) -> bool:
    """Whether all values are those of one answer."""
    positions, velocities = np.rint(frame.q / COUNT), np.rint(frame.dq / COUNT)
    number = number_of(frame)
    return [signature(number, k) for k in range(N)] == [
        (int(p), int(v)) for p, v in zip(positions, velocities, strict=True)
    ]


def read_damaged(driver: PatientDriver, drives: SegmentProcess, kind: str, seed: int) -> tuple[list[JointFrame], int]:
    """Frames that come while answers are damaged, and how many were."""
    seen: list[JointFrame] = []
    damaged, deadline = 0, time.monotonic() + MAX_S
    while damaged < DAMAGED:
        assert time.monotonic() < deadline, (damaged, driver.report())
        drives.tell("spoil", kind, SHARE, seed + damaged)
        for _ in range(100):
            try:
                seen.append(driver.read(0.2))
            except DriverTimeoutError:
                continue
        damaged += drives.tell("leave_whole")
    return seen, damaged


@pytest.mark.parametrize("kind", KINDS)
def test_no_value_of_a_damaged_frame_is_a_measurement(driver: PatientDriver, drives: SegmentProcess, kind: str) -> None:
    seen, damaged = read_damaged(driver, drives, kind, 1)
    wrong = [frame for frame in seen if all(valid(frame)) and not of_one_answer(frame)]
    if kind == "flip":  # that a bit of a value is another, no check of EtherCAT's tells: Ethernet's check sum does
        assert len(wrong) < damaged
    else:
        assert not wrong, (len(wrong), damaged, wrong[0].q / COUNT)
    numbers = [number_of(frame) for frame in seen if all(valid(frame)) and of_one_answer(frame)]
    # A whole answer of before is no measurement of now.  A storm alone has such answers under the index that is waited
    # for; of those up to two cycles old the DC time does not tell, without DC nothing does.
    assert kind == "storm" or np.all(np.diff(numbers) > 0)
    assert np.all(np.diff([frame.seq for frame in seen]) > 0)
    assert np.all(np.diff([frame.t_bus_ns for frame in seen]) > 0)
    until(driver, lambda r: r["state"] == "operational" and all(drive["al_state"] == "OP" for drive in r["drives"]))
    after = run(driver, 100)
    assert sum(all(valid(frame)) and of_one_answer(frame) for frame in after) > 50, driver.report()
    accounted(driver, after[-1])


def test_a_start_under_damage_succeeds_or_says_why(driver: PatientDriver, drives: SegmentProcess) -> None:
    """All but flipped bits, of which SOEM believes what a cable does not bring."""
    driver.close()
    said: list[str] = []
    for seed in range(STARTS):
        drives.tell("spoil", ("cut", "length", "junk", "storm")[seed % 4], 0.02, seed)
        starting = EthercatDriver(config())
        try:
            starting.open()
            starting.read(5.0)
        except DriverError as error:
            said.append(str(error))
        finally:
            starting.close()
            drives.tell("leave_whole")
    assert not [text for text in said if not text or "\n" in text]
    with PatientDriver(config()) as again:
        assert all(map(of_one_answer, run(again, 50)[10:]))
