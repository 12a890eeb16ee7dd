"""Paired comparison of the residuals of two models on the same data.

Squared residuals are averaged over blocks much longer than the filters, and the differences of the blocks compared with
their own scatter.  A joint counts in units of the present model's mean squared residual.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from rt_core.types import BoolArray, FloatArray

BLOCK_S = 1.0
MIN_BLOCKS = 8
CONFIDENCE = 0.95  # one-sided
WORSE_LIMIT = 1.1  # growth of a joint's rms error above which the present model is kept


@dataclass(frozen=True)
class PairedComparison:
    """Result of a comparison."""

    better: bool  # whether the candidate is significantly better, and clearly worse at no joint
    # mean drop of the squared residual over the joints, as a share of the present model's; negative if worse
    gain: float
    # that gain over its standard error, Student-distributed with one degree of freedom less than there are blocks; NaN
    # with fewer than `MIN_BLOCKS` blocks
    z: float
    ratio: FloatArray  # (n,) rms residual of the candidate over the present model's; NaN for a joint without samples
    reason: str


def compare_residuals(
    t: FloatArray, candidate: FloatArray, present: FloatArray, use: BoolArray, block_s: float = BLOCK_S
) -> PairedComparison:
    """Compare two models' residuals on the same rows.

    Parameters
    ----------
    t : (N,) float64
        Time of the rows [s], ascending.
    candidate, present : (N, n) float64
        Measured minus predicted torque.
    use : (N, n) bool
        Rows in use.
    block_s : float
        Length of a block [s].
    """
    count = use.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        power = np.where(use, present**2, 0.0).sum(axis=0) / count
        seen = (count > 0) & (power > 0.0)
        ratio = np.sqrt(np.where(use, candidate**2, 0.0).sum(axis=0) / count / power)
    floor = np.finfo(np.float64).tiny
    drop = np.where(use, present**2 - candidate**2, 0.0)[:, seen] / np.maximum(power[seen], floor)
    number = np.floor((t - t[0]) / block_s).astype(np.int64) if t.size else np.zeros(0, np.int64)
    _, block = np.unique(number[use.any(axis=1)], return_inverse=True)  # blocks without a row in use do not count
    sums = np.zeros((int(block[-1]) + 1 if block.size else 0, int(seen.sum())))
    rows = np.zeros_like(sums)
    np.add.at(sums, block, drop[use.any(axis=1)])
    np.add.at(rows, block, use[use.any(axis=1)][:, seen])
    # a joint's blocks are weighted by their rows, all joints equally
    values = (sums / np.maximum(rows.mean(axis=0), floor)).mean(axis=1) if sums.size else np.zeros(0)
    gain = float(values.mean()) if values.size else 0.0
    if values.size < MIN_BLOCKS:
        length, least = values.size * block_s, MIN_BLOCKS * block_s
        reason = f"only {length:g} s of motion to compare on; at least {least:g} s are needed"
        return PairedComparison(False, gain, float("nan"), ratio, reason)
    error = _standard_error(values)
    z = gain / error if error > 0.0 else np.inf * gain if gain else 0.0
    worse = np.flatnonzero(ratio > WORSE_LIMIT)
    share = f"mean change of a joint's squared error {-100 * gain:+.1f} %, z = {z:.1f}"
    if not (gain > 0.0 and z > stdtrit(values.size - 1, CONFIDENCE)):
        return PairedComparison(False, gain, z, ratio, f"not better beyond chance: {share}")
    if worse.size:
        joints = ", ".join(f"{j + 1} ({ratio[j]:.2f} times)" for j in worse)
        return PairedComparison(False, gain, z, ratio, f"better overall ({share}), but worse at joint {joints}")
    return PairedComparison(True, gain, z, ratio, f"better: {share}")


def _standard_error(values: FloatArray) -> float:
    """Return the standard error of the mean of a series with first-order correlation."""
    rest = values - values.mean()
    power = float(rest @ rest)
    if power == 0.0:
        return 0.0
    correlation = float(rest[1:] @ rest[:-1]) / power
    return float(np.sqrt(power / (values.size - 1) / values.size * (1.0 + 2.0 * max(correlation, 0.0))))
