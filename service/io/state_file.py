"""State files of an estimator, written atomically and checked when read.

A file is a line that names the format, the SHA-256 of the rest, and a msgpack map of scalars and arrays with the hash
of the model and settings they belong to.
"""

import hashlib
import math
import os
import stat
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import msgpack
import numpy as np
from numpy.typing import NDArray

from drivers.files.atomic_write import sync_folder

State: TypeAlias = Mapping[str, "NDArray[Any] | int | float | str"]

MAGIC = b"thetad estimator state 1\n"
MAX_BYTES = 1 << 28
FILE_NAME = "estimator.state"

_DIGEST = 32
_SLICE = 1 << 18  # bytes


class StateError(ValueError):
    """A state file that cannot be used; the message says why."""


def save_state(path: Path, state: State, owner: str) -> None:
    """Write `state` so that a crash at any moment leaves either the old or the new file, in an existing directory.

    The state has arrays of numbers, and scalars; `owner` is the hash of the model and the settings that it belongs to.
    Raises `OSError`: the file cannot be written.
    """
    values = {name: _packed(value) for name, value in state.items()}
    digest = hashlib.sha256()
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    with temporary.open("xb") as stream:  # anew: nothing is written through a link, nor into a pipe
        stream.write(MAGIC + bytes(_DIGEST))
        for piece in _pieces(values, owner):
            digest.update(piece)
            stream.write(piece)
        stream.seek(len(MAGIC))
        stream.write(digest.digest())
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def load_state(path: Path, owner: str) -> dict[str, NDArray[Any] | int | float | str]:
    """Read a state that belongs to `owner`.

    Raises `StateError`: the file is torn, damaged, of another format, or belongs to another model or other settings;
    `OSError`: the file cannot be read.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise StateError(f"{path}: is not a file")
    if found.st_size > MAX_BYTES:
        raise StateError(f"{path}: larger than {MAX_BYTES} bytes")
    data = path.read_bytes()
    if not data.startswith(MAGIC):
        raise StateError(f"{path}: not a state file of this version")
    digest, body = data[len(MAGIC) : len(MAGIC) + _DIGEST], data[len(MAGIC) + _DIGEST :]
    if hashlib.sha256(body).digest() != digest:
        raise StateError(f"{path}: torn or damaged: the checksum does not match")
    try:
        content = msgpack.unpackb(body, max_ext_len=0)
        found = content["owner"]
        values = {name: _unpacked(value) for name, value in content["values"].items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StateError(f"{path}: cannot be read: {error}") from error
    if found != owner:
        raise StateError(f"{path}: belongs to another model or other settings")
    return values


def set_aside(path: Path) -> Path:
    """Rename what is unusable to `<name>.bad`, replacing an older one, and return the new path; raises `OSError`."""
    bad = path.with_name(path.name + ".bad")
    path.replace(bad)
    return bad


class StateWriter:
    """Save the states of one file and owner in a thread, so that disk access does not delay frames.

    `error` says why the last state was not saved; it is empty if it was.
    """

    def __init__(self, path: Path, owner: str) -> None:
        self.path, self.owner = path, owner
        self.error = ""
        self._pool = ThreadPoolExecutor(1, "state")
        self._writing: Future[None] | None = None

    def begin(self, state: Callable[[], State]) -> bool:
        """Start saving the result of `state`; return False, without calling it, while another save is running."""
        if self._writing is not None and not self._writing.done():
            return False
        self._finish()
        self._writing = self._pool.submit(save_state, self.path, state(), self.owner)
        return True

    def save(self, state: State) -> None:
        """Save after a running save, and return when it is on disk or `error` is set."""
        self._finish()
        self._writing = self._pool.submit(save_state, self.path, state, self.owner)
        self._finish()

    def close(self) -> None:
        """Finish writing."""
        self._finish()
        self._pool.shutdown()

    def _finish(self) -> None:
        writing, self._writing = self._writing, None
        if writing is None:
            return
        try:
            writing.result()
            self.error = ""
        except OSError as error:
            self.error = f"{self.path}: {error.strerror}"


def _packed(value: NDArray[Any] | int | float | str) -> NDArray[Any] | int | float | str:
    if not isinstance(value, np.ndarray):
        return value.item() if isinstance(value, np.generic) else value
    if value.dtype.kind not in "fiub":
        raise TypeError(f"an array of {value.dtype} cannot be saved")
    return value


def _pieces(values: State, owner: str) -> Iterator[bytes | memoryview]:
    """Yield the msgpack map of a state, arrays in slices, so that other threads can run in between."""
    packer = msgpack.Packer()
    yield packer.pack_map_header(3) + packer.pack("owner") + packer.pack(owner)
    yield packer.pack("saved_ns") + packer.pack(time.time_ns()) + packer.pack("values")
    yield packer.pack_map_header(len(values))
    for name, value in values.items():
        yield packer.pack(name)
        if not isinstance(value, np.ndarray):
            yield packer.pack(value)
            continue
        yield packer.pack_map_header(3) + packer.pack("dtype") + packer.pack(value.dtype.str)
        yield packer.pack("shape") + packer.pack(list(value.shape)) + packer.pack("data")
        data = np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
        yield b"\xc6" + struct.pack(">I", data.nbytes)  # msgpack's "bin 32"
        for at in range(0, data.nbytes, _SLICE):
            yield data[at : at + _SLICE]


def _unpacked(value: Any) -> NDArray[Any] | int | float | str:
    if not isinstance(value, dict):
        if not isinstance(value, (int, float, str)):
            raise TypeError(f"a value of type {type(value).__name__}")
        return value
    dtype = np.dtype(value["dtype"])
    shape = tuple(value["shape"])
    if dtype.kind not in "fiub" or dtype.itemsize * math.prod(shape) != len(value["data"]):
        raise ValueError("an array's size does not match its shape")
    return np.frombuffer(value["data"], dtype).reshape(shape).copy()
