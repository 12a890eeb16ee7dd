"""Files that hold an estimator's state: written whole or not at all, and checked when read.

A file is a line that names the format, the SHA-256 of the rest, and a msgpack map of scalars and
arrays with the hash of model and settings that they belong to.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import msgpack
import numpy as np
from numpy.typing import NDArray

State: TypeAlias = Mapping[str, "NDArray[Any] | int | float | str"]

MAGIC = b"thetad estimator state 1\n"
MAX_BYTES = 1 << 28
FILE_NAME = "estimator.state"

_DIGEST = 32


class StateError(ValueError):
    """A state file that cannot be used; the message says why."""


def save_state(path: Path, state: State, owner: str) -> None:
    """Write `state` so that a crash at any moment leaves either the old or the new file.

    Parameters
    ----------
    path : Path
        The file; its directory must exist.
    state : mapping
        Arrays of numbers, and scalars.
    owner : str
        Hash of the model and the settings that the state belongs to.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    values = {name: _packed(value) for name, value in state.items()}
    body: bytes = msgpack.packb({"owner": owner, "saved_ns": time.time_ns(), "values": values})
    temporary = path.with_name(path.name + ".new")
    with temporary.open("wb") as stream:
        stream.write(MAGIC + hashlib.sha256(body).digest() + body)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def load_state(path: Path, owner: str) -> dict[str, NDArray[Any] | int | float | str]:
    """Read a state that belongs to `owner`.

    Raises
    ------
    StateError
        The file is torn, damaged, of another format, or belongs to another model or other settings.
    OSError
        The file cannot be read.
    """
    if path.stat().st_size > MAX_BYTES:
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
    """Rename an unusable file to `<name>.bad`, replacing an older one, and return the new path."""
    bad = path.with_name(path.name + ".bad")
    path.replace(bad)
    return bad


def _packed(value: NDArray[Any] | int | float | str) -> Any:
    if isinstance(value, np.ndarray):
        array = np.ascontiguousarray(value)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"an array of {array.dtype} cannot be saved")
        return {"dtype": array.dtype.str, "shape": list(value.shape), "data": array.tobytes()}
    return value.item() if isinstance(value, np.generic) else value


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
