"""Reader of MCAP files that may be incomplete or damaged.

The readers of the `mcap` package need an index at the end of the file, which a killed writer did not write.  Here the
file is read from the start; a record counts only if it is complete and its checksum is correct.  A closed file is
compared with its own summary (`_inventory`): one that contradicts it counts as damaged.
"""

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import zstandard
from mcap.data_stream import ReadDataStream
from mcap.exceptions import McapError
from mcap.opcode import Opcode
from mcap.records import Channel, Chunk, Metadata, Schema
from mcap.stream_reader import get_chunk_data_stream

from drivers.files.recordings._inventory import Inventory
from drivers.files.recordings.format import RecordingError, RecordingFormatError, RecordingNotFoundError

MAGIC = b"\x89MCAP0\r\n"
#: Largest chunk; a damaged length must not exhaust the memory.
MAX_CHUNK_BYTES = 256 * 2**20

_RECORD = struct.Struct("<BQ")
_MESSAGE = struct.Struct("<HIQQ")  # channel, sequence, log time, publish time

#: What decoding a damaged record may raise.
_DAMAGE = (McapError, struct.error, UnicodeDecodeError, ValueError, EOFError, RuntimeError, zstandard.ZstdError)


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__


@dataclass
class Content:
    """Messages of one chunk, in the order of the file: (channel, sequence, log time, publish time, data)."""

    messages: list[tuple[int, int, int, int, bytes]] = field(default_factory=list)


@dataclass
class Scan:
    """Scan of a file; complete once `contents` is exhausted."""

    path: Path
    schemas: dict[int, Schema] = field(default_factory=dict)  # by id, so far
    channels: dict[int, Channel] = field(default_factory=dict)
    metadata: list[Metadata] = field(default_factory=list)  # so far
    size: int = 0  # [bytes]
    chunks: int = 0
    whole: bool = False  # the file has its end records
    corrupt: bool = False
    dropped: int = 0  # bytes outside of complete records
    damage: str = ""  # first damage; empty if there is none

    def contents(self) -> Iterator[Content]:
        """Yield each undamaged chunk's messages, and collect schemas, channels and metadata.

        Raises `RecordingNotFoundError`, `RecordingError`: the file does not exist or cannot be read;
        `RecordingFormatError`: the file is empty or no MCAP file.
        """
        try:
            with self.path.open("rb") as file:
                yield from self._walk(file)
        except FileNotFoundError:
            raise RecordingNotFoundError(f"{self.path}: no such file") from None
        except OSError as error:
            raise RecordingError(f"{self.path}: cannot be read: {error.strerror or error}") from error

    def _walk(self, file: BinaryIO) -> Iterator[Content]:
        self.size = os.fstat(file.fileno()).st_size
        if self.size == 0:
            raise RecordingFormatError(f"{self.path}: the file is empty")
        start = file.read(len(MAGIC))
        if start != MAGIC:
            if MAGIC.startswith(start):
                self._stop(0, "the file ends within its first bytes")
                return
            raise RecordingFormatError(f"{self.path}: not an MCAP file; other formats come in by `thetad import`")
        position = len(MAGIC)
        inventory = Inventory(MAGIC)
        while True:
            header = file.read(_RECORD.size)
            if len(header) < _RECORD.size:
                self._stop(position, f"the file ends at byte {self.size} without the records that close it")
                return
            opcode, length = _RECORD.unpack(header)
            if length > self.size - position - _RECORD.size:
                self._stop(position, f"the file ends within the record that starts at byte {position}")
                return
            body = file.read(length)
            if opcode == Opcode.FOOTER:
                self.whole = file.read(len(MAGIC)) == MAGIC
                if not self.whole:
                    self._stop(position, "the file ends within its last bytes")
                    return
                self._compare(inventory, position, header, body)
                return
            try:
                inventory.record(opcode, position, header, body)
                content = self._record(opcode, body)
            except _DAMAGE as error:
                self.corrupt = True
                self.dropped += _RECORD.size + length
                self.damage = self.damage or f"the record at byte {position} is damaged ({_text(error)})"
            else:
                if content is not None:
                    self.chunks += opcode == Opcode.CHUNK
                    inventory.content(content.messages)
                    yield content
            position += _RECORD.size + length

    def _compare(self, inventory: Inventory, position: int, header: bytes, footer: bytes) -> None:
        """Compare a closed file, whose records are sound one by one, with its summary."""
        if self.corrupt:
            return
        try:
            inventory.record(Opcode.FOOTER, position, header, footer)
            problem = inventory.contradiction(footer)
        except _DAMAGE as error:
            problem = f"its last record is damaged ({_text(error)})"
        if problem is not None:
            self.corrupt, self.damage = True, f"the file contradicts itself: {problem}"

    def _stop(self, position: int, damage: str) -> None:
        self.dropped += self.size - position
        self.damage = self.damage or damage

    def _record(self, opcode: int, body: bytes) -> Content | None:
        """Decode one record outside a chunk; None if it holds no messages."""
        if opcode == Opcode.CHUNK:
            return self._chunk(body)
        if opcode == Opcode.METADATA:
            self.metadata.append(Metadata.read(ReadDataStream(BytesIO(body))))
        elif opcode == Opcode.MESSAGE:  # an MCAP file without chunks
            content = Content()
            self._inner(opcode, body, content)
            return content
        elif opcode in (Opcode.SCHEMA, Opcode.CHANNEL):
            self._inner(opcode, body, Content())
        return None

    def _chunk(self, body: bytes) -> Content:
        chunk = Chunk.read(ReadDataStream(BytesIO(body)))
        if chunk.uncompressed_size > MAX_CHUNK_BYTES:
            raise ValueError(f"a chunk of {chunk.uncompressed_size} bytes")
        if chunk.compression == "zstd" and zstandard.frame_content_size(chunk.data) > chunk.uncompressed_size:
            raise ValueError("its sizes contradict each other")
        stream, length = get_chunk_data_stream(chunk)
        data = stream.read(length)
        if chunk.uncompressed_crc not in (0, zlib.crc32(data)):
            raise ValueError("wrong checksum")
        content = Content()
        position = 0
        while position < length:
            opcode, size = _RECORD.unpack_from(data, position)
            position += _RECORD.size
            if size > length - position:
                raise ValueError("a record reaches beyond its chunk")
            self._inner(opcode, data[position : position + size], content)
            position += size
        return content

    def _inner(self, opcode: int, body: bytes, content: Content) -> None:
        if opcode == Opcode.MESSAGE:
            channel, sequence, log_time, publish_time = _MESSAGE.unpack_from(body)
            content.messages.append((channel, sequence, log_time, publish_time, body[_MESSAGE.size :]))
        elif opcode == Opcode.CHANNEL:
            channel_record = Channel.read(ReadDataStream(BytesIO(body)))
            self.channels[channel_record.id] = channel_record
        elif opcode == Opcode.SCHEMA:
            schema = Schema.read(ReadDataStream(BytesIO(body)))
            self.schemas[schema.id] = schema
