"""Note when the machine was elsewhere: stall_watch.py FILE, until it is ended.

On each processor a process of the highest real-time priority asks to be woken every few milliseconds.  What holds that
up is the machine under this one, or the kernel, which keeps real-time work to 95 % of each second; so a stall counts
only as far as the kernel says that the processor was stolen meanwhile (`steal` of /proc/stat).  Each is a line: the
processor, its end on CLOCK_MONOTONIC and how long it was, in seconds.  Each second a line `idle`, that time and how
long the processors have had nothing to do, all together, since the machine started.
"""

import multiprocessing
import os
import sys
import time
from pathlib import Path

PERIOD_S = 0.004
STALL_S = 0.01
_IDLE, _STEAL = 4, 8  # columns of /proc/stat


def spent(row: str, column: int) -> float:
    """Time of a row of /proc/stat since the start [s]; the kernel counts in hundredths."""
    lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    return float(next(line for line in lines if line.startswith(f"{row} ")).split()[column]) / 100.0


def stolen(processor: int) -> float:
    """Time that was stolen from a processor since the start [s]."""
    return spent(f"cpu{processor}", _STEAL)


def watch(path: Path, processor: int, parent: int) -> None:
    """Append the stalls of a processor to a file, as long as the parent lives."""
    os.sched_setaffinity(0, {processor})
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99))
    except PermissionError:
        sys.exit("stalls can be told from other work only with a real-time priority: run as root")
    with path.open("a", buffering=1, encoding="utf-8") as file:
        taken = stolen(processor)
        while os.getppid() == parent:
            asked = time.monotonic()
            time.sleep(PERIOD_S)
            now = time.monotonic()
            if (late := now - asked - PERIOD_S) > STALL_S:
                before, taken = taken, stolen(processor)
                file.write(f"{processor} {now:.4f} {min(late, taken - before + 0.01):.4f}\n")


if __name__ == "__main__":
    fork = multiprocessing.get_context("fork")
    started_by = os.getppid()
    processors = sorted(os.sched_getaffinity(0))
    watchers = [fork.Process(target=watch, args=(Path(sys.argv[1]), k, os.getpid()), daemon=True) for k in processors]
    for watcher in watchers:
        watcher.start()
    with Path(sys.argv[1]).open("a", buffering=1, encoding="utf-8") as file:
        while os.getppid() == started_by and any(watcher.is_alive() for watcher in watchers):
            file.write(f"idle {time.monotonic():.4f} {spent('cpu', _IDLE):.2f}\n")
            time.sleep(1.0)
