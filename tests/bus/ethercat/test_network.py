"""Differences between the configured network and the one that was found."""

from __future__ import annotations

from drivers.ethercat.bus.network import ExpectedSlave, FoundSlave, check_network, differences, expected_slaves
from tests.lab.ethercat.configs import make_config

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


def test_what_is_not_given_is_not_compared() -> None:
    assert differences(EXPECTED, RIGHT) == []
    check_network(EXPECTED, RIGHT, "eth1")


def test_each_difference_is_a_line() -> None:
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
    config = make_config(2, other=[{"position": 2, "vendor_id": 2, "product_code": 3}])
    slaves = expected_slaves(config)
    assert [slave.position for slave in slaves] == [0, 1, 2]
    assert slaves[1].label == "joint 'joint_2'"
    assert (slaves[2].vendor_id, slaves[2].product_code, slaves[2].revision) == (2, 3, None)
