"""How far a job is, and how long it may still take: an interval, or nothing where nothing is known."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

_MIN_SHARE = 0.02  # below this, and earlier than _MIN_S, the pace says nothing
_MIN_S = 2.0
_SAMPLES = 64
_STRETCHES = (1.0, 0.25, 0.0625)  # shares of the way, the last ones, over which the pace is taken


@dataclass
class Pace:
    """Reports of one run's progress; times in seconds since it began."""

    samples: deque[tuple[float, float]] = field(default_factory=lambda: deque([(0.0, 0.0)], _SAMPLES + 2))
    what: str = ""

    @property
    def share(self) -> float:
        """Share done, 0 to 1."""
        return self.samples[-1][1]

    def report(self, at_s: float, share: float, what: str) -> None:
        """Take a report; a share that falls, as where a search starts again, begins a new way."""
        self.what = what
        if not 0.0 <= share <= 1.0:
            return
        _, last = self.samples[-1]
        if share < last:
            self.samples.clear()
            self.samples.append((at_s, share))
        elif share > last:
            if len(self.samples) > 1 and last - self.samples[-2][1] < 1.0 / _SAMPLES:
                self.samples.pop()  # a step too short to be kept
            self.samples.append((at_s, share))

    def left_s(self, now_s: float) -> tuple[float, float] | None:
        """Shortest and longest time that is left [s]; None while too little is done to tell.

        The rest is taken to go as quickly, or as slowly, as all of the way so far, its last quarter or sixteenth, or
        any stretch of it that is as long as the rest, or as a quarter of it.  For the shortest time a run that is
        silent is taken to go on as before; for the longest to have done nothing since its last report: the longer it
        is silent, the longer it may take.
        """
        begin_s, begin = self.samples[0]
        last_s, share = self.samples[-1]
        if share - begin < _MIN_SHARE or now_s - begin_s < _MIN_S or last_s <= begin_s:
            return None
        left, silent_s = 1.0 - share, max(now_s - last_s, 0.0)
        each_s = self._stretches(min(left, (share - begin) / 4.0)) if left > 0.0 else []  # time for all of the way
        for stretch in _STRETCHES:
            since_s, since = next(((t, s) for t, s in self.samples if share - s <= stretch), self.samples[-1])
            if since == share:
                since_s, since = self.samples[-2]
            each_s.append((last_s - since_s) / (share - since))
            each_s.append((last_s + silent_s - since_s) / (share - since))
        return max(left * min(each_s) - silent_s, 0.0), left * max(each_s)

    def _stretches(self, length: float) -> list[float]:
        """Time for all of the way at the pace of each stretch that is at least that long."""
        samples, paces, end = list(self.samples), [], 0
        for since_s, since in samples:
            while end < len(samples) and samples[end][1] - since < length:
                end += 1
            if end == len(samples):
                break
            at_s, share = samples[end]
            paces.append((at_s - since_s) / (share - since))
        return paces


def left_by_parts(parts: int, done_s: Sequence[float], running: Sequence[float]) -> tuple[float, float] | None:
    """Shortest and longest time left [s] of a divided job.

    Parameters
    ----------
    parts : int
        How many there are.
    done_s : sequence of float
        How long those ran that are done.  When they ran does not count: there may have been a pause.
    running : sequence of float
        Share done of each that runs now; as many are taken to run until the end.

    None with fewer than two parts done, or none running.
    """
    done = len(done_s)
    if done < 2 or not running:
        return None
    left_s = (parts - done - sum(running)) * (sum(done_s) / done) / len(running)
    return left_s / (1.0 + done**-0.5), left_s * (1.0 + done**-0.5)


def left_by_history(elapsed_s: float, durations_s: Sequence[float]) -> tuple[float, float] | None:
    """Shortest and longest time left [s], from how long earlier jobs of this kind took: their middle half.

    None with fewer than four of them, or where this one has taken longer already.
    """
    if len(durations_s) < 4:
        return None
    ordered = sorted(durations_s)
    low, high = ordered[len(ordered) // 4], ordered[(3 * len(ordered)) // 4]
    return None if elapsed_s > high else (max(low - elapsed_s, 0.0), high - elapsed_s)
