"""Object dictionary of a simulated slave: entries with type, access and value; `SdoAbort` by ETG.1000.6."""

import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag

from sim_backend.canopen.data_types import DataType, Value, decode, encode, integer_range, is_real, is_string
from sim_backend.errors import SimulationError

__all__ = ["AbortCode", "Access", "DataType", "Entry", "ObjectCode", "ObjectDictionary", "ObjectEntry", "SdoAbort"]


class AbortCode(IntEnum):
    """Reason of a refused service (ETG.1000.6, table "SDO abort codes")."""

    TOGGLE = 0x05030000
    TIMEOUT = 0x05040000
    COMMAND = 0x05040001
    MEMORY = 0x05040005
    UNSUPPORTED = 0x06010000
    WRITE_ONLY = 0x06010001
    READ_ONLY = 0x06010002
    SUBINDEX_ZERO_SET = 0x06010003
    NO_COMPLETE_ACCESS = 0x06010004
    NO_OBJECT = 0x06020000
    NOT_MAPPABLE = 0x06040041
    PDO_LENGTH = 0x06040042
    PARAMETER = 0x06040043
    LENGTH = 0x06070010
    LENGTH_HIGH = 0x06070012
    LENGTH_LOW = 0x06070013
    NO_SUBINDEX = 0x06090011
    RANGE = 0x06090030
    RANGE_HIGH = 0x06090031
    RANGE_LOW = 0x06090032
    STATE = 0x08000022


class SdoAbort(SimulationError):
    """A refused service on an object; the master gets `code`, one of `AbortCode` or a device's own."""

    def __init__(self, code: int) -> None:
        self.code = int(code)
        super().__init__(f"SDO abort 0x{self.code:08X}")


class Access(IntFlag):
    """Access rights of an entry description: reading and writing by state, PDOs, backup, settings."""

    READ_PREOP = 0x01
    READ_SAFEOP = 0x02
    READ_OP = 0x04
    WRITE_PREOP = 0x08
    WRITE_SAFEOP = 0x10
    WRITE_OP = 0x20
    RX_PDO = 0x40
    TX_PDO = 0x80
    BACKUP = 0x100
    SETTING = 0x200
    READ = READ_PREOP | READ_SAFEOP | READ_OP
    WRITE = WRITE_PREOP | WRITE_SAFEOP | WRITE_OP


class ObjectCode(IntEnum):
    """Kinds of objects."""

    VAR = 7
    ARRAY = 8
    RECORD = 9


_READ_BY_STATE = {2: Access.READ_PREOP, 4: Access.READ_SAFEOP, 8: Access.READ_OP}
_WRITE_BY_STATE = {2: Access.WRITE_PREOP, 4: Access.WRITE_SAFEOP, 8: Access.WRITE_OP}


@dataclass(slots=True, eq=False)
class Entry:
    """One value of an object dictionary.

    `on_write` is called before an SDO write is stored, and raises `SdoAbort` to refuse; process data do not call it.
    """

    index: int
    subindex: int
    name: str
    type: DataType
    bits: int  # size; for strings the largest
    access: Access
    value: Value  # present value; drives write it directly
    minimum: float | None = None  # of writes by the master; None: that of the type
    maximum: float | None = None
    on_write: Callable[[Value], None] | None = None
    default: Value = field(init=False)

    def __post_init__(self) -> None:
        self.default = self.value

    def encode(self) -> bytes:
        """Return the value's bytes; a number out of its type's range is clamped."""
        try:
            return encode(self.type, self.value)
        except (OverflowError, struct.error):
            if is_real(self.type):
                return encode(self.type, math.copysign(math.inf, float(self.value)))
            low, high = integer_range(self.type)
            return encode(self.type, min(max(int(self.value), low), high))

    def decode(self, data: bytes) -> Value:
        """Return the value of bytes from the master; raises `SdoAbort` for a wrong length or a value out of range."""
        size = (self.bits + 7) // 8
        if len(data) > size:
            raise SdoAbort(AbortCode.LENGTH_HIGH)
        if not is_string(self.type) and len(data) < size:
            raise SdoAbort(AbortCode.LENGTH_LOW)
        value = decode(self.type, data)
        if isinstance(value, (int, float)):
            if self.bits < 8 and value >= 1 << self.bits:
                raise SdoAbort(AbortCode.RANGE_HIGH)
            if value != value:  # not a number
                raise SdoAbort(AbortCode.RANGE)
            if self.maximum is not None and value > self.maximum:
                raise SdoAbort(AbortCode.RANGE_HIGH)
            if self.minimum is not None and value < self.minimum:
                raise SdoAbort(AbortCode.RANGE_LOW)
        return value


@dataclass(slots=True, eq=False)
class ObjectEntry:
    """One object, with its entries by subindex.

    If `counted`, subindex 0 is the number of valid entries, and must be 0 while one of them is written (PDO lists).
    """

    index: int
    name: str
    code: ObjectCode
    type: DataType
    entries: dict[int, Entry]
    counted: bool = False

    @property
    def max_subindex(self) -> int:
        """Highest subindex."""
        return max(self.entries)

    def count(self) -> int:
        """Return the highest subindex in use."""
        return int(self.entries[0].value) if self.counted else self.max_subindex


class ObjectDictionary:
    """All objects of a slave; methods with an index raise `SdoAbort` if object or subindex do not exist."""

    def __init__(self) -> None:
        self.objects: dict[int, ObjectEntry] = {}

    def add(self, item: ObjectEntry) -> ObjectEntry:
        """Add an object; raises `ValueError` for an index in use."""
        if item.index in self.objects:
            raise ValueError(f"object 0x{item.index:04X} is there already")
        self.objects[item.index] = item
        return item

    def object(self, index: int) -> ObjectEntry:
        """Return the object at an index."""
        try:
            return self.objects[index]
        except KeyError:
            raise SdoAbort(AbortCode.NO_OBJECT) from None

    def entry(self, index: int, subindex: int = 0) -> Entry:
        """Return the entry at an index and a subindex."""
        try:
            return self.object(index).entries[subindex]
        except KeyError:
            raise SdoAbort(AbortCode.NO_SUBINDEX) from None

    def find(self, index: int, subindex: int = 0) -> Entry | None:
        """Return the entry at an index and a subindex, if any."""
        item = self.objects.get(index)
        return None if item is None else item.entries.get(subindex)

    def __iter__(self) -> Iterator[Entry]:
        for index in sorted(self.objects):
            yield from self.objects[index].entries.values()

    def read(self, index: int, subindex: int, state: int) -> bytes:
        """Return the bytes of one entry; `state` is the AL state.

        Raises `SdoAbort`: no such entry, write-only, or not readable in this state.
        """
        entry = self.entry(index, subindex)
        _check_read(entry, state)
        return entry.encode()

    def write(self, index: int, subindex: int, data: bytes, state: int) -> None:
        """Write one entry as a master does; `state` is the AL state.

        Raises `SdoAbort`: no such entry, read-only, not in this state, wrong length, out of range, or refused by
        `on_write`.
        """
        entry = self.entry(index, subindex)
        _check_write(entry, state)
        _store(entry, entry.decode(data))

    def announce(self, index: int, subindex: int, size: int, state: int) -> None:
        """Check a write in several messages before its data are complete.

        Raises `SdoAbort` as `write`, except for what depends on the value.
        """
        entry = self.entry(index, subindex)
        _check_write(entry, state)
        if size > (entry.bits + 7) // 8:
            raise SdoAbort(AbortCode.LENGTH_HIGH)

    def read_complete(self, index: int, first: int, state: int) -> bytes:
        """Return the bytes of all entries from subindex `first` (0 or 1), subindex 0 as 16 bits.

        Raises `SdoAbort` as `read`; also for a variable.
        """
        item = self._complete(index, first)
        data, shift = 0, 0
        for entry in _entries(item, first, item.count()):
            _check_read(entry, state)
            data |= int.from_bytes(entry.encode(), "little") << shift
            shift += _room(entry)
        return data.to_bytes((shift + 7) // 8, "little")

    def write_complete(self, index: int, first: int, data: bytes, state: int) -> None:
        """Write all entries from subindex `first` (0 or 1), or none; `SdoAbort` as `write`, also for a variable."""
        item = self._complete(index, first)
        count = item.max_subindex
        if item.counted:
            if first == 1:
                count = int(item.entries[0].value)
            elif data:
                count = data[0]
            if count > item.max_subindex:
                raise SdoAbort(AbortCode.PDO_LENGTH)
        entries = list(_entries(item, first, count))
        if len(data) * 8 < sum(map(_room, entries)):
            raise SdoAbort(AbortCode.LENGTH_LOW)
        if len(data) * 8 >= sum(map(_room, _entries(item, first, item.max_subindex))) + 8:
            raise SdoAbort(AbortCode.LENGTH_HIGH)
        values = _split(entries, int.from_bytes(data, "little"))
        for entry, value in zip(entries, values, strict=True):
            if entry.subindex == 0 and not item.counted:
                if value != entry.value:
                    raise SdoAbort(AbortCode.READ_ONLY)
            else:
                _check_write(entry, state)
        before = {entry: entry.value for entry in item.entries.values()}
        try:
            _store_all(item, entries, values)
        except SdoAbort:
            for entry, value in before.items():
                entry.value = value
            raise

    def _complete(self, index: int, first: int) -> ObjectEntry:
        item = self.object(index)
        if first > 1:
            raise SdoAbort(AbortCode.UNSUPPORTED)
        if item.code is ObjectCode.VAR or any(is_string(entry.type) for entry in item.entries.values()):
            raise SdoAbort(AbortCode.NO_COMPLETE_ACCESS)
        return item


def _room(entry: Entry) -> int:
    return 16 if entry.subindex == 0 else entry.bits


def _entries(item: ObjectEntry, first: int, count: int) -> Iterator[Entry]:
    return (entry for subindex, entry in sorted(item.entries.items()) if first <= subindex <= count)


def _split(entries: list[Entry], data: int) -> list[Value]:
    """Return the values of entries packed one after the other, bit by bit."""
    values = []
    for entry in entries:
        part = data & ((1 << entry.bits) - 1)
        values.append(entry.decode(part.to_bytes((entry.bits + 7) // 8, "little")))
        data >>= _room(entry)
    return values


def _store_all(item: ObjectEntry, entries: list[Entry], values: list[Value]) -> None:
    """Store decoded values; a counted list is cleared first and its count set last, as by single writes."""
    pairs = list(zip(entries, values, strict=True))
    if item.counted:
        count = pairs.pop(0)[1] if pairs and entries[0].subindex == 0 else item.entries[0].value
        _store(item.entries[0], 0)
        pairs.append((item.entries[0], count))
    for entry, value in pairs:
        if entry.subindex > 0 or item.counted:
            _store(entry, value)


def _store(entry: Entry, value: Value) -> None:
    if entry.on_write is not None:
        entry.on_write(value)
    entry.value = value


def _check_read(entry: Entry, state: int) -> None:
    if not entry.access & Access.READ:
        raise SdoAbort(AbortCode.WRITE_ONLY)
    if not entry.access & _READ_BY_STATE.get(state, Access(0)):
        raise SdoAbort(AbortCode.STATE)


def _check_write(entry: Entry, state: int) -> None:
    if not entry.access & Access.WRITE:
        raise SdoAbort(AbortCode.READ_ONLY)
    if not entry.access & _WRITE_BY_STATE.get(state, Access(0)):
        raise SdoAbort(AbortCode.STATE)
