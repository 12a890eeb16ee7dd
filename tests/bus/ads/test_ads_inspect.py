"""Symbols and values of any type, as `thetad ads` shows and writes them, with and without data type upload."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.ads._errors import AdsReplyError, AdsSymbolError
from drivers.ads.config import Target
from drivers.ads.diagnostics.inspect import check, device_info, read_symbol, symbols, write_symbol
from drivers.ads.link.data_types import Shape, array_of, decode, encode, parse_symbol, parse_type, shape_of
from drivers.driver import DriverConnectionError
from tests.lab.ads.configs import NET_ID, config
from tests.lab.ads.plcs import RunningPlc, new_address
from tests.lab.ads.poor_server import TYPES, impoverish


def target(plc: RunningPlc) -> Target:
    return Target(NET_ID, host=plc.address)


def test_device_info(shared_plc: RunningPlc) -> None:
    facts = device_info(target(shared_plc))
    assert facts["state"] == "run"
    assert facts["name"]
    assert facts["local_net_id"].endswith(".1.1")


def test_symbols(shared_plc: RunningPlc) -> None:
    every = symbols(target(shared_plc))
    assert {s["name"] for s in every} >= {"GVL_Theta.aRing", "MAIN.stStation", "MAIN.nDint"}
    assert [s["name"] for s in symbols(target(shared_plc), "gvl_theta.st*")] == [
        "GVL_Theta.stInfo",
        "GVL_Theta.stHead",
        "GVL_Theta.stLatest",
        "GVL_Theta.stCommand",
    ]
    (found,) = symbols(target(shared_plc), "nDint")
    assert (found["type"], found["size"]) == ("DINT", 4)


VALUES: list[tuple[str, Any, Any]] = [
    ("MAIN.bSwitch", False, True),
    ("MAIN.nInt", -12, -32768),
    ("MAIN.nDint", 100000, -5),
    ("MAIN.fReal", 0.5, 1.25),
    ("MAIN.fLreal", 3.25, -1e300),
    ("MAIN.sText", "thetad", "Größe"),
    ("MAIN.aNumbers", [1, 2, 3, 4, 5], [5, 4, 3, 2, 1]),
    ("MAIN.aNumbers[2]", 2, 9),
    ("MAIN.eMode", 1, 0),
    ("MAIN.stStation.stTool.sName", "gripper", "drill"),
    ("main.STSTATION.nnumber", 7, 8),
]


@pytest.mark.parametrize(("name", "before", "after"), VALUES)
@pytest.mark.parametrize("types", [True, False])
def test_values(own_plc: RunningPlc, name: str, before: Any, after: Any, types: bool) -> None:
    if not types:
        own_plc.do(lambda p: impoverish(p, TYPES))
    found = read_symbol(target(own_plc), name)
    assert found["known"]
    assert found["value"] == before
    assert write_symbol(target(own_plc), name, after)["value"] == after
    assert read_symbol(target(own_plc), name)["value"] == after


def test_structures(own_plc: RunningPlc) -> None:
    before = read_symbol(target(own_plc), "MAIN.stStation")["value"]
    assert before["stTool"]["sName"] == "gripper"
    after = write_symbol(target(own_plc), "MAIN.stStation", {"sttool": {"fMass": 2.5}})["value"]
    before["stTool"]["fMass"] = 2.5
    assert after == before


def test_a_structure_without_its_type_is_bytes(own_plc: RunningPlc) -> None:
    own_plc.do(lambda p: impoverish(p, TYPES))
    found = read_symbol(target(own_plc), "MAIN.stStation")
    assert not found["known"]
    assert len(found["value"]) == 2 * found["size"]
    assert write_symbol(target(own_plc), "MAIN.stStation", found["value"])["value"] == found["value"]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("MAIN.nInt", 40000, "out of range"),
        ("MAIN.nInt", 1.5, "a whole number is wanted"),
        ("MAIN.nInt", True, "a whole number is wanted"),
        ("MAIN.bSwitch", "yes", "true or false is wanted"),
        ("MAIN.sText", "x" * 81, "longer than 81 bytes"),
        ("MAIN.sText", "中", "a STRING cannot hold"),
        ("MAIN.aNumbers", [1, 2], "a list of 5 values"),
        ("MAIN.aNumbers", [1, 2, 3, 4, "5"], r"MAIN.aNumbers\[4\]: a whole number"),
        ("MAIN.stStation", {"nNumer": 1}, "no member 'nNumer'; there is: nNumber"),
        ("MAIN.nothing", 1, "there is no such symbol"),
    ],
)
def test_what_does_not_fit_is_not_written(shared_plc: RunningPlc, name: str, value: Any, text: str) -> None:
    with pytest.raises(AdsSymbolError, match=text):
        write_symbol(target(shared_plc), name, value)


def test_check(shared_plc: RunningPlc) -> None:
    facts = check(config(shared_plc.address), 0.5)
    assert facts["compared"] == "data types"
    assert facts["axes"][0] == "Base"
    assert facts["axes_state"] == "off"
    assert facts["nominal_hz"] == facts["rate_hz"] == pytest.approx(1000.0)
    assert facts["ring_s"] == pytest.approx(0.64)
    with pytest.raises(DriverConnectionError, match="TCP port 48898"):
        check(config(new_address()))


@given(st.binary(max_size=300))
def test_uploads_that_are_garbage_end_in_one_error(data: bytes) -> None:
    for parse in (parse_symbol, parse_type):
        try:
            _, used = parse(memoryview(data))
        except AdsReplyError:
            continue
        assert 0 < used <= len(data)


def test_arrays_by_name() -> None:
    assert array_of("ARRAY [0..3, -1..1] OF LREAL") == (((0, 4), (-1, 3)), "LREAL")
    assert array_of("array[1..2] of Lib.ST_X") == (((1, 2),), "Lib.ST_X")
    assert array_of("ARRAY [0..GVL.N] OF INT") == (None, "INT")
    assert array_of("LREAL") is None


def test_nested_arrays_there_and_back() -> None:
    shape = shape_of("ARRAY [0..1] OF ARRAY [1..3] OF INT", 12, 65, lambda _: None)
    data = bytearray(12)
    encode(shape, [[1, 2, 3], [-4, 5, 6]], data)
    assert decode(shape, data) == [[1, 2, 3], [-4, 5, 6]]
    assert decode(shape_of("WSTRING(3)", 8, 31, lambda _: None), b"a\0b\0\0\0\0\0") == "ab"
    assert shape_of("Lib.ST_Unknown", 12, 65, lambda _: None) == Shape("bytes", 12)
