"""Requests and their answers, byte by byte: device, state, values, handles, sum commands, errors."""

from __future__ import annotations

import struct

import pytest

from tests.lab.ads.plc_bench import make
from tests.lab.ads.simple_client import PLC, SYSTEM, PlainClient


def test_device_and_state(client):
    info = client.request(1)
    result, major, minor, build, name = struct.unpack("<IBBH16s", info.data)
    assert (result, major, minor, name.rstrip(b"\0")) == (0, 3, 1, b"Plc30 App")
    assert build > 4000
    assert struct.unpack("<IHH", client.request(4).data) == (0, 5, 0)
    assert struct.unpack("<IHH", client.request(4, port=SYSTEM).data) == (0, 5, 0)


def test_values_by_handle_name_and_address_are_the_same(client):
    by_handle = client.value("MAIN.fLreal")
    assert struct.unpack("<d", by_handle) == (3.25,)
    assert client.read_write(0xF004, 0, 8, b"main.FLREAL\0") == (0, by_handle)
    result, where = client.read_write(0xF007, 0, 12, b"MAIN.fLreal\0")
    group, offset, length = struct.unpack("<III", where)
    assert (result, group, length) == (0, 0x4040, 8)
    assert client.read(group, offset, 8) == (0, by_handle)
    assert client.write(group, offset, struct.pack("<d", -1.0)) == 0
    assert client.value("MAIN.fLreal") == struct.pack("<d", -1.0)


def test_a_handle_lasts_until_it_is_released(client):
    handle = client.handle("MAIN.nInt")
    assert client.plc.services.handles.count == 1
    assert client.write(0xF005, handle, struct.pack("<h", 99)) == 0
    assert client.read(0xF005, handle, 2) == (0, struct.pack("<h", 99))
    assert client.write(0xF006, 0, struct.pack("<I", handle)) == 0
    assert client.read(0xF005, handle, 2) == (0x710, b"")
    assert client.write(0xF006, 0, struct.pack("<I", handle)) == 0x710
    assert client.plc.services.handles.count == 0


def test_a_handle_comes_with_its_type_where_there_is_room(client):
    result, data = client.read_write(0xF003, 0, 0xFFFF, b"MAIN.sText\0")
    handle, size, _, length = struct.unpack_from("<IIIH", data)
    assert (result, size, data[14:]) == (0, 81, b"STRING(80)\0")
    assert length == 10
    assert client.read(0xF005, handle, 6) == (0, b"thetad")
    assert client.read_write(0xF003, 0, 2, b"MAIN.sText\0") == (0x705, b"")


def test_members_and_elements_have_names(client):
    assert client.value("MAIN.stStation.aTools[1].sName").rstrip(b"\0") == b"screwdriver"
    assert client.value("main.aNumbers[3]") == struct.pack("<h", 3)
    client.set("MAIN.aMatrix[1,-1]", struct.pack("<d", 7.5))
    assert struct.unpack("<6d", client.value("MAIN.aMatrix")) == (0, 0, 0, 7.5, 0, 0)
    assert client.value("GVL_Theta.aRing[3].aSample[0].aAxis[1].fPosition") == bytes(8)


@pytest.mark.parametrize(
    "name",
    [
        "MAIN.nothing", "MAIN", "", "MAIN.aNumbers[0]", "MAIN.aNumbers[6]", "MAIN.aMatrix[0]", "MAIN.aNumbers[x]",
        "MAIN.nInt[1]", "MAIN.nInt.sub", "MAIN..nInt", "MAIN.aNumbers[1", "GVL_Theta.aRing[4]", "MAIN.aNumbers[--1]",
        "MAIN.aNumbers 1",
    ],
)  # fmt: skip
def test_a_name_that_there_is_not(client, name):
    assert client.read_write(0xF003, 0, 4, name.encode() + b"\0") == (0x710, b"")


def test_a_name_that_is_too_long_is_not_looked_up(client):
    for zeros, code in ((200, 0), (300, 0x710)):
        name = f"MAIN.aNumbers[{'0' * zeros}3]\0".encode()
        assert client.read_write(0xF003, 0, 4, name)[0] == code


def test_more_than_there_is_may_be_read_by_handle_but_not_written(client):
    handle = client.handle("MAIN.nInt")
    assert client.read(0xF005, handle, 1000) == (0, struct.pack("<h", -12))
    assert client.write(0xF005, handle, bytes(3)) == 0x705


@pytest.mark.parametrize(
    ("group", "offset", "length", "code"),
    [(0x1234, 0, 4, 0x702), (0x4040, 0x7FFFFFFF, 4, 0x703), (0x4040, 0, 0x7FFFFFFF, 0x705), (0xF008, 0, 0, 0x705)],
)
def test_addresses_that_there_are_not(client, group, offset, length, code):
    assert client.read(group, offset, length) == (code, b"")


def test_a_request_of_the_wrong_length_is_answered_with_an_error(client):
    assert client.request(2, bytes(5)).result == 0x705
    assert client.request(3, struct.pack("<III", 0x4020, 0, 8) + bytes(4)).result == 0x705
    assert client.request(9, bytes(3)).result == 0x705
    assert client.request(77).result == 0x701


def test_wrong_port_and_wrong_net_id_are_answered_by_the_router():
    plc = make()
    assert PlainClient(plc).request(4, port=852).error == 6
    assert PlainClient(plc, net_id=bytes((1, 2, 3, 4, 1, 1))).request(4).error == 7
    quiet = make(unknown_net_id="silent")
    assert PlainClient(quiet, net_id=bytes((1, 2, 3, 4, 1, 1))).request(4) is None
    assert PlainClient(quiet).request(4).error == 0


class TestSum:
    """Several requests in one; each has its own result."""

    def places(self, client, *names):
        return [struct.unpack("<III", client.read_write(0xF007, 0, 12, name.encode() + b"\0")[1]) for name in names]

    def test_read(self, client):
        good, text = self.places(client, "MAIN.nDint", "MAIN.sText")
        request = struct.pack("<9I", *good, 0x1234, 0, 4, *text)
        result, data = client.read_write(0xF080, 3, 4096, request)
        assert result == 0
        assert struct.unpack_from("<III", data) == (0, 0x702, 0)
        assert data[12:16] == struct.pack("<i", 100_000)
        assert data[16:20] == bytes(4)  # the place of what could not be read
        assert data[20:26] == b"thetad"
        assert len(data) == 20 + 81

    def test_read_with_lengths(self, client):
        good, text = self.places(client, "MAIN.nDint", "MAIN.sText")
        request = struct.pack("<9I", *good, 0x1234, 0, 4, *text)
        for group, length in ((0xF083, 24 + 4 + 4 + 81), (0xF084, 24 + 4 + 81)):
            result, data = client.read_write(group, 3, 4096, request)
            assert result == 0
            assert struct.unpack_from("<6I", data) == (0, 4, 0x702, 0, 0, 81)
            assert len(data) == length

    def test_write(self, client):
        first, second = self.places(client, "MAIN.nInt", "MAIN.nDint")
        request = struct.pack("<9I", *first, 0x1234, 0, 2, *second) + struct.pack("<hhi", 11, 0, 22)
        assert client.read_write(0xF081, 3, 12, request) == (0, struct.pack("<III", 0, 0x702, 0))
        assert client.value("MAIN.nInt") == struct.pack("<h", 11)
        assert client.value("MAIN.nDint") == struct.pack("<i", 22)

    def test_write_with_data_missing(self, client):
        (place,) = self.places(client, "MAIN.nDint")
        assert client.read_write(0xF081, 1, 4, struct.pack("<III", *place)) == (0, struct.pack("<I", 0x705))

    def test_read_write_gives_handles(self, client):
        names = [b"MAIN.nInt\0", b"MAIN.none\0"]
        request = b"".join(struct.pack("<IIII", 0xF003, 0, 4, len(name)) for name in names) + b"".join(names)
        result, data = client.read_write(0xF082, 2, 4096, request)
        assert result == 0
        assert struct.unpack_from("<4I", data) == (0, 4, 0x710, 0)
        handle = struct.unpack_from("<I", data, 16)[0]
        assert client.read(0xF005, handle, 2) == (0, struct.pack("<h", -12))

    def test_no_sum_in_a_sum(self, client):
        inner = struct.pack("<III", 0x4020, 0, 2)
        request = struct.pack("<IIII", 0xF080, 1, 100, len(inner)) + inner
        assert client.read_write(0xF082, 1, 200, request) == (0, struct.pack("<II", 0x702, 0))

    def test_six_hundred_at_once(self, client):
        (place,) = self.places(client, "MAIN.nDint")
        result, data = client.read_write(0xF080, 600, 600 * 8, struct.pack("<III", *place) * 600)
        assert result == 0
        assert data == bytes(2400) + struct.pack("<i", 100_000) * 600

    @pytest.mark.parametrize("group", range(0xF080, 0xF087))
    def test_fewer_than_said(self, client, group):
        assert client.read_write(group, 5, 4096, bytes(20)) == (0 if group == 0xF086 else 0x705, client_sum(group))


def client_sum(group):
    return struct.pack("<5I", *[0x714] * 5) if group == 0xF086 else b""


def test_write_control(client):
    def control(state, port):
        return client.request(5, struct.pack("<HHI", state, 0, 0), port).result

    assert control(6, PLC) == 0
    assert client.request(4).data == struct.pack("<IHH", 0, 6, 0)
    assert client.value("MAIN.fLreal") == struct.pack("<d", 3.25)  # readable while stopped
    assert control(5, PLC) == 0
    assert client.request(4).data == struct.pack("<IHH", 0, 5, 0)
    assert control(99, PLC) == 0x70B
    assert control(16, SYSTEM) == 0
    assert client.request(4, port=SYSTEM).data == struct.pack("<IHH", 0, 15, 0)
    assert client.request(4).error == 6
    assert control(2, SYSTEM) == 0
    assert client.request(4).data == struct.pack("<IHH", 0, 5, 0)


def test_an_answer_that_would_be_too_long_is_refused(client):
    place = struct.unpack("<III", client.read_write(0xF007, 0, 12, b"GVL_Theta.aRing\0")[1])
    count = 16 * 1024 * 1024 // place[2] + 1
    assert client.read_write(0xF080, count, 0xFFFFFFFF, struct.pack("<III", *place) * count) == (0x705, b"")


def test_values_only(client):
    place = struct.unpack("<III", client.read_write(0xF007, 0, 12, b"MAIN.nDint\0")[1])
    request = struct.pack("<III", *place) * 2
    assert client.read_write(0xF080, 0, 8, request) == (0, struct.pack("<ii", 100_000, 100_000))
