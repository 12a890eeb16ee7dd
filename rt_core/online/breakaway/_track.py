"""Breakaway friction of each joint from its starts: a value with its interval, or the reason for having none.

The value is the mean of the last starts, weighted by their noise and the learned scatter of the joint.  Its interval is
Student's and includes the common error of all starts and the difference of the two directions.  If the latest starts of
a direction consistently differ from its earlier ones, the earlier ones are discarded.  Times are of the frames' clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.special import stdtrit

from rt_core.identification.status import RELATIVE_STD_LIMIT
from rt_core.online._saved_state import saved_arrays
from rt_core.online.breakaway._starts import LEFT_OUT, LeftOut, Start
from rt_core.statistics import NORMAL_QUANTILE_95
from rt_core.types import FloatArray

BreakawayStatus = Literal["unestimated", "estimated", "stale"]
#: Starts kept for each joint.
REMEMBERED = 20
#: Fewest starts for an interval.
MIN = 3
#: A change: this many successive starts of a direction beyond its others, on the same side, by `_CHANGED` deviations.
_IN_SEQUENCE, _CHANGED = 3, 4.0
#: The scatter of few starts may be small by chance.  It is raised so that `_CHANGED` deviations are as rare as one in
#: this many by Student's distribution: 1.7 times for three starts, none from five on.
_ONE_IN = 100.0
#: Smallest scatter of starts, as a share of the value.
_MIN_SCATTER = 0.005
#: Age of the last start [s] from which a value is stale.
STALE_S = 3600.0
_QUANTILE = 0.975
# Of each start kept: time, torque, its variance, the variance of the common error, direction.
_FIELDS = 5
_WHY = tuple(LEFT_OUT)


@dataclass(frozen=True)
class JointBreakaway:
    """Breakaway friction of one joint."""

    # value, std, lower, upper: [N*m or N], 95 %; None where it is `unestimated`
    value: float | None
    std: float | None
    lower: float | None
    upper: float | None
    scatter: float | None  # standard deviation of single starts about the value
    status: BreakawayStatus
    reason: str  # why there is no value, or why it is stale; empty if it is estimated
    starts: int  # number of starts in the value
    last_t: float | None  # time of the latest start [s], on the frames' clock; None before the first on this clock
    seen: int  # number of starts since the beginning, rejected ones included
    left_out: dict[LeftOut, int]  # number of rejected starts by reason (`LEFT_OUT`)
    changes: int  # number of detected changes


class BreakawayTracker:
    """Estimator of the breakaway friction of `n` joints from starts."""

    def __init__(self, n: int) -> None:
        self.n = n
        self._starts: FloatArray = np.full((n, REMEMBERED, _FIELDS), np.nan)  # latest last
        self._counts = np.zeros((n, 2 + len(_WHY)), dtype=np.int64)  # seen, changes, left out by reason
        self._found: list[JointBreakaway | None] = [None] * n  # reports without regard to age; None if outdated

    def take(self, start: Start) -> float | None:
        """Process a start, rejected or not; return the previous value if it shows a change."""
        self._found[start.joint] = None
        counts = self._counts[start.joint]
        counts[0] += 1
        if start.left_out:
            counts[2 + _WHY.index(start.left_out)] += 1
            return None
        row = self._starts[start.joint]
        row[:-1] = row[1:]
        row[-1] = start.t_s, start.torque, start.std**2, start.common_std**2, start.direction
        # by direction: friction may differ between both
        same = np.flatnonzero(row[:, 4] == start.direction)
        before = _left_behind(row[same[:-_IN_SEQUENCE]], row[same[-_IN_SEQUENCE:]])
        if before is not None:
            row[: same[-_IN_SEQUENCE]] = np.nan
            counts[1] += 1
        return before

    def restart(self, now_s: float) -> None:
        """Restart the clock, which is now at `now_s`; keep the starts."""
        self._starts[:, :, 0] -= now_s
        self._found = [None] * self.n

    def reset(self) -> None:
        """Discard all starts."""
        self._starts[:] = np.nan
        self._counts[:] = 0
        self._found = [None] * self.n

    def report(self, joint: int, now_s: float | None = None) -> JointBreakaway:
        """Return the breakaway friction of a joint at `now_s` of the frames' clock."""
        found = self._found[joint]
        if found is None:
            found = self._found[joint] = self._report(joint)
        if found.status != "estimated" or now_s is None:
            return found
        newest = float(self._starts[joint, -1, 0])
        if now_s - newest <= STALE_S:
            return found
        reason = f"the last start was {'' if newest > 0.0 else 'at least '}{now_s - newest:.0f} s ago"
        return replace(found, status="stale", reason=reason)

    def _report(self, joint: int) -> JointBreakaway:
        """Return the breakaway friction of a joint without regard to age."""
        row = self._starts[joint]
        known = row[np.isfinite(row[:, 1])]
        counts = self._counts[joint]
        left_out = {why: int(c) for why, c in zip(_WHY, counts[2:], strict=True) if c}
        last = float(known[-1, 0]) if len(known) and known[-1, 0] > 0.0 else None
        nothing = JointBreakaway(
            None, None, None, None, None, "unestimated", "", len(known), last, int(counts[0]), left_out, int(counts[1])
        )
        if len(known) < MIN:
            return replace(nothing, reason=_too_few(len(known), left_out))
        mean, std, scatter, common = _mean(known)
        common = float(np.hypot(common, _between_directions(known, mean, common)))
        half = float(np.hypot(stdtrit(len(known) - 1, _QUANTILE) * std, NORMAL_QUANTILE_95 * common))
        total = float(np.hypot(std, common))
        if not total <= RELATIVE_STD_LIMIT * mean:
            return replace(nothing, reason=f"starts differ too much: {mean:.3g} on average, to {total:.2g}")
        return replace(
            nothing, value=mean, std=total, lower=mean - half, upper=mean + half, scatter=scatter, status="estimated"
        )

    # ------------------------------------------------------------ state

    def state(self, now_s: float) -> dict[str, Any]:
        """Return the state to save; times of starts are relative to `now_s`."""
        starts = self._starts.copy()
        starts[:, :, 0] -= now_s
        return {"starts": starts, "counts": self._counts.copy()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state, with a new clock; `ValueError` if it does not fit, without a change."""
        starts, counts = saved_arrays(state, {"starts": self._starts, "counts": self._counts}, " of starts").values()
        whole, known = np.isfinite(starts).all(axis=2), ~np.isnan(starts).all(axis=2)
        t, torque, noise, common, direction = starts[known].T
        right = (t <= 0.0) & (torque > 0.0) & (noise >= 0.0) & (common >= 0.0) & (np.abs(direction) == 1.0)
        if (whole != known).any() or not right.all() or (counts < 0).any():
            raise ValueError("the saved starts hold what cannot be")
        if (np.diff(known.astype(np.int64), axis=1) < 0).any() or (known.sum(axis=1) > counts[:, 0]).any():
            raise ValueError("the saved starts are not those that were counted")
        self._starts, self._counts = starts, counts
        self._found = [None] * self.n


def _left_behind(old: FloatArray, new: FloatArray) -> float | None:
    """Return the mean of `old` starts (k, 5) if all `new` ones (l, 5) differ from it on the same side; else None."""
    if len(old) < MIN:
        return None
    mean, std, scatter, common = _mean(old)
    # the scatter of few starts is uncertain (Student), unlike the noise of each
    wider = max(1.0, float(stdtrit(len(old) - 1, 1.0 - 1.0 / _ONE_IN)) / _CHANGED)
    chance = wider**2 * (scatter**2 + std**2)
    off = (new[:, 1] - mean) / np.sqrt(chance + common**2 + new[:, 2] + new[:, 3])
    return mean if (off > _CHANGED).all() or (off < -_CHANGED).all() else None


def _between_directions(known: FloatArray, mean: float, common: float) -> float:
    """Return the distance of the directions of starts (k, 5) from `mean`, beyond chance and their `common` error."""
    away = [known[known[:, 4] == direction] for direction in (-1.0, 1.0)]
    if min(len(starts) for starts in away) < 2:
        return 0.0
    means = [_mean(starts)[:2] for starts in away]
    gap = abs(means[0][0] - means[1][0])
    beyond = np.sqrt(max(0.0, gap**2 - means[0][1] ** 2 - means[1][1] ** 2 - (2.0 * common) ** 2))
    return float(beyond * max(abs(m - mean) for m, _ in means) / gap) if beyond > 0.0 else 0.0


def _mean(known: FloatArray) -> tuple[float, float, float, float]:
    """Return the mean of starts (k, 5), its standard deviation by scatter, the scatter, and the common deviation."""
    torque, noise, common = known[:, 1], known[:, 2], known[:, 3]
    own = max(0.0, float(np.var(torque, ddof=1) - noise.mean()))
    weight = 1.0 / (noise + common + own + _floor(torque))
    weight /= weight.sum()
    mean = float(weight @ torque)
    scatter = float(np.sqrt(weight @ (torque - mean) ** 2 * len(known) / (len(known) - 1)))
    scatter = max(scatter, float(np.sqrt(_floor(torque))))
    least = float(np.sqrt(weight**2 @ (noise + own)))
    return mean, max(scatter / np.sqrt(len(known)), least), scatter, float(np.sqrt(weight @ common))


def _floor(torque: FloatArray) -> float:
    return float((_MIN_SCATTER * np.mean(torque)) ** 2)


def _too_few(count: int, left_out: Mapping[LeftOut, int]) -> str:
    """Return the reason why there is no value yet."""
    text = f"{count} of the {MIN} starts from rest that it takes" if count else "no start from rest has shown it yet"
    if left_out:
        most = max(left_out, key=lambda why: left_out[why])
        text += f"; of {sum(left_out.values())} left out most because {LEFT_OUT[most]}"
    return text
