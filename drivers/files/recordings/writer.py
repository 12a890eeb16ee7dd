"""Writer of recordings, which loses at most the open chunk if the process is killed, and recovery of such files."""

import contextlib
import math
import stat
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import msgspec
import numpy as np
from mcap.writer import CompressionType, Writer

from drivers.files.atomic_write import atomic_write
from drivers.files.recordings.format import (
    METADATA_NAME,
    SCHEMA_NAME,
    VERIFIED,
    RecordingError,
    RecordingExistsError,
    RecordingFormatError,
    RecordingMeta,
    RecordingWriteError,
    frame_schema,
    recovered,
    with_digest,
)
from drivers.files.recordings.mcap_scan import Scan
from drivers.frame import CHANNELS, JointFrame

#: A missing value of these does not invalidate the joint's other values of the frame.
SLOW_CHANNELS = ("temperature", "setpoint")

_LIBRARY = "thetad"
_ENCODER = msgspec.json.Encoder()
_UNLIMITED = 2**62  # chunks are closed by `flush`, which hands each to the operating system


class RecordingWriter:
    """Writer of one robot's frames to a new file.

    A chunk is compressed and handed to the operating system once its frames span `chunk_s` on their own clock [s], or
    `chunk_bytes` before compression.  Call `flush` when a source pauses.  Raises `RecordingExistsError`: the file
    exists; `RecordingWriteError`: the file cannot be created.
    """

    def __init__(
        self, path: str | Path, meta: RecordingMeta, chunk_s: float = 0.5, chunk_bytes: int = 1024 * 1024
    ) -> None:
        if not (math.isfinite(chunk_s) and chunk_s > 0.0) or chunk_bytes < 1:
            raise RecordingFormatError(f"chunk of {chunk_s} s and {chunk_bytes} bytes: both must be positive")
        self.path = Path(path)
        self.meta = meta
        self.frames = 0
        self._bytes = 0
        self._chunk_ns = int(chunk_s * 1e9)
        self._chunk_bytes = chunk_bytes
        self._first_ns = 0
        self._chunk_start_ns = 0
        self._pending_bytes = 0
        self._stream: BinaryIO | None = _create(self.path)
        self._writer = _mcap_writer(self._stream)
        try:
            self._writer.start(profile="", library=_LIBRARY)
            self._writer.add_metadata(METADATA_NAME, with_digest(meta.to_metadata()))
            schema = self._writer.register_schema(SCHEMA_NAME, "jsonschema", frame_schema(meta))
            self._channel = self._writer.register_channel(meta.topic, "json", schema, {"robot": meta.robot})
            self._writer.flush()
        except OSError as error:
            raise self._failed(error) from error

    def write(self, frame: JointFrame) -> None:
        """Write a frame; raises `RecordingWriteError` (disk full, closed) or `RecordingFormatError` (wrong shape)."""
        if self._stream is None:
            raise RecordingWriteError(f"{self.path}: written to after it was closed")
        t_ns = frame.t_bus_ns
        if self.frames == 0:
            self._first_ns = self._chunk_start_ns = t_ns
        if self._pending_bytes >= self._chunk_bytes or abs(t_ns - self._chunk_start_ns) >= self._chunk_ns:
            self.flush()
            self._chunk_start_ns = t_ns
        data = self._encode(frame)
        self._writer.add_message(
            self._channel, log_time=t_ns, data=data, publish_time=t_ns, sequence=frame.seq & 0xFFFFFFFF
        )
        self._pending_bytes += len(data)
        self.frames += 1

    @property
    def size(self) -> int:
        """Bytes of the file so far, without the open chunk."""
        if self._stream is not None:
            self._bytes = self._stream.tell()
        return self._bytes

    def flush(self) -> None:
        """Close the open chunk and hand it to the operating system; raises `RecordingWriteError`."""
        if self._stream is None:
            return
        try:
            self._writer.flush()
        except OSError as error:
            raise self._failed(error) from error
        self._pending_bytes = 0

    def close(self) -> None:
        """Write the index and close the file; may be called more than once; raises `RecordingWriteError`."""
        if self._stream is None:
            return
        stream = self._stream
        try:
            self._writer.finish()
            self._bytes = stream.tell()
            stream.close()
        except OSError as error:
            raise self._failed(error) from error
        self._stream = None

    def abandon(self) -> None:
        """Close the file without an index, as if the process had been killed."""
        if self._stream is not None:
            with contextlib.suppress(OSError):
                self._stream.close()
            self._stream = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _failed(self, error: OSError) -> RecordingWriteError:
        self.abandon()
        return RecordingWriteError(
            f"{self.path}: cannot be written: {error.strerror or error}; "
            f"complete chunks are kept, see `thetad recordings recover`"
        )

    def _encode(self, frame: JointFrame) -> bytes:
        t_ns = int(frame.t_bus_ns)
        if not 0 <= t_ns < 2**63:
            raise RecordingFormatError(f"{self.path}: frame {frame.seq}: time {t_ns} ns is negative or too large")
        fields: dict[str, Any] = {"t": round((t_ns - self._first_ns) * 1e-9, 9), "t_ns": t_ns, "seq": int(frame.seq)}
        if frame.t_host_ns:
            fields["t_host_ns"] = int(frame.t_host_ns)
        if (valid := frame.valid) is not None:
            self._listed("valid", valid, frame.seq)
        for name in CHANNELS:
            if (array := getattr(frame, name)) is None:
                continue
            fields[name] = values = self._listed(name, array, frame.seq)
            if name in SLOW_CHANNELS or math.isfinite(sum(values)):  # quicker than to look at each
                continue
            if not (present := np.isfinite(array)).all():
                valid = present if valid is None else valid & present
        if frame.status_word is not None:
            fields["status_word"] = self._listed("status_word", frame.status_word, frame.seq)
        if valid is not None:
            fields["valid"] = self._listed("valid", valid, frame.seq)
        return _ENCODER.encode(fields)  # what is not finite becomes null

    def _listed(self, name: str, array: Any, seq: int) -> list[Any]:
        if array.shape != (self.meta.n,):
            raise RecordingFormatError(
                f"{self.path}: frame {seq}: {name} has {np.size(array)} values for "
                f"{self.meta.n} joints of {self.meta.robot}"
            )
        return array.tolist()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class RecoveryResult:
    """Result of `recover`."""

    frames: int
    chunks: int
    bytes_read: int
    bytes_dropped: int
    was_complete: bool
    damage: str
    metadata_verified: bool = True


def recover(src: str | Path, dst: str | Path, replace: bool = False) -> RecoveryResult:
    """Copy every complete, undamaged chunk of `src` to `dst`, atomically; `dst` must not exist unless `replace`.

    Raises `RecordingFormatError`: `src` is no MCAP file, or has no complete chunk; `RecordingNotFoundError`,
    `RecordingExistsError`, `RecordingWriteError`: `src` does not exist; `dst` does; `dst` cannot be written.
    """
    target = Path(dst)
    if target.exists() and not replace:
        raise RecordingExistsError(f"{target}: already there; choose another name or remove it")
    channels = Scan(Path(src))
    for _ in channels.contents():
        pass  # a closed file repeats its channels at the end, in case its first chunk is damaged
    scan = Scan(Path(src), schemas=channels.schemas, channels=channels.channels)
    frames, verified = 0, True
    try:
        # Keep the permissions of the source.
        with atomic_write(target, stat.S_IMODE(Path(src).stat().st_mode) & 0o666) as stream:
            writer = _mcap_writer(stream)
            writer.start(profile="", library=_LIBRARY)
            for record in channels.metadata:
                metadata = record.metadata
                if record.name == METADATA_NAME:
                    metadata = recovered(metadata, channels.whole and not channels.corrupt)
                    verified &= metadata.get(VERIFIED) != "no"
                writer.add_metadata(record.name, metadata)
            ids: dict[int, int] = {}
            for content in scan.contents():
                for channel_id, sequence, log_time, publish_time, data in content.messages:
                    if channel_id not in ids:
                        if channel_id not in scan.channels:
                            continue
                        ids[channel_id] = _copy_channel(writer, scan, channel_id)
                    writer.add_message(ids[channel_id], log_time, data, publish_time, sequence)
                    frames += 1
                writer.flush()
            writer.finish()
            if frames == 0:
                raise RecordingFormatError(f"{src}: nothing to recover: {scan.damage or 'no chunk holds a frame'}")
    except RecordingError:
        raise
    except OSError as error:
        raise RecordingWriteError(f"{target}: cannot be written: {error.strerror or error}") from error
    return RecoveryResult(
        frames, scan.chunks, scan.size, scan.dropped, scan.whole and not scan.corrupt, scan.damage, verified
    )


def _copy_channel(writer: Any, scan: Scan, channel_id: int) -> int:
    channel = scan.channels[channel_id]
    schema = scan.schemas.get(channel.schema_id)
    schema_id = 0 if schema is None else writer.register_schema(schema.name, schema.encoding, schema.data)
    return int(writer.register_channel(channel.topic, channel.message_encoding, schema_id, channel.metadata))


def _mcap_writer(stream: BinaryIO) -> Any:  # its methods are not all typed
    return Writer(stream, chunk_size=_UNLIMITED, compression=CompressionType.ZSTD, enable_data_crcs=True)


def _create(path: Path) -> BinaryIO:
    try:
        return path.open("xb")
    except FileExistsError:
        raise RecordingExistsError(f"{path}: already there; choose another name or remove it") from None
    except OSError as error:
        raise RecordingWriteError(f"{path}: cannot be created: {error.strerror or error}") from error
