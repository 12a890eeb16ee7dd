"""Whether the frames that come can be learned from; if not, why.

An arm that stands and frames that are of no use both leave the estimate as it is.  Every window of the frames' clock
the estimator's counters are compared with those before: where hardly a sample passed the filters, the estimate is
starved, and what most frames had is named.
"""

from typing import Literal

#: Length of a window [s], and in delays of the filters, whose length is two: a single gap leaves samples in each.
WINDOW_S, WINDOW_DELAYS = 1.0, 4.0
_USABLE = 0.05  # of the expected samples, below which nothing is learned

Cause = Literal["invalid", "impossible", "lost", "held", "gaps"]
_TEXT: dict[Cause, str] = {
    "invalid": "of the frames lack a channel or hold an invalid joint or no number: check the source's channels",
    "impossible": "of the frames hold a position, speed or torque that no arm has: check the units (rad, N*m)",
    "lost": "of the frames were lost: check the source and the load of the machine",
    "held": "of the frames repeat the one before: the source is slower than its stated rate",
    "gaps": "of the frames come after a gap that cannot be bridged: check the time stamps and the stated rate",
}
_LEAST: dict[Cause, float] = {"invalid": 0.01, "impossible": 0.01, "lost": 0.01, "held": 0.2, "gaps": 0.01}


class FrameSupply:
    """Judge windows of frames.

    Attributes
    ----------
    cause : str
        Why nothing is learned; empty if something is, or the arm stands.
    share : float
        Share of the frames of the last window that had it.
    """

    def __init__(self) -> None:
        self.cause: Cause | Literal[""] = ""
        self.share = 0.0
        self._before: dict[str, int] | None = None

    def restart(self) -> None:
        """Begin with another clock: nothing is known of its frames."""
        self._before, self.cause, self.share = None, "", 0.0

    def look(self, counts: dict[str, int], expected: float, moves: bool = True) -> None:
        """Take the counters at the end of a window in which `expected` frames were due; `moves` if the arm has moved.

        `counts` holds a count for each cause, "frames" received, "samples" that passed the filters and "withheld"
        frames, which are left out on purpose.
        """
        before, self._before = self._before, counts
        if before is None:
            return
        new = {key: counts[key] - before[key] for key in counts}
        samples = new["samples"] if new["samples"] >= 0 else counts["samples"]  # the filters began anew
        self.cause, self.share = "", 0.0
        if new["withheld"] or samples - new["unused"] > _USABLE * expected:
            return
        total = max(new["frames"] + new["lost"], 1)
        shares: dict[Cause, float] = {cause: new[cause] / total for cause in _TEXT}
        # a gap is what many losses, or the same frame over and over, look like
        for cause in ("invalid", "impossible", "lost", "held", "gaps"):
            if cause in ("held", "gaps") and not (moves and new["gaps"]):
                continue  # the frames of an arm that stands repeat, but for a count of an encoder now and then
            if shares[cause] >= _LEAST[cause]:
                self.cause, self.share = cause, shares[cause]
                return

    @property
    def text(self) -> str:
        """Why nothing is learned, for people."""
        return f"nothing is learned: {self.share:.0%} {_TEXT[self.cause]}" if self.cause else ""
