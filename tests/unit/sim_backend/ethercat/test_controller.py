"""A slave's states, checks and errors, its process data, watchdog and power cycle."""

import struct
from collections.abc import Callable

import pytest

from sim_backend.ethercat import registers as reg
from tests.lab.ethercat.slave_bench import BOOT, INIT, OP, PREOP, SAFEOP, Bench

ACK = 0x10
SM0, SM1, SM2, SM3 = (reg.SM + k * reg.SM_SIZE for k in range(4))


@pytest.fixture
def bench() -> Bench:
    return Bench(alias=0x0ABC, serial=5)


def sync0(bench: Bench, cycle_ns: int, activation: int = 0x03) -> None:
    bench.write(reg.DC_SYNC0_CYCLE, struct.pack("<I", cycle_ns))
    bench.write(reg.DC_ACTIVATION, bytes((activation,)), reg.EVENT_DC_CHANGED)


def test_a_higher_state_takes_its_time_and_a_lower_one_does_not(bench: Bench) -> None:
    bench.mailboxes()
    assert bench.request(PREOP, ms=1.99) == (INIT, 0)
    bench.run(0.02)
    assert bench.status() == (PREOP, 0)
    assert bench.request(INIT, ms=0) == (INIT, 0)
    bench.request(PREOP, ms=1)
    bench.request(INIT, ms=1)  # the last request counts
    bench.run(10)
    assert bench.status() == (INIT, 0)


@pytest.mark.parametrize(
    ("state", "target", "code"),
    [(INIT, SAFEOP, 0x0011), (INIT, BOOT, 0x0013), (INIT, 7, 0x0012), (PREOP, OP, 0x0011), (SAFEOP, 15, 0x0012)],
)
def test_requests_that_no_state_allows(bench: Bench, state: int, target: int, code: int) -> None:
    if state == PREOP:
        bench.to_preop()
    elif state == SAFEOP:
        bench.to_safeop()
    assert bench.request(target) == (state | ACK, code)


def test_an_error_stays_until_it_is_acknowledged(bench: Bench) -> None:
    bench.mailboxes()
    bench.request(OP)
    assert bench.request(PREOP) == (INIT | ACK, 0x0011)
    assert bench.request(INIT | ACK) == (INIT, 0)
    bench.request(OP)
    assert bench.request(PREOP | ACK) == (PREOP, 0)
    bench.request(BOOT)
    assert bench.request(INIT) == (INIT, 0)  # INIT needs no acknowledgement


def change(address: int, data: bytes) -> Callable[[Bench], None]:
    return lambda bench: bench.write(address, data)


def test_preop_needs_the_mailbox_as_the_device_has_it(bench: Bench) -> None:
    for register, data in ((SM0 + reg.SM_START, b"\x02\x10"), (SM1 + reg.SM_LENGTH, b"\x01\x02"),
                           (SM1 + reg.SM_CONTROL, b"\x26"), (SM1 + reg.SM_ACTIVATE, b"\0")):  # fmt: skip
        bench.mailboxes()
        bench.write(register, data)
        assert bench.request(PREOP | ACK) == (INIT | ACK, 0x0016)


@pytest.mark.parametrize(
    ("spoil", "code"),
    [(change(SM2 + reg.SM_LENGTH, b"\x11\x00"), 0x001D), (change(SM2 + reg.SM_START, b"\x00\x20"), 0x001D),
     (change(SM2 + reg.SM_ACTIVATE, b"\x00"), 0x001D), (change(SM3 + reg.SM_CONTROL, b"\x22"), 0x001E)],
)  # fmt: skip
def test_safeop_needs_sync_managers_that_match_the_mapping(
    bench: Bench, spoil: Callable[[Bench], None], code: int
) -> None:
    bench.to_preop()
    assert bench.images() == (16, 18)
    spoil(bench)
    assert bench.request(SAFEOP) == (PREOP | ACK, code)
    bench.images()
    assert bench.request(SAFEOP | ACK) == (SAFEOP, 0)


def test_a_remapped_image_is_what_safeop_compares_with(bench: Bench) -> None:
    bench.to_preop()
    bench.images()
    words = struct.pack("<HII", 2, 0x60400010, 0x607A0020)
    assert bench.coe(b"\x00\x20" + struct.pack("<BHBI", 0x31, 0x1600, 0, len(words)) + words)[2] == 0x70
    assert bench.request(SAFEOP) == (PREOP | ACK, 0x001D)
    assert bench.images() == (6, 18)
    assert bench.request(SAFEOP | ACK) == (SAFEOP, 0)
    bench.outputs(struct.pack("<Hi", 15, -12345))
    assert bench.request(OP) == (OP, 0)
    assert bench.slave.latch_outputs()
    assert [bench.dictionary.entry(index).value for index in (0x6040, 0x607A)] == [15, -12345]


@pytest.mark.parametrize(
    ("cycle_ns", "activation", "code"),
    [(1_000_000, 3, 0), (249_999, 3, 0x35), (20_000_001, 3, 0x35), (0, 3, 0x35), (1_000_000, 2, 0x30), (0, 0, 0)],
)
def test_settings_of_sync0_are_checked(bench: Bench, cycle_ns: int, activation: int, code: int) -> None:
    bench.to_preop()
    bench.images()
    sync0(bench, cycle_ns, activation)
    assert bench.request(SAFEOP) == ((PREOP | ACK, code) if code else (SAFEOP, 0))
    if not code:
        assert bench.dictionary.read(0x1C32, 1, PREOP) == (b"\2\0" if activation else b"\0\0")
        assert bench.dictionary.entry(0x1C33, 2).value == cycle_ns


def test_a_device_that_needs_sync0_does_not_run_without() -> None:
    bench = Bench("harmonic_actuator")
    bench.to_safeop()
    bench.outputs(bytes(8))
    assert bench.request(OP) == (SAFEOP | ACK, 0x002D)
    sync0(bench, 2_000_000)
    assert bench.request(OP | ACK) == (OP, 0)
    sync0(bench, 1_000_000)
    assert bench.status() == (OP, 0)
    sync0(bench, 1_000_000, activation=0)
    assert bench.status() == (SAFEOP | ACK, 0x002C)


def test_op_waits_for_outputs_and_gives_up(bench: Bench) -> None:
    bench.to_safeop()
    assert bench.request(OP, ms=500) == (SAFEOP, 0)
    bench.outputs(bytes(16))
    bench.run(2)
    assert bench.status() == (OP, 0)
    bench.request(PREOP)
    bench.request(SAFEOP)
    assert bench.request(OP, ms=1100) == (SAFEOP | ACK, 0x0019)


def test_the_watchdog_trips_100_ms_after_the_last_outputs(bench: Bench) -> None:
    bench.to_op()
    bench.run(94)
    bench.outputs(bytes(16))
    bench.run(99.9)
    assert bench.status() == (OP, 0)
    assert bench.memory[reg.WATCHDOG_STATUS] == 1
    bench.run(0.2)
    assert bench.status() == (SAFEOP | ACK, 0x001B)
    assert bench.memory[reg.WATCHDOG_STATUS] == 0
    assert bench.memory[reg.WATCHDOG_PROCESS_DATA_COUNTER] == 1
    assert not bench.slave.latch_outputs()
    bench.outputs(bytes(16))
    assert bench.request(OP | ACK) == (OP, 0)


def test_the_watchdog_time_is_the_masters(bench: Bench) -> None:
    bench.write(reg.WATCHDOG_PROCESS_DATA_TIME, struct.pack("<H", 20))
    bench.to_safeop()
    bench.outputs(bytes(16))
    assert bench.request(OP, ms=2.1) == (OP, 0)
    bench.outputs(bytes(16))
    bench.run(1.9)
    assert bench.status() == (OP, 0)
    bench.run(0.2)
    assert bench.status()[1] == 0x001B


@pytest.mark.parametrize(
    "off", [change(reg.WATCHDOG_PROCESS_DATA_TIME, b"\0\0"), change(SM2 + reg.SM_CONTROL, b"\x24")]
)
def test_a_watchdog_may_be_off(bench: Bench, off: Callable[[Bench], None]) -> None:
    bench.to_safeop()
    off(bench)
    bench.outputs(bytes(16))
    bench.request(OP)
    bench.run(10_000)
    assert bench.status() == (OP, 0)


def test_inputs_are_published_from_safeop_on_and_outputs_taken_in_op(bench: Bench) -> None:
    bench.to_preop()
    bench.dictionary.entry(0x6064).value = -77
    bench.slave.publish_inputs()
    assert bench.read(0x1400, 18) == bytes(18)
    bench.images()
    bench.request(SAFEOP)
    bench.dictionary.entry(0x6041).value = 0x0250
    bench.slave.publish_inputs()
    assert struct.unpack("<Hi", bench.read(0x1400, 6)) == (0x0250, -77)
    bench.outputs(struct.pack("<Hiih", 6, 1, 2, 3) + bytes(4))
    assert not bench.slave.latch_outputs()
    assert bench.dictionary.entry(0x607A).value == 0
    bench.request(OP)
    assert bench.slave.latch_outputs()
    assert [bench.dictionary.entry(index).value for index in (0x6040, 0x607A, 0x60FF, 0x6071)] == [6, 1, 2, 3]


def test_an_error_of_the_device_falls_and_shows_its_code(bench: Bench) -> None:
    bench.to_op()
    bench.slave.raise_al_error(0x0050, PREOP)
    assert bench.status() == (PREOP | ACK, 0x0050)
    assert not bench.slave.latch_outputs()
    bench.slave.raise_al_error(0x0050, SAFEOP)  # never upwards
    assert bench.status() == (PREOP | ACK, 0x0050)
    assert bench.request(SAFEOP | ACK) == (SAFEOP, 0)


def test_a_sync_manager_taken_away_is_an_error(bench: Bench) -> None:
    bench.to_op()
    bench.sync_manager(3, 0x1400, 18, 0x20, activate=0)
    assert bench.status() == (PREOP | ACK, 0x001E)
    bench.sync_manager(0, 0x1000, 256, 0x26, activate=0)
    assert bench.status() == (INIT | ACK, 0x0016)


def test_a_power_cycle_forgets_all_but_the_eeprom(bench: Bench) -> None:
    bench.write(reg.SII_CONTROL, struct.pack("<HIH", 0x0201, 0x10, 0xBEEF), reg.EVENT_SII)
    bench.run(1)
    bench.to_preop()
    bench.coe(b"\x00\x20" + struct.pack("<BHBI", 0x2F, 0x1C12, 0, 0))
    bench.images()
    bench.request(SAFEOP)
    bench.slave.emergency(0x1000, 1)
    bench.slave.power_on()
    assert bench.status() == (INIT, 0)
    assert bench.read(SM0, 32) == bytes(16) + 2 * (bytes(7) + b"\1")  # no process data for now
    assert bench.word(reg.STATION_ADDRESS) == 0
    assert bench.dictionary.read_complete(0x1C12, 0, PREOP) == struct.pack("<HH", 1, 0x1600)
    assert bench.dictionary.entry(0x1001).value == 0
    bench.write(reg.SII_CONTROL, struct.pack("<HI", 0x0100, 0x10), reg.EVENT_SII)
    bench.run(1)
    assert bench.word(reg.SII_DATA) == 0xBEEF
    bench.to_preop()
    assert bench.receive() is None
