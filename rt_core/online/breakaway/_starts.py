"""Detect starts from rest in a stream of frames: which joint broke loose, and at which torque.

While the whole arm stands, a joint's torque less its load is its static friction; at the instant of breakaway it is the
breakaway friction.  That instant lies before the first count of the encoder.  At distance `x` and speed `v` motion
began `p*x/v` ago if the distance grows with the power `p` of time: two if friction drops at once, three if the torque
rises on and friction does not drop, more if friction drops with speed.  The instant is therefore taken to be between
`x/v` and `5x/v` ago, and the torque is that of a parabola through the last frames before, extrapolated to the middle.
The rise over this interval is similar at each start and does not average out, so that it is reported separately.

A start counts only if no other cause is seen (`LEFT_OUT`); rejected starts are counted by reason.  A push above Coulomb
friction, while the torque rises as before a start, cannot be distinguished from a start.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rt_core.linear_algebra import lstsq
from rt_core.types import BoolArray, FloatArray

LeftOut = Literal["together", "jump", "no rise", "too low", "load unknown", "not clear", "not trusted"]
#: Reasons for rejecting a start.
LEFT_OUT: dict[LeftOut, str] = {
    "together": "another joint moved at the same time", "jump": "the torque jumped as the joint let go",
    "no rise": "the torque did not rise before: a brake was opened, or something pushed",
    "too low": "the torque was below the joint's Coulomb friction: something pushed",
    "load unknown": "the torque that holds the links is not known well enough",
    "not clear": "torque or way are too noisy or too coarse to tell the moment",
    "not trusted": "the torque of the arm was not explained by its model",
}  # fmt: skip
#: Time without motion after which the arm is at rest [s].
REST_S = 0.5
#: Time after the first motion at which a start is evaluated [s].
AFTER_S = 0.1
#: Minimum span [s] and number of frames before the start for the torque; at most those of `REST_S`.
HELD_S, HELD_FRAMES = 0.04, 12
#: Deviation from rest that counts as motion, in standard deviations of position plus encoder counts.
_DEVIATIONS, _COUNTS = 5.0, 1.5
#: Distance that confirms a start, in units of that deviation.
_GOES_ON = 4.0
#: Range of the power of time with which the distance grows.
_POWERS = (1.0, 5.0)
#: Largest peak-to-peak at rest, in standard deviations by the steps between frames plus counts.
_STILL_DEVIATIONS, _STILL_COUNTS = 8.0, 2.0
#: Minimum rise of the torque, as a share of it per second; a drifting integrator is slower.
_RISING = 0.25
_LONGER = 4  # longest span searched for the rise, in minimum spans
_BELOW = 0.8  # of the least Coulomb friction: the fit of another law may put it too high
_JUMP = 0.1  # of the torque: a larger step leaves open where friction gave way
_SURE = 3.0  # standard deviations
# Largest deviation of the torque from a parabola, in usual noise and as a share of the torque; beyond it jumped.
_ROUGH, _UNEVEN = 2.0, 0.02
_SMOOTH = 1.1  # times the usual noise: the torque is a parabola
_UNCLEAR = 0.3  # largest standard deviation, as a share of the torque
_GAP = 2.5  # frame periods without a frame after which rest begins again
_TAKE_S = 0.02  # frames are processed together, in chunks of this length

#: Returns the torques (n,) that hold the links at positions (n,), and their standard deviations (n,).
Load = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
#: Returns the least Coulomb friction (n,) of the joints; zero where unknown.
Sliding = Callable[[], FloatArray]


@dataclass(frozen=True)
class Start:
    """Start of a joint from rest."""

    t_s: float  # time [s], on the frames' clock
    joint: int
    direction: int  # 1 or -1
    torque: float  # static friction at that instant [N*m or N], positive: torque less load, in the direction of motion
    std: float  # its standard deviation by noise
    # its standard deviation by the uncertain instant and load, whose errors are similar at each start
    common_std: float
    left_out: LeftOut | Literal[""] = ""  # key of `LEFT_OUT`; empty if the start counts


class StartDetector:
    """Detect starts in the frames of an arm of `n` joints; see `Load` and `Sliding` (None if unknown)."""

    def __init__(self, n: int, rate_hz: float, load: Load, sliding: Sliding | None = None) -> None:
        self.n, self.rate_hz = n, float(rate_hz)
        self._load, self._sliding = load, sliding
        self._size = max(1, round(_TAKE_S * rate_hz))  # of a chunk
        self._least = max(HELD_FRAMES, round(HELD_S * rate_hz))
        self._rest = max(round(REST_S * rate_hz), 3 * self._least)
        self._after = max(round(AFTER_S * rate_hz), 8)
        self._counts = np.full((2, n), np.inf)  # smallest step of each encoder and torque so far
        self.restart()

    def restart(self) -> None:
        """Discard the frames so far, for a stream with another clock."""
        self._filled = 0
        self._waiting: list[tuple[Sequence[float] | FloatArray, FloatArray, FloatArray, FloatArray]] = []
        self._frames = np.empty((0, 1 + 3 * self.n))
        self._leave()

    def _leave(self) -> None:
        """Leave the state of rest."""
        self._level: FloatArray | None = None
        self._stood = 0  # index of the first frame at rest
        self._left: int | None = None  # index of the first frame in motion

    @property
    def quiet(self) -> int:
        """Number of frames, at least 1, of which only the first can lead to a call of `load`."""
        room = self._size - self._filled
        if self._left is None:  # a start is evaluated when many chunks have followed
            return room + self._size - 1
        return room - 1 or self._size

    def push(self, t_s: Sequence[float], x: FloatArray, q: FloatArray, tau: FloatArray) -> list[Start]:
        """Process frames at `t_s` (N,) [s]; return the starts found, mostly none.

        `x` (N, n) are positions of the motors on the joint side, or of the joints if only these are measured, `q`
        (N, n) those of the joints, `tau` (N, n) the motors' torques on the joint side; NaN anywhere for an invalid
        frame.  The arrays are kept for a while.
        """
        self._waiting.append((t_s, x, q, tau))
        self._filled += len(t_s)
        if self._filled < self._size:
            return []
        t, *channels = (np.concatenate(arrays) for arrays in zip(*self._waiting, strict=True))
        rows, starts = np.column_stack((t, *channels)), []
        while rows.shape[0] >= self._size:
            starts += self._take(rows[: self._size])
            rows = rows[self._size :]
        n = self.n
        self._filled = rows.shape[0]
        self._waiting = [(rows[:, 0], rows[:, 1 : 1 + n], rows[:, 1 + n : 1 + 2 * n], rows[:, 1 + 2 * n :])]
        return starts

    def _take(self, new: FloatArray) -> list[Start]:
        t = new[:, 0] if not self._frames.size else np.concatenate((self._frames[-1:, 0], new[:, 0]))
        if not np.isfinite(new).all() or (np.diff(t) > _GAP / self.rate_hz).any() or (np.diff(t) <= 0.0).any():
            self.restart()
            return []
        kept = self._rest + self._after + new.shape[0]
        frames = np.concatenate((self._frames, new))
        gone = max(0, frames.shape[0] - kept)
        self._frames = frames[gone:]
        self._stood = max(0, self._stood - gone)
        if self._left is not None:
            self._left -= gone
        self._learn_counts(new)
        if self._level is None:
            self._settle()
            return []
        if self._left is None:
            self._left = self._leaves(self._frames.shape[0] - new.shape[0])
        if self._left is None or self._frames.shape[0] - self._left < self._after:
            return []
        found = self._judge(self._left)
        self._leave()
        return found

    @property
    def _x(self) -> FloatArray:
        return self._frames[:, 1 : 1 + self.n]

    def _learn_counts(self, new: FloatArray) -> None:
        """Update the smallest steps of encoders and torques; steps by rounding are ignored."""
        for least, first in zip(self._counts, (1, 1 + 2 * self.n), strict=True):
            x = new[:, first : first + self.n]
            steps = np.abs(np.diff(x, axis=0))
            steps[steps <= 1e-12 * np.maximum(1.0, np.abs(x[1:]))] = np.inf
            np.minimum(least, steps.min(axis=0, initial=np.inf), out=least)

    @property
    def _count(self) -> FloatArray:
        """Counts of encoders and torques (2, n), zero where none is known yet."""
        return np.where(np.isfinite(self._counts), self._counts, 0.0)

    def _settle(self) -> None:
        """Enter the state of rest if positions change by no more than their noise."""
        if self._frames.shape[0] < self._rest:
            return
        x = self._x[-self._rest :]
        count = self._count[0]
        noise = np.sqrt(0.5 * np.mean(np.diff(x, axis=0) ** 2, axis=0))
        if (np.ptp(x, axis=0) <= _STILL_DEVIATIONS * noise + _STILL_COUNTS * count).all():
            self._stood = self._frames.shape[0] - self._rest
            self._level = x.mean(axis=0)
            self._band = _DEVIATIONS * x.std(axis=0) + _COUNTS * count

    def _leaves(self, first: int) -> int | None:
        """Return the index of the first of two successive frames, from `first` on, in which a joint moves."""
        assert self._level is not None
        off: BoolArray = np.abs(self._x[max(0, first - 1) :] - self._level) > self._band
        both = (off[1:] & off[:-1]).any(axis=1)
        return None if not both.any() else max(0, first - 1) + int(np.argmax(both))

    def _judge(self, left: int) -> list[Start]:
        """Return the starts of the joints that began to move, the first one with its torque."""
        moments = []
        for j in range(self.n):
            found = self._moment(j, left)
            if found is not None:
                moments.append((j, *found))
        if not moments:
            return []  # a jolt without lasting motion
        moments.sort(key=lambda m: m[1])
        j, moment, half, direction = moments[0]
        first = self._start(j, moment, half, direction)
        if any(other - other_half <= moment + half for _, other, other_half, _ in moments[1:]):
            first = replace(first, left_out="together")
        # the others started in a moving arm: their torque is not that of rest
        return [first, *(Start(m, k, way, np.nan, np.nan, np.nan, "together") for k, m, _, way in moments[1:])]

    def _moment(self, j: int, left: int) -> tuple[float, float, int] | None:
        """Return when joint `j` began to move [s], half the width of that interval [s], and its direction; or None."""
        assert self._level is not None
        t, way = self._frames[left:, 0], self._x[left:, j] - self._level[j]
        band = self._band[j]
        beyond = np.flatnonzero(np.abs(way) > band)
        if beyond.size < 2 or np.abs(way).max() <= _GOES_ON * band:
            return None
        k = int(beyond[0])
        direction = 1 if way[k] > 0.0 else -1
        way = direction * way
        if way[-1] <= band:
            return None  # it returned
        # as many frames as it takes to cross a few bands: fewer show no speed, more show a later one
        reach = np.flatnonzero(way[k:] > _GOES_ON * band)
        last = max(k + 3, k + int(reach[0]) + 1 if reach.size else k + 8)
        some = slice(k, min(last, way.size))
        if some.stop - k < 3:
            return None  # too late to be the first joint
        mid = t[some].mean()
        speed, x = np.polyfit(t[some] - mid, way[some], 1)
        period = 1.0 / self.rate_hz
        if not speed > 0.0 or not x > 0.0:
            return None
        ago = [min(power * x / speed, REST_S) for power in _POWERS]
        begin, end = mid - ago[1], min(mid - ago[0], t[k])
        return float(0.5 * (begin + end)), float(0.5 * (end - begin) + 0.5 * period), direction

    def _start(self, j: int, moment: float, half: float, direction: int) -> Start:
        """Estimate the static friction of joint `j` at a `moment` [s] known to +-`half` [s]."""
        n, t = self.n, self._frames[:, 0]
        tau = direction * self._frames[:, 1 + 2 * n + j]
        end = int(np.searchsorted(t, moment - half, side="right"))
        stood = slice(max(self._stood, end - self._rest), end)  # the moment may be long before the first count
        if stood.stop - stood.start < 2 * self._least:
            return Start(moment, j, direction, np.nan, np.nan, np.nan, "not clear")
        count = float(self._count[1, j])
        usual = max(float(np.std(np.diff(tau[stood]))), count / np.sqrt(6.0)) / np.sqrt(2.0)
        hold, hold_std = self._load(self._frames[stood, 1 + n : 1 + 2 * n].mean(axis=0))
        load, load_std = direction * float(hold[j]), float(hold_std[j])
        size = stood.stop - stood.start
        while True:  # the longest span over which the torque is a parabola, for the least noise
            held = slice(end - size, end)
            u = (t[held] - moment) / HELD_S
            columns = np.column_stack((np.ones_like(u), u, u * u))
            found = lstsq(columns, tau[held], rcond=1e-12)
            noise = float(np.sqrt(np.sum((tau[held] - columns @ found) ** 2) / (u.size - 3)))
            if noise <= _SMOOTH * usual or size // 2 < self._least:
                break
            size //= 2
        spread = np.linalg.inv(columns.T @ columns)
        rises = found[1] / HELD_S * half / np.sqrt(3.0)  # over the uncertainty of the moment
        torque = float(found[0]) - load
        std = max(float(noise * np.sqrt(spread[0, 0])), count / float(np.sqrt(12.0)))
        rising = False
        for last in (self._least * k for k in range(1, _LONGER + 1) if self._least * k <= stood.stop - stood.start):
            rising = rising or _rises(t[end - last : end], tau[end - last : end], usual, count, _RISING * abs(torque))
        slides = 0.0 if self._sliding is None else float(self._sliding()[j])
        start = Start(moment, j, direction, torque, std, float(np.hypot(rises, load_std)))
        # the parabola has to meet the first frames in motion
        after = slice(end, min(end + max(3, round(2.0 * half * self.rate_hz)), t.size))
        ahead = (t[after] - moment) / HELD_S
        meets = np.column_stack((np.ones_like(ahead), ahead, ahead * ahead)) @ found
        step = abs(float(np.mean(tau[after] - meets)))
        why: LeftOut | Literal[""] = ""
        if not np.isfinite(load_std):
            why = "not trusted"
        elif step > _SURE * noise + _JUMP * abs(torque) or noise > _ROUGH * usual + _UNEVEN * abs(torque):
            why = "jump"
        elif not load_std <= _UNCLEAR * abs(torque):
            why = "load unknown"
        elif not torque > 0.0 or not rising:
            why = "no rise"
        elif torque + _SURE * np.hypot(start.std, start.common_std) < _BELOW * slides:
            why = "too low"
        elif not np.hypot(std, rises) <= _UNCLEAR * torque:
            why = "not clear"
        return replace(start, left_out=why)


def _rises(t: FloatArray, tau: FloatArray, noise: float, count: float, least: float) -> bool:
    """Check whether the torque rises by at least `least` per second, beyond `noise` and rounding to `count`."""
    u = t - t.mean()
    power = float(u @ u)
    uncertainty = _SURE * noise / np.sqrt(power) + 0.5 * count * float(np.abs(u).sum()) / power
    return bool(float(u @ (tau - tau.mean())) / power - uncertainty > least)
