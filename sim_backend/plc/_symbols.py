"""Symbols of the PLC: places of variables in memory, lookup of members and elements by name, entries of the upload."""

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from sim_backend.plc._codes import Group
from sim_backend.plc._data_types import DataType, TypeTable

_ENTRY = struct.Struct("<IIIIIIHHH")
_TOKEN = re.compile(r"\.?([A-Za-z_]\w*)|\[([-\d,\s]+)\]")
_MAX = 255  # name of a member or element that is looked up
_FIRST = 0x1000  # offset of the first variable
_STEP = 8


@dataclass(frozen=True)
class Variable:
    """A declaration: full name, type, comment."""

    name: str
    type: DataType
    comment: str = ""


@dataclass(frozen=True)
class Place:
    """A variable, member or element in memory."""

    name: str
    type: DataType
    offset: int
    comment: str = ""

    @property
    def size(self) -> int:
        """Size [bytes]."""
        return self.type.size

    def entry(self) -> bytes:
        """Return its entry in the upload of symbols."""
        texts = [text.encode("cp1252", "replace") for text in (self.name, self.type.name, self.comment)]
        body = b"".join(text + b"\0" for text in texts)
        head = _ENTRY.pack(
            _ENTRY.size + len(body), Group.DATA, self.offset, self.size, self.type.kind, 0, *map(len, texts)
        )
        return head + body


class SymbolTable:
    """Table of variables, one after the other in `size` bytes of memory; `places` by name in lower case."""

    def __init__(self, variables: Sequence[Variable]) -> None:
        self.places: dict[str, Place] = {}
        self.types = TypeTable()
        end = _FIRST
        for variable in variables:
            self.places[variable.name.lower()] = Place(variable.name, variable.type, end, variable.comment)
            self.types.add(variable.type)
            end += -(-variable.type.size // _STEP) * _STEP
        self.size = end
        self.upload = b"".join(place.entry() for place in self.places.values())
        self.type_upload = b"".join(kind.entry() for kind in self.types)

    def find(self, name: str) -> Place | None:
        """Return the place of a name, if any."""
        found = self.places.get(name.lower())
        if found is not None:
            return found
        tokens = _tokens(name) if len(name) <= _MAX else None
        if tokens is None:
            return None
        names = list(takewhile(lambda token: isinstance(token, str), tokens))
        for count in range(len(names), 0, -1):
            root = self.places.get(".".join(map(str, names[:count])).lower())
            if root is not None:
                return _descend(root, tokens[count:])
        return None


def _descend(root: Place, tokens: list[str | tuple[int, ...]]) -> Place | None:
    """Follow members and indices; None if one does not exist."""
    path, kind, offset, comment = root.name, root.type, root.offset, root.comment
    for token in tokens:
        if isinstance(token, str):
            item = kind.item(token)
            if item is None:
                return None
            path, kind, offset, comment = f"{path}.{item.name}", item.type, offset + item.offset, item.comment
        else:
            index, element = _index(kind, token), kind.element
            if index is None or element is None:
                return None
            path = f"{path}[{','.join(map(str, token))}]"
            kind, offset = element, offset + index * element.size
    return Place(path, kind, offset, comment)


def _tokens(name: str) -> list[str | tuple[int, ...]] | None:
    """Return the names and indices of a full name; None if it is invalid."""
    tokens: list[str | tuple[int, ...]] = []
    place = 0
    while place < len(name):
        match = _TOKEN.match(name, place)
        if match is None or (place > 0 and match[1] is not None and name[place] != "."):
            return None
        if match[1] is not None:
            tokens.append(match[1])
        else:
            try:
                tokens.append(tuple(int(number) for number in match[2].split(",")))
            except ValueError:
                return None
        place = match.end()
    return tokens


def _index(kind: DataType, indices: tuple[int, ...]) -> int | None:
    """Return the place of an element within its array, last index fastest; None if it is outside."""
    if len(indices) != len(kind.dimensions):
        return None
    place = 0
    for index, (low, length) in zip(indices, kind.dimensions, strict=True):
        if not low <= index < low + length:
            return None
        place = place * length + index - low
    return place
