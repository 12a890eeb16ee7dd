"""Files that hold secrets or decide who is let in: read only if nobody else can read or change them."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from service.io.atomic_files import sync_folder
from service.security.path_ownership import Step, invoking_user, user_name, way

MAX_BYTES = 1 << 20
_OTHERS = 0o077
#: systemd gives credentials to a service by an access list, which shows as rights of the group.
_CREDENTIAL_OTHERS = 0o027


class SecretFileError(ValueError):
    """A file or directory cannot be used as it is; the message says why, and what to do."""


def check_directory(path: Path) -> None:
    """Raise `SecretFileError` unless `path` is a directory of this user, or root's, that is closed to all others.

    Nor may others be able to put another one in its place: the directories and links that lead to it belong to this
    user or root, and nobody else may write to them, but with the sticky bit, as in /tmp.  Who has started this process
    by sudo is not refused, see `risk`.
    """
    try:
        found = path.stat()
    except OSError as error:
        _check_way(path)  # the kernel may not follow a link that somebody else can replace, and does not say so
        raise SecretFileError(f"{path}: cannot be used: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise SecretFileError(f"{path}: is not a directory")
    _check(path, found, _OTHERS, "700")
    _check_way(path)


def _check_way(path: Path) -> None:
    """Raise `SecretFileError` if others can lead a path elsewhere; judged as far as it is there."""
    try:
        for step in way(path):
            if step.owner_decides and step.owner not in (os.geteuid(), 0, invoking_user()):
                raise SecretFileError(_replaceable(path, step))
            if step.others_decide:
                raise SecretFileError(_open_to_others(step.place, step.mode, "go-w"))
    except FileNotFoundError:
        return
    except OSError as error:
        raise SecretFileError(f"{path}: cannot be used: {error.strerror}") from error


def risk(path: Path) -> str:
    """Tell whether who has started this process as root by sudo could put another directory in the place of `path`.

    That user is most often who may be root in any case, and whose the program is: it is said, not refused.  Returns an
    empty text if there is nothing to say.  What is not there yet is judged as far as it is there.
    """
    user = invoking_user()
    if user is None or user == 0:
        return ""
    with contextlib.suppress(OSError):
        for step in way(path):
            if step.owner_decides and step.owner == user:
                who = user_name(user)
                return (
                    f"{path}: {who}, who has started this by sudo, owns {step.place} and could put other keys in its "
                    f"place. Unless {who} may be root in any case, {_elsewhere()}"
                )
    return ""


def make_directory(path: Path) -> None:
    """Make a directory that is closed to others, if there is none; check one that is there."""
    _check_way(path.parent)
    try:
        missing = [each for each in (path, *path.parents) if not each.exists()]
        for directory in reversed(missing):  # one by one: of `parents=True` all but the last have the umask's mode
            directory.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise SecretFileError(f"{path}: cannot be made: {error.strerror}") from error
    check_directory(path)


def read_secret(path: Path, *, credential: bool = False, most_bytes: int = MAX_BYTES) -> str:
    """Read a text file that only this user, or root, can read and change.

    Parameters
    ----------
    path : Path
    credential : bool
        It is a credential of a systemd service.
    most_bytes : int
        A larger file is refused.

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
            content = stream.read(most_bytes + 1)
    except OSError as error:
        raise SecretFileError(f"{path}: cannot be read: {error.strerror}") from error
    finally:
        os.close(handle)
    if len(content) > most_bytes:
        raise SecretFileError(f"{path}: is larger than {most_bytes} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SecretFileError(f"{path}: is not text: {error.reason} at byte {error.start}") from error


def write_new(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file that must not be there yet; it is not left if it fails.  Raises `SecretFileError`."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError as error:
        raise SecretFileError(f"{path}: is there already, and keys are never written over: move it away") from error
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
        me, who = user_name(os.geteuid()), user_name(found.st_uid)
        remedy = f"run this as {who}" + (f", or chown {me} '{path}'" if os.geteuid() == 0 else "")
        raise SecretFileError(f"{path}: belongs to {who}, who could change it; it must belong to {me}: {remedy}")
    if found.st_mode & others:
        raise SecretFileError(_open_to_others(path, found.st_mode, wanted))


def _open_to_others(path: Path, mode: int, wanted: str) -> str:
    return f"{path}: is open to others (mode {stat.S_IMODE(mode):04o}): chmod {wanted} '{path}'"


def _replaceable(path: Path, step: Step) -> str:
    what = "link" if stat.S_ISLNK(step.mode) else "directory"
    return (
        f"{path}: the {what} {step.place} on the way to it belongs to {user_name(step.owner)}, who could put other "
        f"keys in its place: {_elsewhere()}"
    )


def _elsewhere() -> str:
    if os.geteuid() == 0:
        return "name one as daemon.keys_dir that root alone can replace, such as /etc/thetad/keys"
    return f"name one as daemon.keys_dir that {user_name(os.geteuid())} and root alone can replace"
