"""Files kept by their content: each is there once, never changes, and is found by its SHA-256."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Set
from pathlib import Path

from service.io.atomic_files import sync_folder

_HASH = re.compile(r"[0-9a-f]{64}")
_PREFIX = 2  # characters of the hash that name an object's folder
_INCOMING = ".incoming-"
#: How long an object stays that nobody keeps: longer than from its `put` to the note of who needs it.
MIN_AGE_S = 3600.0


class ArtifactError(ValueError):
    """A file that is not kept, or is damaged; the message says which, and what to do."""


def sha256_of(path: Path) -> str:
    """Hash of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class Artifacts:
    """A folder of such files, `objects/ab/cdef...` each.

    Several processes may use it at the same time.
    """

    def __init__(self, directory: Path) -> None:
        self._objects = directory / "objects"
        self._objects.mkdir(parents=True, exist_ok=True)

    def put(self, path: Path) -> str:
        """Keep a copy of a file and return its hash; it lasts when this returns.

        A file that is here already is not written again, unless it is damaged: then the damaged one is set aside.

        Raises
        ------
        OSError
            The file cannot be read, or the copy cannot be written.
        """
        handle, name = tempfile.mkstemp(dir=self._objects, prefix=_INCOMING)
        temporary = Path(name)
        try:
            # A link would be quicker, and would let whoever still writes to the file change what is kept here.
            with os.fdopen(handle, "wb") as copy, path.open("rb") as source:
                shutil.copyfileobj(source, copy, 1 << 20)
                copy.flush()
                os.fsync(copy.fileno())
            sha = sha256_of(temporary)
            temporary.chmod(0o444)
            place = self.place(sha)
            with self._lock():
                if self._is_intact(sha):
                    os.utime(place)  # it is young again, for `sweep`
                else:
                    place.parent.mkdir(exist_ok=True)
                    temporary.replace(place)
                    sync_folder(place.parent)
                    sync_folder(self._objects)
        finally:
            temporary.unlink(missing_ok=True)
        return sha

    def path(self, sha: str) -> Path:
        """Path of the file of that hash; not checked, see `verify`.

        Raises
        ------
        ArtifactError
            There is none.
        """
        path = self.place(sha)
        if not path.is_file():
            more = "; it was damaged and is set aside" if _bad(path).exists() else ""
            raise ArtifactError(f"{path}: is not kept{more}")
        return path

    def verify(self, sha: str) -> Path:
        """Return the path of the file of that hash after a look at its content.

        Raises
        ------
        ArtifactError
            There is none, or it was damaged; it is set aside as `.bad` then.
        """
        path = self.path(sha)
        if sha256_of(path) != sha:
            with self._lock():
                intact = self._is_intact(sha)  # somebody may have put it again meanwhile
            if not intact:
                raise ArtifactError(f"{path}: damaged: its content has another hash; set aside as {_bad(path).name}")
        return path

    def sweep(self, keep: Set[str]) -> int:
        """Delete objects that are not in `keep` and not young; returns how many.

        Damaged ones that were set aside stay, for somebody to look at; so do files that are none of ours.
        """
        deleted = 0
        with self._lock():
            for path in list(self._objects.rglob("*")):
                sha = path.parent.name + path.name
                is_object = path.parent.parent == self._objects and _HASH.fullmatch(sha) is not None
                unwanted = sha not in keep if is_object else path.name.startswith(_INCOMING)
                if unwanted and _age(path) > MIN_AGE_S:
                    path.unlink(missing_ok=True)
                    deleted += is_object
        return deleted

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Nobody else places, sets aside or deletes objects meanwhile."""
        handle = os.open(self._objects, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def place(self, sha: str) -> Path:
        """Where the file of that hash is, or would be; `ArtifactError` if that is no hash."""
        if _HASH.fullmatch(sha) is None:
            raise ArtifactError(f"{sha!r:.80} is not the SHA-256 of a file: 64 hexadecimal digits in lower case")
        return self._objects / sha[:_PREFIX] / sha[_PREFIX:]

    def _is_intact(self, sha: str) -> bool:
        """Whether the object is there with its content; sets it aside if it has another; needs the lock."""
        path = self.place(sha)
        if not path.exists():
            return False
        if sha256_of(path) == sha:
            return True
        path.replace(_bad(path))
        return False


def _bad(path: Path) -> Path:
    return path.with_name(f"{path.name}.bad")


def _age(path: Path) -> float:
    """Time since a file was written [s]; 0 if it is gone, as is what somebody has just put."""
    try:
        return time.time() - path.lstat().st_mtime
    except FileNotFoundError:
        return 0.0
