"""The mailbox: counters, repeated requests and replies, errors, a full queue, any bytes at all."""

import struct

import pytest

from sim_backend.ethercat import registers as reg
from tests.lab.ethercat.slave_bench import PREOP, Bench

READ_MODE = bytes.fromhex("00 20 40 61 60 00 00 00 00 00")
READ_NAME = bytes.fromhex("00 20 40 08 10 00 00 00 00 00")
SM1_ACTIVATE, SM1_PDI = 0x080E, 0x080F


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.to_preop()
    return bench


def uncounted(data: bytes) -> bytes:
    return struct.pack("<HHBB", len(data), 0, 0, 3) + data


def toggle_repeat(bench: Bench) -> None:
    wanted = bench.memory[SM1_ACTIVATE] ^ reg.SM_ACTIVATE_REPEAT
    bench.write(SM1_ACTIVATE, bytes((wanted,)), reg.EVENT_SM_CHANGED)
    assert bench.memory[SM1_PDI] & reg.SM_PDI_REPEAT_ACKNOWLEDGE == wanted & reg.SM_ACTIVATE_REPEAT


def test_replies_are_counted_from_1_to_7(bench: Bench) -> None:
    counters = []
    for _ in range(9):
        bench.send_coe(READ_MODE)
        counters.append(bench.receive()[5] >> 4)
    assert counters == [1, 2, 3, 4, 5, 6, 7, 1, 2]
    assert bench.receive() is None


def test_a_request_that_comes_twice_is_carried_out_once(bench: Bench) -> None:
    bench.send_coe(READ_MODE)
    bench.counter -= 1
    bench.send_coe(READ_MODE)
    assert bench.receive() is not None
    assert bench.receive() is None
    for _ in range(2):  # counter 0: not counted
        bench.send(uncounted(READ_MODE))
        assert bench.receive() is not None


def test_a_reply_that_was_lost_is_sent_again(bench: Bench) -> None:
    bench.send_coe(READ_NAME)
    lost = bench.receive()
    for _ in range(2):
        toggle_repeat(bench)
        assert bench.receive() == lost
    bench.send_coe(READ_MODE)
    assert bench.receive() not in (None, lost)


def test_the_lost_message_comes_before_those_that_wait(bench: Bench) -> None:
    for code in (0x1000, 0x2000, 0x3000):
        bench.slave.emergency(code, 1)
    lost = bench.receive()
    toggle_repeat(bench)
    assert bench.receive() == lost
    assert [struct.unpack_from("<H", message, 8)[0] for message in iter(bench.receive, None)] == [0x2000, 0x3000]


@pytest.mark.parametrize(
    ("message", "detail"),
    [
        (struct.pack("<HHBB", 10, 0, 0, 4) + bytes(10), 2),  # file access: not supported
        (struct.pack("<HHBB", 251, 0, 0, 3) + READ_MODE, 8),
        (struct.pack("<HHBB", 9, 0, 0, 3) + READ_MODE, 6),
        (struct.pack("<HHBB", 10, 0, 0, 3) + b"\x00\x50" + bytes(8), 4),  # an RxPDO by mailbox
    ],
)
def test_what_is_no_request_gets_a_mailbox_error(bench: Bench, message: bytes, detail: int) -> None:
    bench.send(message)
    length, _, _, kind, service, said = struct.unpack_from("<HHBBHH", bench.receive())
    assert (length, kind & 0x0F, service, said) == (4, 0, 1, detail)
    bench.send(uncounted(READ_MODE))
    assert bench.receive() is not None


def test_requests_wait_when_nobody_reads(bench: Bench) -> None:
    sent = 0
    while not bench.full(0):
        bench.send_coe(READ_MODE)
        sent += 1
        assert sent < 100
    assert len(list(iter(bench.receive, None))) == sent
    assert not bench.full(0)


def test_emergencies_beyond_the_queue_are_counted(bench: Bench) -> None:
    for k in range(100):
        bench.slave.emergency(k, 0x81, b"abcde")
    assert bench.receive()[6:] == b"\x00\x10\x00\x00\x81abcde"
    received = 1 + len(list(iter(bench.receive, None)))
    assert received + bench.slave.lost_emergencies == 100
    assert bench.dictionary.entry(0x1001).value == 0x81


def test_in_init_there_is_no_mailbox(bench: Bench) -> None:
    bench.send_coe(READ_MODE)
    bench.request(1)
    assert bench.receive() is None
    bench.slave.emergency(0x1000, 1)
    assert bench.receive() is None
    assert bench.request(PREOP) == (PREOP, 0)
    assert bench.receive() is None
