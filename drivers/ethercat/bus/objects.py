"""Objects of an object dictionary: types, and conversion between bytes, numbers and text (ETG.1000.6).

Types are named as in configurations, `u8` to `i64`, `f32`, `f64`; `str` is text and `hex` anything else.
"""

import re
import struct
from dataclasses import dataclass

from drivers.driver import DriverError

#: Names of types.
TYPES = ("u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f32", "f64", "str", "hex")

_DATA_TYPES = {
    0x01: "u8", 0x02: "i8", 0x03: "i16", 0x04: "i32", 0x05: "u8", 0x06: "u16", 0x07: "u32", 0x08: "f32", 0x09: "str",
    0x10: "i24", 0x11: "f64", 0x12: "i40", 0x13: "i48", 0x14: "i56", 0x15: "i64",
    0x16: "u24", 0x18: "u40", 0x19: "u48", 0x1A: "u56", 0x1B: "u64", 0x1E: "u8", 0x1F: "u16", 0x20: "u32",
    **dict.fromkeys(range(0x30, 0x38), "u8"),  # one to eight bits
}  # fmt: skip
_ADDRESS = re.compile(r"(?:0[xX])?([0-9A-Fa-f]{4})(?::(?:0[xX])?([0-9A-Fa-f]{1,2}))?")
_READ_PREOP, _READ, _WRITE_PREOP, _WRITE, _RX, _TX = 0x01, 0x07, 0x08, 0x38, 0x40, 0x80
_CODES = {7: "variable", 8: "array", 9: "record"}

Value = int | float | str


class ObjectValueError(DriverError, ValueError):
    """An invalid address, type or value; the message names what is valid."""


@dataclass(frozen=True)
class ObjectEntry:
    """SDO information of one entry."""

    index: int
    subindex: int
    name: str
    data_type: int
    bits: int
    access: int

    @property
    def type(self) -> str:
        """Name of its type; `hex` for any other."""
        return _DATA_TYPES.get(self.data_type, "hex")

    @property
    def readable(self) -> bool:
        """Whether it can be read in PRE-OP."""
        return bool(self.access & _READ_PREOP)

    @property
    def access_text(self) -> str:
        """`ro`, `wo` or `rw`, with `preop` if it can be written only there, and `rx` or `tx` if it can be mapped."""
        read, write = bool(self.access & _READ), bool(self.access & _WRITE)
        text = {(True, True): "rw", (True, False): "ro", (False, True): "wo", (False, False): "-"}[read, write]
        text += " preop" if self.access & _WRITE == _WRITE_PREOP else ""
        text += " rx" if self.access & _RX else ""
        return text + (" tx" if self.access & _TX else "")


@dataclass(frozen=True)
class ObjectInfo:
    """SDO information of an object."""

    index: int
    name: str
    code: int
    entries: tuple[ObjectEntry, ...]

    @property
    def kind(self) -> str:
        """`variable`, `array` or `record`."""
        return _CODES.get(self.code, f"code {self.code}")

    def entry(self, subindex: int) -> ObjectEntry | None:
        """Return the entry of a subindex, or None."""
        return next((entry for entry in self.entries if entry.subindex == subindex), None)


def parse_address(text: str) -> tuple[int, int]:
    """Return index and subindex of `6064:00`, `0x6064:0` or `6064` (hexadecimal); raises `ObjectValueError`."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        raise ObjectValueError(f"{text!r} is not an object: INDEX:SUB, hexadecimal, such as 6064:00")
    return int(match[1], 16), int(match[2] or "0", 16)


def size_of(kind: str) -> int | None:
    """Return the size of a type in bytes; None if it is variable."""
    return None if kind in ("str", "hex") else int(kind[1:]) // 8


def decode(kind: str, raw: bytes) -> Value:
    """Decode the bytes of an object; raises `ObjectValueError` if their number does not fit the type."""
    size = size_of(kind)
    if size is not None and len(raw) != size:
        raise ObjectValueError(f"the object has {len(raw)} bytes (hex {raw.hex()}), and {kind} has {size}")
    if kind == "str":
        return raw.split(b"\0")[0].decode("utf-8", "replace")
    if kind == "hex":
        return raw.hex()
    if kind.startswith("f"):
        value: float = struct.unpack("<f" if size == 4 else "<d", raw)[0]
        return value
    return int.from_bytes(raw, "little", signed=kind.startswith("i"))


def encode(kind: str, text: str) -> bytes:
    """Encode a value given as text, integers also as 0x..; raises `ObjectValueError`."""
    size = size_of(kind)
    try:
        if size is None:
            return text.encode() if kind == "str" else bytes.fromhex(text.removeprefix("0x"))
        if kind.startswith("f"):
            return struct.pack("<f" if size == 4 else "<d", float(text))
        return int(text, 0).to_bytes(size, "little", signed=kind.startswith("i"))
    except (ValueError, OverflowError, struct.error) as error:
        raise ObjectValueError(f"{text!r} is not a value of type {kind}{_range(kind)}") from error


def _range(kind: str) -> str:
    size = size_of(kind)
    if size is None:
        return ": pairs of hexadecimal digits"
    if kind.startswith("f"):
        return ": a number"
    bits = 8 * size
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind.startswith("i") else (0, (1 << bits) - 1)
    return f": {low} to {high}"
