"""Whether the machine was elsewhere while something ran in real time: stalls.py FILE SINCE (CLOCK_MONOTONIC, seconds).

Exit code 0: it was, or there was no processor time left, and what failed says nothing; 1: it was there.  The file is
that of stall_watch.py.
"""

import os
import sys
import time
from collections import defaultdict
from pathlib import Path

#: A processor away for longer, or for this share of the time, is more than loops at 1 kHz and their bounds allow for:
#: drives bridge 8 ms, set positions are sent to a PLC 20 ms ahead.
MAX_S = 0.02
SHARE = 0.05
#: Below this a share says nothing.
MIN_S = 0.5
#: A demonstration on a bus with less than this share of idle time, for so long, has more to do than the machine does.
IDLE_SHARE = 0.02
EXHAUSTED_S = 10.0


def starved(path: Path, since: float, until: float) -> str:
    """Say how long a processor was elsewhere between two times of CLOCK_MONOTONIC; empty if that was bearable."""
    stalls: dict[str, list[float]] = defaultdict(list)
    for processor, end, length in _lines(path):
        if processor == "idle":
            continue
        begin = max(float(end) - float(length), since)
        if (within := min(float(end), until) - begin) > 0.0:
            stalls[processor].append(within)
    for processor, lengths in stalls.items():
        if max(lengths) > MAX_S or sum(lengths) > SHARE * max(until - since, MIN_S):
            return (
                f"processor {processor} was elsewhere {len(lengths)} times, {sum(lengths):.2f} s of "
                f"{until - since:.1f} s, at most {max(lengths) * 1e3:.0f} ms"
            )
    return ""


def exhausted(path: Path, since: float) -> str:
    """Say when all processors were busy for long after a time of CLOCK_MONOTONIC; empty if they were not."""
    idle = [(float(at), float(spent)) for kind, at, spent in _lines(path) if kind == "idle" and float(at) >= since]
    for k, (begin, before) in enumerate(idle):
        end, after = next(((at, spent) for at, spent in idle[k:] if at - begin >= EXHAUSTED_S), (begin, before))
        if end > begin and after - before < IDLE_SHARE * (end - begin) * (os.cpu_count() or 1):
            return f"all processors were busy: idle for {after - before:.2f} s together in {end - begin:.0f} s"
    return ""


def _lines(path: Path) -> list[list[str]]:
    lines = (line.split() for line in path.read_text(encoding="ascii").splitlines()) if path.is_file() else ()
    return [line for line in lines if len(line) == 3]  # the last may be half written


if __name__ == "__main__":
    watched, began = Path(sys.argv[1]), float(sys.argv[2])
    said = starved(watched, began, time.monotonic()) or exhausted(watched, began)
    print(said or "no processor was elsewhere for long, and there was time left")
    sys.exit(0 if said else 1)
