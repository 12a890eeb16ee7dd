"""Directories of the daemon: the lock on its state, and the private one for its sockets."""

import contextlib
import fcntl
import os
import shutil
import signal
import stat
import time
from pathlib import Path

from service.config.load import MAX_SOCKET_PATH, Config, ConfigError
from service.worker.worker import ENTRY, ROLES, Runtime

LEFT_S = 5.0  # for processes whose supervisor was killed: as long as for arms to come to rest when it ends in order


class AlreadyRunningError(RuntimeError):
    """Another daemon uses the same state directory."""

    again = True


class DirectoryError(ConfigError):
    """A directory cannot be used at the moment: its disk may be full, or not mounted yet."""

    again = True


def make_closed(directory: Path) -> None:
    """Make a directory and its missing parents, closed to writing by others whatever the umask."""
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o755, exist_ok=True)


class StateLock:
    """Lock on a daemon's state directory; the kernel releases it when the process ends."""

    def __init__(self, directory: Path) -> None:
        try:
            make_closed(directory)
            self._file = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise DirectoryError(f"daemon.state_dir: {directory}: cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._file, 20, 0).decode("ascii", "replace").strip()
            os.close(self._file)
            raise AlreadyRunningError(
                f"a daemon (process {holder or 'unknown'}) is already running with state directory {directory}; "
                "stop it first (thetad control shutdown), or set another daemon.state_dir"
            ) from error
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Release the directory."""
        os.close(self._file)


def make_runtime(config: Config) -> Runtime:
    """Make a directory of this process for private sockets, open to its user alone.

    Directories of daemons that were killed are removed, after the last of their processes. Raises `ConfigError` if the
    directory belongs to somebody else, is open to others, or its path is too long for a socket.
    """
    parent = runtime_parent(config)
    try:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = parent.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise ConfigError(f"daemon.runtime_dir: {parent} is not a directory of this user")
        for old in parent.iterdir():
            if old.name.isdecimal() and not Path("/proc", old.name).exists():
                _end_processes(old)
                shutil.rmtree(old, ignore_errors=True)
        directory = parent / str(os.getpid())
        if directory.exists():
            shutil.rmtree(directory)
        directory.mkdir(mode=0o700)
    except OSError as error:
        raise DirectoryError(f"daemon.runtime_dir: {parent}: cannot be used: {error.strerror}") from error
    longest = max(len(arm.name) for arm in config.arm) + 1 + max(len(role) for role in ROLES)
    if len(os.fsencode(directory)) + 1 + longest > MAX_SOCKET_PATH:
        shutil.rmtree(directory)
        raise ConfigError(
            f"daemon.runtime_dir: {parent} is too long for sockets (they may have {MAX_SOCKET_PATH} bytes): "
            "choose a shorter one"
        )
    return Runtime(directory)


def _end_processes(runtime: Path) -> None:
    """Wait for the processes of a killed daemon to end in order, and kill those that stand still or hang."""
    words, began, left, last = {ENTRY.encode(), os.fsencode(runtime)}, time.monotonic(), True, False
    while left and not last:
        waited_s = time.monotonic() - began
        left, last = False, waited_s >= 2.0 * LEFT_S  # one that waits for a disk cannot be killed
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has gone, or is another user's
                if words <= set((entry / "cmdline").read_bytes().split(b"\0")):
                    left = True
                    os.kill(int(entry.name), signal.SIGKILL if waited_s > LEFT_S else 0)
        time.sleep(0.05 if left else 0.0)


def runtime_parent(config: Config) -> Path:
    """Return the parent of the runtime directories of this user's daemons."""
    if config.daemon.runtime_dir is not None:
        return config.daemon.runtime_dir
    base = os.environ.get("XDG_RUNTIME_DIR")
    return Path(base) / "thetad" if base else Path("/tmp") / f"thetad-{os.getuid()}"
