"""The services of all device layouts as pysoem sees them, over a virtual cable."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from tests.lab.ethercat.namespace import in_namespace

DEVICES = ["generic_servo", "harmonic_actuator", "compact_csp"]


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return dict(json.loads(in_namespace("-m", "tests.lab.ethercat.services_run")))


def test_the_scan_shows_who_is_there(found: dict[str, Any]) -> None:
    assert found["scanned"] == 3
    wanted = [(0xE5A, 0x1001, 0x10002), (0xE5B, 0x520019, 7), (0xE5C, 0xC517, 0x20000)]
    assert found["identities"] == [[*identity, name] for identity, name in zip(wanted, DEVICES, strict=True)]
    assert found["names"] == DEVICES
    assert found["aliases"] == [10, 11, 12]


def test_objects_are_listed_and_described(found: dict[str, Any]) -> None:
    for listed in found["lists"]:
        assert listed == sorted(set(listed))
        assert {0x1000, 0x1018, 0x1C12, 0x6040, 0x6064} <= set(listed)
    assert 0x6071 in found["lists"][0]
    assert 0x6071 not in found["lists"][2]
    assert found["entries"] == [
        ["Number of entries", 5, 8],
        ["Interpolation time period value", 5, 8],
        ["Interpolation time index", 2, 8],
    ]


def test_sdos_of_every_length(found: dict[str, Any]) -> None:
    assert found["segments"] == [True, True]
    assert found["complete"] == [
        struct.pack("<H4I", 4, 0xE5A, 0x1001, 0x10002, 100).hex(),
        struct.pack("<H4I", 4, 0xE5B, 0x520019, 7, 101).hex(),
    ]


def test_refusals_arrive_with_their_codes(found: dict[str, Any]) -> None:
    assert found["aborts"] == [
        *("06020000", "06090011", "06010002", "06070012", "06010002", "06010004", "06040041"),
        *("06010002", "06010002"),
    ]
    assert found["in_op"] == "08000022"


def test_the_eeprom_is_read_and_written(found: dict[str, Any]) -> None:
    assert found["eeprom"] == ["5a0e0000", "1234"]


def test_process_data_as_remapped_selected_and_fixed_reach_op(found: dict[str, Any]) -> None:
    assert found["sizes"] == [[7, 18], [8, 28], [6, 10]]
    assert found["states"] == [[8, 0]] * 3
    assert found["init"]
