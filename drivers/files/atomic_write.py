"""Atomic file writes: a file appears complete or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_write(path: Path, mode: int | None = None) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` at the end of the block; after an error it is removed.

    Its content is on disk before it is renamed; the name survives a power failure only after `sync_folder`.  Without a
    `mode` its permissions follow the umask.
    """
    beside = path.with_name(f".thetad-{secrets.token_hex(8)}")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666 if mode is None else 0o600)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if mode is not None:
            os.chmod(beside, mode)
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text file; see `write_bytes`."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes, mode: int | None = None) -> None:
    """Write a file atomically, as `atomic_write`; create its folders; an `OSError` names `path`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path, mode) as stream:
            stream.write(content)
    except OSError as error:
        raise OSError(error.errno, f"cannot be written: {error.strerror}", str(path)) from error


def sync_folder(path: Path) -> None:
    """Sync a folder, so that files renamed into it survive a power failure."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
