"""Process data objects: layouts, the SDOs that map them, and packing.

An entry reads `"6041:00:16 statusword"`: index, subindex, bits, meaning.  An output without a meaning is zero, an input
without one is ignored; index 0000 is padding.  A type other than that of CiA 402 (`u`, `i` or `f`) follows the meaning:
`"2031:01:16 temperature u"`.
"""

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: Meanings and their types by CiA 402.
RX_MEANINGS = {
    "controlword": "u", "mode": "i", "target_position": "i", "target_velocity": "i", "target_torque": "i",
    "velocity_offset": "i", "torque_offset": "i",
}  # fmt: skip
TX_MEANINGS = {
    "statusword": "u", "mode_display": "i", "position": "i", "velocity": "i", "torque": "i", "current": "i",
    "motor_position": "i", "temperature": "i", "error_code": "u", "digital_inputs": "u", "following_error": "i",
}  # fmt: skip
_CODES = {("u", 8): "B", ("u", 16): "H", ("u", 32): "I", ("u", 64): "Q", ("f", 32): "f", ("f", 64): "d"}
_CODES.update({("i", bits): code.lower() for (kind, bits), code in _CODES.items() if kind == "u"})
_ENTRY = re.compile(r"([0-9A-Fa-f]{4}):([0-9A-Fa-f]{2}):(\d{1,3})(?:\s+([a-z_]+)(?:\s+([uif]))?)?")


class LayoutError(ValueError):
    """An invalid layout; the message names PDO and entry."""


@dataclass(frozen=True)
class PdoEntry:
    """One mapped object; `meaning` is empty if it is not used."""

    index: int
    subindex: int
    bits: int
    meaning: str
    code: str  # of struct; empty if there is no meaning

    @property
    def mapping(self) -> int:
        """Value of the entry in a mapping object (16xx, 1Axx)."""
        return self.index << 16 | self.subindex << 8 | self.bits

    def __str__(self) -> str:
        return f"{self.index:04X}:{self.subindex:02X}:{self.bits}"


@dataclass(frozen=True)
class PdoLayout:
    """Process image of one direction: PDOs in order, each with its entries."""

    pdos: tuple[tuple[int, tuple[PdoEntry, ...]], ...]
    meanings: tuple[str, ...]  # in the order of the values of `codec`
    codec: struct.Struct

    @property
    def size(self) -> int:
        """Length of the image [bytes]."""
        return self.codec.size

    def is_float(self, meaning: str) -> bool:
        """Return whether a meaning is a floating-point number."""
        return any(entry.meaning == meaning and entry.code in ("f", "d") for _, part in self.pdos for entry in part)

    def unpack(self, image: bytes) -> tuple[int | float, ...]:
        """Return the values by `meanings`; raises `LayoutError` for an image of another length."""
        if len(image) != self.codec.size:
            raise LayoutError(f"image of {len(image)} bytes where {self.codec.size} are mapped")
        return self.codec.unpack(image)


def mapping_text(value: int) -> str:
    """Return the value of a mapping object as text, as in layouts."""
    return f"{value >> 16:04X}:{value >> 8 & 0xFF:02X}:{value & 0xFF}"


def parse_entry(text: str) -> PdoEntry:
    """Parse an entry; raises `LayoutError`."""
    match = _ENTRY.fullmatch(text.strip())
    if match is None:
        raise LayoutError(f'entry {text!r} is not like "6041:00:16 statusword"')
    index, subindex, bits = int(match[1], 16), int(match[2], 16), int(match[3])
    if not 1 <= bits <= 255:
        raise LayoutError(f"entry {text!r}: {bits} bits")
    meaning = match[4] or ""
    if not meaning:
        return PdoEntry(index, subindex, bits, "", "")
    kinds = RX_MEANINGS | TX_MEANINGS
    if meaning not in kinds:
        raise LayoutError(f"entry {text!r}: no meaning {meaning!r}; there is {', '.join(sorted(kinds))}")
    code = _CODES.get((match[5] or kinds[meaning], bits))
    if code is None:
        raise LayoutError(f"entry {text!r}: {bits} bits do not make a number (8, 16, 32 or 64; f: 32 or 64)")
    return PdoEntry(index, subindex, bits, meaning, code)


def parse_layout(pdos: Mapping[str, Sequence[str]]) -> PdoLayout:
    """Parse the PDOs of one direction, by hexadecimal index.

    Raises `LayoutError` for an invalid entry, a value that does not start on a byte, or a meaning that occurs twice.
    """
    parsed = [(int(index, 16), tuple(parse_entry(text) for text in texts)) for index, texts in pdos.items()]
    code, bit, meanings = "<", 0, []
    outputs = all(index < 0x1A00 for index, _ in parsed)
    allowed = RX_MEANINGS if outputs else TX_MEANINGS
    for index, entries in parsed:
        if not entries:
            raise LayoutError(f"PDO {index:04X} has no entries")
        for entry in entries:
            if entry.meaning:
                if entry.meaning not in allowed:
                    way = "an output (rx)" if outputs else "an input (tx)"
                    raise LayoutError(f"PDO {index:04X}: {entry.meaning} ({entry}) is not {way}")
                if bit % 8:
                    raise LayoutError(f"PDO {index:04X}: {entry.meaning} ({entry}) does not start on a byte")
                if entry.meaning in meanings:
                    raise LayoutError(f"PDO {index:04X}: {entry.meaning} is mapped twice")
                meanings.append(entry.meaning)
                code += entry.code
            else:  # bytes that this entry begins or completes
                whole = (bit + entry.bits) // 8 - bit // 8
                code += f"{whole}x" if whole else ""
            bit += entry.bits
    if bit % 8:
        raise LayoutError(f"{bit} bits in all: pad them to whole bytes (0000:00:{8 - bit % 8})")
    return PdoLayout(tuple(parsed), tuple(meanings), struct.Struct(code))


@dataclass(frozen=True)
class SdoWrite:
    """An SDO download: object and data."""

    index: int
    subindex: int
    data: bytes

    def __str__(self) -> str:
        return f"{self.index:04X}:{self.subindex:02X} = 0x{int.from_bytes(self.data, 'little'):X}"


def assignment_object(layout: PdoLayout) -> int:
    """Return the object that assigns PDOs to the sync manager of the layout's direction."""
    return 0x1C12 if layout.pdos[0][0] < 0x1A00 else 0x1C13


def remap_writes(layout: PdoLayout, mapping: bool = True) -> list[SdoWrite]:
    """Return the SDOs that make a drive map the layout, in order (ETG.1000.6: empty, write, set the number).

    Without `mapping` only the assignment of PDOs is written, for drives whose PDOs have fixed contents.
    """
    assignment = assignment_object(layout)
    writes = [SdoWrite(assignment, 0, b"\0")]
    for index, entries in layout.pdos if mapping else ():
        writes.append(SdoWrite(index, 0, b"\0"))
        writes += [SdoWrite(index, k, entry.mapping.to_bytes(4, "little")) for k, entry in enumerate(entries, start=1)]
        writes.append(SdoWrite(index, 0, len(entries).to_bytes(1, "little")))
    writes += [
        SdoWrite(assignment, k, index.to_bytes(2, "little")) for k, (index, _) in enumerate(layout.pdos, start=1)
    ]
    writes.append(SdoWrite(assignment, 0, len(layout.pdos).to_bytes(1, "little")))
    return writes


def mapping_difference(layout: PdoLayout, assigned: Sequence[int], mapped: Mapping[int, Sequence[int]]) -> str:
    """Return the first difference between a layout and a drive's mapping; empty if there is none.

    `assigned` are the PDO indices of 1C12 or 1C13, `mapped` the values of the mapping object of each PDO index.
    """
    wanted = [index for index, _ in layout.pdos]
    if list(assigned) != wanted:
        return (
            f"{assignment_object(layout):04X} assigns {', '.join(f'{i:04X}' for i in assigned) or 'nothing'}, "
            f"configured is {', '.join(f'{i:04X}' for i in wanted)}"
        )
    for index, entries in layout.pdos:
        values = list(mapped.get(index, ()))
        for k, entry in enumerate(entries):
            if k >= len(values):
                return f"{index:04X} has {len(values)} entries, configured are {len(entries)}: {entry} is missing"
            if values[k] != entry.mapping:
                return f"entry {k + 1} of {index:04X} is {mapping_text(values[k])}, configured is {entry}"
        if len(values) > len(entries):
            return f"{index:04X} has {len(values)} entries, configured are {len(entries)}"
    return ""
