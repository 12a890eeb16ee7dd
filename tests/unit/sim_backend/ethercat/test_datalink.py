"""Frames and datagrams by known bytes, and the compiled data link by hand where a number is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim_backend.ethercat import registers as r
from sim_backend.ethercat import wire
from sim_backend.ethercat._segment import Segment
from tests.lab.ethercat.frames import Datagram, FrameError, build_frame, logical, parse_frame, physical
from tests.lab.ethercat.simple_device import Echo


class Silent(Echo):
    """Leaves the memory to the data link."""

    def on_event(self, kind: int, now_ns: int) -> None:
        self.events.append((kind, now_ns))

    def publish_inputs(self) -> None:
        """Nothing."""


def segment(count: int) -> tuple[Segment, list[Silent]]:
    devices: list[Silent] = []

    def make(memory: r.UInt8Array) -> Silent:
        devices.append(Silent(memory))
        return devices[-1]

    return Segment([make] * count, None), devices


def ask(bus: Segment, *chain: Datagram, now: int = 0) -> list[Datagram]:
    ((port, answer),) = bus.exchange(build_frame(chain), 0, now)
    assert port == 0
    return parse_frame(answer)


def fmmu(log: int, length: int, bits: tuple[int, int], inner: int, bit: int, kind: int) -> bytes:
    return log.to_bytes(4, "little") + length.to_bytes(2, "little") + bytes(bits) + inner.to_bytes(
        2, "little"
    ) + bytes([bit, kind, 1, 0, 0, 0])  # fmt: skip


def manager(start: int, length: int, control: int, active: int = 1) -> bytes:
    return start.to_bytes(2, "little") + length.to_bytes(2, "little") + bytes([control, 0, active, 0])


def test_working_counters_of_all_commands() -> None:
    bus, _ = segment(3)
    for slave in range(3):
        ask(bus, physical(wire.APWR, slave, 0x10, bytes([slave + 1, 0x10])))
        ask(bus, physical(wire.APWR, slave, 0x600, fmmu(0, 2, (0, 7), 0x1000, 0, 3)))
    expected = {
        wire.NOP: 0, wire.APRD: 1, wire.APWR: 1, wire.APRW: 3, wire.FPRD: 1, wire.FPWR: 1, wire.FPRW: 3, wire.BRD: 3,
        wire.BWR: 3, wire.BRW: 9, wire.LRD: 3, wire.LWR: 3, wire.LRW: 9, wire.ARMW: 3, wire.FRMW: 3,
    }  # fmt: skip
    for command, counter in expected.items():
        by_station = command in (wire.FPRD, wire.FPWR, wire.FPRW, wire.FRMW)
        datagram = physical(command, 0x1002 if by_station else 1, 0x1000, bytes(2))
        if wire.LRD <= command <= wire.LRW:
            datagram = logical(command, 0, bytes(2))
        assert ask(bus, datagram)[0].working_counter == counter, command


def test_broadcast_read_is_an_or_and_counts_addresses_up() -> None:
    bus, _ = segment(3)
    for slave in range(3):
        ask(bus, physical(wire.APWR, slave, 0x1000, bytes([1 << slave])))
    (answer,) = ask(bus, physical(wire.BRD, 0, 0x1000, bytes([0x80])))
    assert (answer.data, answer.device, answer.working_counter) == (b"\x87", 3, 3)
    (answer,) = ask(bus, physical(wire.APRD, 2, 0x1000, bytes(1)))
    assert (answer.data, answer.device) == (b"\x04", 1)


def test_read_multiple_write_hands_one_slaves_data_to_those_behind() -> None:
    bus, _ = segment(4)
    for slave in range(4):
        ask(bus, physical(wire.APWR, slave, 0x10, bytes([slave + 1, 0x10])))
        ask(bus, physical(wire.APWR, slave, 0x1000, bytes([slave + 1])))
    (answer,) = ask(bus, physical(wire.FRMW, 0x1002, 0x1000, b"\x77"))
    assert (answer.data, answer.working_counter) == (b"\x02", 4)
    assert bus.memory[:, 0x1000].tolist() == [0x77, 2, 2, 2]


def test_alias_answers_only_when_enabled() -> None:
    bus, _ = segment(2)
    bus.memory[1, r.STATION_ALIAS] = 0x55
    question = physical(wire.FPRD, 0x55, 0x10, bytes(2))
    assert ask(bus, question)[0].working_counter == 0
    ask(bus, physical(wire.APWR, 1, r.DL_CONTROL_ALIAS, b"\x01"))
    assert ask(bus, question)[0].working_counter == 1


def test_bits_of_several_slaves_share_a_byte() -> None:
    bus, _ = segment(3)
    for slave in range(3):
        ask(bus, physical(wire.APWR, slave, 0x600, fmmu(0x100, 1, (2 * slave, 2 * slave + 1), 0x1000, 3, 2)))
        ask(bus, physical(wire.APWR, slave, 0x610, fmmu(0x101, 2, (2 * slave + 3, 2 * slave - 3 & 7), 0x1000, 3, 1)))
        bus.memory[slave, 0x1000] = 0xFF
    (answer,) = ask(bus, logical(wire.LRW, 0x100, bytes([0b00_01_10_11, 0, 0])))
    assert answer.working_counter == 9
    assert bus.memory[:, 0x1000].tolist() == [0b11111111, 0b11110111, 0b11101111]


def test_mailbox_is_handed_over_whole() -> None:
    bus, devices = segment(1)
    ask(bus, physical(wire.APWR, 0, 0x800, manager(0x1000, 8, 0x26) + manager(0x1040, 8, 0x22)))
    devices[0].events.clear()

    def write(register: int, data: bytes) -> int:
        return ask(bus, physical(wire.APWR, 0, register, data))[0].working_counter

    def read(register: int, count: int) -> int:
        return ask(bus, physical(wire.APRD, 0, register, bytes(count)))[0].working_counter

    assert write(0x1004, b"late") == 0
    assert read(0x1000, 8) == 0
    assert write(0x1000, b"earl") == 1
    assert not devices[0].events
    assert write(0x1004, b"late") == 1
    assert [kind for kind, _ in devices[0].events] == [r.EVENT_MAILBOX_IN]
    assert bus.memory[0, 0x805] & r.SM_STATUS_FULL
    assert write(0x1000, b"too much") == 0
    assert bus.memory[0, 0x1000:0x1008].tobytes() == b"earllate"
    assert read(0x1040, 8) == 0
    bus.memory[0, 0x80D] |= r.SM_STATUS_FULL
    assert read(0x1040, 7) == 1
    assert bus.memory[0, 0x80D] & r.SM_STATUS_FULL
    assert read(0x1047, 1) == 1
    assert not bus.memory[0, 0x80D] & r.SM_STATUS_FULL
    assert devices[0].events[-1][0] == r.EVENT_MAILBOX_OUT


def test_a_sync_manager_that_the_device_has_deactivated_locks_its_memory() -> None:
    bus, devices = segment(1)
    ask(bus, physical(wire.APWR, 0, 0x800, manager(0x1000, 4, 0x24) + manager(0x1040, 4, 0x20)))
    write, read = physical(wire.APWR, 0, 0x1000, b"abcd"), physical(wire.APRD, 0, 0x1040, bytes(4))
    bus.memory[0, [0x807, 0x80F]] = r.SM_PDI_DEACTIVATE
    devices[0].events.clear()
    bus.memory[0, 0x1040:0x1044] = 7
    assert [(a.working_counter, a.data) for a in ask(bus, write, read)] == [(0, b"abcd"), (0, bytes(4))]
    assert not bus.memory[0, 0x1000:0x1004].any()
    assert not devices[0].events
    ask(bus, physical(wire.APWR, 0, 0x806, b"\0"))  # switched off by the master it guards nothing
    assert ask(bus, physical(wire.APWR, 0, 0x1000, b"abcd"))[0].working_counter == 1
    bus.memory[0, 0x80F] = 0
    assert ask(bus, read)[0].working_counter == 1


def test_the_settings_of_a_sync_manager_can_be_written_while_it_is_off() -> None:
    bus, _ = segment(1)
    first, second = manager(0x1000, 8, 0x26), manager(0x1080, 16, 0x22)
    ask(bus, physical(wire.APWR, 0, 0x800, first))
    assert ask(bus, physical(wire.APWR, 0, 0x800, second))[0].working_counter == 1
    assert bus.memory[0, 0x800:0x808].tobytes() == first
    ask(bus, physical(wire.APWR, 0, 0x800, manager(0, 0, 0, active=0)))  # the last byte of which switches it off
    assert bus.memory[0, 0x800:0x808].tobytes() == first[:6] + bytes(2)
    ask(bus, physical(wire.APWR, 0, 0x800, second))
    assert bus.memory[0, 0x800:0x808].tobytes() == second


def test_several_events_of_a_frame_come_in_order() -> None:
    bus, devices = segment(1)
    devices[0].events.clear()
    ask(
        bus, physical(wire.BWR, 0, r.AL_CONTROL, b"\x02\x00"), physical(wire.BWR, 0, r.SII_CONTROL, b"\x00\x01"),
        physical(wire.BWR, 0, 0x800, manager(0x1000, 8, 0x26)), now=7,
    )  # fmt: skip
    assert devices[0].events == [(r.EVENT_SM_CHANGED, 7), (r.EVENT_SII, 7), (r.EVENT_AL_CONTROL, 7)]
    assert bus.memory[0, r.SII_CONTROL + 1] == 0x81  # busy until the device has answered


def test_malformed_datagrams_end_the_frame_and_are_counted() -> None:
    bus, _ = segment(2)
    frame = bytearray(build_frame([physical(wire.BWR, 0, 0x1000, b"\x11"), physical(wire.BWR, 0, 0x1001, b"\x22")]))
    frame[16 + 13 + 6] = 0xFF  # the second is longer than the frame
    ((_, answer),) = bus.exchange(bytes(frame), 0, 0)
    assert answer[16 + 11] == 2
    assert answer[16 + 13 :] == frame[16 + 13 :]
    assert bus.memory[:, 0x1000].tolist() == [0x11, 0x11]
    assert bus.memory[:, 0x1001].tolist() == [0, 0]
    assert bus.memory[:, r.PROCESSING_ERROR_COUNTER].tolist() == [1, 1]


def test_registers_of_the_device_cannot_be_written() -> None:
    bus, _ = segment(1)
    before = bus.memory[0].copy()
    for register in (0x0000, 0x0012, 0x0110, r.AL_STATUS, 0x0501, 0x0805, 0x092C, 0x0E00):
        assert ask(bus, physical(wire.APWR, 0, register, b"\xff"))[0].working_counter == 1
        assert bus.memory[0, register] == before[register]


datagrams = st.builds(
    Datagram, st.integers(0, 14), st.integers(0, 2**32 - 1), st.binary(max_size=60), st.integers(0, 255),
    st.integers(0, 65535), st.integers(0, 65535), st.booleans(),
)  # fmt: skip


def test_known_bytes() -> None:
    """Read of the AL status of the second slave by position, as in ETG.1000.4, figure of the datagram."""
    frame = build_frame([physical(wire.APRD, 1, 0x0130, bytes(2), index=0x80)])
    assert frame[:16].hex() == "ffffffffffff" + "020000000001" + "88a4" + "0e10"
    assert frame[16:30].hex() == "0180" + "ffff" + "3001" + "0200" + "0000" + "0000" + "0000"
    assert len(frame) == 60


@given(st.lists(datagrams, min_size=1, max_size=15))
def test_there_and_back(chain: list[Datagram]) -> None:
    assert parse_frame(build_frame(chain)) == chain


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
    with pytest.raises(FrameError, match=message):
        parse_frame(frame)


def test_too_much_or_nothing_is_refused() -> None:
    with pytest.raises(FrameError, match="at least one"):
        build_frame([])
    with pytest.raises(FrameError, match="a frame holds 1498"):
        build_frame([logical(wire.LRW, 0, bytes(1487))])
    assert len(build_frame([logical(wire.LRW, 0, bytes(1486))])) == wire.FRAME_MAX
