"""The EEPROM: its content read back as a master does, and its command register."""

import struct

import numpy as np
import pytest

from sim_backend.ethercat import registers as reg
from sim_backend.ethercat._profile import load_profile
from sim_backend.ethercat._sii import SIZE, SiiInterface, build_sii, checksum

US = 1_000


def test_the_checksum_is_the_remainder_of_a_division() -> None:
    head = bytes.fromhex("05 0c 03 ee 00 00 00 00 12 34 00 00 00 00")
    assert checksum(head) == _crc_by_division(head) != checksum(bytes(14))


def _crc_by_division(data: bytes) -> int:
    """Remainder of the polynomial division, bit by bit on one long number; start value 0xFF as an XOR of the head."""
    number = int.from_bytes(data, "big") << 8
    number ^= 0xFF << (8 * len(data))
    for bit in range(8 * len(data) + 7, 7, -1):
        if number >> bit & 1:
            number ^= 0x107 << (bit - 8)
    return number


@pytest.mark.parametrize("name", ["compact_csp", "generic_servo"])
def test_a_master_finds_identity_and_mailbox(name: str) -> None:
    profile = load_profile(name)
    image = build_sii(profile, alias=0x1234, serial=99)
    assert len(image) == SIZE == (struct.unpack_from("<H", image, 0x7C)[0] + 1) * 128
    assert struct.unpack_from("<H", image, 8) == (0x1234,)
    assert image[14] == _crc_by_division(image[:14])
    identity = profile.identity
    assert struct.unpack_from("<4I", image, 16) == (identity.vendor_id, identity.product_code, identity.revision, 99)
    box = profile.mailbox
    areas = (box.receive_start, box.receive_bytes, box.send_start, box.send_bytes, 4)
    assert struct.unpack_from("<5H", image, 0x30) == areas
    assert identity.device_name.encode() in image
    assert identity.order_number.encode() in image


class Eeprom:
    """A master at the command register."""

    def __init__(self, image: bytes) -> None:
        self.memory = np.zeros(reg.MEMORY_SIZE, np.uint8)
        self.sii = SiiInterface(self.memory, image, busy_ns=20 * US)
        self.sii.power_on()

    def command(self, command: int, word: int = 0, data: bytes = b"", wait_us: int = 20) -> int:
        self.memory[0x0502:0x0508] = list(struct.pack("<HI", self.status() & 0xF8FE | command, word))
        self.memory[0x0508 : 0x0508 + len(data)] = list(data)
        self.sii.start(0)
        self.sii.tick(wait_us * US)
        return self.status()

    def status(self) -> int:
        return int(struct.unpack("<H", self.memory[0x0502:0x0504].tobytes())[0])

    def data(self) -> bytes:
        return self.memory[0x0508:0x0510].tobytes()


@pytest.fixture
def eeprom() -> Eeprom:
    return Eeprom(build_sii(load_profile("generic_servo"), alias=7))


def test_eight_bytes_come_after_a_time_of_being_busy(eeprom: Eeprom) -> None:
    assert eeprom.status() & 0x0040  # reads 8 bytes
    assert eeprom.command(0x0100, 0x08, wait_us=19) & 0x8100 == 0x8100
    assert eeprom.data() == bytes(8)
    eeprom.sii.tick(20 * US)
    assert eeprom.status() & 0xFF00 == 0
    assert eeprom.data() == struct.pack("<II", 0xE5A, 0x1001)


def test_a_word_is_written_only_when_enabled(eeprom: Eeprom) -> None:
    assert eeprom.command(0x0200, 0x04, b"\x34\x12") & 0x4000
    assert eeprom.sii.image[8:10] == b"\7\0"
    assert eeprom.command(0x0000) & 0x7800 == 0  # clears the error
    assert eeprom.command(0x0201, 0x04, b"\x34\x12") & 0xF800 == 0
    eeprom.command(0x0100, 0x04)
    assert eeprom.data()[:2] == b"\x34\x12"
    assert not eeprom.status() & 0x0001


def test_an_address_beyond_is_not_acknowledged(eeprom: Eeprom) -> None:
    assert eeprom.command(0x0100, SIZE // 2) & 0x2000
    assert eeprom.command(0x0201, SIZE // 2, b"\1\1") & 0x2000
    assert eeprom.command(0x0300) & 0x2000
    assert eeprom.command(0x0100, SIZE // 2 - 1) & 0x2000 == 0
    assert eeprom.data() == b"\xff" * 8


def test_a_reload_takes_the_alias_over_if_the_checksum_is_right(eeprom: Eeprom) -> None:
    def alias() -> int:
        return int(struct.unpack("<H", eeprom.memory[0x0012:0x0014].tobytes())[0])

    assert alias() == 7
    eeprom.command(0x0201, 0x04, b"\x09\x00")
    assert eeprom.command(0x0400) & 0x0800
    assert alias() == 7
    eeprom.command(0x0201, 0x07, bytes((_crc_by_division(bytes(eeprom.sii.image[:14])), 0)))
    assert not eeprom.command(0x0400) & 0x0800
    assert alias() == 9
