"""Progress of jobs and estimates of the time left: an interval, or None."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

_MIN_SHARE = 0.02  # below this, and earlier than _MIN_S, the pace is unknown
_MIN_S = 2.0
_SAMPLES = 64
_STRETCHES = (1.0, 0.25, 0.0625)  # last shares of the run over which the pace is estimated


@dataclass
class Pace:
    """Progress reports of one run; times in seconds since it began."""

    samples: deque[tuple[float, float]] = field(default_factory=lambda: deque([(0.0, 0.0)], _SAMPLES + 2))
    what: str = ""

    @property
    def share(self) -> float:
        """Share done, 0 to 1."""
        return self.samples[-1][1]

    def report(self, at_s: float, share: float, what: str) -> None:
        """Add a report; a smaller share than before, as when a search restarts, begins a new series."""
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
        """Return the shortest and longest time left [s]; None while too little is done.

        The rest is assumed to go at a pace seen so far: of the whole run, of its last quarter or sixteenth, or of any
        stretch as long as the rest or as a quarter of it. For the shortest time a silent run is assumed to have
        continued; for the longest to have done nothing since its last report, so that the longest time grows with the
        silence.
        """
        begin_s, begin = self.samples[0]
        last_s, share = self.samples[-1]
        if share - begin < _MIN_SHARE or now_s - begin_s < _MIN_S or last_s <= begin_s:
            return None
        left, silent_s = 1.0 - share, max(now_s - last_s, 0.0)
        each_s = self._stretches(min(left, (share - begin) / 4.0)) if left > 0.0 else []  # time for the whole run
        for stretch in _STRETCHES:
            since_s, since = next(((t, s) for t, s in self.samples if share - s <= stretch), self.samples[-1])
            if since == share:
                since_s, since = self.samples[-2]
            each_s.append((last_s - since_s) / (share - since))
            each_s.append((last_s + silent_s - since_s) / (share - since))
        return max(left * min(each_s) - silent_s, 0.0), left * max(each_s)

    def _stretches(self, length: float) -> list[float]:
        """Return the time for the whole run at the pace of each stretch that is at least that long."""
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
    """Return the shortest and longest time left [s] of a divided job with so many `parts`.

    `done_s` are durations of finished parts; the pauses between them do not count. `running` is the share done of each
    running part; as many are assumed to run until the end. None with fewer than two finished parts, or without a
    running one.
    """
    done = len(done_s)
    if done < 2 or not running:
        return None
    left_s = (parts - done - sum(running)) * (sum(done_s) / done) / len(running)
    return left_s / (1.0 + done**-0.5), left_s * (1.0 + done**-0.5)


def left_by_history(elapsed_s: float, durations_s: Sequence[float]) -> tuple[float, float] | None:
    """Return the shortest and longest time left [s], from the middle half of earlier jobs' durations.

    None with fewer than four of them, or if this one has taken longer already.
    """
    if len(durations_s) < 4:
        return None
    ordered = sorted(durations_s)
    low, high = ordered[len(ordered) // 4], ordered[(3 * len(ordered)) // 4]
    return None if elapsed_s > high else (max(low - elapsed_s, 0.0), high - elapsed_s)
