"""Kernel for the cost of many points at once, for swarms."""

from __future__ import annotations

import numpy as np

from rt_core.calibration._chain import assemble, cost
from rt_core.jit import kernel
from rt_core.types import BoolArray, FloatArray, IntArray


@kernel
def totals(
    code: IntArray, place: IntArray, column: IntArray, nominal: FloatArray, turn: FloatArray, x: FloatArray,
    free: IntArray, points: FloatArray, revolute: BoolArray, q: FloatArray, cosine: FloatArray, sine: FloatArray,
    measured: FloatArray, scale: FloatArray, loss: int, tuning: float, k: int, out: FloatArray,
) -> None:  # fmt: skip
    """Fill `out` (m,) with the sums of losses at `points` (m, p) of the errors `free` (p,), the others as in `x` (P,).

    The other arguments are those of `rt_core.calibration._chain.assemble` and `cost`.
    """
    placements = np.empty((revolute.shape[0] + 1, 12))
    screws = np.zeros((x.shape[0], 6))
    errors = x.copy()
    for i in range(points.shape[0]):
        for c in range(free.shape[0]):
            errors[free[c]] = points[i, c]
        assemble(code, place, column, nominal, turn, errors, placements, screws)
        out[i] = cost(placements, revolute, q, cosine, sine, measured, scale, loss, tuning, k)
