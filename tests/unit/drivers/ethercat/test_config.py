"""`EthercatConfig`: defaults and refusals; differences between the configured network and the one that was found."""

from typing import Any

import pytest
from pydantic import ValidationError

from drivers.ethercat.bus.network import ExpectedSlave, FoundSlave, check_network, differences, expected_slaves
from drivers.ethercat.config import EthercatConfig, interpolation_period
from tests.lab.ethercat.configs import SERVO, make_config, settings

STATE = ["6041:00:16 statusword", "6064:00:32 position"]
CONTROL = ["6040:00:16 controlword", "607A:00:32 target_position"]


def test_defaults_follow_the_cycle() -> None:
    config = make_config(cycle_hz=500)
    assert (config.cycle_ns, config.shift_ns, config.answer_timeout_ns) == (2_000_000, 1_000_000, 1_600_000)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"interface": "a-name-of-16-char"}, "interface"), ({"cycle_hz": 300}, "microseconds"),
        ({"cycle_hz": 8000}, "4000"), ({"redundant_interface": "veth0"}, "interface itself"),
        ({"sync0_shift_us": 1000.0}, "within the cycle"), ({"watchdog_ms": 2.0}, "three cycles"),
        ({"enable_timeout_ms": 7001.0}, "less than or equal to 7000"), ({"mode": "none", "enable": True}, "enable"),
        ({"mode": "cst"}, "target_torque"),
        ({"other": [{"position": 1, "vendor_id": 2, "product_code": 3}]}, "position 1"),
        ({"cycle_hz": 320}, "cycle_hz = 320: .*60C2.*interpolation_period = false"),
        ({"stop_timeout_ms": 5000.0}, "stop_timeout_ms"),
    ],
)  # fmt: skip
def test_invalid_settings(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        make_config(**change)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rx": {"1600": ["607A:00:32 target_position"]}}, "no controlword"),
        ({"tx": {"1A00": ["6041:00:16 statusword"]}}, "no position"),
        ({"tx": {"1A00": [*STATE, "6063:00:32 motor_position"]}}, "motor_counts"),
        ({"tx": {"1900": []}}, "1900"),
        ({"init": [{"object": "6060:00", "type": "i8", "value": 200}]}, "-128 to 127"),
        ({"init": [{"object": "6060", "type": "i8", "value": 2}]}, "object"),
        ({"rx": {"1600": [CONTROL[0], "607A:00:16 target_position"]}}, "target_position .*i32"),
        ({"rx": {"1600": [*CONTROL, "60FF:00:16 target_velocity"]}}, "target_velocity .*i32"),
        ({"rx": {"1600": [*CONTROL, "6071:00:8 target_torque"]}}, "target_torque .*i16 or wider"),
        ({"tx": {"1A00": ["6041:00:32 statusword f", STATE[1]]}}, "floating-point"),
    ],
)
def test_invalid_device_tables(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        make_config(device={"servo": {**SERVO, **change}})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"joint": "joint_1"}, "2 drives"),
        ({"position": 0}, "position 0"),
        ({"device": "motor"}, "no device table 'motor'.*servo"),
        ({"position_min_rad": 1.0, "position_max_rad": 1.0}, "not below"),
        ({"gear_ratio": -1.0}, "gear_ratio"),
        ({"position_max_rad": 130.0}, "position_max_rad = 130 is .* counts"),  # 2**31 counts are 127.4 rad
        ({"position_min_rad": -120.0, "offset_rad": -10.0}, "position_min_rad"),
    ],
)
def test_invalid_drive_tables(change: dict[str, Any], says: str) -> None:
    tables = settings()
    tables["drive"][1].update(change)
    with pytest.raises(ValidationError, match=says):
        EthercatConfig.model_validate(tables)


def test_any_cycle_without_an_interpolation_period() -> None:
    assert make_config(cycle_hz=320, device={"servo": {**SERVO, "interpolation_period": False}}).cycle_ns == 3_125_000
    torque = {"1600": ["6040:00:16 controlword", "6071:00:16 target_torque"]}
    assert make_config(cycle_hz=1600, mode="cst", device={"servo": {**SERVO, "rx": torque}}).cycle_ns == 625_000


def test_interpolation_period_is_the_cycle() -> None:
    periods = [interpolation_period(10**9 // cycle_hz) for cycle_hz in (250, 1000, 2000, 4000)]
    assert periods == [(4, -3), (1, -3), (5, -4), (25, -5)]
    with pytest.raises(ValueError, match="60C2"):
        interpolation_period(3_001_000)


EXPECTED = [
    ExpectedSlave(0, "joint 'a'", 1, 10, 5, alias=100),
    ExpectedSlave(1, "joint 'b'", 1, 11, None),
    ExpectedSlave(2, "joint 'c'", 1, 12, None, serial=7),
]


def found(
    position: int, product: int, revision: int = 5, alias: int = 0, serial: int = 0, vendor: int = 1
) -> FoundSlave:
    return FoundSlave(position, "servo", vendor, product, revision, alias, serial)


RIGHT = [found(0, 10, alias=100), found(1, 11, 99), found(2, 12, serial=7)]


def test_each_difference_is_a_line_and_what_is_not_given_is_not_compared() -> None:
    check_network(EXPECTED, RIGHT, "eth1")
    lines = differences(EXPECTED, [found(0, 10, 6, alias=3), found(1, 77), found(2, 12, serial=8, vendor=2)])
    assert lines[0].startswith("position 0: joint 'a': revision 0x6 instead of 0x5, alias 3 instead of 100")
    assert "product 0x4D instead of 0xB" in lines[1]
    assert "vendor 0x2 instead of 0x1, serial 8 instead of 7" in lines[2]


def test_swapped_missing_and_extra() -> None:
    swapped = [found(0, 11), found(1, 10, alias=100), found(2, 12, serial=7)]
    assert differences(EXPECTED, swapped) == ["positions 0 and 1: joint 'a' and joint 'b' are swapped"]
    (line,) = differences(EXPECTED, RIGHT[:2])
    assert line.startswith("position 2: joint 'c' (vendor 0x1, product 0xC, serial 7) is missing")
    (line,) = differences(EXPECTED, [*RIGHT, found(3, 50)])
    assert line.startswith("position 3: servo (vendor 0x1, product 0x32")
    assert line.endswith("is not in the configuration")


def test_slaves_of_a_configuration() -> None:
    slaves = expected_slaves(make_config(2, other=[{"position": 2, "vendor_id": 2, "product_code": 3}]))
    assert [slave.position for slave in slaves] == [0, 1, 2]
    assert slaves[1].label == "joint 'joint_2'"
    assert (slaves[2].vendor_id, slaves[2].product_code, slaves[2].revision) == (2, 3, None)
