"""Priorities of a daemon's processes where none has a real-time priority.

Frames go through acquisition, estimator and gateway, which work for a fraction of a millisecond at a time but might
wait for a time slice of milliseconds. So they request a short slice, which lets them run at once, and processes that
answer requests get a lower priority.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

FRAME_PATH = ("acquisition", "estimator", "gateway")
BACKGROUND = ("jobs", "web")
NICENESS = 5  # of those in the background
SLICE_NS = 100_000  # the least that Linux grants

_SETATTR = {"x86_64": 314, "aarch64": 274}.get(platform.machine())  # sched_setattr
_ATTRIBUTES = struct.Struct("=IIQiIQQQII")


def apply_scheduling(role: str) -> None:
    """Set the scheduling of this process by its role; call it before any thread is started, for threads inherit it."""
    if role in FRAME_PATH:
        shorten_time_slice()
    if role in BACKGROUND:
        os.nice(NICENESS)


def shorten_time_slice() -> bool:
    """Request a short slice under ordinary scheduling; return whether the kernel accepted.

    Linux heeds it from 6.12 on (sched_attr.sched_runtime of SCHED_OTHER); before, nothing changes.
    """
    if _SETATTR is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, niceness, 0, SLICE_NS, 0, 0, 0, 0)
    refused: int = ctypes.CDLL(None, use_errno=True).syscall(_SETATTR, 0, attributes, 0)
    return refused == 0
