"""Slave EEPROM (SII, ETG.2010), read through the controller's registers (ETG.1000.4); its owner is restored."""

import struct
import time
from dataclasses import dataclass, field

from drivers.driver import DriverConnectionError
from drivers.ethercat.bus.bus import Bus

_REG_OWNER, _REG_CONTROL, _REG_DATA = 0x0500, 0x0502, 0x0508
_READ, _BUSY, _ERRORS, _EIGHT_BYTES = 0x0100, 0x8000, 0x7800, 0x0040
_TIMEOUT_S = 0.1
_MAILBOX, _SIZE, _CATEGORIES = 0x18, 0x3E, 0x40  # words
_STRINGS, _GENERAL, _TX_PDO, _RX_PDO, _DC, _END = 10, 30, 50, 51, 60, 0xFFFF
_MAX_CATEGORIES = 64
_PROTOCOLS = {0x01: "AoE", 0x02: "EoE", 0x04: "CoE", 0x08: "FoE", 0x10: "SoE", 0x20: "VoE"}
_COE_DETAILS = {
    0x01: "SDO", 0x02: "SDO information", 0x04: "PDO assignment", 0x08: "PDO configuration", 0x10: "upload at startup",
    0x20: "complete access",
}  # fmt: skip


@dataclass(frozen=True)
class SiiPdo:
    """A PDO in the EEPROM; `entries` are index, subindex, bits, name."""

    index: int
    name: str
    sync_manager: int | None  # None: not assigned
    entries: tuple[tuple[int, int, int, str], ...]


@dataclass
class Sii:
    """Content of an EEPROM."""

    size_bytes: int
    receive_mailbox: tuple[int, int]  # start, length
    send_mailbox: tuple[int, int]
    protocols: list[str]
    name: str = ""
    order: str = ""
    group: str = ""
    coe: list[str] = field(default_factory=list)
    current_ma: int = 0  # taken from the bus (E-bus)
    dc_modes: list[str] = field(default_factory=list)
    rx: list[SiiPdo] = field(default_factory=list)
    tx: list[SiiPdo] = field(default_factory=list)


def read_sii(bus: Bus, position: int) -> Sii:
    """Read and interpret a slave's EEPROM.

    Raises `DriverConnectionError` if slave or EEPROM do not answer, or the EEPROM has another owner.
    """
    owner = bus.registers(position, _REG_OWNER, 1)[0]
    if owner & 0x01:  # by the drive's own processor; masters may take it over
        bus.write_register(position, _REG_OWNER, b"\x02")
        bus.write_register(position, _REG_OWNER, b"\x00")
    try:
        return _interpret(_Reader(bus, position))
    finally:
        if owner & 0x01:
            bus.write_register(position, _REG_OWNER, b"\x01")


class _Reader:
    def __init__(self, bus: Bus, position: int) -> None:
        self._bus, self._position = bus, position

    def read(self, word: int, size: int) -> bytes:
        """Return `size` bytes from a word address."""
        data = b""
        while len(data) < size:
            data += self._step(word + len(data) // 2)
        return data[:size]

    def _step(self, word: int) -> bytes:
        self._ready()
        self._bus.write_register(self._position, _REG_CONTROL, struct.pack("<HI", _READ, word))
        status = self._ready()
        if status & _ERRORS:
            raise DriverConnectionError(
                f"the EEPROM of the slave at position {self._position} cannot be read at word 0x{word:X} "
                f"(status 0x{status:04X})"
            )
        return self._bus.registers(self._position, _REG_DATA, 8 if status & _EIGHT_BYTES else 4)

    def _ready(self) -> int:
        until = time.monotonic() + _TIMEOUT_S
        while (status := int.from_bytes(self._bus.registers(self._position, _REG_CONTROL, 2), "little")) & _BUSY:
            if time.monotonic() > until:
                raise DriverConnectionError(f"the EEPROM of the slave at position {self._position} stays busy")
        return status


def _interpret(reader: _Reader) -> Sii:
    rx_start, rx_size, tx_start, tx_size, protocols = struct.unpack("<5H", reader.read(_MAILBOX, 10))
    (kibit,) = struct.unpack("<H", reader.read(_SIZE, 2))
    sii = Sii((kibit + 1) * 128, (rx_start, rx_size), (tx_start, tx_size), _bits(_PROTOCOLS, protocols))
    parts = _categories(reader, sii.size_bytes // 2)
    texts = _strings(parts.get(_STRINGS, b""))
    if len(general := parts.get(_GENERAL, b"")) >= 16:
        sii.group, sii.order, sii.name = (_pick(texts, general[k]) for k in (0, 2, 3))
        sii.coe = _bits(_COE_DETAILS, general[5])
        (sii.current_ma,) = struct.unpack_from("<h", general, 12)
    clocks = parts.get(_DC, b"")
    sii.dc_modes = [name for k in range(0, len(clocks) - 23, 24) if (name := _pick(texts, clocks[k + 18]))]
    sii.rx, sii.tx = _pdos(parts.get(_RX_PDO, b""), texts), _pdos(parts.get(_TX_PDO, b""), texts)
    return sii


def _categories(reader: _Reader, words: int) -> dict[int, bytes]:
    parts: dict[int, bytes] = {}
    word = _CATEGORIES
    for _ in range(_MAX_CATEGORIES):
        if word + 2 > words:
            break
        kind, length = struct.unpack("<HH", reader.read(word, 4))
        if kind == _END or word + 2 + length > words:
            break
        if kind in (_STRINGS, _GENERAL, _TX_PDO, _RX_PDO, _DC):
            parts[kind] = parts.get(kind, b"") + reader.read(word + 2, 2 * length)
        word += 2 + length
    return parts


def _bits(names: dict[int, str], word: int) -> list[str]:
    return [name for bit, name in names.items() if word & bit]


def _strings(data: bytes) -> list[str]:
    texts, place = [], 1
    for _ in range(data[0] if data else 0):
        if place >= len(data):
            break
        texts.append(data[place + 1 : place + 1 + data[place]].decode("latin-1"))
        place += 1 + data[place]
    return texts


def _pick(texts: list[str], number: int) -> str:
    return texts[number - 1] if 1 <= number <= len(texts) else ""


def _pdos(data: bytes, texts: list[str]) -> list[SiiPdo]:
    pdos, place = [], 0
    while place + 8 <= len(data):
        index, count, manager, _, name, _ = struct.unpack_from("<HBBBBH", data, place)
        place += 8
        if not index or place + 8 * count > len(data):
            break
        entries = []
        for k in range(count):
            item, subindex, text, _, bits, _ = struct.unpack_from("<HBBBBH", data, place + 8 * k)
            entries.append((item, subindex, bits, _pick(texts, text)))
        place += 8 * count
        pdos.append(SiiPdo(index, _pick(texts, name), manager if manager < 16 else None, tuple(entries)))
    return pdos
