"""Symbols and values of any type, as `thetad ads` shows and writes them, with and without data type upload."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.ads._errors import AdsReplyError, AdsSymbolError
from drivers.ads.config import Target
from drivers.ads.diagnostics.inspect import read_symbol, write_symbol
from drivers.ads.link.data_types import DataType, Shape, array_of, decode, encode, parse_symbol, parse_type, shape_of
from tests.lab.ads.configs import NET_ID
from tests.lab.ads.plcs import RunningPlc
from tests.lab.ads.poor_server import TYPES, impoverish


def target(plc: RunningPlc) -> Target:
    return Target(NET_ID, host=plc.address)


VALUES: list[tuple[str, Any, Any]] = [
    ("MAIN.bSwitch", False, True), ("MAIN.nInt", -12, -32768), ("MAIN.fReal", 0.5, 1.25),
    ("MAIN.fLreal", 3.25, -1e300), ("MAIN.sText", "thetad", "Größe"),
    ("MAIN.aNumbers", [1, 2, 3, 4, 5], [5, 4, 3, 2, 1]), ("MAIN.aNumbers[2]", 4, 9), ("MAIN.rLreal", -1e300, 2.5),
    ("MAIN.fLreal", 2.5, 0.0), ("MAIN.stStation.stTool.sName", "gripper", "drill"), ("main.STSTATION.nnumber", 7, 8),
]  # fmt: skip


@pytest.mark.parametrize("types", [True, False])
def test_values(own_plc: RunningPlc, types: bool) -> None:
    if not types:
        own_plc.do(lambda p: impoverish(p, TYPES))
    for name, before, after in VALUES:
        found = read_symbol(target(own_plc), name)
        assert (found["known"], found["value"]) == (True, before), name
        assert write_symbol(target(own_plc), name, after)["value"] == after
        assert read_symbol(target(own_plc), name)["value"] == after


def test_enumerations_have_names_and_references_the_value_of_their_target(own_plc: RunningPlc) -> None:
    assert read_symbol(target(own_plc), "MAIN.eMode")["value"] == "Automatic"
    assert write_symbol(target(own_plc), "MAIN.eMode", "setup")["value"] == "Setup"
    assert write_symbol(target(own_plc), "MAIN.eMode", 7)["value"] == 7
    assert write_symbol(target(own_plc), "MAIN.rTool", {"fMass": 2.5})["value"]["sName"] == "gripper"
    station = read_symbol(target(own_plc), "MAIN.stStation")["value"]
    assert station["stTool"]["fMass"] == 2.5
    assert station["rTool"] == 0
    with pytest.raises(AdsSymbolError, match="an address within the controller"):
        write_symbol(target(own_plc), "MAIN.stStation", {"rTool": 8})
    own_plc.do(lambda p: impoverish(p, TYPES))
    with pytest.raises(AdsSymbolError, match="size of ST_Tool"):
        read_symbol(target(own_plc), "MAIN.rTool")


def test_a_value_that_the_program_overwrites_is_told(own_plc: RunningPlc) -> None:
    assert write_symbol(target(own_plc), "MAIN.nInt", 5)["kept"]
    own_plc.do(lambda p: setattr(p.services, "write", lambda *_: None))  # as if it had been overwritten at once
    found = write_symbol(target(own_plc), "MAIN.nInt", 6)
    assert (found["value"], found["kept"]) == (5, False)


def test_numbers_that_are_not_finite_need_a_flag(own_plc: RunningPlc) -> None:
    assert write_symbol(target(own_plc), "MAIN.fReal", float("inf"), finite=False)["value"] == float("inf")


def test_structures_and_without_their_type_bytes(own_plc: RunningPlc) -> None:
    before = read_symbol(target(own_plc), "MAIN.stStation")["value"]
    assert before["stTool"]["sName"] == "gripper"
    after = write_symbol(target(own_plc), "MAIN.stStation", {"sttool": {"fMass": 2.5}})["value"]
    before["stTool"]["fMass"] = 2.5
    assert after == before
    own_plc.do(lambda p: impoverish(p, TYPES))
    found = read_symbol(target(own_plc), "MAIN.stStation")
    assert not found["known"]
    assert len(found["value"]) == 2 * found["size"]
    assert write_symbol(target(own_plc), "MAIN.stStation", found["value"])["value"] == found["value"]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("MAIN.nInt", 40000, "out of range"),
        ("MAIN.nInt", True, "a whole number is wanted"),
        ("MAIN.fLreal", float("nan"), "not finite"),
        ("MAIN.stStation", {"stTool": {"aCentre": [0.0, float("-inf"), 0.0]}}, "aCentre.1.: -inf is not finite"),
        ("MAIN.eMode", "Nothing", "'Nothing' is none of Manual, Automatic, Setup"),
        ("MAIN.bSwitch", "yes", "true or false is wanted"),
        ("MAIN.sText", "x" * 81, "longer than 81 bytes"),
        ("MAIN.sText", "中", "a STRING cannot hold"),
        ("MAIN.aNumbers", [1, 2], "a list of 5 values"),
        ("MAIN.aNumbers", [1, 2, 3, 4, "5"], r"MAIN.aNumbers\[4\]: a whole number"),
        ("MAIN.stStation", {"nNumer": 1}, "no member 'nNumer'; there is: nNumber"),
    ],
)
def test_what_does_not_fit_is_not_written(shared_plc: RunningPlc, name: str, value: Any, text: str) -> None:
    with pytest.raises(AdsSymbolError, match=text):
        write_symbol(target(shared_plc), name, value)


@given(st.binary(max_size=300))
def test_uploads_that_are_garbage_end_in_one_error(data: bytes) -> None:
    for parse in (parse_symbol, parse_type):
        try:
            _, used = parse(memoryview(data))
        except AdsReplyError:
            continue
        assert 0 < used <= len(data)


def test_another_name_of_an_enumeration_has_its_names() -> None:
    kinds = {
        "T_Mode": DataType("T_Mode", "E_Mode", 2, 0, 2),
        "E_Mode": DataType("E_Mode", "INT", 2, 0, 2, names=(("Setup", b"\n\0"),)),
    }
    assert decode(shape_of("T_Mode", 2, 2, kinds.get), b"\n\0") == "Setup"


def test_a_symbol_without_its_last_nul() -> None:
    head = struct.pack("<6I3H", 30 + 9, 0x4040, 8, 2, 2, 0, 4, 3, 0)
    assert parse_symbol(memoryview(head + b"G.nA\0INT\0"))[0].type == "INT"


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
