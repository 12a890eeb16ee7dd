"""Requests and answers byte by byte, and any bytes at all: the PLC answers, or closes the connection."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim_backend.plc import _ams as ams
from sim_backend.plc._ams import Address, AmsError, Splitter
from tests.lab.ads.plc_bench import make
from tests.lab.ads.simple_client import PLC, SYSTEM, PlainClient


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


class TestSum:
    """Several requests in one; each has its own result."""

    def places(self, client, *names):
        return [struct.unpack("<III", client.read_write(0xF007, 0, 12, name.encode() + b"\0")[1]) for name in names]

    def test_read(self, client):
        good, text = self.places(client, "MAIN.nDint", "MAIN.sText")
        request = struct.pack("<9I", *good, 0x1234, 0, 4, *text)
        for group, length in ((0xF083, 24 + 4 + 4 + 81), (0xF084, 24 + 4 + 81)):  # with lengths
            result, data = client.read_write(group, 3, 4096, request)
            assert (result, len(data)) == (0, length)
            assert struct.unpack_from("<6I", data) == (0, 4, 0x702, 0, 0, 81)
        result, data = client.read_write(0xF080, 3, 4096, request)
        assert result == 0
        assert struct.unpack_from("<III", data) == (0, 0x702, 0)
        assert data[12:16] == struct.pack("<i", 100_000)
        assert data[16:20] == bytes(4)  # the place of what could not be read
        assert data[20:26] == b"thetad"
        assert len(data) == 20 + 81

    def test_write_with_data_missing(self, client):
        (place,) = self.places(client, "MAIN.nDint")
        assert client.read_write(0xF081, 1, 4, struct.pack("<III", *place)) == (0, struct.pack("<I", 0x705))

    def test_no_sum_in_a_sum(self, client):
        inner = struct.pack("<III", 0x4020, 0, 2)
        request = struct.pack("<IIII", 0xF080, 1, 100, len(inner)) + inner
        assert client.read_write(0xF082, 1, 200, request) == (0, struct.pack("<II", 0x702, 0))


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


CYCLIC, ON_CHANGE = 3, 4


def counts(client, handle):
    return [struct.unpack("<I", stamp.samples[handle])[0] for stamp in client.stamps if handle in stamp.samples]


def test_cyclic_with_the_time_of_the_cycle(client):
    handle = client.notify(0xF005, client.handle("MAIN.nCycles"), 4, CYCLIC)
    client.advance(20)
    assert counts(client, handle) == list(range(1, 21))
    assert [stamp.time_100ns for stamp in client.stamps] == [client.plc.clock.time_100ns(k) for k in range(20)]


def test_samples_are_collected_over_the_longest_delay(client):
    handle = client.notify(0xF005, client.handle("MAIN.nCycles"), 4, CYCLIC, delay_ms=10)
    client.advance(10)
    assert client.packets == 0
    client.advance(1)
    assert client.packets == 1
    assert counts(client, handle) == list(range(1, 12))
    client.advance(11)
    assert client.packets == 2
    assert counts(client, handle) == list(range(1, 23))


def test_clients_have_their_own(client):
    handle = client.notify(0xF005, client.handle("MAIN.nCycles"), 4, CYCLIC)
    assert PlainClient(client.plc).request(7, struct.pack("<I", handle)).result == 0x714
    client.plc.disconnect(client.session)
    assert client.session.notifications == 1
    client.advance(5)
    assert client.stamps == []


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (struct.pack("<IIIIII16x", 0x4020, 0, 4, 9, 0, 0), 0x713),
        (struct.pack("<IIIIII16x", 0x1234, 0, 4, 3, 0, 0), 0x702),
        (struct.pack("<IIIIII16x", 0xF005, 77, 4, 3, 0, 0), 0x710),
        (bytes(12), 0x705),
        (struct.pack("<IIIIII16x", 0xF005, 0x1A000001, 3, 3, 0, 0), 0x717),
    ],
)
def test_what_cannot_be_watched(client, request_, code):
    assert client.handle("MAIN.nInt") == 0x1A000001
    assert client.request(6, request_).result == code


def test_there_are_not_any_number_of_handles(client):
    entry = struct.pack("<IIIIII16x", 0x4020, 0, 4, ON_CHANGE, 0, 0)
    assert client.read_write(0xF085, 550, 8 * 550, entry * 550)[0] == 0
    assert client.session.notifications == 550
    assert client.request(6, entry).result == 0x716


def test_sum_add_and_delete(client):
    entry = struct.pack("<IIIIII16x", 0x4020, 0, 4, 3, 0, 10_000)
    bad = struct.pack("<IIIIII16x", 0x1234, 0, 4, 3, 0, 0)
    result, data = client.read_write(0xF085, 2, 16, entry + bad)
    code, handle, code_2, handle_2 = struct.unpack("<IIII", data)
    assert (result, code, code_2, handle_2) == (0, 0, 0x702, 0)
    client.advance(2)
    assert len(client.stamps) == 2
    assert client.read_write(0xF086, 2, 8, struct.pack("<II", handle, 555)) == (0, struct.pack("<II", 0, 0x714))
    client.advance(2)
    assert len(client.stamps) == 2


MIB = 1024 * 1024
GROUPS = st.sampled_from(
    [0x4020, 0x4040, *range(0xF003, 0xF012), *range(0xF080, 0xF088), 0xF100, 0]
) | st.integers(0, 0xFFFFFFFF)  # fmt: skip
SMALL = st.integers(0, 3) | st.integers(0x1000, 0x1100) | st.integers(0, 0xFFFFFFFF)
WORDS = st.lists(GROUPS | SMALL, max_size=14).map(lambda words: struct.pack(f"<{len(words)}I", *words))
NAMES = st.sampled_from([b"MAIN.nInt\0", b"GVL_Theta.aRing[1]", b"MAIN.aMatrix[1,", b"\xff\xfe[", b"MAIN.stStation\0"])
DATA = WORDS | NAMES | st.binary(max_size=80)


@st.composite
def requests(draw):
    """Command and data, most of them nearly right."""
    command = draw(st.sampled_from([1, 2, 3, 4, 6, 7, 9]) | st.integers(0, 0xFFFF))
    data = draw(DATA)
    if command in (3, 9) and draw(st.booleans()):
        head = [draw(GROUPS), draw(SMALL)] + ([draw(SMALL)] if command == 9 else [])
        data = struct.pack(f"<{len(head) + 1}I", *head, len(data)) + data
    elif command == 2:
        data = struct.pack("<III", draw(GROUPS), draw(SMALL), draw(SMALL))
    return command, data


FUZZED = make()


@settings(max_examples=300)
@given(several=st.lists(requests(), min_size=1, max_size=5))
def test_every_request_is_answered_and_cycles_go_on(several):
    client = PlainClient(FUZZED)
    for command, data in several:
        if command == 5 or command == 8:
            continue  # write control changes the state; notifications are no requests
        answer = client.request(command, data)
        assert answer.error == 0
        assert len(answer.data) >= 4
        client.advance(1)
    assert client.request(4).data[:4] == bytes(4)
    FUZZED.disconnect(client.session)


@settings(max_examples=200)
@given(junk=st.binary(max_size=120), cut=st.integers(0, 40))
def test_any_stream_is_survived(junk, cut):
    client = PlainClient(FUZZED)
    client.session.receive(client.packet(4)[:cut] + junk, 0)
    other = PlainClient(FUZZED)
    assert other.request(4).error == 0
    for each in (client, other):
        FUZZED.disconnect(each.session)


def test_answers_that_pile_up_in_one_turn_end_the_connection():
    client = PlainClient(make())
    client.session.receive(client.packet(2, struct.pack("<III", 0x4040, 0x1000, 10_000)) * 5000, 0)
    assert client.session.closed
    assert 16 * MIB < sum(map(len, client.session.outlet.due(0))) < 17 * MIB


PACKETS = st.lists(st.tuples(st.sampled_from([0, 1, 0x1000]), st.binary(max_size=60)), max_size=8)


@given(packets=PACKETS, cuts=st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_a_stream_in_any_pieces_gives_the_same_packets(packets, cuts):
    stream = b"".join(struct.pack("<HI", kind, len(data)) + data for kind, data in packets)
    splitter, found, k = Splitter(), [], 0
    while stream:
        piece, stream = stream[: cuts[k % len(cuts)]], stream[cuts[k % len(cuts)] :]
        found += splitter.feed(piece)
        k += 1
    assert found == packets


def test_a_length_that_no_packet_has_ends_the_stream():
    with pytest.raises(AmsError, match="longest"):
        Splitter().feed(struct.pack("<HI", 0, 0x4000_0000))


def test_a_header_that_lies_about_its_data_is_refused():
    good = ams.encode(Address(bytes(6), 1), Address(bytes(6), 2), 2, 4, 0, 9, b"abc")
    assert ams.decode(good[6:]).data == b"abc"
    with pytest.raises(AmsError, match="its header says 3"):
        ams.decode(good[6:-1])
    with pytest.raises(AmsError, match="its header has 32"):
        ams.decode(good[6:20])


def test_the_bytes_are_those_of_the_specification():
    # Reserved, length; target, source, command, flags, length, error, invoke id; data.
    data = ams.encode(
        Address(bytes((5, 80, 201, 11, 1, 1)), 851), Address(bytes((10, 0, 0, 7, 1, 1)), 40001), 2, 4, 0, 7, b"\x2a"
    )
    assert data.hex(" ") == (
        "00 00 21 00 00 00 05 50 c9 0b 01 01 53 03 0a 00 00 07 01 01 41 9c "
        "02 00 04 00 01 00 00 00 00 00 00 00 07 00 00 00 2a"
    )


@pytest.mark.parametrize("text", ["1.2.3.4.5", "1.2.3.4.5.256", "1.2.3.4.5.x", "1.2.3.4.5.6.7", ""])
def test_a_net_id_has_six_numbers(text):
    with pytest.raises(ValueError, match="not an AMS net id"):
        ams.net_id(text)
