"""Any bytes from a client: the PLC answers, or closes the connection, and goes on."""

from __future__ import annotations

import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lab.ads.plc_bench import make
from tests.lab.ads.simple_client import PlainClient

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
