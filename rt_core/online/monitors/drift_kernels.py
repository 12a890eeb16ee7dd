"""Kernels of the drift detector: compare the parameters, and process a block of one joint's residual."""

import numpy as np

from rt_core.jit import jit
from rt_core.types import FloatArray

#: Smallest spread of blocks, the squared ratio of standard deviation to mean: ten independent samples a second.
MIN_SPREAD = 0.1
#: Allowance for the error of the reference, in its standard deviations.
REFERENCE_STDS = 3.0
#: Largest share of the CUSUM's limit that one block adds.
BLOCK_SHARE = 1.0 / 3.0
LEVEL_BLOCKS = 10.0  # averaged in the reported level
_ROUNDING_S = 1e-6  # of times that are added up


# Rows of the estimate (5, p); only parameters that are BELIEVED count.
THETA, ESTIMATE_STD, SCALE, EXCITED, BELIEVED = range(5)
# Rows of the parameters (7, p): the model, NaN where it is unknown; times [s]; 1 where a difference has lasted; the
# latest estimate, and the standard deviation of the difference.
MODEL, VARIANCE, EXCITED_S, BEYOND_S, DRIFTED, VALUE, STD = range(7)
# Rows of the joints' residuals (5, n): number of blocks learned from, their sum and the sum of their squares.
COUNT, SUM, SQUARES, CUSUM, LEVEL = range(5)


@jit
def look(estimate: FloatArray, elapsed: float, needed_s: float, limits: FloatArray, parameters: FloatArray) -> bool:
    """Compare an estimate with the model, `elapsed` seconds of motion after the last look; return True if any drifted.

    `needed_s` is the excitation that a parameter needs first.  `limits` (5,) are the limit of |z|, and `relative`,
    `effect`, `least_effect` and `sustained_s` of the settings.
    """
    limit, relative, most, least, sustained_s = limits
    for k in range(estimate.shape[1]):
        row, theta, std = parameters[:, k], estimate[THETA, k], estimate[ESTIMATE_STD, k]
        if estimate[EXCITED, k] > 0.0:
            row[EXCITED_S] += elapsed
        difference = abs(theta - row[MODEL])
        own = np.sqrt(std * std + row[VARIANCE])
        effect = difference * estimate[SCALE, k]
        matters = (difference >= relative * abs(row[MODEL]) and effect >= least) or effect >= most
        # false where one is NaN: the model does not know the parameter
        beyond = difference > limit * own and matters and estimate[BELIEVED, k] > 0.0 and row[EXCITED_S] >= needed_s
        seen_before = row[BEYOND_S] > 0.0
        row[BEYOND_S] = row[BEYOND_S] + elapsed if beyond else 0.0
        # a difference must be seen at two looks, however far apart they are
        if seen_before and row[BEYOND_S] >= sustained_s - _ROUNDING_S:
            row[DRIFTED] = 1.0
        row[VALUE], row[STD] = theta, own
    return bool(parameters[DRIFTED].any())


@jit
def take_block(residual: FloatArray, mean_square: float, limits: FloatArray) -> bool:
    """Process a block of one joint, whose column (5,) is `residual`; return True if its residual has risen.

    `limits` (4,) are blocks to learn from, tolerated rise, factor on the spread, height in units of the spread.
    """
    learn, excess, wider, height = limits
    count, total, squares = residual[COUNT], residual[SUM], residual[SQUARES]
    if count < learn:
        residual[COUNT] += 1.0
        residual[SUM] += mean_square
        residual[SQUARES] += mean_square * mean_square
        return False
    mean = max(total / count, 1e-300)
    found = max(squares / count - mean * mean, 0.0) / (mean * mean) * count / (count - 1.0)
    spread = max(MIN_SPREAD, found) * wider
    limit = spread * height
    tolerated = 1.0 + excess + REFERENCE_STDS * np.sqrt(spread / count)
    ratio = mean_square / mean
    residual[LEVEL] += (ratio - residual[LEVEL]) / LEVEL_BLOCKS
    residual[CUSUM] = max(0.0, residual[CUSUM] + min(ratio - tolerated, BLOCK_SHARE * limit))
    return bool(residual[CUSUM] >= limit)
