"""AMS packets: a stream in any pieces, and what is none."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim_backend.plc import _ams as ams
from sim_backend.plc._ams import Address, AmsError, Splitter

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
