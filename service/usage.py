"""What this process uses, by its own word: of one with capabilities others may not be told."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


def usage() -> dict[str, float]:
    """Return processor time [s], resident memory [bytes], open files and how many there may be, of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return {
        "cpu_s": time.process_time(),
        "resident_bytes": pages * _PAGE,
        "open_fds": len(os.listdir("/proc/self/fd")) - 1,  # without that of the look
        "max_fds": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }
