"""What a runner takes from itself: processor time that others want, memory beyond its limit, a life after its parent's.

The standard library alone: this has to run before anything else is loaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys

#: For libraries that read them once, when they are loaded.  Several threads on small matrices only wait for one
#: another, and sums whose order depends on threads do not repeat themselves.
ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "MPLBACKEND": "Agg",
}
MB = 1_000_000
#: What Python, compiled code and the libraries take by themselves, with room for a small job [10^6 bytes].
MIN_MEMORY_MB = 320

_PR_SET_PDEATHSIG = 1


def set_environment() -> None:
    """Set what libraries read; before any of them is imported."""
    os.environ.update(ENVIRONMENT)


def die_with_parent(parent: int | None) -> None:
    """Let the kernel kill this process when the thread that started it ends; end now if the parent is gone already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        sys.exit(1)


def yield_processor(priority: str) -> None:
    """Run when nobody else wants the processor ("idle"), with a small share of it ("low"), or as all do ("normal")."""
    if priority == "idle":
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            return
    if priority != "normal":
        os.nice(19)


def limit_memory(memory_mb: float | None) -> None:
    """Let memory of its own beyond the limit be refused; and let no core file be written."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_mb is not None:
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        wanted = int(memory_mb * MB)
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def lift_memory_limit() -> None:
    """Make room again to say that the memory did not suffice."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
