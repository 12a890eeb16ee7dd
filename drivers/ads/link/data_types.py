"""Symbols and data types as a server uploads them, and conversion of values.

Formats: Beckhoff's `AdsSymbolEntry` and `AdsDatatypeEntry` (TwinCAT ADS specification).  For a server without data
types, the names of types and their ADS codes are used.
"""

import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from drivers.ads._errors import AdsReplyError, AdsSymbolError

_SYMBOL = struct.Struct("<6I3H")
_TYPE = struct.Struct("<8I5H")
_TEXT = "windows-1252"
#: Flags of a data type or of a member.
_BITS, _METHOD, _PROPERTY, _STATIC = 0x20, 0x08, 0x40, 0x20000
_GUID, _COPY_MASK, _METHODS, _ATTRIBUTES, _ENUMERATION = 0x80, 0x200, 0x800, 0x1000, 0x2000
BIG_TYPE = 65  # structures, function blocks, arrays of them
#: ADS code -> struct format; 30 and 31 are STRING and WSTRING.
CODES = {2: "h", 3: "i", 4: "f", 5: "d", 16: "b", 17: "B", 18: "H", 19: "I", 20: "q", 21: "Q", 33: "B"}
#: IEC type -> struct format.
IEC_FORMATS = {
    "BOOL": "?", "BIT": "?", "BYTE": "B", "USINT": "B", "SINT": "b", "WORD": "H", "UINT": "H", "INT": "h", "DWORD": "I",
    "UDINT": "I", "DINT": "i", "LWORD": "Q", "ULINT": "Q", "LINT": "q", "REAL": "f", "LREAL": "d", "TIME": "I",
    "TOD": "I", "TIME_OF_DAY": "I", "DATE": "I", "DT": "I", "DATE_AND_TIME": "I", "LTIME": "Q", "LDT": "Q",
    "LDATE": "Q", "LTOD": "Q", "HRESULT": "i", "BITARR8": "B", "BITARR16": "H", "BITARR32": "I", "INT8": "b",
    "UINT8": "B", "INT16": "h", "UINT16": "H", "INT32": "i", "UINT32": "I", "INT64": "q", "UINT64": "Q",
}  # fmt: skip
_UNSIGNED = {1: "B", 2: "H", 4: "I", 8: "Q"}
_ARRAY = re.compile(r"^\s*ARRAY\s*\[(?P<bounds>[^\]]*)\]\s*OF\s+(?P<element>.+)$", re.IGNORECASE | re.DOTALL)
_BOUND = re.compile(r"^\s*(-?\d+)\s*\.\.\s*(-?\d+)\s*$")
_STRING = re.compile(r"^(W?)STRING\s*(?:[(\[]\s*(\d+)\s*[)\]])?$", re.IGNORECASE)
_REFERENCE = re.compile(r"^\s*REFERENCE\s+TO\s+(.+)$", re.IGNORECASE | re.DOTALL)
_DEEPEST = 32


@dataclass(frozen=True)
class Symbol:
    """One variable of the PLC."""

    name: str
    group: int
    offset: int
    size: int
    code: int = BIG_TYPE
    type: str = ""  # empty if unknown
    comment: str = ""


@dataclass(frozen=True)
class DataType:
    """A data type, or a member of a structure."""

    name: str  # of a member, its own
    type: str
    size: int  # [bytes], as the offset; in bits where `bits`
    offset: int
    code: int
    comment: str = ""
    bits: bool = False
    bounds: tuple[tuple[int, int], ...] = ()  # lower bound and number of elements of an array
    members: "tuple[DataType, ...]" = ()  # of a structure, those with a place in memory
    names: tuple[tuple[str, bytes], ...] = ()  # of an enumeration, with the bytes of their values


def _texts(raw: memoryview, at: int, lengths: tuple[int, ...], where: str) -> tuple[list[str], int]:
    texts = []
    for length in lengths:
        if at + length > len(raw):  # some servers leave out the NUL of the last
            raise AdsReplyError(f"{where}: an entry is shorter than its texts")
        texts.append(bytes(raw[at : at + length]).decode(_TEXT, "replace"))
        at += length + 1
    return texts, at


def parse_symbol(raw: memoryview) -> tuple[Symbol, int]:
    """Parse the symbol at the start of `raw`; return it and its length in bytes; raises `AdsReplyError`."""
    if len(raw) < _SYMBOL.size:
        raise AdsReplyError("symbol upload: an entry is cut off")
    length, group, offset, size, code, _, *lengths = _SYMBOL.unpack_from(raw)
    if not _SYMBOL.size <= length <= len(raw):
        raise AdsReplyError(f"symbol upload: an entry states {length} bytes of {len(raw)}")
    (name, kind, comment), _ = _texts(raw[:length], _SYMBOL.size, tuple(lengths), "symbol upload")
    return Symbol(name, group, offset, size, code, kind.strip(), comment), length


def parse_type(raw: memoryview, depth: int = 0) -> tuple[DataType, int]:
    """Parse the data type at the start of `raw`; return it and its length in bytes; raises `AdsReplyError`."""
    where = "data type upload"
    if len(raw) < _TYPE.size or depth > _DEEPEST:
        raise AdsReplyError(f"{where}: an entry is cut off")
    length, _, _, _, size, offset, code, flags, *lengths, dimensions, members = _TYPE.unpack_from(raw)
    if not _TYPE.size <= length <= len(raw):
        raise AdsReplyError(f"{where}: an entry states {length} bytes of {len(raw)}")
    raw = raw[:length]
    (name, kind, comment), at = _texts(raw, _TYPE.size, tuple(lengths), where)
    if at + 8 * dimensions > length:
        raise AdsReplyError(f"{where}: type {name!r} is cut off")
    bounds = tuple(struct.unpack_from("<iI", raw, at + 8 * k) for k in range(dimensions))
    at += 8 * dimensions
    found = []
    for _ in range(members):
        member, used, hidden = _parse_member(raw[at:], depth)
        at += used
        if not hidden:
            found.append(member)
    bits, names = bool(flags & _BITS), _names(bytes(raw[at:]), flags, size)
    return DataType(name, kind.strip(), size, offset, code, comment, bits, bounds, tuple(found), names), length


def _names(raw: bytes, flags: int, size: int) -> tuple[tuple[str, bytes], ...]:
    """Return names and values of an enumeration from what follows the members of its entry; none if it is cut off."""
    if not flags & _ENUMERATION or flags & _METHODS:  # an enumeration has no methods
        return ()
    at = 16 * bool(flags & _GUID) + size * bool(flags & _COPY_MASK)
    found: list[tuple[str, bytes]] = []
    try:
        if flags & _ATTRIBUTES:
            count, at = struct.unpack_from("<H", raw, at)[0], at + 2
            for _ in range(count):
                at += 4 + raw[at] + raw[at + 1]  # lengths of name and value, and the NUL of each
        count, at = struct.unpack_from("<H", raw, at)[0], at + 2
        for _ in range(count):
            start, end = at + 1, at + 1 + raw[at]
            at = end + 1 + size
            found.append((raw[start:end].decode(_TEXT, "replace"), raw[end + 1 : at]))
    except (struct.error, IndexError):
        return ()
    return tuple(found) if at <= len(raw) else ()


def _parse_member(raw: memoryview, depth: int) -> tuple[DataType, int, bool]:
    member, used = parse_type(raw, depth + 1)
    flags = _TYPE.unpack_from(raw)[7]
    return member, used, bool(flags & (_METHOD | _PROPERTY | _STATIC))


def referenced(name: str) -> str | None:
    """Return the type that a `REFERENCE TO` refers to; None if `name` is none."""
    match = _REFERENCE.match(name)
    return match[1].strip() if match else None


def array_of(name: str) -> tuple[tuple[tuple[int, int], ...] | None, str] | None:
    """Parse `ARRAY [..] OF ..` to bounds (lower, count) and element type; None if `name` is no array.

    The bounds are None if they are not numbers.
    """
    match = _ARRAY.match(name)
    if match is None:
        return None
    bounds = []
    for part in match["bounds"].split(","):
        numbers = _BOUND.match(part)
        if numbers is None:
            return None, match["element"].strip()
        low, high = int(numbers[1]), int(numbers[2])
        bounds.append((low, high - low + 1))
    return tuple(bounds), match["element"].strip()


@dataclass(frozen=True)
class Shape:
    """Interpretation of the bytes of a value."""

    kind: str  # "number", "address", "string", "wstring", "array", "structure", "bit" or "bytes"
    size: int  # [bytes]
    format: str = ""  # of a number or an address, as `struct` has it
    count: int = 0  # of an array; `element` is the shape of each
    element: "Shape | None" = None
    members: "tuple[tuple[str, int, Shape], ...]" = field(default=())  # name, offset, shape; offset in bits of a bit
    names: tuple[tuple[str, bytes], ...] = ()  # of an enumeration, with the bytes of their values

    @property
    def known(self) -> bool:
        """Whether the type is known; otherwise values are bytes."""
        if self.kind == "array":
            return self.element is not None and self.element.known
        return self.kind != "bytes"


Find = Callable[[str], DataType | None]


def shape_of(kind: str, size: int, code: int, find: Find, depth: int = 0) -> Shape:
    """Return the shape of a value of type `kind`, `size` bytes and ADS code; `find` looks up a data type."""
    raw = Shape("bytes", size)
    if depth > _DEEPEST:
        return raw
    plain = kind.strip().upper()
    array = array_of(kind)
    if array is not None and array[0]:
        return _array(array[0], array[1], size, code, find, depth)
    if text := _STRING.match(plain):
        return Shape("wstring" if text[1] else "string", size)
    if plain in IEC_FORMATS and struct.calcsize("<" + IEC_FORMATS[plain]) == size:
        return Shape("number", size, IEC_FORMATS[plain])
    if plain.startswith(("POINTER TO", "REFERENCE TO", "PVOID")) and size in _UNSIGNED:
        return Shape("address", size, _UNSIGNED[size])
    if plain.startswith(("UXINT", "XWORD")) and size in _UNSIGNED:
        return Shape("number", size, _UNSIGNED[size])
    found = find(kind) if kind else None
    if found is not None and found.members and found.size == size:
        members = tuple(_member(member, find, depth) for member in found.members)
        if all(shape.kind == "bit" or offset + shape.size <= size for _, offset, shape in members):
            return Shape("structure", size, members=members)
        return raw
    if found is not None and found.bounds:
        element = array_of(found.type)
        return _array(found.bounds, element[1] if element else found.type, size, found.code, find, depth)
    if found is not None and found.type and found.type.upper() != plain:  # another name of a type, or an enumeration
        inner = shape_of(found.type, size, found.code, find, depth + 1)
        return replace(inner, names=found.names or inner.names)
    if found is not None:
        code = found.code
    if code in CODES and struct.calcsize("<" + CODES[code]) == size:
        return Shape("number", size, CODES[code], names=() if found is None else found.names)
    if code in (30, 31):
        return Shape("string" if code == 30 else "wstring", size)
    if code in CODES and size and size % struct.calcsize("<" + CODES[code]) == 0 and array is not None:
        width = struct.calcsize("<" + CODES[code])
        return Shape("array", size, count=size // width, element=Shape("number", width, CODES[code]))
    return raw


def size_of(kind: str, find: Find) -> int | None:
    """Return the size in bytes of a type by its name; None if it is not known."""
    plain, array = kind.strip().upper(), array_of(kind)
    if array is not None:
        element = size_of(array[1], find)
        return None if element is None or not array[0] else element * math.prod(count for _, count in array[0])
    if text := _STRING.match(plain):
        return (int(text[2] or 80) + 1) * (2 if text[1] else 1)
    if plain in IEC_FORMATS:
        return struct.calcsize("<" + IEC_FORMATS[plain])
    found = find(kind)
    return None if found is None else found.size


def _array(bounds: tuple[tuple[int, int], ...], element: str, size: int, code: int, find: Find, depth: int) -> Shape:
    count = bounds[0][1]
    if count <= 0 or size % count:
        return Shape("bytes", size)
    rest = bounds[1:]
    if rest:
        inner = _array(rest, element, size // count, code, find, depth + 1)
    else:
        inner = shape_of(element, size // count, code, find, depth + 1)
    return Shape("array", size, count=count, element=inner)


def _member(member: DataType, find: Find, depth: int) -> tuple[str, int, Shape]:
    if member.bits:
        return member.name, member.offset, Shape("bit", 0)
    if member.bounds and array_of(member.type) is None:
        return member.name, member.offset, _array(member.bounds, member.type, member.size, member.code, find, depth + 1)
    return member.name, member.offset, shape_of(member.type, member.size, member.code, find, depth + 1)


def decode(shape: Shape, raw: bytes | bytearray | memoryview, at: int = 0) -> Any:
    """Decode a value: number, bool, text, list or dict; bytes of an unknown type become hexadecimal text.

    A value of an enumeration is its name, or its number if it has none.
    """
    part = bytes(raw[at : at + shape.size])
    if shape.kind in ("number", "address"):
        for name, value in shape.names:
            if value == part:
                return name
        return struct.unpack("<" + shape.format, part)[0]
    if shape.kind == "string":
        return part.partition(b"\0")[0].decode(_TEXT, "replace")
    if shape.kind == "wstring":
        text = part[: len(part) // 2 * 2].decode("utf-16-le", "replace")
        return text.partition("\0")[0]
    if shape.kind == "array":
        assert shape.element is not None
        return [decode(shape.element, raw, at + k * shape.element.size) for k in range(shape.count)]
    if shape.kind == "structure":
        return {
            name: bool(raw[at + offset // 8] >> offset % 8 & 1)
            if member.kind == "bit"
            else decode(member, raw, at + offset)
            for name, offset, member in shape.members
        }
    return part.hex()


def encode(
    shape: Shape, value: Any, into: bytearray, at: int = 0, where: str = "value", finite: bool = True
) -> None:  # fmt: skip
    """Encode a value into `into`; members that a dict leaves out keep their values; numbers must be `finite`.

    Raises `AdsSymbolError`: the value does not fit the type; the message names the member.
    """
    if shape.kind == "address":
        raise AdsSymbolError(f"{where}: it is an address within the controller, which is not written: write its target")
    if shape.kind == "number":
        if finite and isinstance(value, float) and not math.isfinite(value):
            raise AdsSymbolError(f"{where}: {value} is not finite; --non-finite writes it nevertheless")
        _encode_number(shape, value, into, at, where)
    elif shape.kind in ("string", "wstring"):
        _encode_text(shape, value, into, at, where)
    elif shape.kind == "array":
        assert shape.element is not None
        if not isinstance(value, (list, tuple)) or len(value) != shape.count:
            raise AdsSymbolError(f"{where}: a list of {shape.count} values is wanted, not {value!r}")
        for k, one in enumerate(value):
            encode(shape.element, one, into, at + k * shape.element.size, f"{where}[{k}]", finite)
    elif shape.kind == "structure":
        members = {name.casefold(): (offset, member) for name, offset, member in shape.members}
        if not isinstance(value, Mapping):
            raise AdsSymbolError(f"{where}: a table of {', '.join(name for name, _, _ in shape.members)} is wanted")
        for name, one in value.items():
            if str(name).casefold() not in members:
                known = ", ".join(name for name, _, _ in shape.members)
                raise AdsSymbolError(f"{where}: there is no member {name!r}; there is: {known}")
            offset, member = members[str(name).casefold()]
            if member.kind == "bit":
                byte = at + offset // 8
                into[byte] = into[byte] & ~(1 << offset % 8) | bool(one) << offset % 8
            else:
                encode(member, one, into, at + offset, f"{where}.{name}", finite)
    else:
        _encode_bytes(shape, value, into, at, where)


def _encode_number(shape: Shape, value: Any, into: bytearray, at: int, where: str) -> None:
    if shape.names and isinstance(value, str):
        named = {name.casefold(): raw for name, raw in shape.names}
        if value.casefold() not in named:
            known = ", ".join(name for name, _ in shape.names)
            raise AdsSymbolError(f"{where}: {value!r} is none of {known}")
        into[at : at + shape.size] = named[value.casefold()]
        return
    floating = shape.format in "fd"
    wanted = "true or false" if shape.format == "?" else ("a number" if floating else "a whole number")
    allowed: tuple[type, ...] = (bool, int) if shape.format == "?" else ((int, float) if floating else (int,))
    if not isinstance(value, allowed) or (shape.format != "?" and isinstance(value, bool)):
        raise AdsSymbolError(f"{where}: {wanted} is wanted, not {value!r}")
    try:
        struct.pack_into("<" + shape.format, into, at, value)
    except (struct.error, OverflowError) as error:
        raise AdsSymbolError(f"{where}: {value!r} is out of range of {shape.size} bytes") from error


def _encode_text(shape: Shape, value: Any, into: bytearray, at: int, where: str) -> None:
    if not isinstance(value, str):
        raise AdsSymbolError(f"{where}: a text is wanted, not {value!r}")
    try:
        raw = value.encode(_TEXT) + b"\0" if shape.kind == "string" else value.encode("utf-16-le") + b"\0\0"
    except UnicodeEncodeError as error:
        raise AdsSymbolError(f"{where}: {value!r} has a character that a STRING cannot hold") from error
    if len(raw) > shape.size:
        raise AdsSymbolError(f"{where}: {value!r} is longer than {shape.size} bytes with its end")
    into[at : at + shape.size] = raw.ljust(shape.size, b"\0")


def _encode_bytes(shape: Shape, value: Any, into: bytearray, at: int, where: str) -> None:
    try:
        raw = bytes.fromhex(value)
    except (TypeError, ValueError) as error:
        raise AdsSymbolError(
            f"{where}: its type is not known here; {shape.size} bytes in hexadecimal are wanted"
        ) from error
    if len(raw) != shape.size:
        raise AdsSymbolError(f"{where}: {shape.size} bytes in hexadecimal are wanted, not {len(raw)}")
    into[at : at + shape.size] = raw
