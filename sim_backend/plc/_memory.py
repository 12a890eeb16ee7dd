"""Memory of the PLC runtime, and handles to its variables."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim_backend.plc._codes import AdsError, Code, Group
from sim_backend.plc._symbols import Place, SymbolTable

_MARKERS = 1024  # bytes of %M
_FIRST_HANDLE = 0x1A000001


class Memory:
    """Bytes of all variables, in `image` at the offset of a variable's place."""

    def __init__(self, table: SymbolTable) -> None:
        self.table = table
        self.image = bytearray(table.size)
        self._markers = bytearray(_MARKERS)

    def array(self, name: str) -> NDArray[Any]:
        """Return a writable view of a variable, of shape () unless it is an array; raises `KeyError`."""
        place = self.place(name)
        kind = place.type
        shape = tuple(length for _, length in kind.dimensions)
        element = kind.numpy.base if shape else kind.numpy
        return np.ndarray(shape, element, self.image, place.offset)

    def place(self, name: str) -> Place:
        """Return the place of a variable; raises `KeyError`."""
        place = self.table.find(name)
        if place is None:
            raise KeyError(name)
        return place

    def referred(self, place: Place) -> Place:
        """Return what a reference refers to, another place as it is; raises `AdsError`: it refers to nothing."""
        if not place.type.refers or place.type.element is None:
            return place
        address = int.from_bytes(self.image[place.offset : place.offset + place.size], "little")
        if address == 0:
            raise AdsError(Code.INVALID_OFFSET)
        return Place(place.name, place.type.element, address)

    def area(self, group: int, offset: int, length: int) -> memoryview:
        """Return the bytes at an address; raises `AdsError`."""
        if group not in (Group.DATA, Group.MEMORY):
            raise AdsError(Code.INVALID_GROUP)
        area = self.image if group == Group.DATA else self._markers
        if offset >= len(area):
            raise AdsError(Code.INVALID_OFFSET)
        if offset + length > len(area):
            raise AdsError(Code.INVALID_SIZE)
        return memoryview(area)[offset : offset + length]

    def take_over(self, before: "Memory") -> None:
        """Copy the variables of the same layout from another memory, as an online change does, but no addresses."""
        for place in self.table.places.values():
            old = before.table.find(place.name)
            if old is not None and old.type.same(place.type) and not place.type.refers:
                self.image[place.offset : place.offset + place.size] = before.image[old.offset : old.offset + old.size]


class Handles:
    """Handles of clients to places; `count` are not released."""

    def __init__(self) -> None:
        self._places: dict[int, Place] = {}
        self._stale: set[int] = set()
        self._next = _FIRST_HANDLE

    @property
    def count(self) -> int:
        return len(self._places) + len(self._stale)

    def make(self, place: Place) -> int:
        handle, self._next = self._next, self._next + 1
        self._places[handle] = place
        return handle

    def find(self, handle: int) -> Place:
        """Return the place of a handle; raises `AdsError`."""
        place = self._places.get(handle)
        if place is None:
            raise AdsError(Code.SYMBOL_VERSION if handle in self._stale else Code.SYMBOL_NOT_FOUND)
        return place

    def release(self, handle: int) -> None:
        """Release a handle; raises `AdsError`."""
        if handle in self._stale:
            self._stale.discard(handle)
        elif self._places.pop(handle, None) is None:
            raise AdsError(Code.SYMBOL_NOT_FOUND)

    def clear(self) -> None:
        """Release all handles, as on a restart."""
        self._places.clear()
        self._stale.clear()

    def change(self, table: SymbolTable, keep: bool) -> None:
        """Update the places after an online change, or make all handles stale."""
        before, self._places = self._places, {}
        for handle, place in before.items():
            new = table.find(place.name) if keep else None
            if new is None:
                self._stale.add(handle)
            else:
                self._places[handle] = new
