"""Files that hold secrets or decide who is let in: read only if nobody else can read or change them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from service.files import sync_folder

_MOST_BYTES = 1 << 20
_OTHERS = 0o077
#: systemd gives credentials to a service by an access list, which shows as rights of the group.
_CREDENTIAL_OTHERS = 0o027


class SecretFileError(ValueError):
    """A file or directory cannot be used as it is; the message says why, and what to do."""


def check_directory(path: Path) -> None:
    """Raise `SecretFileError` unless `path` is a directory of this user, or root's, that is closed to all others."""
    try:
        found = path.stat()
    except OSError as error:
        raise SecretFileError(f"{path}: cannot be used: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise SecretFileError(f"{path}: is not a directory")
    _check(path, found, _OTHERS, "700")


def make_directory(path: Path) -> None:
    """Make a directory that is closed to others, if there is none; check one that is there."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SecretFileError(f"{path}: cannot be made: {error.strerror}") from error
    check_directory(path)


def read_secret(path: Path, *, credential: bool = False) -> str:
    """Read a text file that only this user, or root, can read and change.

    Parameters
    ----------
    path : Path
    credential : bool
        It is a credential of a systemd service.

    Raises
    ------
    FileNotFoundError
    SecretFileError
        It cannot be read, is no plain file, belongs to somebody else, or is open to others.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe must not hold us up
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SecretFileError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise SecretFileError(f"{path}: is not a file")
        _check(path, found, _CREDENTIAL_OTHERS if credential else _OTHERS, "600")
        with os.fdopen(handle, "rb", closefd=False) as stream:
            content = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise SecretFileError(f"{path}: cannot be read: {error.strerror}") from error
    finally:
        os.close(handle)
    if len(content) > _MOST_BYTES:
        raise SecretFileError(f"{path}: is larger than {_MOST_BYTES} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SecretFileError(f"{path}: is not text: {error.reason} at byte {error.start}") from error


def write_new(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file that must not be there yet; it is not left if it fails.  Raises `SecretFileError`."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError as error:
        raise SecretFileError(f"{path}: is there already, and keys are never written over") from error
    except OSError as error:
        raise SecretFileError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(text.encode())
            stream.flush()
            os.fsync(handle)
        sync_folder(path.parent)
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise SecretFileError(f"{path}: cannot be written: {error.strerror}") from error
        raise


def _check(path: Path, found: os.stat_result, others: int, wanted: str) -> None:
    if found.st_uid not in (os.geteuid(), 0):
        raise SecretFileError(
            f"{path}: belongs to user {found.st_uid}, who could change it: it must belong to this user"
        )
    if found.st_mode & others:
        raise SecretFileError(
            f"{path}: is open to others (mode {stat.S_IMODE(found.st_mode):04o}): chmod {wanted} '{path}'"
        )
