"""Data types of an object dictionary (ETG.1000.6, table "Data type area") and their encoding."""

import struct
from enum import IntEnum
from typing import TypeAlias

Value: TypeAlias = int | float | str | bytes


class DataType(IntEnum):
    """Data types by their index."""

    BOOLEAN = 0x0001
    INTEGER8 = 0x0002
    INTEGER16 = 0x0003
    INTEGER32 = 0x0004
    UNSIGNED8 = 0x0005
    UNSIGNED16 = 0x0006
    UNSIGNED32 = 0x0007
    REAL32 = 0x0008
    VISIBLE_STRING = 0x0009
    OCTET_STRING = 0x000A
    REAL64 = 0x0011
    INTEGER64 = 0x0015
    UNSIGNED64 = 0x001B
    BIT2 = 0x0031
    BIT4 = 0x0033
    # Types of records, used by object descriptions only.
    PDO_MAPPING = 0x0021
    IDENTITY = 0x0023
    SYNC_PARAMETER = 0x0029
    RECORD = 0x002A


_BITS = {DataType.BOOLEAN: 1, DataType.BIT2: 2, DataType.BIT4: 4, DataType.REAL32: 32, DataType.REAL64: 64}
_BITS |= {DataType[f"{kind}{bits}"]: bits for kind in ("INTEGER", "UNSIGNED") for bits in (8, 16, 32, 64)}
_SIGNED = (DataType.INTEGER8, DataType.INTEGER16, DataType.INTEGER32, DataType.INTEGER64)
_REAL_CODES = {DataType.REAL32: "f", DataType.REAL64: "d"}
_INTEGER_CODES = {8: "B", 16: "H", 32: "I", 64: "Q"}


def type_bits(kind: DataType) -> int | None:
    """Return the size of a type in bits, None for strings and records."""
    return _BITS.get(kind)


def is_string(kind: DataType) -> bool:
    """Return whether the type is a string, of variable length."""
    return kind in (DataType.VISIBLE_STRING, DataType.OCTET_STRING)


def is_real(kind: DataType) -> bool:
    """Return whether the type is a floating-point number."""
    return kind in _REAL_CODES


def integer_range(kind: DataType) -> tuple[int, int]:
    """Return the smallest and largest value of an integer type; raises `KeyError` if it has no fixed size."""
    bits = _BITS[kind]
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind in _SIGNED else (0, (1 << bits) - 1)


def struct_code(kind: DataType) -> str | None:
    """Return the format character of `struct` (little-endian without padding), None if there is none."""
    if kind in _REAL_CODES:
        return _REAL_CODES[kind]
    code = _INTEGER_CODES.get(_BITS.get(kind, 0))
    return code.lower() if code and kind in _SIGNED else code


def encode(kind: DataType, value: Value) -> bytes:
    """Return the bytes of a value in a mailbox; types under a byte take a whole one.

    Raises `OverflowError`, `struct.error`, `TypeError` or `UnicodeEncodeError` if the value does not fit the type.
    """
    if isinstance(value, str):
        return value.encode("latin-1")
    if isinstance(value, bytes):
        return value
    if kind in _REAL_CODES:
        return struct.pack("<" + _REAL_CODES[kind], value)
    return int(value).to_bytes((_BITS[kind] + 7) // 8, "little", signed=kind in _SIGNED)


def decode(kind: DataType, data: bytes) -> Value:
    """Return the value in `data`, of checked length."""
    if kind is DataType.VISIBLE_STRING:
        return data.rstrip(b"\0").decode("latin-1")
    if kind is DataType.OCTET_STRING:
        return data
    if kind in _REAL_CODES:
        (real,) = struct.unpack("<" + _REAL_CODES[kind], data)
        return float(real)
    return int.from_bytes(data, "little", signed=kind in _SIGNED)
