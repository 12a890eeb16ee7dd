"""Device notifications: cyclic, on change, collected over the longest delay."""

from __future__ import annotations

import gc
import struct

import pytest

from sim_backend.plc._notifications import Notifications
from tests.lab.ads.simple_client import PlainClient

CYCLIC, ON_CHANGE = 3, 4


def counts(client, handle):
    return [struct.unpack("<I", stamp.samples[handle])[0] for stamp in client.stamps if handle in stamp.samples]


def test_cyclic_with_the_time_of_the_cycle(client):
    handle = client.notify(0xF005, client.handle("MAIN.nCycles"), 4, CYCLIC)
    client.advance(20)
    assert counts(client, handle) == list(range(1, 21))
    assert [stamp.time_100ns for stamp in client.stamps] == [client.plc.clock.time_100ns(k) for k in range(20)]


def test_every_so_many_cycles(client):
    handle = client.notify(0xF005, client.handle("MAIN.nCycles"), 4, CYCLIC, cycle_ms=7)
    client.advance(30)
    assert counts(client, handle) == [1, 8, 15, 22, 29]


def test_on_change_sends_the_first_value_and_then_changes(client):
    handle = client.notify(0xF005, client.handle("MAIN.nUdint"), 4, ON_CHANGE)
    client.advance(5)
    for value in (7, 7, 9):
        client.set("MAIN.nUdint", struct.pack("<I", value))
        client.advance(5)
    assert counts(client, handle) == [0, 7, 9]


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


def test_two_at_the_same_time_share_a_stamp(client):
    first = client.notify(0xF005, client.handle("MAIN.nCycles"), 4, CYCLIC)
    second = client.notify(0x4020, 16, 2, CYCLIC)
    client.advance(3)
    assert [set(stamp.samples) for stamp in client.stamps] == [{first, second}] * 3
    assert client.packets == 3


def test_an_end(client):
    handle = client.notify(0xF005, client.handle("MAIN.nCycles"), 4, CYCLIC, delay_ms=10)
    client.advance(5)
    assert client.request(7, struct.pack("<I", handle)).result == 0
    client.advance(20)
    assert client.stamps == []
    assert client.request(7, struct.pack("<I", handle)).result == 0x714


def test_clients_have_their_own(client):
    handle = client.notify(0xF005, client.handle("MAIN.nCycles"), 4, CYCLIC)
    other = PlainClient(client.plc)
    assert other.request(7, struct.pack("<I", handle)).result == 0x714
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


def test_clients_without_notifications_leave_nothing_behind(client):
    def kept():
        gc.collect()
        return sum(isinstance(each, Notifications) for each in gc.get_objects())

    client.notify(0x4020, 0, 4, CYCLIC)
    before = kept()
    for port in range(40_100, 40_200):
        client.port = port
        assert client.request(4).result == 0
        assert client.request(7, struct.pack("<I", 1)).result == 0x714
    assert kept() == before
    assert client.session.notifications == 1


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


def test_state_and_symbol_version_can_be_watched(client):
    state = client.notify(0xF100, 0, 4, ON_CHANGE)
    version = client.notify(0xF008, 0, 1, ON_CHANGE)
    client.advance(3)
    client.plc.stop()
    client.advance(3)
    client.plc.online_change()
    client.advance(3)
    assert [stamp.samples[state] for stamp in client.stamps if state in stamp.samples] == [
        struct.pack("<HH", 5, 0), struct.pack("<HH", 6, 0),
    ]  # fmt: skip
    assert [stamp.samples[version] for stamp in client.stamps if version in stamp.samples] == [b"\1", b"\2"]
