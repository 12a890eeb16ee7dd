"""On-disk cache of compiled kernels that survives damaged files, which numba's own does not.

Each file carries a digest of its content, and its name depends on everything that the code depends on.  An unreadable
file counts as absent and its code is compiled again.
"""

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
    """Compiled code of one function by argument types; replaces numba's `IndexDataCacheFile`.

    Parameters
    ----------
    folder : Path
    base : str
        Prefix of the file names.
    stamp : object
        Everything but the argument types that the code depends on, compared by its `repr`.
    """

    def __init__(self, folder: Path, base: str, stamp: object) -> None:
        self._folder, self._base, self._stamp = folder, base, _short(repr(stamp))

    def load(self, key: object) -> Any:
        """Return the data saved under a key, or None if they are absent or damaged."""
        try:
            content = self._path(key).read_bytes()
            digest, payload = content[:_SIZE], content[_SIZE:]
            return pickle.loads(payload) if digest == _DIGEST(payload).digest() else None
        except OSError:
            return None

    def save(self, key: object, data: object) -> None:
        """Save `data` atomically, and delete code compiled from earlier sources."""
        if " at 0x" in repr(key):  # an object of this process, which no other process can name
            return
        payload: bytes = dumps(data)  # type: ignore[no-untyped-call]
        path = self._path(key)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        with contextlib.suppress(OSError):
            try:
                temporary.write_bytes(_DIGEST(payload).digest() + payload)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
            for old in self._files():
                if not old.name.startswith(f"{self._base}.{self._stamp}."):
                    old.unlink(missing_ok=True)

    def flush(self) -> None:
        """Delete all files of the function."""
        for file in self._files():
            file.unlink(missing_ok=True)

    def _path(self, key: object) -> Path:
        return self._folder / f"{self._base}.{self._stamp}.{_short(repr(key))}.nbc"

    def _files(self) -> list[Path]:
        return [file for file in self._folder.iterdir() if file.name.startswith(f"{self._base}.")]


def _short(text: str) -> str:
    return _DIGEST(text.encode()).hexdigest()[:16]
