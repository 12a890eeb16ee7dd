"""SDO transfers of every kind, SDO information and emergencies, against messages written out by hand."""

import struct
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sim_backend.canopen.dictionary import Access, ObjectDictionary
from sim_backend.ethercat._coe import CoeError, CoeServer
from sim_backend.ethercat._communication import build_dictionary
from sim_backend.ethercat._profile import load_profile

PREOP, SAFEOP = 2, 4
ROOM = 122  # a mailbox of 128 bytes


@pytest.fixture
def dictionary() -> ObjectDictionary:
    return build_dictionary(load_profile("generic_servo"))


@pytest.fixture
def server(dictionary: ObjectDictionary) -> CoeServer:
    return CoeServer(dictionary)


def sdo(server: CoeServer, data: bytes, state: int = PREOP, room: int = ROOM) -> bytes:
    """Send an SDO request, padded to the least length; return the reply behind its CoE header."""
    (reply,) = server.request(b"\x00\x20" + data.ljust(8, b"\0"), state, room)
    assert len(reply) <= room
    assert reply[:2] == (b"\x00\x20" if reply[2] == 0x80 else b"\x00\x30")
    return reply[2:]


def abort(reply: bytes) -> tuple[int, int, int]:
    command, index, subindex, code = struct.unpack("<BHBI", reply)
    assert command == 0x80
    return index, subindex, code


def upload(server: CoeServer, index: int, subindex: int, room: int = ROOM, complete: bool = False) -> bytes:
    """Read an entry with as many segments as it takes."""
    reply = sdo(server, struct.pack("<BHB", 0x50 if complete else 0x40, index, subindex), room=room)
    command, *address = struct.unpack_from("<BHB", reply)
    assert address == [index, subindex]
    assert command & 0xF1 == (0x51 if complete else 0x41)
    if command & 0x02:
        return reply[4 : 8 - (command >> 2 & 3)]
    (size,) = struct.unpack_from("<I", reply, 4)
    data, toggle, last = reply[8:], 0, len(reply[8:]) == size
    while not last:
        reply = sdo(server, bytes((0x60 | toggle,)), room=room)
        assert reply[0] & 0xF0 == toggle
        last = bool(reply[0] & 1)
        part = reply[1:]
        assert len(part) >= 7
        data += part[: len(part) - (reply[0] >> 1 & 7)]
        toggle ^= 0x10
    assert len(data) == size
    return data


def download(server: CoeServer, index: int, subindex: int, data: bytes, room: int = ROOM) -> None:
    """Write an entry normally, with as many segments as it takes."""
    first = room - 10
    reply = sdo(server, struct.pack("<BHBI", 0x21, index, subindex, len(data)) + data[:first], room=room)
    assert reply == struct.pack("<BHB4x", 0x60, index, subindex)
    at, toggle = first, 0
    while at < len(data):
        part = data[at : at + room - 3]
        at += len(part)
        mark = toggle | (at >= len(data))
        if len(part) < 7:
            mark |= (7 - len(part)) << 1
        reply = sdo(server, bytes((mark,)) + part.ljust(7, b"\0"), room=room)
        assert reply == bytes((0x20 | toggle,)) + bytes(7)
        toggle ^= 0x10


def test_four_bytes_and_fewer_are_expedited(server: CoeServer, dictionary: ObjectDictionary) -> None:
    assert sdo(server, bytes.fromhex("40 18 10 01")) == bytes.fromhex("43 18 10 01 5a 0e 00 00")
    assert sdo(server, bytes.fromhex("40 61 60 00")) == bytes.fromhex("4f 61 60 00 08 00 00 00")
    assert sdo(server, bytes.fromhex("40 5a 60 00")) == bytes.fromhex("4b 5a 60 00 02 00 00 00")
    assert sdo(server, bytes.fromhex("23 7a 60 00 01 02 03 04")) == bytes.fromhex("60 7a 60 00 00 00 00 00")
    assert dictionary.entry(0x607A).value == 0x04030201
    assert sdo(server, bytes.fromhex("22 40 60 00 1f 00 00 00"))[0] == 0x60  # without its size
    assert dictionary.entry(0x6040).value == 31


@given(data=st.binary(max_size=300), room=st.integers(26, 200))
@example(data=b"", room=ROOM)
@example(data=bytes(300), room=26)
def test_segments_fit_any_mailbox(data: bytes, room: int) -> None:
    server = CoeServer(build_dictionary(load_profile("harmonic_actuator")))
    download(server, 0x2270, 0, data, room)
    assert upload(server, 0x2270, 0, room) == data


def test_complete_access_up_and_down(server: CoeServer, dictionary: ObjectDictionary) -> None:
    assert upload(server, 0x1018, 0, complete=True)[:6] == struct.pack("<HI", 4, 0xE5A)
    words = struct.pack("<HII", 2, 0x60400010, 0x607A0020)
    assert sdo(server, struct.pack("<BHBI", 0x31, 0x1600, 0, len(words)) + words)[0] == 0x70
    assert upload(server, 0x1600, 0, complete=True) == words
    assert abort(sdo(server, struct.pack("<BHB", 0x50, 0x6040, 0))) == (0x6040, 0, 0x06010004)
    without = CoeServer(dictionary, complete_access=False)
    assert abort(sdo(without, struct.pack("<BHB", 0x50, 0x1018, 0)))[2] == 0x06010004
    assert abort(sdo(without, struct.pack("<BHBI", 0x31, 0x1600, 0, 10) + words))[2] == 0x06010004


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ("40 55 55 00", 0x06020000),
        ("40 18 10 07", 0x06090011),
        ("2b 41 60 00 00 00", 0x06010002),
        ("23 40 60 00 00 00 00 00", 0x06070012),
        ("60", 0x05040001),  # a segment of nothing
        ("a0 00 00 00", 0x05040001),
        ("21 00 20 00 ff ff ff 7f", 0x05040005),
        ("21 00 20 00 59 02 00 00", 0x06070012),  # refused before its segments
        ("21 55 55 00 64 00 00 00", 0x06020000),
    ],
)
def test_what_cannot_be_done_is_aborted(server: CoeServer, request_: str, code: int) -> None:
    assert abort(sdo(server, bytes.fromhex(request_)))[2] == code


def test_a_wrong_toggle_bit_ends_a_transfer(server: CoeServer, dictionary: ObjectDictionary) -> None:
    dictionary.entry(0x2000).value = "x" * 500
    sdo(server, struct.pack("<BHB", 0x40, 0x2000, 0))
    assert sdo(server, b"\x60")[0] == 0x00
    assert abort(sdo(server, b"\x60")) == (0x2000, 0, 0x05030000)
    assert abort(sdo(server, b"\x70"))[2] == 0x05040001
    sdo(server, struct.pack("<BHBI", 0x21, 0x2000, 0, 40))
    assert abort(sdo(server, b"\x10" + bytes(40))) == (0x2000, 0, 0x05030000)
    assert dictionary.entry(0x2000).value == "x" * 500


def test_a_download_has_the_length_that_it_said(server: CoeServer) -> None:
    sdo(server, struct.pack("<BHBI", 0x21, 0x2000, 0, 40))
    assert abort(sdo(server, b"\x00" + bytes(41)))[2] == 0x06070012
    sdo(server, struct.pack("<BHBI", 0x21, 0x2000, 0, 40))
    assert abort(sdo(server, b"\x01" + bytes(39)))[2] == 0x06070013


def test_a_transfer_ends_with_an_abort_or_a_new_one(server: CoeServer, dictionary: ObjectDictionary) -> None:
    dictionary.entry(0x2000).value = "x" * 500
    sdo(server, struct.pack("<BHB", 0x40, 0x2000, 0))
    assert server.request(b"\x00\x20" + struct.pack("<BHBI", 0x80, 0x2000, 0, 0x08000000), PREOP, ROOM) == []
    assert abort(sdo(server, b"\x60"))[2] == 0x05040001
    sdo(server, struct.pack("<BHB", 0x40, 0x2000, 0))
    assert sdo(server, bytes.fromhex("40 61 60 00"))[4] == 8
    assert abort(sdo(server, b"\x60"))[2] == 0x05040001
    sdo(server, struct.pack("<BHB", 0x40, 0x2000, 0))
    assert abort(sdo(server, b"\x01" + bytes(7)))[2] == 0x05040001  # a segment of the other direction


def test_messages_that_are_no_requests(server: CoeServer) -> None:
    for data, too_short in ((b"", True), (b"\0\x20" + bytes(7), True), (b"\0\x30" + bytes(8), False)):
        with pytest.raises(CoeError) as caught:
            server.request(data, PREOP, ROOM)
        assert caught.value.too_short == too_short


# SDO information


def fragments(server: CoeServer, data: bytes, room: int = ROOM) -> tuple[int, bytes]:
    """Opcode and content of a response, put together from its fragments."""
    replies = server.request(b"\x00\x80" + data, PREOP, room)
    content = b""
    for left, reply in zip(range(len(replies) - 1, -1, -1), replies, strict=True):
        assert len(reply) <= room
        assert reply[:2] == b"\x00\x80"
        assert reply[2] >> 7 == (left > 0)
        assert struct.unpack_from("<H", reply, 4) == (left,)
        content += reply[6:]
    return replies[0][2] & 0x7F, content


def od_list(server: CoeServer, kind: int, room: int = ROOM) -> Iterator[int]:
    opcode, content = fragments(server, struct.pack("<BBHH", 1, 0, 0, kind), room)
    assert opcode == 2
    (echo, *numbers) = struct.unpack(f"<{len(content) // 2}H", content)
    assert echo == kind
    yield from numbers


@pytest.mark.parametrize("room", [26, 58, 250])
def test_lists_of_objects(server: CoeServer, dictionary: ObjectDictionary, room: int) -> None:
    assert list(od_list(server, 1, room)) == sorted(dictionary.objects)
    rx, tx = list(od_list(server, 2, room)), list(od_list(server, 3, room))
    assert {0x6040, 0x607A, 0x60FE} <= set(rx)
    assert {0x6041, 0x6064, 0x2030} <= set(tx) - set(rx)
    backup, settings = list(od_list(server, 4, room)), list(od_list(server, 5, room))
    assert 0x6065 in backup
    assert 0x6064 not in backup
    assert settings == [0x1600, 0x1601, 0x1A00, 0x1A01, 0x1C12, 0x1C13]
    assert list(od_list(server, 0, room)) == [len(dictionary.objects), len(rx), len(tx), len(backup), len(settings)]


def test_descriptions_of_entries(server: CoeServer) -> None:
    opcode, content = fragments(server, bytes.fromhex("05 00 00 00 40 60 00 07"))
    assert opcode == 6
    head = struct.unpack_from("<HBBHHH", content)
    assert head == (0x6040, 0, 7, 6, 16, Access.READ | Access.WRITE | Access.RX_PDO)
    assert content[10:] == b"Controlword"
    opcode, content = fragments(server, bytes.fromhex("05 00 00 00 c2 60 02 7f"))
    assert struct.unpack_from("<HBBHHH", content)[2:5] == (0x7F, 2, 8)
    assert struct.unpack_from("<Ibbb", content, 10) == (0, -3, -6, 0)  # unit, default, smallest, largest
    assert content[17:] == b"Interpolation time index"


@pytest.mark.parametrize(
    ("data", "code"),
    [("03 00 00 00 55 55", 0x06020000), ("05 00 00 00 40 60 05 00", 0x06090011), ("01 00 00 00 09 00", 0x06040043),
     ("06 00 00 00 00 00", 0x05040001)],
)  # fmt: skip
def test_information_that_there_is_not(server: CoeServer, data: str, code: int) -> None:
    assert fragments(server, bytes.fromhex(data)) == (7, struct.pack("<I", code))
