"""Noise level of the rows of a rigid or an elastic joint, its correlation in time, and the size of their torque.

They are the numbers of a vector `level`; of a rigid joint it is a view of its state.
"""

import numpy as np

from rt_core.jit import jit
from rt_core.online import _state as m
from rt_core.types import FloatArray, IntArray

# Places in a level, in the order of the fields of a state.
SIGMA_SUM, SIGMA_COUNT, SIGMA2, INFLATION_SUM, INFLATION_COUNT, WEIGHT2, INNOVATION2, INNOVATION = range(8)
TORQUE2, TORQUE_MEAN2, MOVED, FORGETTING, EXCESS, BLOCK_SUM, BLOCK_COUNT = range(8, 15)
LEVELS = 15

SIGMA_MEMORY_S = 30.0  # of the noise level
TORQUE_MEMORY_S = 1.0
BLOCK_S = 1.0  # over which residuals are summed for their long-run variance ...
BLOCK_MEMORY = 100.0  # ... of which so many are averaged ...
BLOCK_PRIOR = 5.0  # ... beside so many of the variance that the filters give
_CLIP = 9.0  # largest squared innovation in the noise estimate, in usual squares
_START_NOISE2 = 0.01  # squared share of the torque that is added to the noise at the start ...
_SETTLING = 5.0  # ... and has decayed by e^-this when the noise estimate counts as settled
_MAX_INFLATION = 10.0


@jit
def level_of(floats: FloatArray, ints: IntArray, j: int) -> FloatArray:
    """Return a view (LEVELS,) of the level of joint `j` in the state of a rigid arm, whose fields have equal sizes."""
    first, size = ints[m.F_SIGMA_SUM], ints[m.F_SIGMA_COUNT] - ints[m.F_SIGMA_SUM]
    return floats[first + j : first + LEVELS * size : size]


@jit
def noise_level(level: FloatArray, settle_rows: float, inflation: float) -> None:
    """Update the noise variance and the long-run variance, by which rows are weighted.

    An early estimate follows the correlated noise, and its innovations are too small.  A share of the torque is
    therefore added, which decays while the joint moves.
    """
    start = _START_NOISE2 * level[TORQUE_MEAN2] * np.exp(-_SETTLING * level[MOVED] / settle_rows)
    measured = level[SIGMA_SUM] / level[SIGMA_COUNT] if level[SIGMA_COUNT] > 0.0 else 0.0
    level[SIGMA2] = max(measured + start, 1e-18)
    level[WEIGHT2] = level[SIGMA2] * max(level[INFLATION_SUM] / level[INFLATION_COUNT], inflation)


@jit
def take_torque(
    level: FloatArray, torque: float, a_sigma: float, a_torque: float, settle_rows: float, inflation: float
) -> None:  # fmt: skip
    """Count a row and take its torque, by which the noise is known at the start."""
    level[MOVED] += 1.0
    level[TORQUE_MEAN2] += max(a_sigma, 1.0 / level[MOVED]) * (torque * torque - level[TORQUE_MEAN2])
    level[TORQUE2] += max(a_torque, 1.0 / level[MOVED]) * (torque * torque - level[TORQUE2])
    if level[MOVED] < settle_rows:
        noise_level(level, settle_rows, inflation)


@jit
def take_residual(
    level: FloatArray, residual: float, a_sigma: float, a_block: float, inflation: float, settle_rows: float,
    block_rows: int,
) -> None:  # fmt: skip
    """Update the noise level and its correlation in time with the residual after the update.

    The mean of the product of innovation and residual is the noise variance, independent of the uncertainty of the
    parameters.  Its signed root, summed over blocks, gives the long-run variance.
    """
    e = level[INNOVATION]
    square = max(e * residual, 0.0)
    free = min(max(residual / e, 0.0), 1.0) if e != 0.0 else 1.0
    settled = level[MOVED] >= settle_rows
    counted = min(square, _CLIP * level[SIGMA2] * free) if settled else square
    level[SIGMA_SUM] += counted - a_sigma * level[SIGMA_SUM]
    level[SIGMA_COUNT] += free - a_sigma * level[SIGMA_COUNT]
    level[BLOCK_SUM] += np.sign(e) * np.sqrt(square)
    level[BLOCK_COUNT] += 1.0
    if level[BLOCK_COUNT] < block_rows:
        return
    if settled:
        long_run = level[BLOCK_SUM] * level[BLOCK_SUM] / level[BLOCK_COUNT] / level[SIGMA2]
        level[INFLATION_SUM] += min(long_run, _MAX_INFLATION * inflation) - a_block * level[INFLATION_SUM]
        level[INFLATION_COUNT] += 1.0 - a_block * level[INFLATION_COUNT]
    level[BLOCK_SUM] = 0.0
    level[BLOCK_COUNT] = 0.0
    noise_level(level, settle_rows, inflation)
