"""Which processes of a daemon wait for which, where none has a real-time priority.

Frames go through acquisition, estimator and gateway, which work for a fraction of a millisecond at a time.  Without a
word to the scheduler each of them waits until whoever has the processor has used up a slice of milliseconds, however
little it wants itself; and a processor that is busy, if only with a batch job, takes over nobody who waits elsewhere.
So the processes of the path ask for a short slice, and are let in at once; those that answer requests stand behind
them, also while all of them start.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

PATH = ("acquisition", "estimator", "gateway")
BEHIND = ("jobs", "web")
NICENESS = 5  # of those behind
SLICE_NS = 100_000  # the least that Linux grants

_SETATTR = {"x86_64": 314, "aarch64": 274}.get(platform.machine())  # sched_setattr
_ATTRIBUTES = struct.Struct("=IIQiIQQQII")


def place(role: str) -> None:
    """Take this process's place among those of a daemon; threads inherit it, so before any is started."""
    if role in PATH:
        shorten_slice()
    if role in BEHIND:
        os.nice(NICENESS)


def shorten_slice() -> bool:
    """Ask for a short slice under ordinary scheduling; returns whether the kernel took the request.

    It heeds it from 6.12 on (sched_attr.sched_runtime of SCHED_OTHER); before, nothing changes.
    """
    if _SETATTR is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, niceness, 0, SLICE_NS, 0, 0, 0, 0)
    refused: int = ctypes.CDLL(None, use_errno=True).syscall(_SETATTR, 0, attributes, 0)
    return refused == 0
