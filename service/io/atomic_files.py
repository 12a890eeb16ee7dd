"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from drivers.files.atomic_write import whole_file


def write_text(path: Path, text: str) -> None:
    """Write a text file; see `write_bytes`."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes, mode: int | None = None) -> None:
    """Write a file, which appears whole or not at all; folders are made; an `OSError` names `path`.

    Without a `mode` its permissions are those that this process gives a new file (umask).
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path, mode) as stream:
            stream.write(content)
    except OSError as error:
        raise OSError(error.errno, f"cannot be written: {error.strerror}", str(path)) from error


def sync_folder(path: Path) -> None:
    """Make the names in a folder last: a file that was renamed into it survives a power cut only after this."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
