"""Sum commands: several reads, writes, read-writes or notifications in one request, each with its own result."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Protocol

from sim_backend.plc._codes import AdsError, Code, Group

#: Index group, index offset, length, mode, longest delay and cycle [100 ns].
NOTIFICATION = struct.Struct("<IIIIII16x")
_ONE, _TWO = struct.Struct("<I"), struct.Struct("<II")
_READ, _READ_WRITE = struct.Struct("<III"), struct.Struct("<IIII")
_MAX = 10_000
_MAX_BYTES = 16 * 1024 * 1024
_SUMS = range(Group.SUM_READ, Group.SUM_DELETE_NOTIFICATION + 1)


class Client(Protocol):
    """What requests for notifications need of the connection that they came by."""

    def add_notification(self, request: bytes) -> int:
        """Return the handle of a new notification; raises `AdsError`."""
        ...

    def delete_notification(self, handle: int) -> None:
        """End a notification; raises `AdsError`."""


class Values(Protocol):
    """What answers the single requests."""

    def read(self, group: int, offset: int, length: int) -> bytes:
        """Answer a read."""
        ...

    def write(self, group: int, offset: int, data: bytes) -> None:
        """Answer a write."""

    def read_write(self, group: int, offset: int, length: int, data: bytes, client: Client) -> bytes:
        """Answer a read-write."""
        ...


def answer(group: int, count: int, data: bytes, values: Values, client: Client) -> bytes:
    """Answer the sum command of an index group; `count` requests are in `data`, the data to write behind them all.

    Raises
    ------
    AdsError
        The request as a whole cannot be.
    """
    if group == Group.SUM_READ and count == 0:
        count = len(data) // _READ.size
        return answer(Group.SUM_READ, count, data, values, client)[count * _ONE.size :] if count else b""
    heads: list[bytes] = []
    bodies: list[bytes] = []
    place = size = 0
    if group in (Group.SUM_WRITE, Group.SUM_READ_WRITE):
        place = count * (_READ if group == Group.SUM_WRITE else _READ_WRITE).size
    if group in (Group.SUM_READ, Group.SUM_READ_EX, Group.SUM_READ_EX_2):
        for entry in _entries(_READ, count, data):
            head, body = _read(group, entry, values)
            heads.append(head)
            size = _within(bodies, body, size)
    elif group == Group.SUM_WRITE:
        for index_group, offset, length in _entries(_READ, count, data):
            heads.append(_ONE.pack(_write(index_group, offset, _cut(data, place, length), values)))
            place += length
    elif group == Group.SUM_READ_WRITE:
        for index_group, offset, length, written in _entries(_READ_WRITE, count, data):
            code, body = _read_write(index_group, offset, length, _cut(data, place, written), values, client)
            place += written
            heads.append(_TWO.pack(code, len(body)))
            size = _within(bodies, body, size)
    elif group == Group.SUM_ADD_NOTIFICATION:
        _check(NOTIFICATION.size, count, data)
        step = NOTIFICATION.size
        heads += [_TWO.pack(*_add(data[k * step : (k + 1) * step], client)) for k in range(count)]
    else:
        heads += [_ONE.pack(_delete(handle, client)) for (handle,) in _entries(_ONE, count, data)]
    return b"".join(heads + bodies)


def _within(bodies: list[bytes], body: bytes, size: int) -> int:
    """Add a value to those of an answer that has `size` bytes so far; raises `AdsError` when it gets too long."""
    bodies.append(body)
    if size + len(body) > _MAX_BYTES:
        raise AdsError(Code.INVALID_SIZE)
    return size + len(body)


def _check(size: int, count: int, data: bytes) -> None:
    if count > _MAX:
        raise AdsError(Code.INVALID_PARAMETER)
    if len(data) < count * size:
        raise AdsError(Code.INVALID_SIZE)


def _entries(entry: struct.Struct, count: int, data: bytes) -> Iterator[tuple[int, ...]]:
    """Return the entries at the beginning of a request."""
    _check(entry.size, count, data)
    return entry.iter_unpack(data[: count * entry.size])


def _cut(data: bytes, place: int, length: int) -> bytes | None:
    return data[place : place + length] if place + length <= len(data) else None


def _read(group: int, entry: tuple[int, ...], values: Values) -> tuple[bytes, bytes]:
    """Head and body of the answer to a read; a value that cannot be read keeps its place, but in the newest kind."""
    code, value = Code.NONE, b""
    try:
        value = values.read(*entry)
    except AdsError as error:
        code = error.code
    head = _ONE.pack(code) if group == Group.SUM_READ else _TWO.pack(code, len(value))
    return head, value if group == Group.SUM_READ_EX_2 else value.ljust(min(entry[2], 1 << 20), b"\0")


def _write(group: int, offset: int, data: bytes | None, values: Values) -> int:
    if data is None:
        return Code.INVALID_SIZE
    try:
        values.write(group, offset, data)
    except AdsError as error:
        return error.code
    return Code.NONE


def _read_write(
    group: int, offset: int, length: int, data: bytes | None, values: Values, client: Client
) -> tuple[int, bytes]:
    if data is None:
        return Code.INVALID_SIZE, b""
    if group in _SUMS:
        return Code.INVALID_GROUP, b""
    try:
        return Code.NONE, values.read_write(group, offset, length, data, client)
    except AdsError as error:
        return error.code, b""


def _add(request: bytes, client: Client) -> tuple[int, int]:
    try:
        return Code.NONE, client.add_notification(request)
    except AdsError as error:
        return error.code, 0


def _delete(handle: int, client: Client) -> int:
    try:
        client.delete_notification(handle)
    except AdsError as error:
        return error.code
    return Code.NONE
