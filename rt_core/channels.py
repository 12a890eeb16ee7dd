"""Checks of recorded channels against themselves: jumps, wraps, dropouts, counters that roll over, late velocities.

Every false cause of a bad fit comes from asking later questions of broken channels, so these come first.  A position is
smooth on the scale of a sample: a step far beyond those of its neighbours in time is no motion.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rt_core.types import BoolArray, FloatArray, IntArray

FaultKind = Literal["wrap", "dropout", "jump", "rollover"]

#: A step this many times the larger ones beside it is a jump.  Motion below a tenth of half the sample rate changes its
#: steps by less than a factor of two within five samples.  No false alarm in 3000 random motions at 100 to 1000 Hz
#: with noise, coarse encoders, held samples and rests; a jump of 20 times the 90 % step was found in 41 % of 300, of
#: 30 times in all.
JUMP = 20.0
#: Neighbours on each side, and which of their steps in descending order a jump is compared with: the second, since the
#: first may belong to another jump.
_NEIGHBOURS = 5
_RANK = 1
#: Share of the steps, zero ones aside, that a jump is compared with as well.
_QUANTILE = 0.9
#: With a known limit of velocity, a step this many times beyond it is one, too, if it is far beyond those beside it.  A
#: real recording (Panda) has steps about three times beyond the limit.
_BEYOND = 10.0
_BESIDE = 5.0
#: Two opposite jumps within this time [s] that return to the line between are a dropout.
DROPOUT_S = 0.2
_RETURN = 0.1  # what they may leave, as a share of the jump
_SAME = 0.05  # two sizes that differ by less than this share are the same
_ROLLOVERS = 2
_SPIKE = 5  # samples within which a spike has come back
_ROLLOVER = 0.9  # steps of a counter that rolls over span this share of the channel's range ...
_ROLLOVER_RANGE = 30.0  # ... which is this many times its ordinary steps
_BLOCKS = 10
_FOLLOWS = 0.5  # share of a measured velocity that may be left, unless it does not follow the position at all
_MIN_SAMPLES = 100  # fewer samples show no ordinary step
_CUTOFF_HZ = 10.0
_GAP = 5.0  # samples this many intervals apart are of two stretches, unless ...
_BRIDGED_S = 0.5 / _CUTOFF_HZ  # ... that is half a period at the cut-off, as where samples are sent in bursts
_WINDOW_S = 2.0 / _CUTOFF_HZ  # a Hann window of this length passes nothing beyond the cut-off
_EDGE = 3  # samples that derivatives at the end of a stretch reach


@dataclass(frozen=True)
class ChannelFault:
    """Steps of one joint's channel that are no motion.

    Attributes
    ----------
    kind : str
        "wrap" by whole turns, "dropout" with return, "rollover" of a counter, or "jump".
    joint : int
    count : int
        Wraps, dropouts or jumps.
    first : int
        Sample of the first.
    size : float
        The largest step, in the unit of the channel.
    samples : (k,) int64
        Samples that are wrong; empty for wraps and lasting jumps.
    """

    kind: FaultKind
    joint: int
    count: int
    first: int
    size: float
    samples: IntArray


def jumps(x: FloatArray, t: FloatArray | None = None, max_rate: float = np.inf) -> IntArray:
    """Return the samples `k` whose step to `x[k + 1]` is a jump.

    Parameters
    ----------
    x : (N,) float64
        The channel, finite.
    t : (N,) float64 or None
        Time [s]; steps are scaled to the median interval.
    max_rate : float
        Rate of change that the joint can have [1/s]; steps far beyond it are jumps even beside fast motion.
    """
    # a logger that is faster than its source repeats values: only new ones are steps
    fresh = np.flatnonzero(np.concatenate(([True], np.diff(x) != 0.0)))
    x = x[fresh]
    t = None if t is None else t[fresh]
    step = np.diff(x)
    if step.size < 2 * _NEIGHBOURS + 1:
        return np.zeros(0, dtype=np.int64)
    if t is not None:
        interval = np.diff(t)
        step = step * np.minimum(float(np.median(interval)) / np.maximum(interval, 1e-12), 1.0)
    size = np.abs(step)
    nonzero = size[size > 0.0]
    if not nonzero.size:
        return np.zeros(0, dtype=np.int64)
    beside = np.full((2 * _NEIGHBOURS, size.size), 0.0)
    for k in range(1, _NEIGHBOURS + 1):
        beside[k - 1, k:] = size[:-k]
        beside[_NEIGHBOURS + k - 1, :-k] = size[k:]
    near = np.sort(beside, axis=0)[-1 - _RANK]
    found = (size > JUMP * near) & (size > JUMP * float(np.quantile(nonzero, _QUANTILE)))
    if t is not None and 0.0 < max_rate < np.inf:
        found |= (np.abs(np.diff(x)) > _BEYOND * max_rate * np.diff(t)) & (size > _BESIDE * near)
    return np.asarray(fresh[np.flatnonzero(found) + 1] - 1)


def position_faults(
    t: FloatArray, q: FloatArray, turns: Sequence[float], *, max_velocity: FloatArray | None = None
) -> list[ChannelFault]:
    """Return what is wrong with recorded positions.

    Parameters
    ----------
    t, q : (N,) and (N, n) float64
        Time [s] and positions; values that are not finite are left out.
    turns : sequence of n floats
        One turn of each joint in the unit of `q`, 0 if it does not turn.
    max_velocity : (n,) float64 or None
        Limits, where known and positive.
    """
    found: list[ChannelFault] = []
    for j in range(q.shape[1]):
        index = np.flatnonzero(np.isfinite(q[:, j]))
        x = q[index, j]
        limit = np.inf if max_velocity is None else float(max_velocity[j])
        at = jumps(x, t[index], limit)
        # a source that has not begun to report repeats one value
        changed = np.flatnonzero(np.diff(x))
        at = at[at > changed[0]] if changed.size else at[:0]
        if at.size:
            found.append(_classified(j, index, t, x, at, turns[j]))
    return found


def _classified(joint: int, index: IntArray, t: FloatArray, x: FloatArray, at: IntArray, turn: float) -> ChannelFault:
    size = x[at + 1] - x[at]
    largest = float(size[np.argmax(np.abs(size))])
    none = np.zeros(0, dtype=np.int64)
    if turn > 0.0:
        whole = np.round(size / turn)
        if (np.abs(whole) == 1.0).all() and (np.abs(size - whole * turn) < _SAME * turn).all():
            return ChannelFault("wrap", joint, at.size, int(index[at[0] + 1]), largest, none)
    wrong: list[IntArray] = []
    pairs = 0
    k = 0
    while k + 1 < at.size:
        a, b = at[k], at[k + 1]
        # against the line on which the joint moves on meanwhile
        before, after = np.diff(x[max(a - _NEIGHBOURS, 0) : a + 1]), np.diff(x[b + 1 : b + 2 + _NEIGHBOURS])
        slope = float(np.median(np.concatenate((before, after)))) if before.size + after.size else 0.0
        rest = abs(x[b + 1] - x[a] - slope * (b + 1 - a))
        if t[index[b + 1]] - t[index[a]] <= DROPOUT_S and rest < _RETURN * max(abs(size[k]), abs(size[k + 1])):
            wrong.append(np.arange(a + 1, b + 1))
            pairs += 1
            k += 2
        else:
            k += 1
    if pairs and 2 * pairs >= at.size - 1:
        samples = index[np.concatenate(wrong)]
        return ChannelFault("dropout", joint, pairs, int(samples[0]), largest, samples)
    if rolls_over(x):
        return ChannelFault("rollover", joint, at.size, int(index[at[0] + 1]), largest, none)
    return ChannelFault("jump", joint, at.size, int(index[at[0] + 1]), largest, none)


def rolls_over(x: FloatArray) -> bool:
    """Return whether a channel (N,) looks like a signed value that was read as unsigned, or a counter that rolls over.

    It goes from one end of its range to the other and stays there, at least twice, and hardly changes otherwise.  A
    spike, which comes back within some samples, is none.
    """
    step = np.diff(x[np.isfinite(x)])
    if step.size < _MIN_SAMPLES:
        return False
    if np.nanmin(x) < 0.0 < np.nanmax(x):
        return False  # a number that was read as unsigned has one sign
    span = float(np.ptp(x[np.isfinite(x)]))
    if not span > _ROLLOVER_RANGE * float(np.quantile(np.abs(step), _QUANTILE)) > 0.0:
        return False
    large = np.flatnonzero(np.abs(step) > _ROLLOVER * span)
    groups = np.split(large, np.flatnonzero(np.diff(large) > _SPIKE) + 1)
    return sum(bool(np.sum(np.sign(step[group])) != 0.0) for group in groups) >= _ROLLOVERS


def unwrapped(x: FloatArray, turn: float) -> FloatArray:
    """Return a position (N,) without steps by whole turns; values that are not finite stay."""
    out = x.copy()
    good = np.isfinite(x)
    step = np.diff(x[good])
    out[good] -= np.concatenate(([0.0], turn * np.cumsum(np.round(step / turn))))
    return out


@dataclass(frozen=True)
class VelocityRelation:
    """How a measured velocity follows the change of its position: `dq = scale v - scale lag dv/dt + ...`.

    `scale`, `lag_s` [s] with their standard deviations, by a jackknife over blocks of time.
    """

    scale: float
    scale_std: float
    lag_s: float
    lag_std_s: float


def velocity_relation(t: FloatArray, q: FloatArray, dq: FloatArray) -> VelocityRelation | None:
    """Regress the measured velocity of one joint on the change of its position and its derivatives.

    `t, q, dq` (N,), finite, at an even rate; stretches between gaps count by themselves.  Both are low-passed alike
    first, by a window that settles within a short stretch; the second derivative takes up the form of a filter, so that
    `lag_s` is its delay at low frequencies.
    None if the joint hardly moves.
    """
    if t.size < _MIN_SAMPLES:
        return None
    steps = np.diff(t)
    longest = max(_GAP * float(np.median(steps)), _BRIDGED_S)
    inside = steps <= longest  # the rate within stretches, or samples that arrive in bursts would seem to have none
    rate = float(np.count_nonzero(inside) / steps[inside].sum())
    window = np.hanning(max(3, round(_WINDOW_S * rate)) + 2)[1:-1]
    window /= window.sum()
    parts: list[tuple[FloatArray, FloatArray]] = []
    for part in np.split(np.arange(t.size), np.flatnonzero(~inside) + 1):
        grid = np.arange(t[part[0]], t[part[-1]], 1.0 / rate)
        if grid.size <= window.size + 2 * _EDGE:
            continue
        position, measured = (np.convolve(np.interp(grid, t[part], x[part]), window, "valid") for x in (q, dq))
        v = np.gradient(position, 1.0 / rate)
        a = np.gradient(v, 1.0 / rate)
        columns = np.stack((v, -a, np.ones(v.size), np.gradient(a, 1.0 / rate)), axis=1)
        cut = max(_EDGE, min(window.size, v.size // 4))  # filters of the source settle, too
        parts.append((columns[cut:-cut], measured[cut:-cut]))
    if sum(y.size for _, y in parts) < 4 * _BLOCKS:
        return None
    columns, target = (np.concatenate(x) for x in zip(*parts, strict=True))
    size = np.linalg.norm(columns, axis=0)
    if not (size > 0.0).all():
        return None
    scaled = columns / size
    blocks = np.array_split(np.arange(target.size), _BLOCKS)
    grams = np.array([scaled[b].T @ scaled[b] for b in blocks])
    rights = np.array([scaled[b].T @ target[b] for b in blocks])

    def solved(gram: FloatArray, right: FloatArray) -> FloatArray:
        x = np.linalg.lstsq(gram, right, rcond=1e-10)[0] / size
        return np.array([x[0], x[1] / x[0] if x[0] != 0.0 else np.inf])

    left = target - columns @ (np.linalg.lstsq(scaled, target, rcond=1e-10)[0] / size)
    if not float(left @ left) < _FOLLOWS * float(target @ target):
        return None  # a joint at rest has noise alone
    whole = solved(grams.sum(axis=0), rights.sum(axis=0))
    each = np.array([solved(grams.sum(axis=0) - g, rights.sum(axis=0) - r) for g, r in zip(grams, rights, strict=True)])
    if not np.isfinite(each).all() or not np.isfinite(whole).all():
        return None
    spread = np.sqrt((_BLOCKS - 1.0) / _BLOCKS * np.sum((each - each.mean(axis=0)) ** 2, axis=0))
    return VelocityRelation(float(whole[0]), float(spread[0]), float(whole[1]), float(spread[1]))


#: Samples in a row at the extreme of a channel that count as saturated, and how many of those there must be.
_CLIPPED_RUN = 3
_CLIPPED = 10


def clipped_samples(x: FloatArray, moving: BoolArray) -> IntArray:
    """Return the samples at which a channel (N,) is saturated.

    A limit shows as runs of samples that all equal the largest or the smallest value, while the joint is `moving` (N,)
    and the value beside changes with noise.  A coarse channel repeats all its values, and so tells nothing.
    """
    good = np.isfinite(x)
    if np.count_nonzero(good) < _CLIPPED:
        return np.zeros(0, dtype=np.int64)
    same = np.concatenate(([False], x[1:] == x[:-1]))
    extreme = good & moving & ((x == x[good].max()) | (x == x[good].min()))
    inside = good & moving & ~extreme
    if not inside.any() or np.mean(same[inside]) > 0.1:
        return np.zeros(0, dtype=np.int64)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], extreme, [False])).astype(np.int8)))
    runs = [np.arange(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b - a >= _CLIPPED_RUN]
    found = np.concatenate(runs) if runs else np.zeros(0, dtype=np.int64)
    return found if found.size >= _CLIPPED else np.zeros(0, dtype=np.int64)


#: A sample is zero below this share of the largest value: interpolation to a uniform grid leaves rounding.
_ZERO = 1e-6
#: Longest dropout in samples, some cycles of a bus: a longer zero may be true, of drives that are off or an arm that a
#: hand guides.
_DROPPED_RUN = 20


def dropped_samples(x: FloatArray, moving: BoolArray) -> IntArray:
    """Return the samples at which a channel (N,) falls to zero while the joint is `moving` (N,).

    The values before and after a run of zeros have the same sign, and are twice as far from zero as all but a
    thousandth of the values that lie as far apart in time differ; fewer than ten such runs are none.  A coarse channel
    repeats all its values, and so tells nothing.
    """
    zero = np.abs(x) <= _ZERO * np.nanmax(np.abs(x), initial=0.0)
    inside = moving[1:] & ~zero[1:]
    none = np.zeros(0, dtype=np.int64)
    if not inside.any() or np.mean((x[1:] == x[:-1])[inside]) > 0.1:
        return none
    edges = np.diff(zero[1:-1].astype(np.int8), prepend=0, append=0)
    first, after = np.flatnonzero(edges == 1) + 1, np.flatnonzero(edges == -1) + 1
    moved = np.cumsum(moving)
    alike = (x[first - 1] * x[after] > 0.0) & ~(zero[first - 1] | zero[after])
    alike &= moving[first] & (moved[after - 1] - moved[first] == after - 1 - first) & (after - first <= _DROPPED_RUN)
    first, after = first[alike], after[alike]
    found: list[IntArray] = []
    for length in np.unique(after - first):
        reach = int(length) + 1
        apart = np.abs(x[reach:] - x[:-reach])[~(zero[reach:] | zero[:-reach])]
        apart = apart[np.isfinite(apart)]
        a = first[after - first == length]
        if apart.size >= _CLIPPED:
            far = np.minimum(np.abs(x[a - 1]), np.abs(x[a + length])) > 2.0 * np.quantile(apart, 0.999)
            found += [np.arange(k, k + length) for k in a[far]]
    return np.sort(np.concatenate(found)) if len(found) >= _CLIPPED else none
