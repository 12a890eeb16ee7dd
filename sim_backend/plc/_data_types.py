"""Data types of the PLC and their descriptions; fields are aligned as with TwinCAT 3's packing of eight bytes."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sim_backend.plc._codes import Kind

_ENTRY = struct.Struct("<IIIIIIIIHHHHH")
_TYPE, _ITEM, _ENUM = 0x1, 0x2, 0x2000  # flags
_MAX_ALIGNMENT = 8

#: Elementary types: name -> kind and numpy type.
ELEMENTARY: dict[str, tuple[Kind, str]] = {
    "BOOL": (Kind.BIT, "u1"), "BYTE": (Kind.UINT8, "u1"), "SINT": (Kind.INT8, "i1"), "USINT": (Kind.UINT8, "u1"),
    "WORD": (Kind.UINT16, "<u2"), "INT": (Kind.INT16, "<i2"), "UINT": (Kind.UINT16, "<u2"),
    "DWORD": (Kind.UINT32, "<u4"), "DINT": (Kind.INT32, "<i4"), "UDINT": (Kind.UINT32, "<u4"),
    "LINT": (Kind.INT64, "<i8"), "ULINT": (Kind.UINT64, "<u8"),
    "REAL": (Kind.REAL32, "<f4"), "LREAL": (Kind.REAL64, "<f8"),
}  # fmt: skip


@dataclass(frozen=True)
class Item:
    """A field of a structure."""

    name: str
    type: "DataType"
    offset: int
    comment: str = ""


@dataclass(frozen=True, eq=False)
class DataType:
    """A data type; `numpy` is that of a view of a variable in memory, `size` and `alignment` are in bytes.

    An array has `dimensions` (lowest index, length), the `element` and its name as `base`; a structure has `items`; an
    enumeration has `values` (name, number), stored as `base`.
    """

    name: str
    kind: Kind
    numpy: np.dtype[Any]
    size: int
    alignment: int
    base: str = ""
    dimensions: tuple[tuple[int, int], ...] = ()
    element: "DataType | None" = None
    items: tuple[Item, ...] = ()
    values: tuple[tuple[str, int], ...] = ()
    comment: str = ""

    @property
    def refers(self) -> bool:
        """Whether it is a reference, to a value of type `element`."""
        return self.element is not None and not self.dimensions

    def item(self, name: str) -> Item | None:
        """Return the field of a name, case-insensitive."""
        wanted = name.lower()
        return next((item for item in self.items if item.name.lower() == wanted), None)

    def same(self, other: "DataType") -> bool:
        """Return whether both have the same names and memory layout."""
        if (self.name, self.kind, self.size, self.dimensions) != (other.name, other.kind, other.size, other.dimensions):
            return False
        if self.element is not None and other.element is not None:
            return self.element.same(other.element)
        return len(self.items) == len(other.items) and all(
            mine.name == its.name and mine.offset == its.offset and mine.type.same(its.type)
            for mine, its in zip(self.items, other.items, strict=True)
        )

    def entry(self) -> bytes:
        """Return its entry in the upload of data types."""
        items = b"".join(_item_entry(item) for item in self.items)
        array = b"".join(struct.pack("<iI", *dimension) for dimension in self.dimensions)
        flags, tail = _TYPE, b""
        if self.values:
            flags |= _ENUM
            tail = struct.pack("<H", len(self.values)) + b"".join(
                bytes((len(name),)) + name.encode() + b"\0" + value.to_bytes(self.size, "little", signed=True)
                for name, value in self.values
            )
        texts = (self.name, self.base, self.comment)
        return _entry(self, 0, flags, texts, len(self.dimensions), len(self.items), array + items + tail)


def _entry(
    kind: DataType, offset: int, flags: int, texts: tuple[str, str, str], dimensions: int, items: int, tail: bytes
) -> bytes:
    encoded = [text.encode("cp1252", "replace") for text in texts]
    body = b"".join(text + b"\0" for text in encoded) + tail
    lengths = (len(text) for text in encoded)
    length = _ENTRY.size + len(body)
    return _ENTRY.pack(length, 1, 0, 0, kind.size, offset, kind.kind, flags, *lengths, dimensions, items) + body


def _item_entry(item: Item) -> bytes:
    texts = (item.name, item.type.name, item.comment)
    return _entry(item.type, item.offset, _ITEM, texts, 0, 0, b"")


def elementary(name: str) -> DataType:
    """Return an elementary type by its name; raises `KeyError`."""
    kind, numpy = ELEMENTARY[name]
    dtype = np.dtype(numpy)
    return DataType(name, kind, dtype, dtype.itemsize, dtype.itemsize)


def string(characters: int) -> DataType:
    """Return `STRING(characters)`, which takes one byte more."""
    dtype = np.dtype(f"S{characters + 1}")
    return DataType(f"STRING({characters})", Kind.STRING, dtype, characters + 1, 1)


def array(element: DataType, dimensions: Sequence[tuple[int, int]]) -> DataType:
    """Return an array; `dimensions` are lowest index and length of each."""
    shape = tuple(length for _, length in dimensions)
    limits = ",".join(f"{low}..{low + length - 1}" for low, length in dimensions)
    dtype = np.dtype((element.numpy, shape))
    name = f"ARRAY [{limits}] OF {element.name}"
    return DataType(
        name, element.kind, dtype, dtype.itemsize, element.alignment, element.name, tuple(dimensions), element
    )


def reference(kind: DataType) -> DataType:
    """Return `REFERENCE TO` a type: in memory an address, by a handle what it refers to."""
    address = np.dtype("<u8")
    return DataType(f"REFERENCE TO {kind.name}", Kind.UINT64, address, 8, 8, element=kind)


def structure(name: str, fields: Sequence[tuple[str, DataType, str]], comment: str = "") -> DataType:
    """Return a structure of fields given by name, type and comment."""
    items, end, alignment = [], 0, 1
    for title, kind, text in fields:
        step = min(kind.alignment, _MAX_ALIGNMENT)
        alignment = max(alignment, step)
        end = _up(end, step)
        items.append(Item(title, kind, end, text))
        end += kind.size
    size = _up(end, alignment)
    dtype = np.dtype(
        {
            "names": [item.name for item in items], "formats": [item.type.numpy for item in items],
            "offsets": [item.offset for item in items], "itemsize": size,
        }
    )  # fmt: skip
    return DataType(name, Kind.STRUCTURE, dtype, size, alignment, items=tuple(items), comment=comment)


def enumeration(name: str, values: Sequence[tuple[str, int]], base: str = "INT", comment: str = "") -> DataType:
    stored = elementary(base)
    return DataType(
        name, stored.kind, stored.numpy, stored.size, stored.alignment, base, values=tuple(values), comment=comment
    )


def _up(place: int, step: int) -> int:
    return -(-place // step) * step


@dataclass
class TypeTable:
    """Types of variables, by name."""

    types: dict[str, DataType] = field(default_factory=dict)

    def add(self, kind: DataType) -> None:
        """Add a type, and those that it consists of."""
        if kind.name.lower() in self.types:
            return
        if kind.element is not None:
            self.add(kind.element)
        if kind.values:
            self.add(elementary(kind.base))
        for item in kind.items:
            self.add(item.type)
        self.types[kind.name.lower()] = kind

    def find(self, name: str) -> DataType | None:
        """Return the type of a name, case-insensitive."""
        return self.types.get(name.lower())

    def __iter__(self) -> Iterator[DataType]:
        return iter(self.types.values())

    def __len__(self) -> int:
        return len(self.types)
