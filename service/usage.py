"""What a process of this computer uses, as /proc tells."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Usage:
    """Processor time [s], resident memory [bytes], open files and how many there may be; None where not told."""

    cpu_s: float
    resident_bytes: int
    open_fds: int | None
    max_fds: int | None


def usage(pid: int) -> Usage | None:
    """Return what a process uses; None if it is gone."""
    folder = Path("/proc", str(pid))
    try:
        fields = (folder / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        pages = int((folder / "statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError):
        return None
    return Usage((int(fields[11]) + int(fields[12])) * _TICK_S, pages * _PAGE, *_files(pid, folder))


def _files(pid: int, folder: Path) -> tuple[int | None, int | None]:
    try:
        return len(os.listdir(folder / "fd")), resource.prlimit(pid, resource.RLIMIT_NOFILE)[0]
    except OSError:  # of a process with rights that this one has not
        return None, None
