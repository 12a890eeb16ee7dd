"""Kernels of the drift detector: compare the parameters, and process a block of one joint's residual."""

import numpy as np

from rt_core.jit import jit
from rt_core.types import BoolArray, FloatArray

#: Smallest spread of blocks, the squared ratio of standard deviation to mean: ten independent samples a second.
MIN_SPREAD = 0.1
#: Allowance for the error of the reference, in its standard deviations.
REFERENCE_STDS = 3.0
#: Largest share of the CUSUM's limit that one block adds.
BLOCK_SHARE = 1.0 / 3.0
LEVEL_BLOCKS = 10.0  # averaged in the reported level
_ROUNDING_S = 1e-6  # of times that are added up


@jit
def look(
    theta: FloatArray, std: FloatArray, scale: FloatArray, excited: BoolArray, believed: BoolArray,
    reference: FloatArray, variance: FloatArray, elapsed: float, needed_s: float, limits: FloatArray,
    excited_s: FloatArray, beyond_s: FloatArray, drifted: BoolArray, values: FloatArray,
) -> bool:  # fmt: skip
    """Compare an estimate with the model, `elapsed` seconds of motion after the last look; return True if any drifted.

    Parameters
    ----------
    theta, std, scale, excited, believed : (p,) arrays
        Of the estimate; only parameters that are `believed` count.
    reference, variance : (p,) float64
        Of the model; NaN if unknown.
    needed_s : float
        Excitation that a parameter needs first.
    limits : (5,) float64
        Limit of |z|; `relative`, `effect`, `least_effect` and `sustained_s` of the settings.
    excited_s, beyond_s : (p,) float64
        Time excited, and beyond the limit; updated.
    drifted : (p,) bool
        Set where a difference lasts, and never cleared.
    values : (2, p) float64
        Written: value, and standard deviation of the difference.
    """
    limit, relative, most, least, sustained_s = limits
    for k in range(theta.size):
        if excited[k]:
            excited_s[k] += elapsed
        difference = abs(theta[k] - reference[k])
        own = np.sqrt(std[k] * std[k] + variance[k])
        effect = difference * scale[k]
        matters = (difference >= relative * abs(reference[k]) and effect >= least) or effect >= most
        # false where one is NaN: the model does not know the parameter
        beyond = difference > limit * own and matters and believed[k] and excited_s[k] >= needed_s
        seen_before = beyond_s[k] > 0.0
        beyond_s[k] = beyond_s[k] + elapsed if beyond else 0.0
        # a difference must be seen at two looks, however far apart they are
        if seen_before and beyond_s[k] >= sustained_s - _ROUNDING_S:
            drifted[k] = True
        values[0, k] = theta[k]
        values[1, k] = own
    return bool(drifted.any())


@jit
def take_block(
    j: int, mean_square: float, limits: FloatArray, reference: FloatArray, cusum: FloatArray, level: FloatArray
) -> bool:
    """Process a block of joint `j`; return True if its residual has risen.

    Parameters
    ----------
    limits : (4,) float64
        Blocks to learn from, tolerated rise, factor on the spread, height in units of the spread.
    reference : (3, n) float64
        Number of blocks learned from, their sum, and the sum of their squares; updated, as are `cusum`, `level` (n,).
    """
    learn, excess, wider, height = limits
    count, total, squares = reference[:, j]
    if count < learn:
        reference[0, j] += 1.0
        reference[1, j] += mean_square
        reference[2, j] += mean_square * mean_square
        return False
    mean = max(total / count, 1e-300)
    found = max(squares / count - mean * mean, 0.0) / (mean * mean) * count / (count - 1.0)
    spread = max(MIN_SPREAD, found) * wider
    limit = spread * height
    tolerated = 1.0 + excess + REFERENCE_STDS * np.sqrt(spread / count)
    ratio = mean_square / mean
    level[j] += (ratio - level[j]) / LEVEL_BLOCKS
    cusum[j] = max(0.0, cusum[j] + min(ratio - tolerated, BLOCK_SHARE * limit))
    return bool(cusum[j] >= limit)
