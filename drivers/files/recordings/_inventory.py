"""What a file holds, counted while it is read, against what its own summary says that it holds.

An MCAP file ends with a summary: statistics, and the place and size of each chunk, attachment and metadata record. A
flipped opcode or length makes a reader skip a record without a word; the summary shows that. Two checksums cover the
rest: of the summary itself, and of the records before it (zero where the writer left it out, as older files do).
"""

import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Any

from mcap.data_stream import ReadDataStream
from mcap.opcode import Opcode
from mcap.records import AttachmentIndex, ChunkIndex, DataEnd, Footer, MetadataIndex, Statistics

_HEAD = 9  # bytes before the body of a record: opcode and length
_CHUNK = struct.Struct("<QQQII")  # first and last time, uncompressed size, checksum, length of the compression's name
_FOOTER_CRC = 4  # bytes of the footer that its checksum does not cover
_PRIVATE = 0x80  # opcodes from here on belong to other programs
_DATA = frozenset(
    {
        Opcode.SCHEMA, Opcode.CHANNEL, Opcode.MESSAGE, Opcode.CHUNK, Opcode.MESSAGE_INDEX, Opcode.ATTACHMENT,
        Opcode.METADATA, Opcode.DATA_END,
    }
)  # fmt: skip
_SUMMARY = frozenset(
    {
        Opcode.SCHEMA, Opcode.CHANNEL, Opcode.STATISTICS, Opcode.CHUNK_INDEX, Opcode.ATTACHMENT_INDEX,
        Opcode.METADATA_INDEX, Opcode.SUMMARY_OFFSET, Opcode.FOOTER,
    }
)  # fmt: skip


class Inventory:
    """The records of a file, as they pass."""

    def __init__(self, magic: bytes) -> None:
        self.first = True
        self.end: int | None = None  # byte after the record that ends the data
        self.changed = False  # a record before `end`
        self.problem: str | None = None  # the first record that is out of place
        self.places: dict[int, list[tuple[int, ...]]] = {code: [] for code in (Opcode.ATTACHMENT, Opcode.METADATA)}
        self.chunks: list[tuple[Any, ...]] = []  # as `_indexed`
        self.index_bytes: list[int] = []  # of the message indexes after each chunk
        self.messages: Counter[int] = Counter()  # by channel
        self.start = self.stop = 0  # log times of the messages [ns]
        self.nonzero = 0  # the smallest but zero, which a writer may take for none
        self._crc = zlib.crc32(magic)
        self._index: dict[int, list[Any]] = {code: [] for code in _READ}

    def record(self, opcode: int, position: int, head: bytes, body: bytes) -> None:
        """Note a record outside of chunks; raises as the reader of records if it cannot be read."""
        self._check_opcode(opcode, position)
        if self.end is not None:
            if opcode in _READ:
                self._index[opcode].append(_READ[opcode].read(ReadDataStream(BytesIO(body))))
            if opcode != Opcode.FOOTER:
                self._crc = zlib.crc32(body, zlib.crc32(head, self._crc))
            return
        if opcode == Opcode.DATA_END:
            stated = DataEnd.read(ReadDataStream(BytesIO(body))).data_section_crc
            self.changed = stated not in (0, self._crc)
            self.end, self._crc = position + _HEAD + len(body), 0
            return
        self._crc = zlib.crc32(body, zlib.crc32(head, self._crc))
        if opcode in self.places:
            self.places[opcode].append((position, _HEAD + len(body)))
        elif opcode == Opcode.CHUNK:
            first, last, size, _, name = _CHUNK.unpack_from(body)
            packed = len(body) - _CHUNK.size - name - 8
            place = (position, _HEAD + len(body))
            self.chunks.append((*place, first, last, body[_CHUNK.size :][:name].decode(), packed, size))
            self.index_bytes.append(0)
        elif opcode == Opcode.MESSAGE_INDEX and self.index_bytes:
            self.index_bytes[-1] += _HEAD + len(body)

    def content(self, messages: Iterable[tuple[int, int, int, int, bytes]]) -> None:
        """Note the messages of a chunk, or one outside of chunks."""
        times = []
        for channel, _, log_time, _, _ in messages:
            self.messages[channel] += 1
            times.append(log_time)
        if times:
            first = self.messages.total() == len(times)
            self.start = min(times) if first else min(self.start, min(times))
            self.stop = max(self.stop, max(times))
            self.nonzero = min((t for t in (*times, self.nonzero) if t), default=0)

    def contradiction(self, footer: bytes) -> str | None:
        """Return what disagrees with the file's summary; None if nothing does. `footer` is the last record."""
        return self.problem or next(self._contradictions(footer), None)

    def _check_opcode(self, opcode: int, position: int) -> None:
        known = (Opcode.HEADER,) if self.first else _DATA if self.end is None else _SUMMARY
        self.first = False
        if opcode not in known and opcode < _PRIVATE and self.problem is None:
            self.problem = f"the record at byte {position} has the opcode {opcode:#04x}, which does not belong there"

    def _contradictions(self, body: bytes) -> Iterator[str]:
        footer = Footer.read(ReadDataStream(BytesIO(body)))
        if self.end is None:
            yield "the record that ends the data is missing"
            return
        if footer.summary_start or any(self._index.values()):  # the format allows a file without a summary
            if footer.summary_start != self.end:
                yield f"its summary is said to begin at byte {footer.summary_start}, but begins at byte {self.end}"
            for statistics in self._index[Opcode.STATISTICS]:
                yield from self._counts(statistics)
            yield from self._chunks(self._index[Opcode.CHUNK_INDEX])
            for code, opcode, name in (
                (Opcode.METADATA, Opcode.METADATA_INDEX, "metadata record"),
                (Opcode.ATTACHMENT, Opcode.ATTACHMENT_INDEX, "attachment"),
            ):
                listed = sorted((entry.offset, entry.length) for entry in self._index[opcode])
                if listed and listed != self.places[code]:
                    place = min(set(listed) ^ set(self.places[code]))[0]
                    yield f"its index and its {name}s disagree at byte {place}"
        head = bytes([Opcode.FOOTER]) + len(body).to_bytes(8, "little")
        if footer.summary_crc not in (0, zlib.crc32(body[:-_FOOTER_CRC], zlib.crc32(head, self._crc))):
            yield "the checksum of its summary is wrong: its index has changed"
        if self.changed:
            yield "the checksum of its records is wrong: one of them, such as the metadata, has changed"

    def _counts(self, stated: Statistics) -> Iterator[str]:
        found = {
            "chunks": (stated.chunk_count, len(self.chunks)),
            "messages": (stated.message_count, self.messages.total()),
            "metadata records": (stated.metadata_count, len(self.places[Opcode.METADATA])),
            "attachments": (stated.attachment_count, len(self.places[Opcode.ATTACHMENT])),
        }
        for what, (expected, counted) in found.items():
            if expected != counted:
                yield f"its statistics say {expected} {what}, it holds {counted}"
        for channel in sorted(set(stated.channel_message_counts) | set(self.messages)):
            expected, counted = stated.channel_message_counts.get(channel, 0), self.messages[channel]
            if stated.channel_message_counts and expected != counted:
                yield f"its statistics say {expected} messages of channel {channel}, it holds {counted}"
        begins = (self.start, self.nonzero if self.start == 0 else self.start)
        if self.messages and (stated.message_start_time not in begins or stated.message_end_time != self.stop):
            yield "its statistics say other times of the first and the last message than it holds"

    def _chunks(self, index: list[ChunkIndex]) -> Iterator[str]:
        if not index:
            return
        listed = {_indexed(entry)[:2]: entry for entry in index}
        present = {chunk[:2] for chunk in self.chunks}
        if set(listed) != present:
            place = min(set(listed) ^ present)[0]
            yield f"its index and its chunks disagree at byte {place}"
            return
        for chunk, size in zip(self.chunks, self.index_bytes, strict=True):
            entry = listed[chunk[:2]]
            own = _indexed(entry)
            if chunk[2] > chunk[3]:  # no message: writers state other times here and there
                chunk, own = (*chunk[:2], *chunk[4:]), (*own[:2], *own[4:])
            if chunk != own or size != entry.message_index_length:
                yield f"the chunk at byte {chunk[0]} has other times or sizes than its index says"


def _indexed(entry: ChunkIndex) -> tuple[Any, ...]:
    times = (entry.message_start_time, entry.message_end_time)
    place = (entry.chunk_start_offset, entry.chunk_length)
    return (*place, *times, entry.compression, entry.compressed_size, entry.uncompressed_size)


_READ: dict[int, Any] = {
    Opcode.STATISTICS: Statistics, Opcode.CHUNK_INDEX: ChunkIndex, Opcode.METADATA_INDEX: MetadataIndex,
    Opcode.ATTACHMENT_INDEX: AttachmentIndex,
}  # fmt: skip
