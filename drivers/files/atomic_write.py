"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path, mode: int | None = None) -> Iterator[BinaryIO]:
    """Open a file beside `path` that takes its place when the block ends; after an error nothing is left.

    Its content is on disk before; its name lasts a power cut only once the folder is there too.

    Parameters
    ----------
    path : Path
    mode : int, optional
        Permissions of the file; else what this process gives a new file (umask).
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
