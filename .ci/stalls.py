"""Whether the machine was elsewhere while something ran in real time: stalls.py FILE SINCE (CLOCK_MONOTONIC, seconds).

Exit code 0: it was, and what failed says nothing; 1: it was there.  The file is that of stall_watch.py.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from pathlib import Path

#: A processor away for longer, or for this share of the time, is more than loops at 1 kHz and their bounds allow for:
#: drives bridge 8 ms, set positions are sent to a PLC 20 ms ahead.
LONGEST_S = 0.02
SHARE = 0.05
#: Below this a share says nothing.
SHORTEST_S = 0.5


def starved(path: Path, since: float, until: float) -> str:
    """Say how long a processor was elsewhere between two times of CLOCK_MONOTONIC; empty if that was bearable."""
    if not path.is_file():
        return ""
    stalls: dict[str, list[float]] = defaultdict(list)
    for line in path.read_text(encoding="ascii").splitlines():
        processor, end, length = line.split()
        begin = max(float(end) - float(length), since)
        if (within := min(float(end), until) - begin) > 0.0:
            stalls[processor].append(within)
    for processor, lengths in stalls.items():
        if max(lengths) > LONGEST_S or sum(lengths) > SHARE * max(until - since, SHORTEST_S):
            return (
                f"processor {processor} was elsewhere {len(lengths)} times, {sum(lengths):.2f} s of "
                f"{until - since:.1f} s, at most {max(lengths) * 1e3:.0f} ms"
            )
    return ""


if __name__ == "__main__":
    said = starved(Path(sys.argv[1]), float(sys.argv[2]), time.monotonic())
    print(said or "no processor was elsewhere for long")
    sys.exit(0 if said else 1)
