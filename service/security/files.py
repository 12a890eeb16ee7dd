"""Files with secrets or access rules: read only if nobody else can read or change them."""

import contextlib
import os
import stat
from pathlib import Path

from drivers.files.atomic_write import sync_folder
from service.security.path_ownership import PathStep, invoking_user, path_steps, user_name

MAX_BYTES = 1 << 20
_OTHERS = 0o077
#: systemd grants a service access to credentials by an ACL, which appears as group permissions.
_CREDENTIAL_OTHERS = 0o027


class SecretFileError(ValueError):
    """A file or directory that cannot be used; the message says why, and what to do."""


def check_directory(path: Path) -> None:
    """Raise `SecretFileError` unless `path` is a directory of this user or root that is closed to all others.

    Others must not be able to replace it, either: the directories and links on its path must belong to this user or
    root, and must not be writable for others except with the sticky bit, as in /tmp. The user who started this process
    by sudo is not refused, see `replacement_risk`.
    """
    try:
        found = path.stat()
    except OSError as error:
        _check_path(path)  # the kernel may refuse to follow a link that others can replace, without saying so
        raise SecretFileError(f"{path}: cannot be used: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise SecretFileError(f"{path}: is not a directory")
    _check(path, found, _OTHERS, "700")
    _check_path(path)


def _check_path(path: Path) -> None:
    """Raise `SecretFileError` if others can redirect a path; checked as far as it exists."""
    try:
        for step in path_steps(path):
            if step.owner_decides and step.owner not in (os.geteuid(), 0, invoking_user()):
                raise SecretFileError(_replaceable(path, step))
            if step.others_decide:
                raise SecretFileError(_open_to_others(step.place, step.mode, "go-w"))
    except FileNotFoundError:
        return
    except OSError as error:
        raise SecretFileError(f"{path}: cannot be used: {error.strerror}") from error


def replacement_risk(path: Path) -> str:
    """Return a warning if the user who started this process by sudo could replace the directory `path`.

    This user can usually be root anyway, and owns the program: hence a warning and no error. Returns an empty text
    without a risk. The path is checked as far as it exists.
    """
    user = invoking_user()
    if user is None or user == 0:
        return ""
    with contextlib.suppress(OSError):
        for step in path_steps(path):
            if step.owner_decides and step.owner == user:
                who = user_name(user)
                return (
                    f"{path}: {who}, who has started this by sudo, owns {step.place} and could put other keys in its "
                    f"place. Unless {who} may become root anyway, {_elsewhere()}"
                )
    return ""


def make_directory(path: Path) -> None:
    """Create a directory that is closed to others, or check an existing one."""
    _check_path(path.parent)
    try:
        missing = [each for each in (path, *path.parents) if not each.exists()]
        for directory in reversed(missing):  # one by one, because `parents=True` applies the umask to all but the last
            directory.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise SecretFileError(f"{path}: cannot be made: {error.strerror}") from error
    check_directory(path)


def read_secret(path: Path, *, credential: bool = False, max_bytes: int = MAX_BYTES) -> str:
    """Read a text file that only this user, or root, can read and change; or a `credential` of a systemd service.

    Raises `FileNotFoundError`, or `SecretFileError`: it is unreadable, larger than `max_bytes`, no plain file, belongs
    to somebody else, or is open to others.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # do not block on a pipe
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
            content = stream.read(max_bytes + 1)
    except OSError as error:
        raise SecretFileError(f"{path}: cannot be read: {error.strerror}") from error
    finally:
        os.close(handle)
    if len(content) > max_bytes:
        raise SecretFileError(f"{path}: is larger than {max_bytes} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SecretFileError(f"{path}: is not text: {error.reason} at byte {error.start}") from error


def write_new(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a new file, and remove it again on failure; raises `SecretFileError`, also if it exists."""
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


def _replaceable(path: Path, step: PathStep) -> str:
    what = "link" if stat.S_ISLNK(step.mode) else "directory"
    return (
        f"{path}: the {what} {step.place} on the way to it belongs to {user_name(step.owner)}, who could put other "
        f"keys in its place: {_elsewhere()}"
    )


def _elsewhere() -> str:
    if os.geteuid() == 0:
        return "name one as daemon.keys_dir that root alone can replace, such as /etc/thetad/keys"
    return f"name one as daemon.keys_dir that {user_name(os.geteuid())} and root alone can replace"
