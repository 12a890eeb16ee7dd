"""Slave information interface: EEPROM from a profile (ETG.2010, ETG.1000.6), and its command register (ETG.1000.4)."""

import struct
from collections.abc import Iterable

from sim_backend.canopen.dictionary import ObjectDictionary
from sim_backend.ethercat import registers as reg
from sim_backend.ethercat._communication import build_dictionary
from sim_backend.ethercat._profile import DeviceProfile, PdoProfile
from sim_backend.ethercat.registers import UInt8Array

SIZE = 4096
"""Bytes of the EEPROM."""

# Words.
ALIAS, CHECKSUM, VENDOR, MAILBOX, SIZE_WORD, CATEGORIES = 0x04, 0x07, 0x08, 0x18, 0x3E, 0x40

_COE = 0x0004
_STRINGS, _GENERAL, _FMMU, _SYNC_MANAGERS, _TX_PDO, _RX_PDO, _DC = 10, 30, 40, 41, 50, 51, 60
_END = 0xFFFF
_NOT_ASSIGNED = 0xFF

SM_CONTROLS = (0x26, 0x22, 0x64, 0x20)
"""Control bytes of the four sync managers: mailboxes; outputs with watchdog; inputs."""


def checksum(data: bytes) -> int:
    """Return the CRC-8 (x^8 + x^2 + x + 1, start 0xFF) of the first 14 bytes, which the controller checks."""
    crc = 0xFF
    for byte in data[:14]:
        crc ^= byte
        for _ in range(8):
            crc = (crc << 1 ^ 0x07 if crc & 0x80 else crc << 1) & 0xFF
    return crc


def build_sii(profile: DeviceProfile, *, alias: int = 0, serial: int = 0) -> bytes:
    """Return the content of a slave's EEPROM, `SIZE` bytes, with station alias (16 bits) and serial number (32 bits).

    Raises `ValueError` if the content does not fit.
    """
    identity, mailbox = profile.identity, profile.mailbox
    head = bytearray(2 * CATEGORIES)
    struct.pack_into("<5H", head, 0, 0x0C05, 0, 0, 0, alias)
    head[2 * CHECKSUM] = checksum(bytes(head))
    struct.pack_into("<4I", head, 2 * VENDOR, identity.vendor_id, identity.product_code, identity.revision, serial)
    areas = (mailbox.receive_start, mailbox.receive_bytes, mailbox.send_start, mailbox.send_bytes)
    struct.pack_into("<5H", head, 2 * MAILBOX, *areas, _COE)
    struct.pack_into("<2H", head, 2 * SIZE_WORD, SIZE // 128 - 1, 1)  # size in kibit less one, version

    strings = _Strings()
    dictionary = build_dictionary(profile)
    general = _general(profile, strings)
    rx = b"".join(_pdo(pdo, dictionary, strings, 2, profile.outputs.assigned) for pdo in profile.rx_pdos)
    tx = b"".join(_pdo(pdo, dictionary, strings, 3, profile.inputs.assigned) for pdo in profile.tx_pdos)
    clocks = _clocks(strings)
    image = bytes(head)
    for number, data in (
        (_STRINGS, strings.encode()),
        (_GENERAL, general),
        (_FMMU, bytes((1, 2, 3, 0))),  # outputs, inputs, mailbox state
        (_SYNC_MANAGERS, _sync_managers(profile)),
        (_TX_PDO, tx),
        (_RX_PDO, rx),
        (_DC, clocks),
    ):
        data += b"\0" * (len(data) % 2)
        image += struct.pack("<2H", number, len(data) // 2) + data
    image += struct.pack("<H", _END)
    if len(image) > SIZE:
        raise ValueError(f"the SII of {identity.device_name} takes {len(image)} bytes, more than {SIZE}")
    return image.ljust(SIZE, b"\xff")


class _Strings:
    """Category of texts, which other categories reference by number."""

    def __init__(self) -> None:
        self._texts: list[bytes] = []

    def number(self, text: str) -> int:
        """Add a text and return its number; 0 for an empty text, or if there are too many."""
        data = text.encode("latin-1", "replace")[:255]
        if not data or (data not in self._texts and len(self._texts) == 255):
            return 0
        if data not in self._texts:
            self._texts.append(data)
        return self._texts.index(data) + 1

    def encode(self) -> bytes:
        """Return the category's bytes."""
        return bytes((len(self._texts),)) + b"".join(bytes((len(text),)) + text for text in self._texts)


def _general(profile: DeviceProfile, strings: _Strings) -> bytes:
    identity = profile.identity
    details = 0x01 | 0x02 * profile.mailbox.sdo_information
    details |= 0x04 * (profile.pdo_access != "fixed") | 0x08 * (profile.pdo_access == "remap")
    details |= 0x10 | 0x20 * profile.mailbox.complete_access  # upload at startup
    name = strings.number(identity.device_name)  # the first text: some masters show that one as the name
    group, order = strings.number(identity.group), strings.number(identity.order_number)
    # Group, picture, order, name; CoE, FoE, EoE, SoE, DS402 channels, class; flags; current; ports.
    data = struct.pack("<12BhBBHH", group, 0, order, name, 0, details, 0, 0, 0, 1, 0, 0, 0, group, 0, 0x0011, 0)
    return data.ljust(32, b"\0")


def _sync_managers(profile: DeviceProfile) -> bytes:
    def length(pdos: Iterable[PdoProfile], assigned: tuple[int, ...]) -> int:
        return (sum(pdo.bits for pdo in pdos if pdo.index in assigned) + 7) // 8

    mailbox, outputs, inputs = profile.mailbox, profile.outputs, profile.inputs
    areas = (
        (mailbox.receive_start, mailbox.receive_bytes), (mailbox.send_start, mailbox.send_bytes),
        (outputs.start, length(profile.rx_pdos, outputs.assigned)),
        (inputs.start, length(profile.tx_pdos, inputs.assigned)),
    )  # fmt: skip
    return b"".join(
        struct.pack("<2H4B", *area, control, 0, 1, kind)
        for kind, (area, control) in enumerate(zip(areas, SM_CONTROLS, strict=True), start=1)
    )


def _pdo(
    pdo: PdoProfile, dictionary: ObjectDictionary, strings: _Strings, manager: int, assigned: tuple[int, ...]
) -> bytes:
    manager = manager if pdo.index in assigned else _NOT_ASSIGNED
    data = struct.pack("<H4BH", pdo.index, len(pdo.entries), manager, 0, strings.number(pdo.name), 0)
    for item in pdo.entries:
        entry = dictionary.find(item.index, item.subindex)
        name, kind = (strings.number(entry.name), int(entry.type)) if entry is not None else (0, 0)
        data += struct.pack("<H4BH", item.index, item.subindex, name, kind, item.bits, 0)
    return data


def _clocks(strings: _Strings) -> bytes:
    data = b""
    for name, activate in (("FreeRun", 0), ("DC-Synchron", 0x0300)):
        data += struct.pack("<IIIhHhBB4x", 0, 0, 0, 0, activate, 0, strings.number(name), 0)
    return data


class SiiInterface:
    """Command register of a slave's EEPROM, and the EEPROM.

    `memory` (0x3000,) is the slave's; `image`, the initial content, survives power cycles; a command takes `busy_ns`.
    """

    def __init__(self, memory: UInt8Array, image: bytes, busy_ns: int = 20_000) -> None:
        self._view = memory.data
        self.image = bytearray(image)
        self._busy_ns = busy_ns
        self._command = 0
        self._word = 0
        self._data = b""
        self._status = 0
        self.due_ns = reg.NEVER_NS

    def power_on(self) -> None:
        """Load the configuration area into the registers."""
        self._command, self.due_ns = 0, reg.NEVER_NS
        self._status = reg.SII_READ_8_BYTES | reg.SII_TWO_BYTE_ADDRESS | self._load()
        self._set_status(0)

    def start(self, now_ns: int) -> None:
        """Start the command that the master has written; ignored while one runs."""
        if self.due_ns != reg.NEVER_NS:
            self._set_status(reg.SII_BUSY)
            return
        (control,) = struct.unpack_from("<H", self._view, reg.SII_CONTROL)
        errors = reg.SII_ACKNOWLEDGE_ERROR | reg.SII_WRITE_ENABLE_ERROR
        self._status &= ~errors
        self._command = control & reg.SII_COMMAND_MASK
        if self._command == reg.SII_COMMAND_WRITE and not control & reg.SII_WRITE_ENABLE:
            self._status |= reg.SII_WRITE_ENABLE_ERROR
            self._command = 0
        elif self._command not in (0, reg.SII_COMMAND_READ, reg.SII_COMMAND_WRITE, reg.SII_COMMAND_RELOAD):
            self._status |= reg.SII_ACKNOWLEDGE_ERROR
            self._command = 0
        if self._command == 0:
            self._set_status(0)
            return
        (self._word,) = struct.unpack_from("<I", self._view, reg.SII_ADDRESS)
        self._data = bytes(self._view[reg.SII_DATA : reg.SII_DATA + 2])
        self.due_ns = now_ns + self._busy_ns
        self._set_status(reg.SII_BUSY)
        self.tick(now_ns)

    def tick(self, now_ns: int) -> None:
        """Finish the command that is due."""
        if now_ns < self.due_ns:
            return
        self.due_ns = reg.NEVER_NS
        first = 2 * self._word
        if self._command == reg.SII_COMMAND_RELOAD:
            self._status = self._status & ~reg.SII_CHECKSUM_ERROR | self._load()
        elif first + 2 > len(self.image):
            self._status |= reg.SII_ACKNOWLEDGE_ERROR
        elif self._command == reg.SII_COMMAND_READ:
            self._view[reg.SII_DATA : reg.SII_DATA + 8] = bytes(self.image[first : first + 8]).ljust(8, b"\xff")
        else:
            self.image[first : first + 2] = self._data
        self._command = 0
        self._set_status(0)

    def _load(self) -> int:
        """Load the alias if the checksum is valid; return the error bits of the status."""
        if self.image[2 * CHECKSUM] != checksum(bytes(self.image)):
            return reg.SII_CHECKSUM_ERROR
        self._view[reg.STATION_ALIAS : reg.STATION_ALIAS + 2] = bytes(self.image[2 * ALIAS : 2 * ALIAS + 2])
        return 0

    def _set_status(self, busy: int) -> None:
        struct.pack_into("<H", self._view, reg.SII_CONTROL, self._status | self._command | busy)
