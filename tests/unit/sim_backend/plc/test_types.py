"""What the PLC says about its symbols and types, against the structures that the driver makes by ctypes."""

from __future__ import annotations

import ctypes
import struct
from itertools import pairwise

import pytest

from drivers.ads import layout
from tests.lab.ads.plc_bench import make
from tests.lab.ads.simple_client import PlainClient

KINDS = {"UDINT": 19, "ULINT": 21, "LINT": 20, "REAL": 4, "LREAL": 5}


def texts(data, place, lengths):
    found = []
    for length in lengths:
        found.append(data[place : place + length].decode())
        assert data[place + length] == 0
        place += length + 1
    return found, place


def parse_symbol(data):
    length, group, offset, size, kind, flags, *lengths = struct.unpack_from("<IIIIIIHHH", data)
    (name, type_name, comment), place = texts(data, 30, lengths)
    assert (group, flags, place) == (0x4040, 0, length)
    return {"name": name, "type": type_name, "comment": comment, "offset": offset, "size": size, "kind": kind}, length


def parse_type(data):
    """An entry with its sub-items, by the description of `AdsDatatypeEntry`."""
    length, version, _, _, size, offset, kind, flags, *lengths, dimensions, count = struct.unpack_from("<8I5H", data)
    assert version == 1
    (name, base, comment), place = texts(data, 42, lengths)
    arrays = [struct.unpack_from("<iI", data, place + 8 * k) for k in range(dimensions)]
    place += 8 * dimensions
    items = []
    for _ in range(count):
        item, used = parse_type(data[place:])
        items.append(item)
        place += used
    values = {}
    if flags & 0x2000:
        (number,) = struct.unpack_from("<H", data, place)
        place += 2
        for _ in range(number):
            (value_name,), end = texts(data, place + 1, [data[place]])
            values[value_name] = int.from_bytes(data[end : end + size], "little", signed=True)
            place = end + size
    assert place == length
    return {
        "name": name, "base": base, "comment": comment, "size": size, "offset": offset, "kind": kind,
        "arrays": arrays, "items": items, "values": values,
    }, length  # fmt: skip


def entries(data, parse):
    found, place = [], 0
    while place < len(data):
        entry, used = parse(data[place:])
        found.append(entry)
        place += used
    return found


@pytest.fixture(scope="module")
def client():
    return PlainClient(make())


@pytest.fixture(scope="module")
def types(client):
    info = struct.unpack("<6I", client.read(0xF00F, 0, 24)[1])
    data = client.read(0xF00E, 0, info[3])[1]
    found = entries(data, parse_type)
    assert (len(found), len(data)) == (info[2], info[3])
    return {entry["name"]: entry for entry in found}


def test_the_upload_lists_all_variables(client):
    info = struct.unpack("<6I", client.read(0xF00F, 0, 24)[1])
    assert struct.unpack("<II", client.read(0xF00C, 0, 8)[1]) == info[:2]
    data = client.read(0xF00B, 0, info[1])[1]
    symbols = entries(data, parse_symbol)
    assert (len(symbols), len(data)) == (info[0], info[1])
    by_name = {symbol["name"]: symbol for symbol in symbols}
    assert {f"GVL_Theta.{name}" for name in layout.VARIABLES} < set(by_name)
    assert by_name["GVL_Theta.aRing"]["type"] == "ARRAY [0..3] OF ST_ThetaBlock"
    assert by_name["MAIN.sText"] | {"offset": 0} == {
        "name": "MAIN.sText", "type": "STRING(80)", "comment": "", "offset": 0, "size": 81, "kind": 30,
    }  # fmt: skip
    places = sorted((symbol["offset"], symbol["size"]) for symbol in symbols)
    for (offset, size), (after, _) in pairwise(places):
        assert offset + size <= after


def test_too_short_a_buffer_for_an_upload_is_an_error(client):
    assert client.read(0xF00B, 0, 10) == (0x705, b"")


@pytest.mark.parametrize("name", layout.STRUCTURES)
def test_structures_are_those_of_the_layout(client, types, name):
    sizes = client.plc.settings.sizes
    shape = layout.structure(name, sizes)
    entry = types[name]
    assert entry["size"] == ctypes.sizeof(shape)
    assert entry["kind"] == 65
    fields = list(layout.fields(name, sizes))
    assert [item["name"] for item in entry["items"]] == [field.name for field, _, _ in fields]
    for item, (field, offset, size) in zip(entry["items"], fields, strict=True):
        assert (item["offset"], item["size"]) == (offset, size)
        limits = ",".join(f"0..{sizes.length(length) - 1}" for length in field.lengths)
        kind = "STRING(31)" if field.kind == "STRING" else field.kind
        assert item["base"] == (f"ARRAY [{limits}] OF {kind}" if limits else kind)
        assert item["comment"].encode("cp1252") == field.text.encode("cp1252")
        if field.kind in KINDS:
            assert item["kind"] == KINDS[field.kind]
        assert item["base"] in types


def test_members_lie_where_ctypes_puts_them(client):
    sizes = client.plc.settings.sizes
    block, sample = layout.structure("ST_ThetaBlock", sizes), layout.structure("ST_ThetaSample", sizes)
    axis = layout.structure("ST_ThetaAxis", sizes)
    ring = parse_symbol(client.read_write(0xF009, 0, 4096, b"GVL_Theta.aRing\0")[1])[0]
    place = parse_symbol(client.read_write(0xF009, 0, 4096, b"gvl_theta.aring[2].asample[3].aaxis[5].ftorque\0")[1])[0]
    expected = 2 * ctypes.sizeof(block) + block.aSample.offset + 3 * ctypes.sizeof(sample) + sample.aAxis.offset
    assert place["offset"] - ring["offset"] == expected + 5 * ctypes.sizeof(axis) + axis.fTorque.offset
    assert (place["name"], place["type"], place["size"]) == (
        "GVL_Theta.aRing[2].aSample[3].aAxis[5].fTorque", "REAL", 4,
    )  # fmt: skip


def test_arrays_enumerations_and_single_types(client, types):
    matrix = types["ARRAY [0..1,-1..1] OF LREAL"]
    assert (matrix["base"], matrix["arrays"], matrix["size"]) == ("LREAL", [(0, 2), (-1, 3)], 48)
    assert types["E_Mode"]["values"] == {"Manual": 0, "Automatic": 1, "Setup": 10}
    assert types["E_Mode"]["base"] == "INT"
    tool = types["ST_Tool"]
    assert [(item["name"], item["offset"]) for item in tool["items"]] == [
        ("sName", 0), ("bClosed", 16), ("fMass", 24), ("aCentre", 32),
    ]  # fmt: skip
    assert tool["size"] == 48  # to a multiple of eight
    assert parse_type(client.read_write(0xF011, 0, 4096, b"st_tool\0")[1])[0] == tool
    assert client.read_write(0xF011, 0, 4096, b"ST_None\0") == (0x710, b"")


def test_a_controller_without_types():
    client = PlainClient(make())
    client.plc.services.types_uploaded = False
    assert struct.unpack("<6I", client.read(0xF00F, 0, 24)[1])[2:4] == (0, 0)
    assert client.read(0xF00E, 0, 1 << 20)[0] == 0x702
    assert client.read_write(0xF011, 0, 4096, b"ST_Tool\0")[0] == 0x702
