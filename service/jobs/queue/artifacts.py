"""Content-addressed files: each is stored once, never changes, and is found by its SHA-256."""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Set
from pathlib import Path

from drivers.files.atomic_write import sync_folder
from service.jobs.queue.retention import age_clock_ns

_HASH = re.compile(r"[0-9a-f]{64}")
_PREFIX = 2  # characters of the hash that name an object's folder
_INCOMING = ".incoming-"
#: How long an unreferenced object stays: longer than from its `put` to the reference.
MIN_AGE_S = 3600.0


class ArtifactError(ValueError):
    """A file that is not kept, or is damaged; the message names it and the remedy."""


def sha256_of(path: Path) -> str:
    """Return the hash of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class Artifacts:
    """Folder of files `objects/ab/cdef...`; several processes may use it at the same time."""

    def __init__(self, directory: Path) -> None:
        self._objects = directory / "objects"
        self._objects.mkdir(parents=True, exist_ok=True)

    def put(self, path: Path) -> str:
        """Store a copy of a file durably and return its hash.

        An existing file is not written again; if it is damaged, it is set aside. Raises `OSError`.
        """
        handle, name = tempfile.mkstemp(dir=self._objects, prefix=_INCOMING)
        temporary = Path(name)
        try:
            # A link would be quicker, but later writes to the file would change the stored copy.
            with os.fdopen(handle, "wb") as copy, path.open("rb") as source:
                shutil.copyfileobj(source, copy, 1 << 20)
                copy.flush()
                os.fsync(copy.fileno())
            sha = sha256_of(temporary)
            temporary.chmod(0o444)
            place = self.place(sha)
            with self._lock():
                if self._is_intact(sha):
                    os.utime(place)  # renews its age for `sweep`
                else:
                    place.parent.mkdir(exist_ok=True)
                    temporary.replace(place)
                    sync_folder(place.parent)
                    sync_folder(self._objects)
        finally:
            temporary.unlink(missing_ok=True)
        return sha

    def path(self, sha: str) -> Path:
        """Return the path of the file of that hash, unchecked (see `verify`); `ArtifactError` if there is none."""
        path = self.place(sha)
        if not path.is_file():
            more = "; it was damaged and has been renamed" if _bad(path).exists() else ""
            raise ArtifactError(f"{path}: is not kept{more}")
        return path

    def verify(self, sha: str) -> Path:
        """Return the path of the file of that hash after checking its content.

        Raises `ArtifactError` if there is none, or it is damaged; it is set aside as `.bad` then.
        """
        path = self.path(sha)
        if sha256_of(path) != sha:
            with self._lock():
                intact = self._is_intact(sha)  # it may have been stored again meanwhile
            if not intact:
                raise ArtifactError(f"{path}: damaged: its content has another hash; renamed to {_bad(path).name}")
        return path

    def sweep(self, keep: Set[str]) -> int:
        """Delete objects that are not in `keep` and not young; return the number.

        Damaged ones that were set aside stay for inspection; so do other files.
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
        """Lock the folder against other processes."""
        handle = os.open(self._objects, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def place(self, sha: str) -> Path:
        """Return where the file of that hash is, or would be; raises `ArtifactError` if that is no hash."""
        if _HASH.fullmatch(sha) is None:
            raise ArtifactError(f"{sha!r:.80} is not the SHA-256 of a file: 64 hexadecimal digits in lower case")
        return self._objects / sha[:_PREFIX] / sha[_PREFIX:]

    def _is_intact(self, sha: str) -> bool:
        """Return whether the object is there and intact; a damaged one is set aside. Needs the lock."""
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
    """Return the time since a file was written [s]; 0 if it is gone."""
    try:
        return 1e-9 * age_clock_ns(MIN_AGE_S) - path.lstat().st_mtime
    except FileNotFoundError:
        return 0.0
