"""Starts that cannot succeed: one clear error each, in time, and the drives left alone or in INIT."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from drivers.driver import DriverConfigError, DriverConnectionError, DriverError
from drivers.ethercat.bus import Bus
from drivers.ethercat.config import EthercatConfig
from drivers.ethercat.driver import EthercatDriver
from drivers.ethercat.errors import BusStateError, CommandRefusedError, NetworkMismatchError, SdoError
from tests.drivers.ethercat.conftest import SegmentProcess, ip
from tests.drivers.ethercat.ethercat_configs import SERVO, make_config, settings

Segments = Callable[..., AbstractContextManager[SegmentProcess]]


@pytest.fixture(scope="module")
def drives(segment: Segments) -> Iterator[SegmentProcess]:
    with segment("generic_servo", "compact_csp", aliases=[11, 12], serials=[101, 102]) as process:
        yield process


def generic(**changes: Any) -> dict[str, Any]:
    return {**SERVO, **changes}


COMPACT: dict[str, Any] = {}


def config(**changes: Any) -> EthercatConfig:
    tables = settings(1, interface="m0")
    tables["other"] = [{"position": 1, **COMPACT}]
    tables.update(changes)
    return EthercatConfig.model_validate(tables)


@pytest.fixture(scope="module", autouse=True)
def _compact_identity(drives: SegmentProcess) -> None:
    bus = Bus("m0")
    bus.open()
    found = bus.scan()[1]
    bus.close()
    COMPACT.update(vendor_id=found.vendor_id, product_code=found.product_code)


def fails(config: EthercatConfig, kind: type[DriverError], says: str) -> None:
    """Open; the error has one line and matches `says`, and the driver can be opened by nobody else's leave."""
    driver = EthercatDriver(config)
    with pytest.raises(kind, match=says) as error:
        driver.open()
    print(error.value)
    assert "\n" not in str(error.value)
    with pytest.raises(DriverError):
        driver.read()


def test_the_right_network_starts(drives: SegmentProcess) -> None:
    with EthercatDriver(config()) as driver:
        driver.read()
        assert drives.tell("states") == [8, 8]
    assert drives.tell("states") == [1, 1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"other": []}, "position 1: .*is not in the configuration"),
        (
            {"device": {"servo": generic(product_code=0x77)}},
            "position 0: joint 'joint_1': product 0x1001 instead of 0x77",
        ),
        ({"device": {"servo": generic(vendor_id=0x77)}}, "vendor 0xE5A instead of 0x77"),
        ({"device": {"servo": generic(revision=0x77)}}, "revision 0x10002 instead of 0x77"),
        ({"drive": [{"joint": "a", "device": "servo", "alias": 4}]}, "alias 11 instead of 4"),
        ({"drive": [{"joint": "a", "device": "servo", "serial": 4}]}, "serial 101 instead of 4"),
        (
            {"drive": [{"joint": "a", "device": "servo"}, {"joint": "b", "device": "servo", "position": 2}]},
            "position 2: joint 'b' .* is missing",
        ),
    ],
)
def test_another_network_is_described(drives: SegmentProcess, change: dict[str, Any], says: str) -> None:
    fails(config(**change), NetworkMismatchError, says)
    assert drives.tell("states") == [1, 1]


def test_swapped_drives_are_called_swapped(drives: SegmentProcess) -> None:
    change = {
        "drive": [{"joint": "a", "device": "servo", "position": 1}],
        "other": [{"position": 0, **COMPACT}],
    }
    fails(config(**change), NetworkMismatchError, "positions 0 and 1: .*are swapped")


def test_a_pdo_object_that_does_not_exist(drives: SegmentProcess) -> None:
    device = generic(tx={"1A00": ["6041:00:16 statusword", "6064:00:32 position", "4711:00:16"]})
    fails(config(device={"servo": device}), SdoError, r"joint 'joint_1'.*1A00:03 = 0x47110010.*0x06\w+: ")
    assert drives.tell("states") == [1, 1]


def test_a_pdo_that_does_not_exist(drives: SegmentProcess) -> None:
    device = generic(tx={"1A77": ["6041:00:16 statusword", "6064:00:32 position"]})
    fails(config(device={"servo": device}), SdoError, r"1A77:00.*0x06020000")


def test_fixed_pdos_that_are_not_the_configured_ones(drives: SegmentProcess) -> None:
    fails(config(device={"servo": generic(remap=False)}), DriverConfigError, "remap = false")


def test_ratings_and_units_that_do_not_fit(drives: SegmentProcess) -> None:
    device = generic(rated_torque_nm=2.0)
    fails(
        config(device={"servo": device}), DriverConfigError, r"rated_torque_nm = 2, but the drive's 6076:00 says 1.27"
    )
    device = generic(expect=[{"object": "6076:00", "type": "u32", "value": 1}])
    fails(config(device={"servo": device}), DriverConfigError, "6076:00 = 1270, expected is 6076:00 = 0x1")


def test_a_drive_that_refuses_op(drives: SegmentProcess) -> None:
    drives.tell("refuse_op", 0, True)
    fails(config(), BusStateError, "joint 'joint_1' .*SAFE-OP, AL status 0x001E .*Invalid input configuration")
    drives.tell("refuse_op", 0, False)
    assert drives.tell("states") == [1, 1]


def test_no_drives_behind_the_interface(drives: SegmentProcess) -> None:
    fails(config(interface="m1"), DriverConnectionError, "no slave answers on m1")


def test_interface_absent_and_down(drives: SegmentProcess) -> None:
    fails(config(interface="m9"), DriverConnectionError, "no network interface 'm9'")
    ip("link", "set", "m1", "down")
    fails(config(interface="m1"), DriverConnectionError, "m1 is down")
    ip("link", "set", "m1", "up")


def test_the_cable_is_pulled_during_the_start(drives: SegmentProcess) -> None:
    timer = threading.Timer(0.18, lambda: drives.tell("cut", 0))
    timer.start()
    fails(config(), DriverError, ".")
    timer.join()
    drives.tell("mend")
    with EthercatDriver(config()) as driver:
        driver.read()


def test_another_master_on_the_interface(drives: SegmentProcess) -> None:
    """Its drives go on."""
    with EthercatDriver(config()) as first:
        stop = threading.Event()

        def keep() -> None:
            while not stop.is_set():
                first.read()

        # The claim is let go, as if it were another program's master.
        for claim in first._bus._claims:
            claim.release()
        thread = threading.Thread(target=keep)
        thread.start()
        try:
            fails(config(), DriverConnectionError, "another EtherCAT master is active on m0")
        finally:
            stop.set()
            thread.join()
        assert drives.tell("states") == [8, 8]


def test_every_failure_takes_less_than_ten_seconds(drives: SegmentProcess) -> None:
    """The longest: a drive that does not come to OP and says nothing, with the longest time-outs."""
    longest = config()
    budget_s = longest.start_timeout_s
    assert budget_s < 10.0
    began = time.monotonic_ns()
    drives.tell("power_off", 1)
    fails(config(), DriverError, "position 1")
    drives.tell("power_on", 1)
    print(f"a drive without power: {(time.monotonic_ns() - began) * 1e-6:.0f} ms")


def test_commands_need_a_mode(drives: SegmentProcess) -> None:
    with EthercatDriver(config(mode="none")) as driver:
        driver.read()
        with pytest.raises(CommandRefusedError, match="mode"):
            driver.enable()


def test_opens_again_after_each_failure(drives: SegmentProcess) -> None:
    driver = EthercatDriver(make_config(2, interface="m0"))
    for _ in range(2):
        with pytest.raises(NetworkMismatchError):
            driver.open()
    with EthercatDriver(config()) as right:
        right.read()
