"""AMS packets and any bytes from a client: the PLC answers, or closes the connection; what waits is bounded."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim_backend.plc import _ams as ams
from sim_backend.plc._ams import Address, AmsError, Splitter
from tests.lab.ads.plc_bench import make
from tests.lab.ads.simple_client import PlainClient

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


PLC = make()


@settings(max_examples=300)
@given(several=st.lists(requests(), min_size=1, max_size=5))
def test_every_request_is_answered_and_cycles_go_on(several):
    client = PlainClient(PLC)
    for command, data in several:
        if command == 5 or command == 8:
            continue  # write control changes the state; notifications are no requests
        answer = client.request(command, data)
        assert answer.error == 0
        assert len(answer.data) >= 4
        client.advance(1)
    assert client.request(4).data[:4] == bytes(4)
    PLC.disconnect(client.session)


@settings(max_examples=200)
@given(junk=st.binary(max_size=120), cut=st.integers(0, 40))
def test_any_stream_is_survived(junk, cut):
    client = PlainClient(PLC)
    good = client.packet(4)
    client.session.receive(good[:cut] + junk, 0)
    other = PlainClient(PLC)
    assert other.request(4).error == 0
    for each in (client, other):
        PLC.disconnect(each.session)


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
    with pytest.raises(ValueError, match="no AMS net id"):
        ams.net_id(text)
