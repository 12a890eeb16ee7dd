"""Averages over the periods of a periodic motion (Swevers et al. 1997, section III).

Noise that differs between periods falls with the square root of their number.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rt_core.identification.preprocess import DataError
from rt_core.types import FloatArray

#: The motion repeats where positions a period apart differ by less than this share of the joint's range.
_SAME = 0.02
#: Largest distance of the period from a whole number of samples.
_WHOLE = 0.3
#: Largest shift of the motion from the first period to the last, in samples and as a share of a period.
_SHIFT, _SHIFT_SHARE = 1.0, 1e-3


@dataclass(frozen=True)
class AveragedPeriods:
    """One period, averaged."""

    t: FloatArray  # (T,) from 0 on [s]
    channels: dict[str, FloatArray]  # (T, n) means over the periods, sample by sample
    first: int  # first sample of the first period in the recording


def average_periods(
    t: FloatArray, channels: Mapping[str, FloatArray], period_s: float, *, position: str = "q"
) -> AveragedPeriods:
    """Average a recording of a motion with the period `period_s` over all whole periods.

    Takes the longest stretch in which positions repeat a period later; an approach before it and rest after it are left
    out.

    Parameters
    ----------
    t : (N,) float64
        Equidistant times [s].
    channels : mapping of (N, n) float64
        `position` among them; all finite.
    period_s : float
        Nearly a whole number of samples: clocks differ by some millionths, and times are rounded.
    position : str
        Channel in which the repetition is detected.

    Raises
    ------
    DataError
        If samples are missing or not finite, the period is not a whole number of them, there are fewer than two whole
        periods, or they shift against one another.
    """
    between = np.diff(t)
    middle = float(np.median(between))
    if np.abs(between - middle).max() > 0.5 * middle:
        raise DataError("samples are missing: periods can be averaged only where each has all of its samples")
    step = float(t[-1] - t[0]) / between.size  # single steps are rounded, to microseconds in many logs
    exact = period_s / step
    count = round(exact)
    if count < 2 or abs(exact - count) > _WHOLE:
        raise DataError(f"a period of {period_s:g} s is {exact:.6g} samples of {step:g} s: it has to be a whole number")
    for name, values in channels.items():
        if values.shape[0] != t.size or not np.isfinite(values).all():
            raise DataError(f"channel {name}: {values.shape[0]} rows for {t.size} times, or values that are no numbers")
    q = channels[position]
    way = np.ptp(q, axis=0)
    if t.size < 2 * count or not way.any():
        raise DataError(f"{t.size} samples are no two periods of {count} in which something moves")
    same = (np.abs(q[count:] - q[:-count]) <= _SAME * np.where(way > 0.01 * way.max(), way, way.max())).all(axis=1)
    first, last = _longest(same & _moving(q, count, way))
    periods = (last - first + count) // count if last > first else 0
    if periods < 2:
        raise DataError(
            f"no two periods of {period_s:g} s follow on one another: the motion does not repeat, or differently"
        )
    first += (last - first + count - periods * count) // 2  # approach and rest may match, within the tolerance
    cut = {
        name: values[first : first + periods * count].reshape(periods, count, -1) for name, values in channels.items()
    }
    means = {name: values.mean(axis=0) for name, values in cut.items()}
    shift = _shift(cut[position])
    if abs(shift) > max(_SHIFT, _SHIFT_SHARE * count):
        raise DataError(
            f"the motion shifts by {shift:.3g} samples in {periods} periods of {count}: it takes "
            f"{(count + shift / (periods - 1)) * step:.9g} s by the times of the recording, not a whole number "
            "of samples: average fewer periods"
        )
    return AveragedPeriods(np.arange(count, dtype=np.float64) * step, means, first)


def _shift(q: FloatArray) -> float:
    """Return the delay of the last period (first axis) against the first, in samples, from the slope of both."""
    slope = np.gradient(0.5 * (q[0] + q[-1]), axis=0)
    return float(-(slope * (q[-1] - q[0])).sum() / (slope * slope).sum())


def _moving(q: FloatArray, count: int, way: FloatArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return a mask (N - count,) of samples that begin a period with motion, since rest repeats as well."""
    lowest, highest = q.copy(), q.copy()
    width = 1
    while width < count:  # of the window behind each sample, doubled until it is a period long
        by = min(width, count - width)
        lowest[:-by] = np.minimum(lowest[:-by], lowest[by:])
        highest[:-by] = np.maximum(highest[:-by], highest[by:])
        width += by
    return np.asarray(((highest - lowest)[:-count] > 0.25 * way).any(axis=1))


def _longest(flags: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> tuple[int, int]:
    """Return begin and end (exclusive) of the longest stretch of set flags."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.astype(np.int8), [0]))))
    if not edges.size:
        return 0, 0
    begins, ends = edges[::2], edges[1::2]
    k = int(np.argmax(ends - begins))
    return int(begins[k]), int(ends[k])
