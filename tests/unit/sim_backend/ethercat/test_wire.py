"""Frames and datagrams: known bytes, there and back, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim_backend.ethercat import wire

datagrams = st.builds(
    wire.Datagram,
    st.integers(0, 14),
    st.integers(0, 2**32 - 1),
    st.binary(max_size=60),
    st.integers(0, 255),
    st.integers(0, 65535),
    st.integers(0, 65535),
    st.booleans(),
)


def test_known_bytes() -> None:
    """Read of the AL status of the second slave by position, as in ETG.1000.4, figure of the datagram."""
    frame = wire.build_frame([wire.physical(wire.APRD, 1, 0x0130, bytes(2), index=0x80)])
    assert frame[:16].hex() == "ffffffffffff" + "020000000001" + "88a4" + "0e10"
    assert frame[16:30].hex() == "0180" + "ffff" + "3001" + "0200" + "0000" + "0000" + "0000"
    assert len(frame) == 60


@given(st.lists(datagrams, min_size=1, max_size=15))
def test_there_and_back(chain: list[wire.Datagram]) -> None:
    assert wire.parse_frame(wire.build_frame(chain)) == chain


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (bytes(60), "no EtherCAT frame"),
        (bytes(12) + b"\x88\xa4\x0c\x40" + bytes(44), "type 4"),
        (bytes(12) + b"\x88\xa4\xff\x17" + bytes(44), "2063 bytes, the frame has 60"),
        (bytes(12) + b"\x88\xa4\x0b\x10" + bytes(44), "datagram 0 at byte 16 is cut off"),
        (bytes(12) + b"\x88\xa4\x0d\x10" + bytes(6) + b"\x04" + bytes(40), "longer than its frame"),
    ],
)
def test_what_is_no_frame_is_refused(frame: bytes, message: str) -> None:
    with pytest.raises(wire.FrameError, match=message):
        wire.parse_frame(frame)


def test_too_much_or_nothing_is_refused() -> None:
    with pytest.raises(wire.FrameError, match="at least one"):
        wire.build_frame([])
    with pytest.raises(wire.FrameError, match="a frame holds 1498"):
        wire.build_frame([wire.logical(wire.LRW, 0, bytes(1487))])
    assert len(wire.build_frame([wire.logical(wire.LRW, 0, bytes(1486))])) == wire.FRAME_MAX
