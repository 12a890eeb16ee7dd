"""Services of the PLC runtime: values by address, name and handle, symbols and types, several in one request.

Bytes in, bytes out; a request that cannot be answered raises `AdsError`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from sim_backend.plc import _sums as sums
from sim_backend.plc._codes import AdsError, Code, Group
from sim_backend.plc._memory import Handles, Memory
from sim_backend.plc._sums import Client
from sim_backend.plc._symbols import Place

_ONE, _TWO, _THREE = struct.Struct("<I"), struct.Struct("<II"), struct.Struct("<III")
_CODE_PAGE = 1252


class Services:
    """Services of one runtime.

    Parameters
    ----------
    memory : Memory
    state : callable
        Returns ADS state and device state.

    Attributes
    ----------
    memory : Memory
    handles : Handles
    version : int
        Of the symbols, 0 to 255; an online change raises it.
    types_uploaded : bool
        False: data types cannot be asked for, as with old controllers.
    ring : Place or None
        Where the blocks are.
    torn_reads : int
        So many of the next reads of a block, or of several, find it half written over.
    """

    def __init__(self, memory: Memory, state: Callable[[], tuple[int, int]]) -> None:
        self.memory = memory
        self.handles = Handles()
        self.version = 1
        self.types_uploaded = True
        self.torn_reads = 0
        self.ring: Place | None = None
        self._state = state

    def read(self, group: int, offset: int, length: int) -> bytes:
        """Answer a read."""
        if group == Group.VALUE_BY_HANDLE:
            return self._value(self.handles.find(offset), length)
        if group in (Group.DATA, Group.MEMORY):
            return self._bytes(group, offset, length)
        if group == Group.VERSION:
            return _whole(bytes((self.version,)), length)
        if group == Group.DEVICE_DATA and offset in (0, 2):
            return struct.pack("<HH", *self._state())[offset : offset + length]
        table = self.memory.table
        if group == Group.UPLOAD:
            return _whole(table.upload, length)
        if group == Group.UPLOAD_INFO:
            return _whole(_TWO.pack(len(table.places), len(table.upload)), length)
        if group == Group.UPLOAD_INFO_2:
            return self._upload_info(length)
        if group == Group.TYPE_UPLOAD and self.types_uploaded:
            return _whole(table.type_upload, length)
        raise AdsError(Code.INVALID_GROUP)

    def write(self, group: int, offset: int, data: bytes) -> None:
        """Answer a write."""
        if group == Group.VALUE_BY_HANDLE:
            place = self.handles.find(offset)
            if len(data) > place.size:
                raise AdsError(Code.INVALID_SIZE)
            self.memory.area(Group.DATA, place.offset, len(data))[:] = data
        elif group in (Group.DATA, Group.MEMORY):
            self.memory.area(group, offset, len(data))[:] = data
        elif group == Group.RELEASE_HANDLE:
            if len(data) != 4:
                raise AdsError(Code.INVALID_SIZE)
            self.handles.release(_ONE.unpack(data)[0])
        else:
            raise AdsError(Code.INVALID_GROUP)

    def read_write(self, group: int, offset: int, length: int, data: bytes, client: Client) -> bytes:
        """Answer a read-write."""
        if group == Group.HANDLE_BY_NAME:
            return self._handle(self._find(data), length)
        if group == Group.VALUE_BY_NAME:
            return self._value(self._find(data), length)
        if group == Group.INFO_BY_NAME:
            place = self._find(data)
            return _whole(_THREE.pack(Group.DATA, place.offset, place.size), length)
        if group == Group.INFO_BY_NAME_EX:
            return _whole(self._find(data).entry(), length)
        if group == Group.TYPE_BY_NAME and self.types_uploaded:
            kind = self.memory.table.types.find(_name(data))
            if kind is None:
                raise AdsError(Code.SYMBOL_NOT_FOUND)
            return _whole(kind.entry(), length)
        if Group.SUM_READ <= group <= Group.SUM_DELETE_NOTIFICATION:
            return _whole(sums.answer(group, offset, data, self, client), length)
        raise AdsError(Code.INVALID_GROUP)

    def watched(self, group: int, offset: int, length: int) -> Callable[[], bytes]:
        """Return what reads the value that a notification is about, each time; raises `AdsError` at once or later."""
        if group == Group.VALUE_BY_HANDLE:
            place = self.handles.find(offset)
            if length > place.size:
                raise AdsError(Code.INVALID_WATCH_SIZE)
        self.read(group, offset, length)
        return lambda: self.read(group, offset, length)

    def _handle(self, place: Place, length: int) -> bytes:
        """Return a handle; where there is room for it also size, decoration and name of the type."""
        if length < _ONE.size:
            raise AdsError(Code.INVALID_SIZE)
        handle, name = _ONE.pack(self.handles.make(place)), place.type.name.encode("cp1252", "replace")
        full = handle + struct.pack("<IIH", place.size, 0, len(name)) + name + b"\0"
        return full if len(full) <= length else handle

    def _find(self, data: bytes) -> Place:
        place = self.memory.table.find(_name(data))
        if place is None:
            raise AdsError(Code.SYMBOL_NOT_FOUND)
        return place

    def _value(self, place: Place, length: int) -> bytes:
        # More than there is may be asked for, as clients do with strings.
        return self._bytes(Group.DATA, place.offset, min(length, place.size))

    def _bytes(self, group: int, offset: int, length: int) -> bytes:
        data = bytes(self.memory.area(group, offset, length))
        ring = self.ring
        if self.torn_reads and ring is not None and group == Group.DATA and ring.type.element is not None:
            block = ring.type.element.size
            if length >= block and ring.offset <= offset < ring.offset + ring.size:
                self.torn_reads -= 1
                return self._torn(data, offset, block, ring)
        return data

    def _torn(self, data: bytes, offset: int, block: int, ring: Place) -> bytes:
        """Let the second half of the first block be that of another one, as if the PLC had overtaken the read."""
        other = ring.offset + (offset - ring.offset + ring.size // 2 // block * block) % ring.size
        half = block // 16 * 8
        return data[:half] + bytes(self.memory.image[other + half : other + block]) + data[block:]

    def _upload_info(self, length: int) -> bytes:
        table = self.memory.table
        types = (len(table.types), len(table.type_upload)) if self.types_uploaded else (0, 0)
        info = struct.pack("<8I32x", len(table.places), len(table.upload), *types, 0, 0, 0, _CODE_PAGE)
        return info[: 64 if length >= 64 else 24 if length >= 24 else length]


def _name(data: bytes) -> str:
    return data.split(b"\0", 1)[0].decode("cp1252", "replace").strip()


def _whole(data: bytes, length: int) -> bytes:
    """Return `data` if as many bytes were asked for."""
    if length < len(data):
        raise AdsError(Code.INVALID_SIZE)
    return data
