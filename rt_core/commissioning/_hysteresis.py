"""Signals of a motion along a path and back, compared place by place.

With the same speed, acceleration and posture at a place both ways, the torque of the links,
`M(q) ddq + C(q, dq) dq + g(q)`, is even in the direction, and friction is odd.  So

    (tau_out - tau_back)/2  is friction,     (tau_out + tau_back)/2  is all else,

without any model of the arm (Armstrong-Helouvry 1991, *Control of Machines with Friction*, chapter 3).  Signals are
averaged in bins of the path first, against noise and differences of the sample instants.
"""

from dataclasses import dataclass

import numpy as np

from rt_core.commissioning.findings import CommissioningError
from rt_core.types import BoolArray, FloatArray

_MIN_BINS = 4
_MAX_CORRELATION = 0.9
_HOLE_S = 0.1


@dataclass(frozen=True)
class Passes:
    """A signal (B, m) in bins of the path, out and back; `place` (B,) is the middle of the bins."""

    place: FloatArray
    out: FloatArray
    back: FloatArray

    @property
    def half_difference(self) -> FloatArray:
        """(B, m) part that changes sign with the direction."""
        return np.asarray(0.5 * (self.out - self.back))

    @property
    def half_sum(self) -> FloatArray:
        """(B, m) part that does not."""
        return np.asarray(0.5 * (self.out + self.back))


def passes(
    place: FloatArray, values: FloatArray, out: BoolArray, back: BoolArray, first: float, last: float, bins: int = 20
) -> Passes:
    """Average `values` (N, m) in bins of `place` (N,) between `first` and `last`.

    `out` and `back` (N,) mark the samples on the way out and back; values that are not finite are left out. Raises
    `CommissioningError` if fewer than four bins hold samples of both ways.
    """
    good = np.isfinite(place) & np.isfinite(values).all(axis=1)
    number = np.floor((place - first) / (last - first) * bins)
    inside = good & (number >= 0.0) & (number < bins)
    ways = []
    for way in (out, back):
        rows = way & inside
        index = number[rows].astype(np.int64)
        count = np.bincount(index, minlength=bins).astype(np.float64)
        total = np.stack([np.bincount(index, values[rows, m], bins) for m in range(values.shape[1])], axis=1)
        with np.errstate(invalid="ignore"):
            ways.append(total / count[:, None])
    both = np.isfinite(ways[0]).all(axis=1) & np.isfinite(ways[1]).all(axis=1)
    if both.sum() < _MIN_BINS:
        raise CommissioningError(
            f"the way there and the way back have {int(both.sum())} of {bins} places in common, at least "
            f"{_MIN_BINS} are needed"
        )
    middle = first + (np.arange(bins) + 0.5) / bins * (last - first)
    return Passes(middle[both], ways[0][both], ways[1][both])


def mean_with_std(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the mean over the bins (B, m), and its standard deviation, both (m,).

    Neighbouring bins may be correlated, for example where friction depends on the position: the variance of the mean is
    widened as that of an autoregressive process of first order.
    """
    count = len(values)
    mean = values.mean(axis=0)
    off = values - mean
    power = np.einsum("bm,bm->m", off, off)
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = np.where(power > 0.0, np.einsum("bm,bm->m", off[1:], off[:-1]) / power, 0.0)
    r = true_correlation(correlation, count)
    return mean, np.sqrt(power / (count - 1) / count * (1.0 + r) / (1.0 - r))


def slope_std(power: float, left: FloatArray, free: int) -> float:
    """Return the standard deviation of the slope of a line over the bins, widened as in `mean_with_std`.

    `power` is the sum of squares of the regressor, orthogonal to the other columns, `left` (B,) the residuals in the
    order of the bins, and `free` their degrees of freedom.
    """
    around = float(left @ left)
    together = float(left[1:] @ left[:-1]) / around if around > 0.0 else 0.0
    r = float(true_correlation(np.array(together), left.size))
    return float(np.sqrt(around / free / power * (1.0 + r) / (1.0 - r)))


def true_correlation(correlation: FloatArray, count: int) -> FloatArray:
    """Return the correlation `r` of neighbouring values from a sample one of `count` values.

    The sample one is too small by about `(1 + 4 r)/count` (Kendall 1954).
    """
    return np.asarray(np.clip((correlation + 1.0 / count) / (1.0 - min(4.0 / count, 0.5)), 0.0, _MAX_CORRELATION))


def turning_time(t: FloatArray, share: FloatArray, nearly: float = 0.98) -> float:
    """Return the middle [s] of the last run of samples with `share` (N,) of at least `nearly`: the far end.

    Gaps of up to 0.1 s, where noise falls below, do not end a run. Raises `CommissioningError` if the far end is not
    reached.
    """
    there = t[share >= nearly]
    if there.size == 0:
        reached = float(np.nanmax(share, initial=-np.inf))
        raise CommissioningError(f"the far end of the path is not reached: {reached:.3g} of the way at most")
    gaps = np.flatnonzero(np.diff(there) > _HOLE_S)
    first = int(gaps[-1]) + 1 if gaps.size else 0
    return float(0.5 * (there[first] + there[-1]))
