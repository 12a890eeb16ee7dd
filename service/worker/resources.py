"""Resources of a process: usage, memory, priority, end with its parent.

Imports the standard library alone.  Frames go through acquisition, estimator and gateway, which work for a fraction of
a millisecond at a time but might wait for a time slice of milliseconds.  So they request a short slice, which lets them
run at once, and processes that answer requests get a lower priority, where none has a real-time priority.  The
supervisor gets a higher one.
"""

import contextlib
import ctypes
import errno
import os
import platform
import resource
import signal
import struct
import sys
import time
from pathlib import Path

FRAME_PATH = ("acquisition", "estimator", "gateway")
BACKGROUND = ("jobs", "web")
NICENESS = 5  # of those in the background
SUPERVISOR_NICENESS = -10  # requests to stop an arm pass through it, and those of clients load it and the processors
SLICE_NS = 100_000  # the least that Linux grants

_SETATTR = {"x86_64": 314, "aarch64": 274}.get(platform.machine())  # sched_setattr
_ATTRIBUTES = struct.Struct("=IIQiIQQQII")

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
_malloc_trim = getattr(_LIBC, "malloc_trim", None)  # glibc's


def die_with_parent(parent: int | None, number: signal.Signals = signal.SIGTERM, code: int = 0) -> None:
    """Have the kernel send this process a signal when the thread that started it ends.

    Exits with `code` if `parent` is given and is not this process's parent any more.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        sys.exit(code)


def resident_mb(pid: int) -> float:
    """Return the memory that a process holds [10^6 bytes]; 0 if it has gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE * 1e-6
    except (OSError, IndexError):
        return 0.0


def kernel_state(pid: int) -> str:
    """Return the kernel's name for the state of a process, such as "sleeping" or "disk sleep"; empty if it has gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return next((line.partition("(")[2].rstrip(")") for line in status.splitlines() if line.startswith("State:")), "")


def allow_files() -> None:
    """Allow this process and its children as many open files as the system does: each connection takes one."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _files(pid: int) -> tuple[int, int]:
    """Return how many files a process has open, and may have; zero and the latter if it has gone."""
    own, most = pid == os.getpid(), resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        return len(os.listdir(f"/proc/{pid}/fd")) - own, most  # without that of the listing
    except OSError as error:
        return most if own and error.errno == errno.EMFILE else 0, most


def files_used_up(pid: int) -> bool:
    """Return whether a process that has this one's limit has half of its files open: as many may follow in a moment."""
    opened, most = _files(pid)
    return 2 * opened > most


def usage() -> dict[str, float]:
    """Return processor time [s], resident memory [bytes], open files and how many there may be, of this process."""
    pid = os.getpid()
    opened, most = _files(pid)
    used = {"cpu_s": time.process_time(), "resident_bytes": round(resident_mb(pid) * 1e6)}
    return {**used, "open_fds": opened, "max_fds": most}


def release_memory() -> None:
    """Return free memory to the system; without glibc nothing happens.

    A queue that has filled and emptied would otherwise keep its memory, because other blocks lie behind its messages.
    Takes 0.2 ms per megabyte released, and some milliseconds at least.
    """
    if _malloc_trim is not None:
        _malloc_trim(0)


def apply_scheduling(role: str) -> None:
    """Set the scheduling of this process by its role; call it before any thread is started, for threads inherit it."""
    if role in FRAME_PATH:
        shorten_time_slice()
    if role in BACKGROUND:
        os.nice(NICENESS)


def raise_priority() -> bool:
    """Let this thread, and those that it starts, go before other processes; return whether that is permitted.

    A scheduling that somebody has chosen is kept.
    """
    if os.sched_getscheduler(0) != os.SCHED_OTHER or os.getpriority(os.PRIO_PROCESS, 0) != 0:
        return False
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, SUPERVISOR_NICENESS)
        return True
    return False


def keep_priority_from_children() -> None:
    """Let threads and processes that this thread starts from now on have the ordinary priority again."""
    with contextlib.suppress(OSError):  # a filter of system calls; then they have this thread's
        os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))


def shorten_time_slice() -> bool:
    """Request a short slice under ordinary scheduling; return whether the kernel accepted.

    Linux heeds it from 6.12 on (sched_attr.sched_runtime of SCHED_OTHER); before, nothing changes.
    """
    if _SETATTR is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, niceness, 0, SLICE_NS, 0, 0, 0, 0)
    refused: int = _LIBC.syscall(_SETATTR, 0, attributes, 0)
    return refused == 0
