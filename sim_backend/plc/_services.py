"""Services of the PLC runtime: values by address, name and handle; symbols and types; sum commands."""

import struct
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from sim_backend.plc._codes import AdsError, Code, Group
from sim_backend.plc._memory import Handles, Memory
from sim_backend.plc._notifications import NOTIFICATION, Notifications
from sim_backend.plc._symbols import Place

_ONE, _TWO, _THREE, _FOUR = (struct.Struct(f"<{count}I") for count in range(1, 5))
#: Largest sum command: number of requests, and bytes of the answer.
_MAX_REQUESTS, _MAX_BYTES = 10_000, 16 * 1024 * 1024
_SUMS = range(Group.SUM_READ, Group.SUM_DELETE_NOTIFICATION + 1)
_CODE_PAGE = 1252
Result = TypeVar("Result")


class Services:
    """Services of one runtime; `state` returns ADS state and device state.

    `version` of the symbols is 0 to 255 and incremented by an online change; `types_uploaded` is False for an old
    controller, whose data types cannot be read; `torn_reads` is the number of next reads of blocks, at `ring`, that
    return a half-overwritten one.
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
        if group == Group.VALUE_BY_HANDLE:
            return self._value(self._target(offset), length)
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
        if group == Group.VALUE_BY_HANDLE:
            place = self._target(offset)
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

    def read_write(self, group: int, offset: int, length: int, data: bytes, client: Notifications) -> bytes:
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
        if group in _SUMS:
            return _whole(_answer_sum(group, offset, data, self, client), length)
        raise AdsError(Code.INVALID_GROUP)

    def watched(self, group: int, offset: int, length: int) -> Callable[[], bytes]:
        """Return a reader of the value of a notification; raises `AdsError` at once or later."""
        if group == Group.VALUE_BY_HANDLE:
            place = self._target(offset)
            if length > place.size:
                raise AdsError(Code.INVALID_WATCH_SIZE)
        self.read(group, offset, length)
        return lambda: self.read(group, offset, length)

    def _target(self, handle: int) -> Place:
        return self.memory.referred(self.handles.find(handle))

    def _handle(self, place: Place, length: int) -> bytes:
        """Return a handle; also size, decoration and name of the type if they fit."""
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
        # Clients may request more than there is, as for strings.
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
        """Replace the second half of the first block by another one's, as if overwritten during the read."""
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
    """Return `data`; raises `AdsError` if fewer bytes were requested."""
    if length < len(data):
        raise AdsError(Code.INVALID_SIZE)
    return data


def _answer_sum(group: int, count: int, data: bytes, services: Services, client: Notifications) -> bytes:
    """Answer the sum command of an index group; `data`: `count` requests, data to write; `AdsError` for all at once."""
    if group == Group.SUM_READ and count == 0:
        count = len(data) // _THREE.size
        return _answer_sum(Group.SUM_READ, count, data, services, client)[count * _ONE.size :] if count else b""
    heads: list[bytes] = []
    bodies: list[bytes] = []
    place = size = 0
    if group in (Group.SUM_WRITE, Group.SUM_READ_WRITE):
        place = count * (_THREE if group == Group.SUM_WRITE else _FOUR).size
    if group in (Group.SUM_READ, Group.SUM_READ_EX, Group.SUM_READ_EX_2):
        for entry in _entries(_THREE, count, data):
            head, body = _sum_read(group, entry, services)
            heads.append(head)
            size = _within(bodies, body, size)
    elif group == Group.SUM_WRITE:
        for index_group, offset, length in _entries(_THREE, count, data):
            value = _cut(data, place, length)
            place += length
            code = Code.INVALID_SIZE if value is None else _attempt(None, services.write, index_group, offset, value)[0]
            heads.append(_ONE.pack(code))
    elif group == Group.SUM_READ_WRITE:
        for index_group, offset, length, written in _entries(_FOUR, count, data):
            code, body = _sum_read_write(index_group, offset, length, _cut(data, place, written), services, client)
            place += written
            heads.append(_TWO.pack(code, len(body)))
            size = _within(bodies, body, size)
    elif group == Group.SUM_ADD_NOTIFICATION:
        _sum_check(NOTIFICATION.size, count, data)
        step = NOTIFICATION.size
        parts = (data[k * step : (k + 1) * step] for k in range(count))
        heads += [_TWO.pack(*_attempt(0, client.add_notification, part)) for part in parts]
    else:
        handles = _entries(_ONE, count, data)
        heads += [_ONE.pack(_attempt(None, client.delete_notification, handle)[0]) for (handle,) in handles]
    return b"".join(heads + bodies)


def _within(bodies: list[bytes], body: bytes, size: int) -> int:
    """Add a value to an answer of `size` bytes; raises `AdsError` when it becomes too long."""
    bodies.append(body)
    if size + len(body) > _MAX_BYTES:
        raise AdsError(Code.INVALID_SIZE)
    return size + len(body)


def _sum_check(size: int, count: int, data: bytes) -> None:
    if count > _MAX_REQUESTS:
        raise AdsError(Code.INVALID_PARAMETER)
    if len(data) < count * size:
        raise AdsError(Code.INVALID_SIZE)


def _entries(entry: struct.Struct, count: int, data: bytes) -> Iterator[tuple[int, ...]]:
    """Return the entries at the beginning of a request."""
    _sum_check(entry.size, count, data)
    return entry.iter_unpack(data[: count * entry.size])


def _cut(data: bytes, place: int, length: int) -> bytes | None:
    return data[place : place + length] if place + length <= len(data) else None


def _attempt(failed: Result, function: Callable[..., Result], *arguments: Any) -> tuple[int, Result]:
    """Return the error code and the result of a call, `failed` in case of an error."""
    try:
        return Code.NONE, function(*arguments)
    except AdsError as error:
        return error.code, failed


def _sum_read(group: int, entry: tuple[int, ...], services: Services) -> tuple[bytes, bytes]:
    """Return head and body of the answer to a read; a failed read is padded, except in the latest kind."""
    code, value = _attempt(b"", services.read, *entry)
    head = _ONE.pack(code) if group == Group.SUM_READ else _TWO.pack(code, len(value))
    return head, value if group == Group.SUM_READ_EX_2 else value.ljust(min(entry[2], 1 << 20), b"\0")


def _sum_read_write(
    group: int, offset: int, length: int, data: bytes | None, services: Services, client: Notifications
) -> tuple[int, bytes]:
    if data is None or group in _SUMS:
        return Code.INVALID_SIZE if data is None else Code.INVALID_GROUP, b""
    return _attempt(b"", services.read_write, group, offset, length, data, client)
