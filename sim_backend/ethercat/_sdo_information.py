"""SDO information: lists of objects, descriptions of objects and entries (ETG.1000.6, section 5.6.3)."""

import struct

from sim_backend.canopen.data_types import encode, integer_range, is_real, is_string
from sim_backend.canopen.dictionary import AbortCode, Access, Entry, ObjectDictionary, SdoAbort

LIST_REQUEST, LIST_RESPONSE, OBJECT_REQUEST, OBJECT_RESPONSE = 1, 2, 3, 4
ENTRY_REQUEST, ENTRY_RESPONSE, ERROR = 5, 6, 7
INCOMPLETE = 0x80

_LIST_LENGTHS, _LIST_ALL = 0, 1
_LISTS = {2: Access.RX_PDO, 3: Access.TX_PDO, 4: Access.BACKUP, 5: Access.SETTING}

# Optional parts of an entry description.
_UNIT, _DEFAULT, _MINIMUM, _MAXIMUM = 0x08, 0x10, 0x20, 0x40
_IN_ACCESS = 0x07  # access rights, category, mappability: in the access word
_HEADER = 4


def information(dictionary: ObjectDictionary, data: bytes, room: int) -> list[bytes]:
    """Return the fragments of the answer to a request, each with its header at most `room` bytes.

    The request `data`: opcode, reserved byte, fragments left (2 bytes), content.
    """
    try:
        opcode, content = _answer(dictionary, data[0] & ~INCOMPLETE, data[_HEADER:])
    except SdoAbort as abort:
        opcode, content = ERROR, struct.pack("<I", abort.code)
    return _fragments(opcode, content, room)


def _answer(dictionary: ObjectDictionary, opcode: int, content: bytes) -> tuple[int, bytes]:
    if opcode == LIST_REQUEST:
        return LIST_RESPONSE, _list(dictionary, *_unpack("<H", content))
    if opcode == OBJECT_REQUEST:
        return OBJECT_RESPONSE, _object(dictionary, *_unpack("<H", content))
    if opcode == ENTRY_REQUEST:
        return ENTRY_RESPONSE, _entry(dictionary, *_unpack("<HBB", content))
    raise SdoAbort(AbortCode.COMMAND)


def _unpack(form: str, content: bytes) -> tuple[int, ...]:
    if len(content) < struct.calcsize(form):
        raise SdoAbort(AbortCode.LENGTH_LOW)
    return struct.unpack_from(form, content)


def _fragments(opcode: int, content: bytes, room: int) -> list[bytes]:
    step = (room - _HEADER) // 2 * 2  # an index of a list is never torn
    parts = [content[start : start + step] for start in range(0, len(content), step)]
    left = range(len(parts) - 1, -1, -1)
    return [
        struct.pack("<BBH", opcode | INCOMPLETE * (n > 0), 0, n) + part for n, part in zip(left, parts, strict=True)
    ]


def _indexes(dictionary: ObjectDictionary, kind: int) -> list[int]:
    if kind == _LIST_ALL:
        return sorted(dictionary.objects)
    flag = _LISTS[kind]
    return sorted({entry.index for entry in dictionary if entry.access & flag})


def _list(dictionary: ObjectDictionary, kind: int) -> bytes:
    if kind == _LIST_LENGTHS:
        numbers = [len(_indexes(dictionary, each)) for each in (_LIST_ALL, *_LISTS)]
    elif kind == _LIST_ALL or kind in _LISTS:
        numbers = _indexes(dictionary, kind)
    else:
        raise SdoAbort(AbortCode.PARAMETER)
    return struct.pack(f"<H{len(numbers)}H", kind, *numbers)


def _object(dictionary: ObjectDictionary, index: int) -> bytes:
    item = dictionary.object(index)
    return struct.pack("<HHBB", index, item.type, item.max_subindex, item.code) + item.name.encode("latin-1")


def _entry(dictionary: ObjectDictionary, index: int, subindex: int, wanted: int) -> bytes:
    entry = dictionary.entry(index, subindex)
    given, extra = wanted & _IN_ACCESS, b""
    if wanted & _UNIT:
        given, extra = given | _UNIT, extra + bytes(4)
    if not is_string(entry.type):
        low, high = _range(entry)
        for flag, value in ((_DEFAULT, entry.default), (_MINIMUM, low), (_MAXIMUM, high)):
            if wanted & flag:
                given, extra = given | flag, extra + encode(entry.type, value)
    head = struct.pack("<HBBHHH", index, subindex, given, entry.type, entry.bits, entry.access)
    return head + extra + entry.name.encode("latin-1")


def _range(entry: Entry) -> tuple[float, float]:
    """Return the smallest and largest valid value of an entry."""
    low: float
    high: float
    low, high = (-float("inf"), float("inf")) if is_real(entry.type) else integer_range(entry.type)
    return (
        low if entry.minimum is None else max(low, entry.minimum),
        high if entry.maximum is None else min(high, entry.maximum),
    )
