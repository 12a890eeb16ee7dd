"""The latest examination of the estimator's own frames, and when the next is due.

An error that is there from the first frame leaves an innovation as small as that of clean data, and nothing clean to
compare with: `trust` cannot see it.  So the frames since the estimate began are fitted and diagnosed from time to time
(`frame_diagnosis`).  Where they are wrong nothing is `estimated`, and intervals allow for errors without a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rt_core.types import FloatArray

#: Motion before the first examination [s], then as much again as before, at most `LAST_S`: the data of the estimate's
#: memory have then been replaced.
FIRST_S, LAST_S = 15.0, 240.0
#: Longest stretch that is examined [s], the longest memory of the estimate by default; and the most frames, which take
#: seven seconds of a processor: at every rate 3 % of it in the long run.
_WINDOW_S, _FRAMES = 120.0, 30_000


@dataclass(frozen=True, eq=False)
class Examination:
    """What an examination says of the estimate.

    Attributes
    ----------
    moved : (p,) float64
        Change of each base parameter by errors that are significant.
    text : str
        What was found, for people; empty if nothing.
    wrong : bool
        Whether the data or the robot file are, so that nothing is to be believed.
    until_s : float
        Time of the last frame that was examined [s]; NaN before any was.
    """

    moved: FloatArray
    text: str = ""
    wrong: bool = False
    until_s: float = np.nan

    @classmethod
    def passed(cls, p: int) -> Examination:
        """Return one that has found nothing."""
        return cls(np.zeros(p))

    def widened(self, std: FloatArray) -> FloatArray:
        """Return the deviations `std` (p,) with the changes added, as systematic errors of that size."""
        return np.hypot(std, self.moved)

    def widened_covariance(self, covariance: FloatArray) -> FloatArray:
        """Return `covariance` (p, p) with the variances of `widened`; of a parameter without variance as it is."""
        known = np.diag(covariance) > 0.0
        return np.asarray(covariance + np.diag(np.where(known, self.moved, 0.0) ** 2))

    def state(self) -> dict[str, Any]:
        """Return the state to save."""
        return {f"examined_{key}": getattr(self, key) for key in ("moved", "text", "wrong", "until_s")}

    @classmethod
    def restored(cls, saved: Mapping[str, Any], p: int) -> Examination:
        """Return what `state` returned; as passed, if it is missing or of another arm."""
        moved = np.array(saved.get("examined_moved", ()), dtype=np.float64)
        if moved.shape != (p,) or not np.isfinite(moved).all():
            return cls.passed(p)
        until_s = float(saved.get("examined_until_s", np.nan))  # missing in files of earlier versions
        return cls(moved, str(saved["examined_text"]), bool(saved["examined_wrong"]), until_s)


class ExaminationTimes:
    """When to examine: by the motion since the estimate began, while nothing else speaks against it."""

    def __init__(self) -> None:
        self.restart(0.0)

    def begin_ns(self, t_ns: int, rate_hz: float) -> int:
        """Return from when on [ns] frames are to be examined, at `t_ns` of the latest."""
        return max(self.from_ns, t_ns - round(1e9 * min(_WINDOW_S, _FRAMES / rate_hz)))

    def restart(self, motion_s: float) -> None:
        """Take a new stream, whose frames begin at `motion_s` of the estimate."""
        self._motion_s = self._begun_s = motion_s
        self._next_s, self.from_ns = FIRST_S, -(1 << 62)  # from when on frames belong to the estimate

    def due(self, motion_s: float, t_ns: int, *, believed: bool) -> bool:
        """Take the motion [s] since the estimate began, at the time of the latest frame; True once when it is time."""
        if motion_s < self._motion_s:  # it has begun anew, or was taken back
            self._begun_s, self._next_s, self.from_ns = motion_s, FIRST_S, t_ns
        self._motion_s = motion_s
        if not believed or motion_s - self._begun_s < self._next_s:
            return False
        self._next_s = motion_s - self._begun_s + min(motion_s - self._begun_s, LAST_S)
        return True
