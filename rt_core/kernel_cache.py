"""Where compiled kernels are kept between starts, so that no damage on the disk is ever run or stops a start.

Numba's own files are believed as they are: after a torn write or a bad sector a process would fail at each start, or
run the damaged machine code, and two processes that compile at once may each name the file of the other's code.  Here
a file has a digest of what it holds, and its name is made from all that the code depends on.  What cannot be read
counts as absent and is compiled; what cannot be written is compiled again at the next start.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
from pathlib import Path
from typing import Any

from numba.core.serialize import dumps

_DIGEST = hashlib.sha256
_SIZE = _DIGEST().digest_size


class KernelCache:
    """Compiled code of one function, for each types of arguments; in the place of numba's `IndexDataCacheFile`.

    Parameters
    ----------
    folder : Path
    base : str
        What the names of the function's files begin with.
    stamp : object
        What else than the arguments' types the code depends on; its `repr` tells whether two are the same.
    """

    def __init__(self, folder: Path, base: str, stamp: object) -> None:
        self._folder, self._base, self._stamp = folder, base, _short(repr(stamp))

    def load(self, key: object) -> Any:
        """Return what was saved under a key, None if it is not there or damaged."""
        try:
            content = self._path(key).read_bytes()
            digest, payload = content[:_SIZE], content[_SIZE:]
            return pickle.loads(payload) if digest == _DIGEST(payload).digest() else None
        except OSError:
            return None

    def save(self, key: object, data: object) -> None:
        """Keep `data`, whole or not at all, and forget what was compiled from earlier sources."""
        if " at 0x" in repr(key):  # names an object of this process: no other would ask for it
            return
        payload: bytes = dumps(data)  # type: ignore[no-untyped-call]
        path = self._path(key)
        whole = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        with contextlib.suppress(OSError):
            try:
                whole.write_bytes(_DIGEST(payload).digest() + payload)
                whole.replace(path)
            finally:
                whole.unlink(missing_ok=True)
            for old in self._files():
                if not old.name.startswith(f"{self._base}.{self._stamp}."):
                    old.unlink(missing_ok=True)

    def flush(self) -> None:
        """Forget everything."""
        for file in self._files():
            file.unlink(missing_ok=True)

    def _path(self, key: object) -> Path:
        return self._folder / f"{self._base}.{self._stamp}.{_short(repr(key))}.nbc"

    def _files(self) -> list[Path]:
        return [file for file in self._folder.iterdir() if file.name.startswith(f"{self._base}.")]


def _short(text: str) -> str:
    return _DIGEST(text.encode()).hexdigest()[:16]
