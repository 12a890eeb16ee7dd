"""What a soak counts: losses, told apart by whether a fault explains them, totals, and processes that ended."""

import json
from collections import Counter
from collections.abc import Iterable

from benchmarks.soak_faults import Fault


class Ledger:
    """Who has lost how much, told apart by whether a fault explains it."""

    def __init__(self) -> None:
        self.explained: Counter[str] = Counter()
        self.unexplained: Counter[str] = Counter()
        self._last: dict[str, tuple[int, int]] = {}  # pid and count at the last look, by reader

    def look(self, reader: str, pid: int, lost: int, explained: bool) -> None:
        """Take the number that a reader, the process `pid`, has lost since its start."""
        known, before = self._last.get(reader, (pid, 0))
        self._last[reader] = pid, lost
        new = lost - (before if known == pid else 0)
        if new > 0:
            (self.explained if explained else self.unexplained)[reader] += new


class Totals:
    """Counts of processes that may be replaced by others, which begin anew."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], int] = {}

    def take(self, name: str, pid: int, count: int) -> None:
        """Take what the process `pid` has counted since its start."""
        self._counts[name, pid] = count

    def told(self) -> dict[str, int]:
        """Sums by name."""
        sums: Counter[str] = Counter()
        for (name, _), count in self._counts.items():
            sums[name] += count
        return dict(sums)


def ends(lines: Iterable[str], faults: Iterable[Fault]) -> tuple[dict[str, int], list[str]]:
    """What the log has: how often each event, and in sentences which ends of processes no fault explains."""
    killed = {fault.pid for fault in faults if fault.pid}
    events: Counter[str] = Counter()
    problems = []
    for line in lines:
        try:
            said = json.loads(line)
        except ValueError:  # what is no log was written by something that fell over
            problems.append(f"in the log: {line.strip()[:200]}")
            continue
        events[said["event"]] += 1
        if said["event"] == "process_ended" and not (said["reason"] == "SIGKILL" and said["pid"] in killed):
            problems.append(f"{said['name']} ended without a fault: {said['last_error']} ({said['reason']})")
    return dict(events), problems
