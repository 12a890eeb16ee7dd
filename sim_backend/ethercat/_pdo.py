"""Process data of one direction: assignment, mapping, and the process image.

Masters write assignment (0x1C12, 0x1C13) and mapping objects (0x16xx, 0x1Axx) in PREOP: subindex 0 to zero, the
entries, then subindex 0 to their number (ETG.1000.6).  Invalid writes are refused with an SDO abort.
"""

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from sim_backend.canopen.data_types import Value, decode, encode, integer_range, is_real, struct_code
from sim_backend.canopen.dictionary import AbortCode, Access, Entry, ObjectDictionary, ObjectEntry, SdoAbort
from sim_backend.ethercat._communication import ASSIGN_INPUTS, ASSIGN_OUTPUTS

#: An entry and the bits it takes in the image; None is a gap.
Slot: TypeAlias = tuple[Entry | None, int]

_Check: TypeAlias = Callable[[ObjectEntry, Value], None]


class ImagePacker:
    """Pack and unpack the values of entries in a process image of fixed layout."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self.size = (sum(bits for _, bits in slots) + 7) // 8
        self._slots = tuple(slots)
        self._entries = [entry for entry, _ in slots if entry is not None]
        self._struct = _compile(slots)

    def pack(self, view: memoryview, offset: int) -> None:
        """Write the entries' values at `offset`; numbers out of range are clamped."""
        if self._struct is None:
            view[offset : offset + self.size] = self._pack_bits()
            return
        try:
            self._struct.pack_into(view, offset, *[entry.value for entry in self._entries])
        except struct.error:
            values = [_held(entry) for entry in self._entries]
            self._struct.pack_into(view, offset, *values)

    def unpack(self, view: memoryview, offset: int) -> None:
        """Set the entries' values from the image at `offset`."""
        if self._struct is None:
            self._unpack_bits(view[offset : offset + self.size])
            return
        for entry, value in zip(self._entries, self._struct.unpack_from(view, offset), strict=True):
            entry.value = value

    def _pack_bits(self) -> bytes:
        image, shift = 0, 0
        for entry, bits in self._slots:
            if entry is not None:
                raw = int.from_bytes(encode(entry.type, _held(entry)), "little")
                image |= (raw & ((1 << bits) - 1)) << shift
            shift += bits
        return image.to_bytes(self.size, "little")

    def _unpack_bits(self, view: memoryview) -> None:
        image = int.from_bytes(view, "little")
        for entry, bits in self._slots:
            if entry is not None:
                raw = image & ((1 << bits) - 1)
                entry.value = decode(entry.type, raw.to_bytes((bits + 7) // 8, "little"))
            image >>= bits


def _compile(slots: Sequence[Slot]) -> struct.Struct | None:
    """Return the image as a `struct`, None unless all slots are whole bytes."""
    form = "<"
    for entry, bits in slots:
        if bits % 8:
            return None
        code = f"{bits // 8}x" if entry is None else struct_code(entry.type)
        if code is None:
            return None
        form += code
    return struct.Struct(form)


def _held(entry: Entry) -> int | float:
    value = float(entry.value) if is_real(entry.type) else int(entry.value)
    if isinstance(value, float):
        return value
    low, high = integer_range(entry.type)
    return min(max(value, low), high)


class ProcessImage:
    """Assignment and mapping of one direction, at most `max_bytes`, with checks of writes by the master."""

    def __init__(self, dictionary: ObjectDictionary, *, outputs: bool, max_bytes: int) -> None:
        self._dictionary = dictionary
        self._direction = Access.RX_PDO if outputs else Access.TX_PDO
        self._max_bits = 8 * max_bytes
        self._assign = dictionary.object(ASSIGN_OUTPUTS if outputs else ASSIGN_INPUTS)
        indexes = range(0x1600, 0x1800) if outputs else range(0x1A00, 0x1C00)
        self._pdos = {index: item for index, item in dictionary.objects.items() if index in indexes}
        for item in self._pdos.values():
            self._watch(item, self._check_word, self._check_mapping)
        self._watch(self._assign, self._check_pdo, self._check_assignment)

    def slots(self) -> list[Slot]:
        """Return the slots of the present image, in order; `SdoAbort` for a mapped object that does not exist."""
        found: list[Slot] = []
        for number in _values(self._assign, self._assign.count()):
            pdo = self._pdo(number)
            found += [self._slot(word) for word in _values(pdo, pdo.count())]
        return found

    def packer(self) -> ImagePacker:
        """Return the packer of the present image; raises `SdoAbort` as `slots`."""
        return ImagePacker(self.slots())

    @staticmethod
    def _watch(item: ObjectEntry, check: _Check, check_count: _Check) -> None:
        for subindex, entry in item.entries.items():
            entry.on_write = partial(check if subindex else check_count, item)

    def _pdo(self, number: int) -> ObjectEntry:
        try:
            return self._pdos[number]
        except KeyError:
            raise SdoAbort(AbortCode.NO_OBJECT) from None

    def _slot(self, word: int) -> Slot:
        """Return the slot of a mapping word; raises `SdoAbort`."""
        index, subindex, bits = word >> 16, word >> 8 & 0xFF, word & 0xFF
        if bits == 0:
            raise SdoAbort(AbortCode.NOT_MAPPABLE)
        if index == 0:
            return None, bits
        entry = self._dictionary.entry(index, subindex)
        if not entry.access & self._direction:
            raise SdoAbort(AbortCode.NOT_MAPPABLE)
        if entry.bits != bits:
            raise SdoAbort(AbortCode.LENGTH)
        return entry, bits

    def _check_word(self, item: ObjectEntry, value: Value) -> None:
        if item.count():
            raise SdoAbort(AbortCode.SUBINDEX_ZERO_SET)
        if value:
            self._slot(int(value))

    def _check_pdo(self, item: ObjectEntry, value: Value) -> None:
        if item.count():
            raise SdoAbort(AbortCode.SUBINDEX_ZERO_SET)
        if value:
            self._pdo(int(value))

    def _check_mapping(self, item: ObjectEntry, value: Value) -> None:
        count = self._check_count(item, value)
        bits = sum(self._slot(word)[1] for word in _values(item, count))
        others = 0
        assigned = _values(self._assign, self._assign.count())
        if item.index in assigned:
            others = sum(self._bits(number) for number in assigned if number != item.index)
        if bits + others > self._max_bits:
            raise SdoAbort(AbortCode.PDO_LENGTH)

    def _check_assignment(self, item: ObjectEntry, value: Value) -> None:
        numbers = _values(item, self._check_count(item, value))
        if len(set(numbers)) < len(numbers):
            raise SdoAbort(AbortCode.PARAMETER)
        if sum(map(self._bits, numbers)) > self._max_bits:
            raise SdoAbort(AbortCode.PDO_LENGTH)

    @staticmethod
    def _check_count(item: ObjectEntry, value: Value) -> int:
        if int(value) > item.max_subindex:
            raise SdoAbort(AbortCode.PDO_LENGTH)
        return int(value)

    def _bits(self, number: int) -> int:
        pdo = self._pdo(number)
        return sum(word & 0xFF for word in _values(pdo, pdo.count()))


def _values(item: ObjectEntry, count: int) -> list[int]:
    return [int(item.entries[subindex].value) for subindex in range(1, count + 1)]
